//! Serving the subscribers of one article: what is to be done for each of them. `walk` goes through them.
//!
//! Invariant: a notification that is there already is left as it is, so doing it all again changes nothing.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::audience::{Member, Source};
use super::decide::{Decision, MEMORY_S, Phase, Progress, decide};
use crate::account::{AccountClient, ReadAt, Seen};
use crate::clock;
use crate::database::ContentPublishDatabase;
use crate::entity::{Article, Listing, Notification, Subscription};
use crate::error::{CallError, CallKind, PublishError};
use crate::ids;
use crate::topology::normal_region;

/// Attempts at one notification while the account is busy or silent.
const WRITE_ATTEMPTS: u32 = 10;

/// How a role works.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Subscribers read at a time, per key.
    pub page: usize,
    /// Notifications written at the same time by all sources of a role.
    pub in_flight: usize,
    /// Articles of one page of the feed that are served at the same time.
    pub articles: usize,
    /// Subscribers served between two saves of the progress.
    pub save_every: usize,
    /// A filter with more subscribers under one key is spread over this many buckets.
    pub spread_above: u64,
    pub buckets: u32,
}

/// Serves articles of one source account to the subscribers of the own one.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub database: ContentPublishDatabase,
    /// Index of the account the articles come from.
    pub source: usize,
    pub limits: Limits,
    /// What the role may write at the same time.
    pub writes: Arc<Semaphore>,
}

/// Why an article was not served.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    #[error("the role is stopping; the rest comes again")]
    Stopping,
    #[error("the account takes its writes elsewhere, and this region may not know every subscriber")]
    Displaced,
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Publish(#[from] PublishError),
}

impl Server {
    pub fn local(&self) -> &AccountClient {
        self.database.local()
    }

    fn progress_id(&self, article: &str) -> String {
        ids::progress_id(self.local().tag(), article)
    }

    /// Brings a user's own list up to what the subscription says, in case its writer did not get to it.
    pub async fn list(&self, subscription: &Subscription) -> Result<(), ServeError> {
        Ok(crate::database::write_listing(self.local(), Listing::of(subscription)).await?)
    }

    pub async fn serve(&self, article: &Article, stopping: &CancellationToken) -> Result<(), ServeError> {
        let progress = self.progress(article).await?;
        self.serve_from(article, progress, stopping).await
    }

    /// Serves everybody from the first on, whatever is remembered. What is there already stays as it is.
    pub async fn serve_again(&self, article: &Article, stopping: &CancellationToken) -> Result<(), ServeError> {
        let begun = self.progress(article).await?.map(|progress| Progress {
            phase: Phase::Notifying,
            after_user: None,
            n_users: 0,
            ..progress
        });
        self.serve_from(article, begun, stopping).await
    }

