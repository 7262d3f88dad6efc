//! One account as a client in one region sees it: connected when first needed, every call with a deadline, every failure by
//! what it means.
//!
//! Reads go to the client's own region first and are hedged to the next one; writes go to the account's write region,
//! wherever that is. Invariants: no call takes longer than its deadline, whatever the account does; a replica nearby answers
//! with what it has, whatever this client has seen of the account in other regions, unless a call asks for more.

mod batch;
mod dial;

use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use azure_core::http::Etag;
use azure_data_cosmos::clients::{ContainerClient, CosmosClient};
use azure_data_cosmos::diagnostics::DiagnosticsContext;
use azure_data_cosmos::feed::{FeedScope, Query};
use azure_data_cosmos::models::ResponseHeaders;
use azure_data_cosmos::options::{
    ItemReadOptions, ItemWriteOptions, OperationOptions, Precondition, ReadConsistencyStrategy,
};
use azure_data_cosmos::{CosmosError, PartitionKey};
use futures::StreamExt as _;
use futures::future::{Either, select};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use tokio::time::{Instant, timeout};

pub use batch::Changes;
pub use dial::{Connected, SharedRuntime};
use dial::{Dialer, Line};

use crate::entity::Entity;
use crate::error::{CallError, CallKind, Cause};
use crate::outage::OutagePolicy;
use crate::topology::{AccountEntry, normal_region};

/// A document that is not there, to ask for where only an answer is wanted.
const NOBODY: &str = "nobody";

/// How long to wait for whom, and where things are kept.
#[derive(Clone, Debug)]
pub struct AccountSettings {
    pub database: String,
    /// Holds all documents of the platform.
    pub content: String,
    /// Holds leases, progress, dead letters and heartbeats.
    pub coordination: String,
    pub read_deadline: Duration,
    pub write_deadline: Duration,
    /// A read that takes longer is also sent to the next region. Nothing for those who must not be answered by another
    /// region, or who let the server hold an answer back.
    pub hedge_after: Option<Duration>,
    /// How long servers that can may hold an empty answer back. The SDK takes an answer that is late by some seconds for a broken
    /// connection, which other requests share, so its clients are told to expect this.
    pub hold: Option<Duration>,
    /// How often a connection is asked whether it is still there; nothing leaves that to the SDK, which does so every second.
    pub keep_alive: Option<Duration>,
    /// How long reads of all accounts go on without one that did not answer before they ask it again.
    pub rest: Duration,
    /// What follows when an account does not take changes of what it owns.
    pub outage: OutagePolicy,
}

impl Default for AccountSettings {
    fn default() -> AccountSettings {
        AccountSettings {
            database: "publishing".into(),
            content: "contentCollection".into(),
            coordination: "coordination".into(),
            read_deadline: Duration::from_millis(1500),
            write_deadline: Duration::from_secs(5),
            hedge_after: Some(Duration::from_millis(400)),
            hold: None,
            keep_alive: None,
            rest: Duration::from_secs(2),
            outage: OutagePolicy::default(),
        }
    }
}

/// An answer with where it came from.
#[derive(Clone, Debug)]
pub struct Seen<T> {
    pub value: T,
    pub region: Option<String>,
    pub lsn: Option<u64>,
    pub session_token: Option<String>,
    pub etag: Option<String>,
}

/// Where to read.
#[derive(Clone, Copy, Debug)]
pub enum ReadAt<'a> {
    /// In the nearest region that answers.
    Near,
    /// Anywhere that has what this session token stands for.
    NotBefore(&'a str),
    /// Where the account takes its writes by now.
    WriteRegion,
}

/// What a query ranges over.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    Key(&'a str),
    Everything,
}

/// A client of one account.
pub struct AccountClient {
    dialer: Dialer,
    line: Line,
    resting_until: Mutex<Option<Instant>>,
}

impl std::fmt::Debug for AccountClient {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("AccountClient")
            .field("tag", &self.dialer.entry.tag)
            .finish_non_exhaustive()
    }
}

