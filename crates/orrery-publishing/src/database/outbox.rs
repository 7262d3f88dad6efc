//! Changes that wait for another account: kept as documents of the own one, applied in order when the account is back.
//!
//! A message's id is a hash of what it is about, so that asking twice is one message. Invariant: a message is deleted only after
//! it was applied; one that can never be applied stays, marked, until it grows old.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::articles::apply_change;
use super::notifications::mark_in;
use super::subscriptions::{Write, cancel_in};
use super::{ContentPublishDatabase, insist};
use crate::account::{AccountClient, ReadAt, Scope, Seen};
use crate::entity::{Draft, Entity};
use crate::error::{CallKind, PublishError};
use crate::filter::Filter;
use crate::outage::{FailOver, OutagePolicy, Step};
use crate::topology::AccountEntry;
use crate::{clock, ids};

/// Messages looked at per account and round.
const ROUND: usize = 100;
/// How long a message that cannot be applied is kept.
const FAILED_TTL_S: u64 = 7 * 24 * 3600;

/// A change of something that another account owns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Intent {
    Cancel {
        user: String,
        filter: Filter,
        at: u64,
    },
    MarkRead {
        user: String,
        notification: String,
        at: u64,
    },
    Update {
        article: String,
        editor: String,
        draft: Draft,
        etag: String,
    },
    Retract {
        article: String,
        editor: String,
        etag: Option<String>,
    },
}

impl Intent {
    /// What it is about: a later change of the same is another message.
    fn about(&self) -> Vec<String> {
        match self {
            Intent::Cancel { user, filter, at } => {
                vec!["cancel".into(), user.clone(), filter.to_string(), at.to_string()]
            }
            Intent::MarkRead { user, notification, .. } => vec!["read".into(), user.clone(), notification.clone()],
            Intent::Update {
                article, etag, draft, ..
            } => {
                let text = serde_json::to_string(draft).unwrap_or_default();
                vec!["update".into(), article.clone(), etag.clone(), text]
            }
            Intent::Retract { article, .. } => vec!["retract".into(), article.clone()],
        }
    }
}

/// An intent that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Message {
    #[serde(rename = "id")]
    pub id: String,
    pub home_account: String,
    pub created_at: u64,
    pub target: String,
    pub intent: Intent,
    /// Why it can never be applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    #[serde(rename = "ttl", default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<u64>,
}

impl Message {
    fn new(account: &str, target: &str, intent: Intent, now_ms: u64) -> Message {
        let about = intent.about();
        let about: Vec<&str> = about.iter().map(String::as_str).collect();
        Message {
            id: ids::message_id(target, &about),
            home_account: account.to_owned(),
            created_at: now_ms,
            target: target.to_owned(),
            intent,
            failed: None,
            ttl_s: None,
        }
    }
}

fn outbox_key(target: &str) -> String {
    format!("outbox:{target}")
}

impl Entity for Message {
    const TYPE: &'static str = "OutboxMessage";

    fn id(&self) -> &str {
        &self.id
    }

    fn partition_key(&self) -> String {
        outbox_key(&self.target)
    }
}

/// What became of what waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Messages that are done with.
    pub n_done: usize,
    /// Nothing waits any more.
    pub is_empty: bool,
}

/// What waits for an account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutboxState {
    pub target: String,
    /// At least: counting stops at a round.
    pub waiting: usize,
    pub oldest_ms: u64,
    /// Messages that can never be applied.
    pub failed: usize,
    /// Somebody should look.
    pub alert: bool,
}

