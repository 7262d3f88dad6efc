//! One log followed from another region: read there, carried by a link, checked and applied here, in order and whole
//! transactions at a time.
//!
//! Reading ahead and applying overlap, so that a long link is filled; what is under way is bounded by [`PARCELS_MAX`] and, for all
//! logs together, by the link's room. The position reached is the own log's head and nothing else, so a follower that is cut off at any point goes on from there.
//!
//! A follower that nobody waits for rests after each append for some times as long as that took: regions of one process share a disk,
//! and a sync for every transaction in each of them would be paid by the one that writes. What arrives meanwhile is appended together.

use std::sync::Arc;
use std::time::Duration;

use orrery_model::log::{Operation, Transaction};
use orrery_model::{Lsn, Position};
use orrery_partition::overlay::Overlay;
use orrery_partition::project::Projector;
use orrery_partition::storage::{BoxFuture, Log, Project as _, Staged, StorageError};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::link::{Link, Parcel, sleep_till};
use super::progress::LogProgress;
use super::topology::RegionId;
use crate::clock::Clock;

/// Bytes read from the leader's log at a time.
const PARCEL_BYTES: usize = 256 * 1024;
/// Parcels under way at a time.
const PARCELS_MAX: usize = 64;

/// Transactions from which on no more parcels are applied together.
const TOGETHER_MAX: usize = 256;

/// How many times as long as it took to apply something a follower rests.
const REST: u32 = 3;
const REST_MAX: Duration = Duration::from_millis(10);
/// Whoever is so far behind what has arrived does not rest.
const LATE: Duration = Duration::from_millis(20);

/// About what a word on progress takes.
pub const REPORT_BYTES: usize = 32;

/// Where transactions come from and where progress is told.
#[derive(Clone, Debug)]
pub struct Source {
    /// The same log in the region that writes.
    pub log: Arc<dyn Log>,
    pub there: Arc<Link>,
    pub back: Arc<Link>,
    /// The leader's account of this region's progress.
    pub progress: Arc<LogProgress>,
    pub region: RegionId,
    /// The leader's.
    pub clock: Arc<dyn Clock>,
    /// Does nobody wait for what is applied?
    pub may_rest: bool,
}

/// Takes transactions that follow the own log's head and makes them durable and visible.
pub trait Sink: Send + Sync {
    fn log(&self) -> Arc<dyn Log>;

    fn apply(&self, transactions: Vec<Transaction>) -> BoxFuture<'_, Result<(), StorageError>>;

    /// How much of the own log readers see.
    fn shown(&self) -> Lsn {
        self.log().head().lsn
    }

    /// Waits until they see it up to there.
    fn shown_past(&self, _lsn: Lsn) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// What the leader knows to be in every region.
    fn committed(&self, lsn: Lsn);
}

/// Why following ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The connection broke; begin again.
    Broken,
    /// The own log holds what the leader's does not.
    Diverged,
    /// The leader's log no longer reaches back far enough.
    Trimmed,
    /// The own log or the leader's cannot be used now.
    Failed(StorageError),
}

/// Follows until something comes in between.
pub async fn follow(source: &Source, sink: &dyn Sink) -> Ended {
    let (parcels, arriving) = mpsc::channel(PARCELS_MAX);
    let (reports, reported) = mpsc::channel(PARCELS_MAX);
    let start = sink.log().head();
    let shown = sink.shown().min(start.lsn);
    source.progress.restart(source.region, shown);
    date_backlog(source, start.lsn).await;
    tokio::select! {
        // In an order of its own, or two runs of a simulation would differ; what has arrived comes before what is sent off.
        biased;
        // Whatever is dropped half way has left the own log at a position it can go on from.
        ended = receive(source, sink, arriving, reports) => ended,
        () = tell(source, sink, reported) => Ended::Broken,
        () = tell_once_shown(source, sink, (shown, start.lsn)) => Ended::Broken,
        () = learn_committed(source, sink) => Ended::Broken,
        ended = ship(source, sink, start, parcels) => ended,
    }
}

/// Lets the leader know how old what this region lacks is, if it began to write only after that. One whose time is not to be
/// had any more counts from now on.
async fn date_backlog(source: &Source, applied: Lsn) {
    let lacking = applied.next();
    if source.log.head().lsn <= applied || source.progress.is_dated(lacking) {
        return;
    }
    let read = source.log.read_log(applied, 1).await;
    let first = read.ok().and_then(|transactions| transactions.into_iter().next());
    let age_ms = first.map_or(0, |first| source.clock.now().0.saturating_sub(first.at.0));
    source.progress.date(lacking, Duration::from_millis(age_ms));
}

