//! The fan-out role of one account as something that runs: one change feed processor per source account, and the chores
//! of an account.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use orrery_processor::dead_letters::{ContainerDeadLetters, DeadLetter, DeadLetterStore as _, replay};
use orrery_processor::estimator::{Estimator, UnitLag};
use orrery_processor::feed::sdk::SdkFeed;
use orrery_processor::store::ContainerLeases;
use orrery_processor::{Batch, BatchContext, Processor, Running, StartFrom};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::chores::{Pulse, keep_beating, keep_delivering};
use super::document::{Document, handle, handle_again, has_mail};
use super::moved::{note_move, serve_again};
use super::serve::Server;
use super::settings::FanoutSettings;
use crate::database::ContentPublishDatabase;
use crate::error::{CallError, Cause};
use crate::supervise::supervise;

/// Between two attempts of a role that starts.
const SETTLE_PAUSE: Duration = Duration::from_secs(1);
/// Changes read at a time: so many that what may be written at the same time is, also when each of them means one write, and that
/// positions are saved once for all of them.
const CHANGES: u32 = 500;
/// Dead letters counted; more are as bad.
const LETTERS_MAX: usize = 1000;

/// How far a role is behind one account's articles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceState {
    /// Whose subscribers are served.
    pub account: String,
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

/// The fan-out role of an account, in one region. The layer is that region's, with the account as its own.
#[derive(Clone, Debug)]
pub(super) struct Role {
    database: ContentPublishDatabase,
    settings: FanoutSettings,
    /// What may be written at the same time, whichever account it comes from.
    writes: Arc<Semaphore>,
    pulse: Arc<Pulse>,
}

impl Role {
    pub fn new(database: ContentPublishDatabase, settings: FanoutSettings) -> Role {
        let writes = Arc::new(Semaphore::new(settings.limits().in_flight));
        Role {
            database,
            settings,
            writes,
            pulse: Arc::default(),
        }
    }

    /// The account whose subscribers it serves.
    pub fn account(&self) -> &str {
        self.database.local().tag()
    }

    /// Where it runs or would run.
    pub fn region(&self) -> &str {
        self.database.region()
    }

    /// Where it should run.
    pub async fn write_region(&self) -> Result<Option<String>, CallError> {
        self.database.local().write_region().await
    }

    /// Begins to read every account. One that cannot be reached is tried again until it can.
    pub fn start(&self) -> RunningRole {
        let (stopping, tasks) = (CancellationToken::new(), TaskTracker::new());
        let n_accounts = self.database.accounts().len();
        let running: Vec<_> = (0..n_accounts).map(|_| Arc::new(AtomicBool::new(false))).collect();
        for (source, is_running) in running.iter().enumerate() {
            let (role, is_running, stopping) = (self.clone(), Arc::clone(is_running), stopping.clone());
            tasks.spawn(async move {
                let name = role.processor_name(source);
                let start = || {
                    let role = role.clone();
                    async move { role.start_source(source).await }.boxed()
                };
                supervise(&name, &stopping, start, |now| is_running.store(now, Ordering::Relaxed)).await;
            });
        }
        tasks.spawn(self.clone().settle_in(tasks.clone(), stopping.clone()));
        tasks.close();
        RunningRole {
            running,
            stopping,
            tasks,
        }
    }

    /// Looks whether the role ran elsewhere before; only then come the chores, whose heartbeat would hide that.
    async fn settle_in(self, tasks: TaskTracker, stopping: CancellationToken) {
        let noted = patiently(&stopping, || async { Ok(note_move(&self.database).await?) }).await;
        let Some(look_again) = noted else {
            return;
        };
        let beating = (self.clone(), stopping.clone());
        tasks.spawn(async move {
            let (role, stopping) = beating;
            let since = role.settings.in_step_since;
            let steps = since.map(|since| (since, role.settings.lease_timing.renew));
            keep_beating(role.database.clone(), &role.pulse, steps, &stopping).await;
        });
        let delivering = (self.clone(), stopping.clone());
        tasks.spawn(async move {
            let (role, stopping) = delivering;
            keep_delivering(role.database.clone(), &role.pulse, &stopping).await;
        });
        if let Some(task) = look_again {
            let servers: Vec<Server> = (0..self.database.accounts().len())
                .map(|source| self.server(source))
                .collect();
            let again = || async { Ok(serve_again(&servers, &task, &stopping).await?) };
            patiently(&stopping, again).await;
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
            writes: Arc::clone(&self.writes),
        }
    }

    async fn start_source(&self, source: usize) -> Result<Running, Cause> {
        let own = self.database.local().connected().await?;
        let theirs = self.database.accounts()[source].connected().await?;
        let server = self.server(source);
        let is_local = self.database.accounts()[source].tag() == self.database.local().tag();
        let pulse = Arc::clone(&self.pulse);
        let delegate = move |batch: Batch<Document>, context: BatchContext| {
            let (server, pulse) = (server.clone(), Arc::clone(&pulse));
            async move {
                pulse.changed();
                if is_local && has_mail(&batch) {
                    pulse.mail();
                }
                handle(&server, batch, is_local, &context.cancelled).await
            }
        };
        let mut processor = Processor::builder(self.processor_name(source))
            .monitored(&theirs.client, theirs.content.clone())
            .lease_container(own.coordination.clone())
            .dead_letters(ContainerDeadLetters::new(own.coordination.clone()))
            .instance(self.settings.host_name(self.database.region()))
            .start_from(StartFrom::Beginning)
            .max_items(CHANGES)
            .poll(self.settings.poll)
            .lease_timing(self.settings.lease_timing)
            .retry(self.settings.retry.clone());
        if let Some(every) = self.settings.look_when_alone {
            processor = processor.look_when_alone(every);
        }
        if let Some(since) = self.settings.in_step_since {
            processor = processor.renew_in_step(since);
        }
        Ok(processor.build(delegate)?.start().await?)
    }

    /// How far the role is behind, asked of the accounts: true whichever process runs it.
    pub async fn states(&self) -> Vec<SourceState> {
        let ask = (0..self.database.accounts().len()).map(|source| async move {
            let mut state = SourceState {
                account: self.account().to_owned(),
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

/// Tries until it works; nothing when there is no time left.
async fn patiently<T, F>(stopping: &CancellationToken, work: impl Fn() -> F) -> Option<T>
where
    F: Future<Output = Result<T, Cause>>,
{
    loop {
        // Requests and waiting only: whatever is left undone is done by the next role.
        let result = tokio::select! {
            () = stopping.cancelled() => return None,
            result = work() => result,
        };
        match result {
            Ok(value) => return Some(value),
            Err(error) => tracing::debug!(error, "a role that starts tries again"),
        }
        tokio::select! {
            () = stopping.cancelled() => return None,
            () = tokio::time::sleep(SETTLE_PAUSE) => {}
        }
    }
}

/// A role at work. Dropping it stops it, without waiting.
#[derive(Debug)]
pub(super) struct RunningRole {
    running: Vec<Arc<AtomicBool>>,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl RunningRole {
    /// Does this process read a source?
    pub fn reads(&self, source: usize) -> bool {
        let running = self.running.get(source);
        running.is_some_and(|running| running.load(Ordering::Relaxed))
    }

    /// Lets what is under way finish and its positions be saved.
    pub async fn stop(&self) {
        self.stopping.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for RunningRole {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}