impl ContentPublishDatabase {
    pub(super) async fn enqueue(&self, target: &str, intent: Intent) -> Result<(), PublishError> {
        let account = self.local();
        let message = Message::new(account.tag(), target, intent, clock::now_ms());
        match insist(|| account.create(&message)).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind == CallKind::Exists => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Applies what waits, account by account, oldest first. An account that does not answer keeps its messages.
    pub async fn drain_outbox(&self) -> Result<Drained, PublishError> {
        let (mut n_done, mut is_empty) = (0, true);
        for target in self
            .accounts
            .iter()
            .filter(|account| account.tag() != self.local().tag())
        {
            let messages = self.messages(target.tag()).await?;
            // There may be more than are looked at in one round.
            is_empty &= messages.len() < ROUND;
            for message in messages {
                match apply(target, &message.intent).await {
                    Ok(()) => self.local().delete(&message.partition_key(), &message.id).await?,
                    Err(PublishError::Unavailable(error)) => {
                        tracing::debug!(account = target.tag(), %error, "messages go on waiting");
                        is_empty = false;
                        break;
                    }
                    Err(PublishError::Busy { .. }) => {
                        is_empty = false;
                        break;
                    }
                    Err(error) => self.give_up(message, &error).await?,
                }
                n_done += 1;
            }
        }
        Ok(Drained { n_done, is_empty })
    }

    async fn give_up(&self, message: Message, error: &PublishError) -> Result<(), PublishError> {
        tracing::warn!(account = %message.target, %error, "a change that waited can no longer be applied");
        let failed = Message {
            failed: Some(error.to_string()),
            ttl_s: Some(FAILED_TTL_S),
            ..message
        };
        let stored: Seen<Message> = self
            .local()
            .read(&failed.partition_key(), &failed.id, ReadAt::WriteRegion)
            .await?;
        match self
            .local()
            .replace(&failed, stored.etag.as_deref().unwrap_or_default())
            .await
        {
            Ok(_) => Ok(()),
            // Another process of this region has dealt with it.
            Err(error) if matches!(error.kind, CallKind::Changed | CallKind::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What waits for an account, oldest first.
    async fn messages(&self, target: &str) -> Result<Vec<Message>, PublishError> {
        let select = format!("TOP {ROUND} *");
        let which = "NOT IS_DEFINED(c.Failed) ORDER BY c.CreatedAt";
        self.select_messages(&select, target, which).await
    }

    /// How many messages to an account can never be applied. Apart from what waits: they must not hide it.
    async fn count_failed(&self, target: &str) -> Result<usize, PublishError> {
        let counts = self
            .select_messages::<usize>("VALUE COUNT(1)", target, "IS_DEFINED(c.Failed)")
            .await?;
        Ok(counts.into_iter().sum())
    }

    async fn select_messages<T: DeserializeOwned + Send + 'static>(
        &self,
        select: &str,
        target: &str,
        which: &str,
    ) -> Result<Vec<T>, PublishError> {
        let text = format!("SELECT {select} FROM c WHERE c.PartitionKey = @key AND c.Type = @type AND {which}");
        let key = outbox_key(target);
        let parameters = [("@key", key.as_str().into()), ("@type", Message::TYPE.into())];
        let found: Seen<Vec<T>> = self.local().query(&text, &parameters, Scope::Key(&key)).await?;
        Ok(found.value)
    }

    /// Fails accounts over that changes have been waiting for too long for, if that is the policy. `done` remembers when.
    pub async fn relieve_outbox(&self, done: &mut BTreeMap<String, Instant>) -> Result<(), PublishError> {
        let OutagePolicy::FailOver { through, .. } = &self.local().settings().outage else {
            return Ok(());
        };
        for state in self.outbox_state().await? {
            let waiting = (state.waiting > 0).then(|| Duration::from_millis(state.oldest_ms));
            let ago = done.get(&state.target).map(Instant::elapsed);
            let Some(account) = self.account(&state.target) else {
                continue;
            };
            if account.settings().outage.next_step(waiting, ago) != Step::FailOver {
                continue;
            }
            if let Some(region) = fail_over(account.entry(), &**through).await {
                tracing::warn!(account = %state.target, region, "an account that took no changes was failed over");
                done.insert(state.target, Instant::now());
            }
        }
        Ok(())
    }

    /// What waits for whom.
    pub async fn outbox_state(&self) -> Result<Vec<OutboxState>, PublishError> {
        let mut states = Vec::new();
        for target in self
            .accounts
            .iter()
            .filter(|account| account.tag() != self.local().tag())
        {
            let waiting = self.messages(target.tag()).await?;
            let failed = self.count_failed(target.tag()).await?;
            let oldest = waiting.iter().map(|message| message.created_at).min();
            let oldest_ms = oldest.map(|at| clock::now_ms().saturating_sub(at));
            let step = target
                .settings()
                .outage
                .next_step(oldest_ms.map(Duration::from_millis), None);
            states.push(OutboxState {
                target: target.tag().to_owned(),
                waiting: waiting.len(),
                oldest_ms: oldest_ms.unwrap_or_default(),
                failed,
                alert: step != Step::Wait,
            });
        }
        Ok(states)
    }
}

/// The first of the account's other regions that takes it.
async fn fail_over<'a>(account: &'a AccountEntry, through: &dyn FailOver) -> Option<&'a str> {
    for region in &account.read_regions {
        match through.fail_over(account, region).await {
            Ok(()) => return Some(region),
            Err(error) => tracing::warn!(
                account = account.tag,
                region,
                error,
                "an account could not be failed over"
            ),
        }
    }
    None
}

async fn apply(target: &AccountClient, intent: &Intent) -> Result<(), PublishError> {
    match intent {
        Intent::Cancel { user, filter, at } => Ok(cancel_in(target, user, filter, *at, Write::IfThere).await?),
        Intent::MarkRead { user, notification, at } => {
            match mark_in(target, user, notification, *at, ReadAt::WriteRegion).await {
                Ok(_) => Ok(()),
                // It was never there, or is gone by now.
                Err(error) if error.kind == CallKind::NotFound => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
        Intent::Update { .. } | Intent::Retract { .. } => apply_change(target, intent).await.map(drop),
    }
}