impl AccountClient {
    /// Says how to reach an account; nothing is sent yet. `preferred` begins with the client's own region.
    pub fn new(
        entry: AccountEntry,
        preferred: Vec<String>,
        settings: AccountSettings,
        runtime: SharedRuntime,
    ) -> AccountClient {
        let dialer = Dialer {
            entry,
            preferred,
            settings,
            runtime,
        };
        AccountClient {
            dialer,
            line: Line::default(),
            resting_until: Mutex::default(),
        }
    }

    pub fn tag(&self) -> &str {
        &self.dialer.entry.tag
    }

    pub fn entry(&self) -> &AccountEntry {
        &self.dialer.entry
    }

    pub fn settings(&self) -> &AccountSettings {
        &self.dialer.settings
    }

    /// The SDK's client, without its containers: they may not exist yet.
    pub async fn client(&self) -> Result<CosmosClient, CallError> {
        self.dialer.client().await
    }

    /// The account's containers, asked for when they are first needed.
    pub async fn connected(&self) -> Result<Connected, CallError> {
        self.line.connected(&self.dialer).await
    }

    pub(crate) fn error(&self, kind: CallKind, message: &str, source: Option<Cause>) -> CallError {
        self.dialer.error(kind, message, source)
    }

    pub async fn read<T: DeserializeOwned>(&self, key: &str, id: &str, at: ReadAt<'_>) -> Result<Seen<T>, CallError> {
        if matches!(at, ReadAt::WriteRegion) {
            return self.read_where_written(key, id).await;
        }
        let connected = self.connected_within(self.dialer.settings.read_deadline).await?;
        let token = match at {
            ReadAt::NotBefore(token) => Some(token),
            _ => None,
        };
        self.read_from(&connected.content, key, id, token).await
    }

    /// As [`AccountClient::read`], of what roles keep.
    pub async fn read_coordination<T: DeserializeOwned>(&self, id: &str) -> Result<Seen<T>, CallError> {
        let connected = self.connected_within(self.dialer.settings.read_deadline).await?;
        self.read_from(&connected.coordination, id, id, None).await
    }

    async fn read_from<T: DeserializeOwned>(
        &self,
        container: &ContainerClient,
        key: &str,
        id: &str,
        token: Option<&str>,
    ) -> Result<Seen<T>, CallError> {
        let options = ItemReadOptions::default();
        let options = match token {
            Some(token) => {
                // As the account has it: a token counts for nothing where any state will do.
                let mut heeded = OperationOptions::default();
                heeded.read_consistency_strategy = Some(ReadConsistencyStrategy::Default);
                options
                    .with_operation_options(heeded)
                    .with_session_token(token.to_owned())
            }
            None => options,
        };
        let call = container.read_item(PartitionKey::from(key.to_owned()), id, Some(options));
        let answer = self.dialer.bounded(self.dialer.settings.read_deadline, call).await?;
        let seen = self.seen(answer.headers(), &answer.diagnostics());
        let value = answer.into_model().map_err(|error| self.dialer.classified(error))?;
        Ok(seen.with(value))
    }