    async fn progress(&self, article: &Article) -> Result<Option<Progress>, CallError> {
        match self.local().read_coordination(&self.progress_id(&article.id)).await {
            Ok(seen) => Ok(Some(seen.value)),
            Err(error) if error.kind == CallKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn serve_from(
        &self,
        article: &Article,
        progress: Option<Progress>,
        stopping: &CancellationToken,
    ) -> Result<(), ServeError> {
        match decide(article, progress.as_ref(), clock::now_ms()) {
            Decision::Skip(why) => {
                tracing::debug!(article = %article.id, ?why, "nothing to fan out");
                Ok(())
            }
            Decision::Remember(progress) => self.save(&progress).await,
            Decision::Notify(work) => {
                let (begun, done) = (Phase::Notifying, Phase::Notified);
                let token = self.article_token(&article.id).await?;
                let telling = Arc::new((self.clone(), article.clone(), token));
                let notify = |Member { user, filters }| {
                    let telling = Arc::clone(&telling);
                    async move {
                        let (server, article, token) = &*telling;
                        let tag = server.local().tag();
                        let notification =
                            Notification::new(&user, article, filters, token.clone(), tag, clock::now_ms());
                        server.notify(&notification).await
                    }
                };
                self.go_through(article, work, (begun, done), stopping, notify).await
            }
            Decision::Withdraw(work) => {
                let (begun, done) = (Phase::Withdrawing, Phase::Withdrawn);
                let taking_back = Arc::new((self.clone(), article.id.clone()));
                let withdraw = |Member { user, .. }| {
                    let taking_back = Arc::clone(&taking_back);
                    async move {
                        let (server, article) = &*taking_back;
                        server.withdraw(&user, article).await
                    }
                };
                self.go_through(article, work, (begun, done), stopping, withdraw).await
            }
        }
    }

    /// The session token of the article where this role sees it, for readers in regions that may not.
    async fn article_token(&self, article: &str) -> Result<Option<String>, ServeError> {
        let source = &self.database.accounts()[self.source];
        match source.read::<Value>(article, article, ReadAt::Near).await {
            Ok(seen) => Ok(seen.session_token),
            // Deleted since: the notification will lead nowhere, as for anybody who was notified before.
            Err(error) if error.kind == CallKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn notify(&self, notification: &Notification) -> Result<(), CallError> {
        match self
            .patiently(|| async { self.local().create(notification).await.map(drop) })
            .await
        {
            Err(error) if error.kind == CallKind::Exists => Ok(()),
            result => result,
        }
    }

    async fn withdraw(&self, user: &str, article: &str) -> Result<(), CallError> {
        let id = ids::notification_id(user, article);
        let id = &id;
        let withdraw = || async move {
            let stored: Seen<Notification> = self.local().read(user, id, ReadAt::Near).await?;
            if stored.value.withdrawn_at.is_some() {
                return Ok(());
            }
            let etag = stored.etag.clone().unwrap_or_default();
            let withdrawn = stored.value.withdrawn(clock::now_ms());
            match self.local().replace(&withdrawn, &etag).await {
                // The user has just marked it as read; the next attempt sees that.
                Err(error) if error.kind == CallKind::Changed => {
                    Err(self.local().error(CallKind::Unreachable, "changed meanwhile", None))
                }
                result => result.map(drop),
            }
        };
        match self.patiently(withdraw).await {
            Err(error) if error.kind == CallKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// Tries again while the account is busy or silent, as long as the account asks, a bounded number of times.
    async fn patiently<F>(&self, work: impl Fn() -> F) -> Result<(), CallError>
    where
        F: Future<Output = Result<(), CallError>>,
    {
        let mut n_tried = 1;
        loop {
            let pause_ms = 50 << n_tried.min(6);
            let (error, pause) = match work().await {
                Err(error) => match error.kind {
                    CallKind::Busy { retry_after } => (error, retry_after.unwrap_or_default()),
                    CallKind::Unreachable => (error, std::time::Duration::from_millis(pause_ms)),
                    _ => return Err(error),
                },
                Ok(()) => return Ok(()),
            };
            if n_tried >= WRITE_ATTEMPTS {
                return Err(error);
            }
            n_tried += 1;
            tokio::time::sleep(pause).await;
        }
    }

    /// What was read here is complete only if the account still takes its writes here. Asked after reading and before anybody
    /// is remembered as served: a role that was overtaken by a failover must not leave out who subscribed in the new place.
    pub(super) async fn check_place(&self) -> Result<(), ServeError> {
        let writes_at = self.local().write_region().await?;
        let here = normal_region(self.database.region());
        match writes_at {
            Some(region) if normal_region(&region) != here => Err(ServeError::Displaced),
            _ => Ok(()),
        }
    }

    pub(super) async fn save(&self, progress: &Progress) -> Result<(), ServeError> {
        let id = self.progress_id(&progress.article_id);
        let mut document = serde_json::to_value(progress).expect("progress is plain data");
        document["id"] = json!(id);
        document["Type"] = json!("FanoutProgress");
        document["ttl"] = json!(MEMORY_S);
        Ok(self.local().put_coordination(&id, &document).await?)
    }

    /// Filters whose one key has become too large are spread, for those who subscribe from now on.
    pub(super) async fn spread_large(&self, sources: &[Source], counts: &[u64]) -> Result<(), ServeError> {
        for (source, count) in sources.iter().zip(counts) {
            let is_whole = source.partition_key == source.filter.to_string();
            let is_spread = sources.iter().filter(|other| other.filter == source.filter).count() > 1;
            if is_whole && !is_spread && *count > self.limits.spread_above {
                tracing::info!(filter = %source.filter, count, "a large filter is spread over buckets");
                self.database.spread_filter(&source.filter, self.limits.buckets).await?;
            }
        }
        Ok(())
    }
}