/// Reads the leader's log and sends it off.
async fn ship(
    source: &Source,
    sink: &dyn Sink,
    start: Position,
    parcels: mpsc::Sender<(Parcel, Vec<Transaction>)>,
) -> Ended {
    let hold = source.log.hold(start.lsn);
    let (mut last, log) = (start, source.log.id());
    source.there.ready_for(log).await;
    let theirs = source.log.head();
    if theirs.lsn < start.lsn || (theirs.lsn == start.lsn && theirs.hash != start.hash) {
        return Ended::Diverged;
    }
    let mut wanted_bytes = PARCEL_BYTES;
    loop {
        source.there.ready_for(log).await;
        let head = source.log.wait_past(last.lsn).await;
        let mut room = source.there.reserve(wanted_bytes).await;
        let transactions = match source.log.read_log(last.lsn, PARCEL_BYTES).await {
            Ok(transactions) => transactions,
            Err(StorageError::Trimmed { .. }) => return Ended::Trimmed,
            Err(error) => return Ended::Failed(error),
        };
        let Some(first) = transactions.first() else {
            // The head moved by an entry that is not in the log: it was installed, not appended.
            return if head.lsn > last.lsn {
                Ended::Trimmed
            } else {
                Ended::Broken
            };
        };
        if !first.follows(last) {
            return Ended::Diverged;
        }
        let n_bytes = transactions.iter().map(size_bytes).sum();
        if !room.fits(n_bytes) {
            // Whoever waits for more must not hold what others wait for: read again once there is room for all of it.
            wanted_bytes = n_bytes * 2;
            continue;
        }
        wanted_bytes = PARCEL_BYTES;
        last = transactions.last().unwrap_or(first).position();
        let parcel = source.there.depart_in(n_bytes, room);
        if parcels.send((parcel, transactions)).await.is_err() {
            return Ended::Broken;
        }
        hold.advance(sink.log().head().lsn);
    }
}

/// About what a transaction takes on the wire.
fn size_bytes(transaction: &Transaction) -> usize {
    let operation = |operation: &Operation| match operation {
        Operation::Put(put) => put.body.len() + put.id.len() + 64,
        Operation::Delete(delete) => delete.id.len() + 48,
        Operation::Record { key, value } => key.len() + value.as_ref().map_or(0, bytes::Bytes::len),
        Operation::Defined { definition, .. } => definition.len(),
        _ => 64,
    };
    48 + transaction.operations.iter().map(operation).sum::<usize>()
}

/// Applies what arrives; what came while something else was applied, all at once.
async fn receive(
    source: &Source,
    sink: &dyn Sink,
    mut arriving: mpsc::Receiver<(Parcel, Vec<Transaction>)>,
    reports: mpsc::Sender<(Parcel, Lsn)>,
) -> Ended {
    let (mut waiting, log) = (None, source.log.id());
    let mut rested = Instant::now();
    loop {
        let next = match waiting.take() {
            Some(next) => Some(next),
            None => arriving.recv().await,
        };
        let Some((parcel, mut transactions)) = next else {
            return Ended::Broken;
        };
        if source.may_rest && !parcel.is_late(LATE) {
            sleep_till(rested).await;
        }
        if !source.there.arrival_of(log, &parcel).await {
            return Ended::Broken;
        }
        let n_passing = source.there.pass(log, transactions.len()).await;
        if !source.there.is_carried(&parcel) {
            return Ended::Broken;
        }
        let held_up = transactions.split_off(n_passing);
        let mut carried = Vec::new();
        match held_up.is_empty() {
            true => carried.push(parcel),
            // The rest waits for its turn, and nothing overtakes it.
            false => waiting = Some((parcel, held_up)),
        }
        while waiting.is_none()
            && transactions.len() < TOGETHER_MAX
            && let Ok((parcel, more)) = arriving.try_recv()
        {
            if !source.there.has_arrived(&parcel) {
                waiting = Some((parcel, more));
                break;
            }
            transactions.extend(more);
            carried.push(parcel);
        }
        let began = Instant::now();
        match sink.apply(transactions).await {
            Ok(()) => {}
            Err(StorageError::Corrupt(_)) => return Ended::Diverged,
            Err(error) => return Ended::Failed(error),
        }
        rested = Instant::now() + (began.elapsed() * REST).min(REST_MAX);
        drop(carried);
        let report = source.back.depart(REPORT_BYTES);
        // Whoever tells makes up for what finds the queue full.
        let _ = reports.try_send((report, sink.shown()));
    }
}