    /// Rows of a query, at most as many as its text asks for.
    pub async fn query<T: DeserializeOwned + Send + 'static>(
        &self,
        text: &str,
        parameters: &[(&'static str, Value)],
        scope: Scope<'_>,
    ) -> Result<Seen<Vec<T>>, CallError> {
        let connected = self.connected_within(self.dialer.settings.read_deadline).await?;
        let work = async {
            let mut query = Query::from(text);
            for (name, value) in parameters {
                query = query.with_parameter(*name, value)?;
            }
            let scope = match scope {
                Scope::Key(key) => FeedScope::partition(PartitionKey::from(key.to_owned())),
                Scope::Everything => FeedScope::full_container(),
            };
            let mut pages = connected
                .content
                .query_items::<T>(query, scope, None)
                .await?
                .into_pages();
            let (mut rows, mut last) = (Vec::new(), Seen::nowhere());
            while let Some(page) = pages.next().await {
                let page = page?;
                last = self.seen(page.headers(), &page.diagnostics());
                rows.extend(page.into_items());
            }
            Ok(last.with(rows))
        };
        self.dialer.bounded(self.dialer.settings.read_deadline, work).await
    }

    pub async fn create<E: Entity>(&self, entity: &E) -> Result<Seen<()>, CallError> {
        let connected = self.connected_within(self.dialer.settings.write_deadline).await?;
        let key = PartitionKey::from(entity.partition_key());
        let call = connected.content.create_item(key, entity.id(), entity.document(), None);
        let answer = self.written(call).await?;
        Ok(self.seen(answer.headers(), &answer.diagnostics()))
    }

    pub async fn replace<E: Entity>(&self, entity: &E, etag: &str) -> Result<Seen<()>, CallError> {
        let connected = self.connected_within(self.dialer.settings.write_deadline).await?;
        let key = PartitionKey::from(entity.partition_key());
        let options =
            ItemWriteOptions::default().with_precondition(Precondition::if_match(Etag::from(etag.to_owned())));
        let call = connected
            .content
            .replace_item(key, entity.id(), entity.document(), Some(options));
        let answer = self.written(call).await?;
        Ok(self.seen(answer.headers(), &answer.diagnostics()))
    }

    pub async fn delete(&self, key: &str, id: &str) -> Result<(), CallError> {
        let connected = self.connected_within(self.dialer.settings.write_deadline).await?;
        let call = connected
            .content
            .delete_item(PartitionKey::from(key.to_owned()), id, None);
        match self.written(call).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind == CallKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes a document of a role, over what is there.
    pub async fn put_coordination(&self, id: &str, document: &Value) -> Result<(), CallError> {
        let connected = self.connected_within(self.dialer.settings.write_deadline).await?;
        let key = PartitionKey::from(id.to_owned());
        let call = connected.coordination.upsert_item(key, id, document, None);
        self.written(call).await.map(drop)
    }

    /// Removes a document of a role; one that is not there is removed.
    pub async fn remove_coordination(&self, id: &str) -> Result<(), CallError> {
        let connected = self.connected_within(self.dialer.settings.write_deadline).await?;
        let key = PartitionKey::from(id.to_owned());
        match self.written(connected.coordination.delete_item(key, id, None)).await {
            Err(error) if error.kind != CallKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// A write, or another call that goes where writes go. If that place does not answer, the client may be mistaken about it.
    async fn written<T>(&self, call: impl Future<Output = Result<T, CosmosError>>) -> Result<T, CallError> {
        self.written_within(self.dialer.settings.write_deadline, call).await
    }

    async fn written_within<T>(
        &self,
        deadline: Duration,
        call: impl Future<Output = Result<T, CosmosError>>,
    ) -> Result<T, CallError> {
        let result = self.dialer.bounded(deadline, call).await;
        if matches!(&result, Err(error) if error.kind == CallKind::Unreachable) {
            self.line.renew(&self.dialer).await;
        }
        result
    }

    async fn connected_within(&self, deadline: Duration) -> Result<Connected, CallError> {
        match timeout(deadline, self.connected()).await {
            Ok(connected) => connected,
            Err(_) => Err(self.dialer.silent(deadline)),
        }
    }

    fn seen(&self, headers: &ResponseHeaders, diagnostics: &DiagnosticsContext) -> Seen<()> {
        // The last one: earlier ones failed or were overtaken.
        let region = diagnostics
            .responded_regions()
            .last()
            .map(|region| self.spelled(region.as_str()));
        Seen {
            value: (),
            region,
            lsn: headers.lsn(),
            session_token: headers
                .session_token()
                .map(|token| AsRef::<str>::as_ref(token).to_owned()),
            etag: headers.etag().map(|etag| AsRef::<str>::as_ref(etag).to_owned()),
        }
    }

    /// A region as the account table spells it; the SDK has its own way.
    fn spelled(&self, region: &str) -> String {
        let normal = normal_region(region);
        let known = self.dialer.entry.regions().find(|known| normal_region(known) == normal);
        known.unwrap_or(region).to_owned()
    }

    /// Lately it did not answer; whoever can do without it should.
    pub fn is_resting(&self) -> bool {
        let until = *self.resting_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Remembers whether it answered a small question.
    pub fn note<T>(&self, result: &Result<T, CallError>) {
        let is_silent = matches!(result, Err(error) if error.kind == CallKind::Unreachable);
        self.remember_silence(is_silent);
    }

    /// Waits for the answer to a large question and remembers whether there was one. An account that is slow with it and answers
    /// a small question meanwhile is there: others need not do without it.
    pub async fn noted<T>(&self, question: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
        let patience = self.dialer.settings.read_deadline / 2;
        self.noted_beside(question, patience, self.is_there()).await
    }

    async fn noted_beside<T>(
        &self,
        question: impl Future<Output = Result<T, CallError>>,
        patience: Duration,
        is_there: impl Future<Output = bool>,
    ) -> Result<T, CallError> {
        let mut question = pin!(question);
        if let Ok(result) = timeout(patience, question.as_mut()).await {
            self.note(&result);
            return result;
        }
        let (result, is_there) = match select(question, pin!(is_there)).await {
            Either::Left((result, _)) => (result, false),
            Either::Right((is_there, question)) => (question.await, is_there),
        };
        let is_silent = matches!(&result, Err(error) if error.kind == CallKind::Unreachable);
        self.remember_silence(is_silent && !is_there);
        result
    }

    /// Whether it answers at all, whatever it says.
    async fn is_there(&self) -> bool {
        let answer = self.read_coordination::<IgnoredAny>(NOBODY).await;
        !matches!(answer, Err(error) if error.kind == CallKind::Unreachable)
    }

    fn remember_silence(&self, is_silent: bool) {
        let until = is_silent.then(|| Instant::now() + self.dialer.settings.rest);
        *self.resting_until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

impl<T> Seen<T> {
    pub fn with<U>(self, value: U) -> Seen<U> {
        Seen {
            value,
            region: self.region,
            lsn: self.lsn,
            session_token: self.session_token,
            etag: self.etag,
        }
    }
}

impl Seen<()> {
    fn nowhere() -> Seen<()> {
        Seen {
            value: (),
            region: None,
            lsn: None,
            session_token: None,
            etag: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::AccountKey;

    fn account() -> AccountClient {
        let entry = AccountEntry {
            name: "account".into(),
            tag: "usa".into(),
            endpoint: "http://localhost:1/".into(),
            key: AccountKey("a2V5".into()),
            write_region: "West US".into(),
            read_regions: Vec::new(),
        };
        AccountClient::new(
            entry,
            vec!["West US".into()],
            AccountSettings::default(),
            SharedRuntime::default(),
        )
    }

    const HALF: Duration = Duration::from_millis(750);

    /// An answer, or the lack of one, after a time.
    async fn after(account: &AccountClient, wait: Duration, kind: Option<CallKind>) -> Result<(), CallError> {
        tokio::time::sleep(wait).await;
        kind.map_or(Ok(()), |kind| Err(account.error(kind, "no", None)))
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_that_is_only_slow_with_a_list_is_not_left_alone_by_others() {
        let account = account();
        let silent = Some(CallKind::Unreachable);
        let answers = async |wait| {
            tokio::time::sleep(wait).await;
            true
        };
        let slow = account.noted_beside(after(&account, 2 * HALF, silent), HALF, answers(HALF / 5));
        assert!(slow.await.is_err());
        assert!(!account.is_resting(), "it has answered something else meanwhile");
        let late = account.noted_beside(after(&account, 2 * HALF, silent), HALF, answers(2 * HALF));
        assert!(late.await.is_err());
        assert!(account.is_resting(), "it has answered nothing");
        let heard = account.noted_beside(after(&account, Duration::ZERO, None), HALF, std::future::pending());
        assert!(heard.await.is_ok() && !account.is_resting());
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_that_cannot_be_reached_is_left_alone_for_a_while() {
        let account = account();
        let refused = after(&account, Duration::ZERO, Some(CallKind::Unreachable));
        assert!(
            account
                .noted_beside(refused, HALF, std::future::pending())
                .await
                .is_err()
        );
        assert!(account.is_resting());
        tokio::time::sleep(account.settings().rest).await;
        assert!(!account.is_resting());
        let busy = after(&account, 2 * HALF, Some(CallKind::Busy { retry_after: None }));
        assert!(account.noted_beside(busy, HALF, std::future::pending()).await.is_err());
        assert!(!account.is_resting(), "that is an answer");
    }
}
