//! The fan-out role of a region as something that runs: one change feed processor per account, and the two chores of a region,
//! its heartbeat and its outbox.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use orrery_processor::dead_letters::{ContainerDeadLetters, DeadLetter, DeadLetterStore as _, replay};
use orrery_processor::estimator::{Estimator, UnitLag};
use orrery_processor::feed::sdk::SdkFeed;
use orrery_processor::retry::RetryPolicy;
use orrery_processor::store::ContainerLeases;
use orrery_processor::{Batch, BatchContext, InstanceName, LeaseTiming, Poll, Processor, Running, StartFrom};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::serve::{Limits, ServeError, Server};
use crate::database::{ContentPublishDatabase, HEARTBEAT_INTERVAL};
use crate::entity::{Article, Entity as _, Review, Subscription};
use crate::error::{Cause, PublishError};
use crate::supervise::{LONG_POLL, supervise};

/// How often the outbox is looked at.
const OUTBOX_INTERVAL: Duration = Duration::from_secs(2);
/// Dead letters counted; more are as bad.
const LETTERS_MAX: usize = 1000;

/// How a role runs.
#[derive(Clone, Debug)]
pub struct FanoutSettings {
    /// Name of this host of the role. One that is the same after a restart goes on at once.
    pub instance: InstanceName,
    pub poll: Poll,
    pub lease_timing: LeaseTiming,
    pub retry: RetryPolicy,
    /// Subscribers read at a time, per key.
    pub page: usize,
    /// Notifications written at the same time, per article.
    pub in_flight: usize,
    /// Subscribers served between two saves of an article's progress.
    pub save_every: usize,
    /// A filter with more subscribers than this is spread over buckets for those who come later.
    pub spread_above: u64,
    pub buckets: u32,
}

impl FanoutSettings {
    pub fn new(instance: InstanceName) -> FanoutSettings {
        FanoutSettings {
            instance,
            poll: Poll::adaptive(Duration::from_millis(200), Duration::from_secs(2)).with_long_poll(LONG_POLL),
            lease_timing: LeaseTiming::default(),
            // About a minute: longer than most silences, and an account that is silent cannot take dead letters anyway.
            retry: RetryPolicy {
                most: Duration::from_secs(10),
                attempts: 12,
                ..RetryPolicy::default()
            },
            page: 500,
            in_flight: 64,
            save_every: 500,
            spread_above: 50_000,
            buckets: 16,
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            page: self.page.clamp(1, 1000),
            in_flight: self.in_flight.max(1),
            save_every: self.save_every.max(1),
            spread_above: self.spread_above,
            buckets: self.buckets.max(1),
        }
    }
}

/// How far a role is behind one account's articles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceState {
    pub source: String,
    pub running: bool,
    /// Transactions; nothing when it is not known.
    pub waiting: Option<u64>,
    /// Since when the oldest has been waiting.
    pub waiting_ms: Option<u64>,
    pub dead_letters: usize,
}

/// A part of an account's feed and who reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceLease {
    pub source: String,
    pub lease: String,
    pub owner: Option<String>,
    pub position: Option<String>,
}

/// The fan-out role of a region.
#[derive(Clone, Debug)]
pub struct Fanout {
    database: ContentPublishDatabase,
    settings: FanoutSettings,
}

/// A change as far as the role cares. What lacks a type is nobody's document of this platform.
enum Document {
    Article(Box<Article>),
    Subscription(Box<Subscription>),
    Review(Box<Review>),
    Other,
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Document, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match value.get("Type").and_then(Value::as_str) {
            Some(Article::TYPE) => Ok(Document::Article(Box::new(
                serde_json::from_value(value).map_err(D::Error::custom)?,
            ))),
            Some(Subscription::TYPE) => Ok(Document::Subscription(Box::new(
                serde_json::from_value(value).map_err(D::Error::custom)?,
            ))),
            Some(Review::TYPE) => Ok(Document::Review(Box::new(
                serde_json::from_value(value).map_err(D::Error::custom)?,
            ))),
            _ => Ok(Document::Other),
        }
    }
}

impl Fanout {
    pub fn new(database: &ContentPublishDatabase, settings: FanoutSettings) -> Fanout {
        Fanout {
            database: database.unhedged(),
            settings,
        }
    }

