//! A region that follows: its system log says what exists, and every log named there is followed by a task of its own.
//!
//! An entry of the system log that names new partitions is applied only when their data is here, so that a client that
//! learns of a partition finds it. A log that cannot be followed, because the leader no longer has the beginning of what is
//! missing or because the two have parted, is dropped and installed anew from the leader's view.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use orrery_model::log::{Operation, Transaction};
use orrery_model::{Error, LogId, Lsn, Result, Status};
use orrery_partition::decide::unreadable;
use orrery_partition::storage::{BoxFuture, Log, Role, Snapshot, StorageError};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::bounds::Bounds;
use super::duty::Promise;
use super::follow::{self, Ended, Sink, Source};
use super::freshness;
use super::link::Link;
use super::named::{Lacking, Naming, namings};
use super::topology::RegionId;
use crate::catalogue::RangeEntry;
use crate::feed::blocking;
use crate::node::Node;
use crate::partition::Partition;
use crate::snapshots::copy_view;
use crate::writer::append_cached;

/// Between attempts to follow a log that could not be followed.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Views are carried in pieces of this size.
const SEED_BYTES: usize = 256 * 1024;
/// About what an answer takes that says where a log stands.
const HEAD_BYTES: usize = 16;
/// Of another region's system log, taken over at once: more than one can be ahead.
const TAKEN_BYTES: usize = 64 * 1024 * 1024;

/// One region following another.
#[derive(Clone, Debug)]
pub struct Replica {
    pub node: Arc<Node>,
    pub leader: Arc<Node>,
    pub region: RegionId,
    pub there: Arc<Link>,
    pub back: Arc<Link>,
    /// Held by whoever opens what the catalogue names: one at a time.
    pub adopting: Arc<tokio::sync::Mutex<()>>,
}

/// A region while it follows another one. Dropping this ends it, without waiting.
#[derive(Debug)]
pub struct Following {
    stop: DropGuard,
    running: TaskTracker,
}

impl Following {
    /// Ends it. On return nothing of it touches the region any more, so that the region may be given another role.
    pub async fn end(self) {
        drop(self.stop);
        self.running.close();
        self.running.wait().await;
    }
}

impl Replica {
    /// Between two regions of which one is about to write: what it takes over does not wait for links.
    pub fn between(node: &Arc<Node>, leader: &Arc<Node>) -> Replica {
        Replica {
            node: Arc::clone(node),
            leader: Arc::clone(leader),
            region: RegionId(u32::MAX),
            there: Arc::new(Link::new(1)),
            back: Arc::new(Link::new(1)),
            adopting: Arc::default(),
        }
    }

    /// Takes what the other region's system log has of the same history and the own one has not, with the logs it names.
    pub async fn take_system(&self) -> Result<()> {
        let (own, theirs) = (self.node.control.log(), self.leader.control.log());
        while own.head().lsn < theirs.head().lsn {
            let before = own.head();
            let transactions = match theirs.read_log(before.lsn, TAKEN_BYTES).await {
                // Its copy was made from a view and has no beginning; it is taken whole.
                Err(StorageError::Trimmed { .. }) if before.epoch <= theirs.head().epoch => {
                    return self.install_system().await;
                }
                read => read.map_err(unreadable)?,
            };
            if !transactions.first().is_some_and(|first| first.follows(before)) {
                break;
            }
            // What names logs that are nowhere to be had stays behind: that region has parted from this one and is made anew.
            match SystemSink(self).take_all(transactions).await {
                Ok(true) => {}
                Ok(false) => break,
                // What following had under way when it was ended came first.
                Err(StorageError::Fenced { .. }) if own.head() != before => {}
                Err(error) => return Err(unreadable(error)),
            }
        }
        Ok(())
    }

    /// Follows in the background until it is ended.
    pub fn start(self) -> Following {
        let (stop, running) = (CancellationToken::new(), TaskTracker::new());
        let (replica, stopping, followers) = (Arc::new(self), stop.clone(), running.clone());
        let tasks = replica.node.tasks.clone();
        tasks.spawn(running.track_future(async move {
            let node_stops = replica.node.tasks.stopped();
            tokio::select! {
                // Whoever is told to end does nothing more, whatever else is ready.
                biased;
                // Every part may be dropped at any point: what it has applied stays, the rest comes again.
                () = stopping.cancelled() => {}
                () = node_stops => {}
                () = replica.follow_system() => {}
                () = replica.show_what_arrives() => {}
                () = replica.follow_partitions(&stopping, &followers) => {}
                () = replica.keep_fresh() => {}
            }
        }));
        Following {
            stop: stop.drop_guard(),
            running,
        }
    }