/// Carries progress back to the leader, and again when it was lost: the leader may be waiting for it.
async fn tell(source: &Source, sink: &dyn Sink, mut reported: mpsc::Receiver<(Parcel, Lsn)>) {
    while let Some((parcel, lsn)) = reported.recv().await {
        tell_one(source, parcel, lsn).await;
        let head = sink.shown();
        if reported.is_empty() && head > lsn {
            tell_one(source, source.back.depart(REPORT_BYTES), head).await;
        }
    }
}

/// A step that was cut off may have left something in the own log that readers are only about to see.
async fn tell_once_shown(source: &Source, sink: &dyn Sink, (shown, start): (Lsn, Lsn)) {
    if shown < start {
        sink.shown_past(start).await;
        tell_one(source, source.back.depart(REPORT_BYTES), start).await;
    }
    std::future::pending().await
}

async fn tell_one(source: &Source, mut parcel: Parcel, lsn: Lsn) {
    while !source.back.arrival(&parcel).await {
        source.back.ready().await;
        parcel = source.back.depart(REPORT_BYTES);
    }
    source.progress.report(source.region, lsn);
}

/// Hears from the leader what every region has.
async fn learn_committed(source: &Source, sink: &dyn Sink) {
    let mut known = Lsn::ZERO;
    loop {
        let committed = source.progress.committed_past(known).await;
        source.there.ready().await;
        let parcel = source.there.depart(REPORT_BYTES);
        if source.there.arrival(&parcel).await {
            known = committed;
            sink.committed(known);
        }
    }
}