    /// Begins to read every account. One that cannot be reached is tried again until it can.
    pub fn start(&self) -> RunningFanout {
        let (stopping, tasks) = (CancellationToken::new(), TaskTracker::new());
        let n_accounts = self.database.accounts().len();
        let running: Vec<_> = (0..n_accounts).map(|_| Arc::new(Mutex::new(false))).collect();
        for (source, is_running) in running.iter().enumerate() {
            let (role, is_running, stopping) = (self.clone(), Arc::clone(is_running), stopping.clone());
            tasks.spawn(async move {
                let name = role.processor_name(source);
                let start = || {
                    let role = role.clone();
                    async move { role.start_source(source).await }.boxed()
                };
                let note = |now: bool| *is_running.lock().unwrap_or_else(PoisonError::into_inner) = now;
                supervise(&name, &stopping, start, note).await;
            });
        }
        tasks.spawn(chore(stopping.clone(), HEARTBEAT_INTERVAL, {
            let database = self.database.clone();
            move || {
                let database = database.clone();
                async move { database.beat().await.map_err(Cause::from) }.boxed()
            }
        }));
        tasks.spawn(chore(stopping.clone(), OUTBOX_INTERVAL, {
            let (database, failed_over) = (self.database.clone(), Arc::default());
            move || tend_outbox(database.clone(), Arc::clone(&failed_over)).boxed()
        }));
        tasks.close();
        RunningFanout {
            role: self.clone(),
            running,
            stopping,
            tasks,
        }
    }

    /// One unit per pair of accounts, so that each keeps its own positions.
    fn processor_name(&self, source: usize) -> String {
        let (own, source) = (self.database.local().tag(), self.database.accounts()[source].tag());
        format!("fanout-{own}-from-{source}-")
    }

    fn server(&self, source: usize) -> Server {
        Server {
            database: self.database.clone(),
            source,
            limits: self.settings.limits(),
        }
    }

    async fn start_source(&self, source: usize) -> Result<Running, Cause> {
        let own = self.database.local().connected().await?;
        let theirs = self.database.accounts()[source].connected().await?;
        let server = self.server(source);
        let is_local = self.database.accounts()[source].tag() == self.database.local().tag();
        let delegate = move |batch: Batch<Document>, context: BatchContext| {
            let server = server.clone();
            async move { handle(&server, batch, is_local, &context.cancelled).await }
        };
        let processor = Processor::builder(self.processor_name(source))
            .monitored(&theirs.client, theirs.content.clone())
            .lease_container(own.coordination.clone())
            .dead_letters(ContainerDeadLetters::new(own.coordination.clone()))
            .instance(self.settings.instance.clone())
            .start_from(StartFrom::Beginning)
            .poll(self.settings.poll)
            .lease_timing(self.settings.lease_timing)
            .retry(self.settings.retry.clone())
            .build(delegate)?;
        Ok(processor.start().await?)
    }

    /// How far the role is behind, asked of the accounts: true whichever process runs it.
    pub async fn states(&self) -> Vec<SourceState> {
        let ask = (0..self.database.accounts().len()).map(|source| async move {
            let mut state = SourceState {
                source: self.database.accounts()[source].tag().to_owned(),
                running: false,
                waiting: None,
                waiting_ms: None,
                dead_letters: 0,
            };
            let within = self.database.local().settings().write_deadline;
            if let Ok(Ok((waiting, waiting_ms, letters))) = tokio::time::timeout(within, self.ask_state(source)).await {
                (state.waiting, state.waiting_ms, state.dead_letters) = (waiting, waiting_ms, letters);
            }
            state
        });
        futures::future::join_all(ask).await
    }

    /// Who reads which part of which account's feed, and how far.
    pub async fn leases(&self) -> Vec<SourceLease> {
        let mut leases = Vec::new();
        for (source, account) in self.database.accounts().iter().enumerate() {
            let within = self.database.local().settings().write_deadline;
            let Ok(Ok(lag)) = tokio::time::timeout(within, self.ask_lag(source)).await else {
                continue;
            };
            leases.extend(lag.leases.into_iter().map(|lease| SourceLease {
                source: account.tag().to_owned(),
                lease: lease.token,
                owner: lease.owner,
                position: lease.position,
            }));
        }
        leases
    }

    async fn ask_lag(&self, source: usize) -> Result<UnitLag, Cause> {
        let own = self.database.local().connected().await?;
        let theirs = self.database.accounts()[source].connected().await?;
        let feed = SdkFeed::new(&theirs.client, theirs.content.clone());
        let leases = ContainerLeases::new(own.coordination.clone());
        Ok(Estimator::new(self.processor_name(source), feed, leases)?
            .snapshot()
            .await?)
    }