    fn source(&self, log: Arc<dyn Log>) -> Source {
        let may_rest = log.id() != LogId::SYSTEM && self.leader.duty.promise != Promise::Everywhere;
        Source {
            progress: self.leader.duty.progress.of(log.id()),
            log,
            there: Arc::clone(&self.there),
            back: Arc::clone(&self.back),
            region: self.region,
            clock: Arc::clone(&self.leader.clock),
            // Writers wait for it under strong consistency, and changes of the catalogue always do.
            may_rest,
        }
    }

    async fn follow_system(&self) {
        let mut pause = PAUSE;
        loop {
            let source = self.source(self.leader.control.log());
            match follow::follow(&source, &SystemSink(self)).await {
                Ended::Broken => pause = PAUSE,
                Ended::Failed(error) => tracing::debug!(%error, "the system log cannot be followed now"),
                Ended::Diverged | Ended::Trimmed => {
                    if let Err(error) = self.install_system().await {
                        tracing::warn!(%error, "the system log could not be installed anew");
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Shows what comes into the system log by a step that was cut off: it may be durable, and then nobody sends it again.
    async fn show_what_arrives(&self) {
        loop {
            self.node.control.changed_after(self.node.control.shown()).await;
            // Whoever takes a step shows it, and keeps others from doing so.
            let shown = match self.node.control.absorb().await {
                Ok(true) => self.adopt_account().await,
                Ok(false) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = shown {
                tracing::warn!(%error, "the catalogue cannot be brought up to its log");
                tokio::time::sleep(PAUSE_MAX).await;
            }
        }
    }

    /// Learns what the catalogue says of keys and partitions now.
    async fn adopt_account(&self) -> Result<()> {
        self.node.reload_keys()?;
        self.adopt().await
    }

    /// Replaces the system log by a copy of the leader's view, and everything it names with it.
    async fn install_system(&self) -> Result<()> {
        let snapshot = self.leader.control.log().snapshot().map_err(unreadable)?;
        for log in self.leader.named_logs() {
            self.fetch(log).await?;
        }
        if self.leader.control.lsn() != snapshot.position().lsn {
            // The view may name what is gone by now. Whoever calls this tries again.
            return Err(Error::new(
                Status::UNAVAILABLE,
                "The catalogue changed while it was copied.",
            ));
        }
        let _guard = self.node.control.hold().await;
        let store = &self.node.store;
        store.drop_log(LogId::SYSTEM).await.map_err(unreadable)?;
        carry(&self.there, Arc::clone(&snapshot)).await?;
        copy_view(&**store, Arc::clone(&snapshot), LogId::SYSTEM, snapshot.position()).await?;
        self.node.control.reopen_as(&**store, Role::Follow).await?;
        self.adopt_account().await
    }

    /// Starts and ends a task for each partition as the catalogue changes.
    async fn follow_partitions(self: &Arc<Self>, stopping: &CancellationToken, running: &TaskTracker) {
        let mut tasks: BTreeMap<LogId, DropGuard> = BTreeMap::new();
        loop {
            let seen = self.node.control.watch().n_changes();
            let named = self.node.ranges_by_log();
            tasks.retain(|log, _| named.contains_key(log));
            for (log, range) in named {
                tasks
                    .entry(log)
                    .or_insert_with(|| self.spawn_follower(range, stopping, running));
            }
            // Also when the log was installed anew, at whatever position.
            self.node.control.watch().changed_since(seen).await;
        }
    }

    fn spawn_follower(
        self: &Arc<Self>,
        range: RangeEntry,
        stopping: &CancellationToken,
        running: &TaskTracker,
    ) -> DropGuard {
        let (replica, stop) = (Arc::clone(self), stopping.child_token());
        let stopped = stop.clone();
        self.node.tasks.spawn(running.track_future(async move {
            tokio::select! {
                biased;
                // What has been applied stays; the rest comes again.
                () = stopped.cancelled() => {}
                () = replica.follow_partition(&range) => {}
            }
        }));
        stop.drop_guard()
    }

    async fn follow_partition(&self, range: &RangeEntry) {
        let mut pause = PAUSE;
        loop {
            let (Ok(theirs), Ok(own)) = (self.leader.partition(range), self.node.partition(range)) else {
                // The leader has replaced it, or it is being installed: the catalogue will tell. What stays missing was left so by somebody
                // who was told to end in the middle of installing it.
                tokio::time::sleep(pause).await;
                if pause == PAUSE_MAX
                    && let Err(error) = self.make_good(range).await
                {
                    tracing::warn!(log = %range.log, %error, "a log that is missing could not be installed");
                }
                pause = (pause * 2).min(PAUSE_MAX);
                continue;
            };
            let source = self.source(Arc::clone(&theirs.log));
            // The leader's partition ends when nobody holds it.
            drop(theirs);
            let sink = PartitionSink {
                node: &self.node,
                partition: own,
            };
            match follow::follow(&source, &sink).await {
                Ended::Broken => pause = PAUSE,
                Ended::Failed(error) => tracing::debug!(log = %range.log, %error, "a log cannot be followed now"),
                Ended::Diverged | Ended::Trimmed => {
                    drop(sink);
                    tracing::info!(log = %range.log, "a log is installed anew from the region that writes");
                    if let Err(error) = self.install(range).await {
                        tracing::warn!(log = %range.log, %error, "a log could not be installed anew");
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Under bounded staleness: asks the leader now and then where its logs stand, and at once when a read waits for that.
    async fn keep_fresh(&self) {
        let Promise::Within(Bounds { age, .. }) = self.node.duty.promise else {
            return std::future::pending().await;
        };
        loop {
            let asked = Instant::now();
            if let Some(heads) = self.ask_heads().await {
                self.node.duty.freshness.tell(heads, asked, age);
            }
            // One question after the other, however many wait for the answer.
            tokio::time::sleep(PAUSE.min(freshness::interval(age))).await;
            let rest = freshness::interval(age).saturating_sub(PAUSE);
            tokio::select! {
                biased;
                // Both are safe to drop.
                () = self.node.duty.freshness.wanted() => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    /// Where the leader's logs stand, there and back by the links. `None` when the question or the answer was lost, or the leader
    /// no longer writes: others may have acknowledged what it does not have.
    async fn ask_heads(&self) -> Option<BTreeMap<LogId, Lsn>> {
        self.back.ready().await;
        let question = self.back.depart(follow::REPORT_BYTES);
        if !self.back.arrival(&question).await {
            return None;
        }
        let positions = self.leader.positions().into_iter();
        let heads: BTreeMap<LogId, Lsn> = positions.map(|(log, position)| (log, position.lsn)).collect();
        if !self.leader.duty.writes() {
            return None;
        }
        self.there.ready().await;
        let answer = self.there.depart(heads.len() * HEAD_BYTES);
        self.there.arrival(&answer).await.then_some(heads)
    }

    /// Replaces a partition by a copy of the leader's view.
    pub async fn install(&self, range: &RangeEntry) -> Result<()> {
        drop(self.node.close_partition(range.log));
        self.node.store.drop_log(range.log).await.map_err(unreadable)?;
        if self.fetch(range.log).await? {
            self.node.open_follower(range).await?;
        }
        Ok(())
    }

    /// Installs and opens a partition that the leader has and this region lacks.
    async fn make_good(&self, range: &RangeEntry) -> Result<()> {
        let is_missing = || self.node.partition(range).is_err();
        if is_missing() && self.leader.partition(range).is_ok() && self.fetch(range.log).await? && is_missing() {
            self.node.open_follower(range).await?;
        }
        Ok(())
    }

    /// Installs a log the leader has and this region has not. `false` when the leader has it no longer.
    async fn fetch(&self, log: LogId) -> Result<bool> {
        let exists = |node: &Node| -> Result<bool> {
            Ok(node
                .store
                .list()
                .map_err(unreadable)?
                .iter()
                .any(|info| info.log == log))
        };
        if exists(&self.node)? {
            return Ok(true);
        }
        if !exists(&self.leader)? {
            return Ok(false);
        }
        let theirs = self.leader.store.open(log, Role::Follow).await.map_err(unreadable)?;
        let asked = Instant::now();
        let snapshot = theirs.snapshot().map_err(unreadable)?;
        let is_current = self.leader.duty.writes();
        carry(&self.there, Arc::clone(&snapshot)).await?;
        copy_view(&*self.node.store, Arc::clone(&snapshot), log, snapshot.position()).await?;
        if let Promise::Within(bounds) = self.node.duty.promise
            && is_current
        {
            let head = (log, snapshot.position().lsn);
            self.node.duty.freshness.tell([head], asked, bounds.age);
        }
        Ok(true)
    }

    /// Opens what the catalogue names and gives up what it no longer does.
    async fn adopt(&self) -> Result<()> {
        let _guard = self.adopting.lock().await;
        self.node.open_all().await?;
        let named: HashSet<LogId> = self.node.named_logs().into_iter().collect();
        let open: Vec<LogId> = self.node.open_logs();
        self.node
            .retire_partitions(open.into_iter().filter(|log| !named.contains(log)).collect());
        Ok(())
    }
}

/// Lets as much time pass as a link takes for a view.
pub async fn carry(link: &Link, view: Arc<dyn Snapshot>) -> Result<()> {
    // Reading a whole view takes long: off the reactor.
    let mut left = blocking(move || {
        let entries = view.scan(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, false);
        let sizes = entries.map(|entry| entry.map(|(key, value)| key.len() + value.len()));
        sizes.sum::<Result<usize, StorageError>>().map_err(unreadable)
    })
    .await?;
    loop {
        link.ready().await;
        let size = left.min(SEED_BYTES);
        let parcel = link.depart(size);
        if link.arrival(&parcel).await {
            left -= size;
        }
        if left == 0 {
            return Ok(());
        }
    }
}

fn names_account(transaction: &Transaction) -> bool {
    let is_account = |operation: &Operation| matches!(operation, Operation::Record { key, .. } if *key == Bytes::from_static(b"account"));
    transaction.operations.iter().any(is_account)
}

struct SystemSink<'a>(&'a Replica);

impl SystemSink<'_> {
    /// Gets the logs a transaction names, as far as they are to be had.
    async fn fetch_named(&self, transaction: &Transaction, lacking: &mut Lacking) -> Result<(), StorageError> {
        for Naming { namer, logs } in namings(transaction) {
            let mut all_here = true;
            for log in logs {
                all_here &= self.0.fetch(log).await.map_err(failed)?;
            }
            lacking.note(namer, all_here);
        }
        Ok(())
    }

    /// Applies transactions, as far as the logs they name are to be had; tells whether that was all of them.
    async fn take_all(&self, transactions: Vec<Transaction>) -> Result<bool, StorageError> {
        let (mut together, mut lacking) = (Vec::new(), Lacking::default());
        for transaction in transactions {
            self.fetch_named(&transaction, &mut lacking).await?;
            together.push(transaction);
            if lacking.is_empty() {
                self.take(std::mem::take(&mut together)).await?;
            }
        }
        Ok(together.is_empty())
    }

    /// Applies transactions that are true together.
    async fn take(&self, transactions: Vec<Transaction>) -> Result<(), StorageError> {
        let Replica { node, .. } = self.0;
        let new_keys = transactions.iter().any(names_account);
        node.control.follow(transactions).await?;
        if new_keys {
            node.reload_keys().map_err(failed)?;
        }
        self.0.adopt().await.map_err(failed)
    }
}

fn failed(error: Error) -> StorageError {
    StorageError::Unavailable(error.message().to_owned())
}

impl Sink for SystemSink<'_> {
    fn log(&self) -> Arc<dyn Log> {
        self.0.node.control.log()
    }

    fn apply(&self, transactions: Vec<Transaction>) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(async move {
            match self.take_all(transactions).await? {
                true => Ok(()),
                // They come again, with more.
                false => Err(StorageError::Unavailable(
                    "what replaces a log that is gone has not arrived".to_owned(),
                )),
            }
        })
    }

    fn shown(&self) -> Lsn {
        self.0.node.control.shown()
    }

    fn shown_past(&self, lsn: Lsn) -> BoxFuture<'_, ()> {
        Box::pin(self.0.node.control.shown_past(lsn))
    }

    fn committed(&self, lsn: Lsn) {
        self.0.node.control.learn_committed(lsn);
    }
}

/// Does the version of session tokens change with it?
fn brings_version(transaction: &Transaction) -> bool {
    let brings = |operation: &Operation| matches!(operation, Operation::EpochStarted { .. } | Operation::Opened(_));
    transaction.operations.iter().any(brings)
}

struct PartitionSink<'a> {
    node: &'a Arc<Node>,
    partition: Arc<Partition>,
}

impl Sink for PartitionSink<'_> {
    fn log(&self) -> Arc<dyn Log> {
        Arc::clone(&self.partition.log)
    }

    fn apply(&self, transactions: Vec<Transaction>) -> BoxFuture<'_, Result<(), StorageError>> {
        Box::pin(async move {
            let log = &*self.partition.log;
            let mut rest = transactions;
            while !rest.is_empty() {
                // Nothing after such an entry shows before the version it brings: a token with the version before would be
                // superseded in regions that lack what it stands for.
                let end = rest.iter().position(brings_version).map_or(rest.len(), |at| at + 1);
                let after = rest.split_off(end);
                let brings_version = rest.last().is_some_and(brings_version);
                let (expected, staged) = follow::stage(log, rest)?;
                if !staged.is_empty() {
                    append_cached(log, &self.node.cache, expected, staged).await?;
                }
                if brings_version {
                    self.partition
                        .refresh_session_version()
                        .map_err(|error| StorageError::Unavailable(error.message().to_owned()))?;
                }
                rest = after;
            }
            Ok(())
        })
    }

    fn committed(&self, lsn: Lsn) {
        self.partition.learn_committed(lsn);
    }
}