/// Projects transactions decided elsewhere on the view they meet here, but for those that are in it already: a step that was cut off
/// may have brought them after all.
pub fn stage(log: &dyn Log, mut transactions: Vec<Transaction>) -> Result<(Position, Vec<Staged>), StorageError> {
    let snapshot = log.snapshot()?;
    let own = snapshot.position();
    let n_known = transactions.iter().take_while(|known| known.lsn <= own.lsn).count();
    let known_end = transactions.drain(..n_known).next_back();
    if known_end.is_some_and(|known| known.lsn == own.lsn && known.position().hash != own.hash) {
        return Err(StorageError::Corrupt("the log holds another history".to_owned()));
    }
    let mut overlay = Overlay::new(&*snapshot);
    let projector = Projector::default();
    let mut staged = Vec::with_capacity(transactions.len());
    for transaction in transactions {
        let writes = projector.project(&overlay, &transaction)?;
        overlay.apply(writes.iter().cloned());
        staged.push(Staged {
            transaction: Arc::new(transaction),
            writes,
        });
    }
    Ok((snapshot.position(), staged))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use orrery_model::{Epoch, LogId, Timestamp};
    use orrery_partition::storage::{Role, Store};
    use orrery_storage::MemoryStore;

    use super::super::link::LinkSettings;
    use super::super::progress::Progress;
    use super::*;
    use crate::clock::ManualClock;
    use crate::node::append_one;

    const ROOM_BYTES: usize = 1 << 20;
    const N_LOGS: u64 = 6;

    /// A log that takes what it is given.
    struct Plain(Arc<dyn Log>);

    impl Sink for Plain {
        fn log(&self) -> Arc<dyn Log> {
            Arc::clone(&self.0)
        }

        fn apply(&self, transactions: Vec<Transaction>) -> BoxFuture<'_, Result<(), StorageError>> {
            Box::pin(async move {
                let (expected, staged) = stage(&*self.0, transactions)?;
                self.0.append(expected, staged).await
            })
        }

        fn committed(&self, _lsn: Lsn) {}
    }

    async fn open(store: &dyn Store, log: u64, role: Role) -> Arc<dyn Log> {
        store.open(LogId(log), role).await.unwrap()
    }

    async fn append(log: &dyn Log, n_bytes: usize) {
        let record = Operation::Record {
            key: "k".into(),
            value: Some(vec![7; n_bytes].into()),
        };
        append_one(log, Timestamp(0), record).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_logs_share_a_link_no_more_is_held_than_it_has_room_for() {
        let (there, back) = (Arc::new(Link::with_room(1, ROOM_BYTES)), Arc::new(Link::new(2)));
        let slow = LinkSettings {
            bytes_per_second: Some(4 << 20),
            ..LinkSettings::default()
        };
        there.set(slow);
        let (leader, follower) = (MemoryStore::new(), MemoryStore::new());
        let progress = Progress::default();
        let mut pairs = Vec::new();
        for number in 1..=N_LOGS {
            let theirs = open(&*leader, number, Role::Own { epoch: Epoch(1) }).await;
            let hold = theirs.hold(Lsn::ZERO);
            for n_bytes in [100_000, 400_000, 10, 300_000, 100_000] {
                append(&*theirs, n_bytes).await;
            }
            if number == 1 {
                // One that takes more than there is room for travels alone, and arrives.
                append(&*theirs, ROOM_BYTES * 2).await;
            }
            let own = open(&*follower, number, Role::Follow).await;
            let source = Source {
                log: Arc::clone(&theirs),
                there: Arc::clone(&there),
                back: Arc::clone(&back),
                progress: progress.of(LogId(number)),
                region: RegionId(1),
                clock: Arc::new(ManualClock::at(Timestamp(0))),
                may_rest: true,
            };
            let sink = Arc::clone(&own);
            let following = tokio::spawn(async move { follow(&source, &Plain(sink)).await });
            pairs.push((theirs, own, following, hold));
        }
        let mut most = 0;
        while pairs.iter().any(|(theirs, own, ..)| own.head() != theirs.head()) {
            let held = there.bytes_under_way();
            assert!(
                held <= ROOM_BYTES || held > ROOM_BYTES * 2,
                "{held} bytes are under way"
            );
            most = most.max(held.min(ROOM_BYTES));
            assert!(pairs.iter().all(|(_, _, following, _)| !following.is_finished()));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(most > ROOM_BYTES / 2, "the room is used: {most}");
        pairs.into_iter().for_each(|(_, _, following, _)| following.abort());
    }

    /// A log on a disk that takes a while for whatever it is given, and counts how often that is.
    struct Slow {
        log: Arc<dyn Log>,
        n_appends: AtomicU32,
    }

    impl Sink for Slow {
        fn log(&self) -> Arc<dyn Log> {
            Arc::clone(&self.log)
        }

        fn apply(&self, transactions: Vec<Transaction>) -> BoxFuture<'_, Result<(), StorageError>> {
            Box::pin(async move {
                self.n_appends.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(1)).await;
                let (expected, staged) = stage(&*self.log, transactions)?;
                self.log.append(expected, staged).await
            })
        }

        fn committed(&self, _lsn: Lsn) {}
    }

    /// How often a follower appends while something is written every millisecond, a tenth of a second long.
    async fn n_appends_under_load(may_rest: bool) -> u32 {
        let (leader, follower) = (MemoryStore::new(), MemoryStore::new());
        let theirs = open(&*leader, 1, Role::Own { epoch: Epoch(1) }).await;
        let source = Source {
            log: Arc::clone(&theirs),
            there: Arc::new(Link::new(1)),
            back: Arc::new(Link::new(2)),
            progress: Progress::default().of(LogId(1)),
            region: RegionId(1),
            clock: Arc::new(ManualClock::at(Timestamp(0))),
            may_rest,
        };
        let sink = Arc::new(Slow {
            log: open(&*follower, 1, Role::Follow).await,
            n_appends: AtomicU32::new(0),
        });
        let following = tokio::spawn({
            let sink = Arc::clone(&sink);
            async move { follow(&source, &*sink).await }
        });
        for _ in 0..100 {
            append(&*theirs, 10).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let written = Instant::now();
        while sink.log.head() != theirs.head() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(written.elapsed() <= REST_MAX, "it lags by its rest and no more");
        following.abort();
        sink.n_appends.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_follower_that_nobody_waits_for_appends_together_what_arrives_while_it_rests() {
        let (resting, restless) = (n_appends_under_load(true).await, n_appends_under_load(false).await);
        assert!((20..=30).contains(&resting), "{resting}");
        assert!(restless >= 2 * resting, "{restless} against {resting}");
    }
}