    async fn ask_state(&self, source: usize) -> Result<(Option<u64>, Option<u64>, usize), Cause> {
        let own = self.database.local().connected().await?;
        let letters = ContainerDeadLetters::new(own.coordination.clone());
        let letters = letters.list(&self.processor_name(source), LETTERS_MAX).await?;
        let lag = self.ask_lag(source).await?;
        let waiting_ms = lag.waiting().map(|waiting| waiting.as_millis() as u64);
        Ok((lag.transactions(), waiting_ms, letters.len()))
    }

    /// Handles dead letters again, of all accounts, with the articles as they are now. Gives the number handled.
    pub async fn replay_dead_letters(&self) -> Result<usize, Cause> {
        let letters = ContainerDeadLetters::new(self.database.local().connected().await?.coordination.clone());
        let mut n_handled = 0;
        for source in 0..self.database.accounts().len() {
            let server = self.server(source);
            let handle = |letter: DeadLetter| {
                let server = server.clone();
                async move { handle_again(&server, &letter).await }
            };
            n_handled += replay(&letters, &self.processor_name(source), |_| true, handle)
                .await?
                .handled;
        }
        Ok(n_handled)
    }
}

async fn handle(
    server: &Server,
    batch: Batch<Document>,
    is_local: bool,
    cancelled: &CancellationToken,
) -> Result<(), ServeError> {
    for change in batch {
        match change.current {
            Some(Document::Article(article)) => server.serve(&article, cancelled).await?,
            Some(Document::Subscription(subscription)) if is_local => server.list(&subscription).await?,
            Some(Document::Review(review)) if is_local => server.tally(&review).await?,
            _ => {}
        }
    }
    Ok(())
}

/// What a letter is about, as it is now: it may have been repaired, have changed or be gone since.
async fn handle_again(server: &Server, letter: &DeadLetter) -> Result<(), Cause> {
    let of_letter = |name: &str| {
        letter
            .current
            .as_ref()
            .and_then(|item| item.get(name))
            .and_then(Value::as_str)
    };
    match (of_letter("Type"), &letter.item_id) {
        (Some(Article::TYPE), Some(id)) => match server.database.read_article(id, None).await {
            Ok(article) => Ok(server.serve(&article, &CancellationToken::new()).await?),
            Err(PublishError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        },
        (Some(Subscription::TYPE), _) => {
            let subscription = serde_json::from_value(letter.current.clone().unwrap_or_default())?;
            Ok(server.list(&subscription).await?)
        }
        (Some(Review::TYPE), _) => {
            let review = serde_json::from_value(letter.current.clone().unwrap_or_default())?;
            Ok(server.tally(&review).await?)
        }
        _ => Ok(()),
    }
}

/// Applies what can be applied, and has accounts failed over that nothing can be applied to, if that is the policy.
async fn tend_outbox(
    database: ContentPublishDatabase,
    failed_over: Arc<AsyncMutex<BTreeMap<String, Instant>>>,
) -> Result<(), Cause> {
    database.drain_outbox().await?;
    Ok(database.relieve_outbox(&mut *failed_over.lock().await).await?)
}

type Worked = BoxFuture<'static, Result<(), Cause>>;

/// Does something every so often. A failure is no reason to stop: the next time comes.
async fn chore(stopping: CancellationToken, every: Duration, work: impl Fn() -> Worked) {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // Both only wait, so dropping either loses nothing.
        tokio::select! {
            () = stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if let Err(error) = work().await {
            tracing::debug!(error, "a chore waits for its next turn");
        }
    }
}

/// A role at work. Dropping it stops it, without waiting.
#[derive(Debug)]
pub struct RunningFanout {
    role: Fanout,
    running: Vec<Arc<Mutex<bool>>>,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl RunningFanout {
    pub fn role(&self) -> &Fanout {
        &self.role
    }

    /// As [`Fanout::states`], with whether this process reads the account.
    pub async fn states(&self) -> Vec<SourceState> {
        let mut states = self.role.states().await;
        for (state, running) in states.iter_mut().zip(&self.running) {
            state.running = *running.lock().unwrap_or_else(PoisonError::into_inner);
        }
        states
    }

    /// Lets what is under way finish and its positions be saved.
    pub async fn stop(&self) {
        self.stopping.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for RunningFanout {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}
