//! One log followed from another region: read there, carried by a link, checked and applied here, in order and whole
//! transactions at a time.
//!
//! Reading ahead and applying overlap, so that a long link is filled; what is under way is bounded by [`PARCELS_MAX`]. The
//! position reached is the own log's head and nothing else, so a follower that is cut off at any point goes on from there.

use std::sync::Arc;

use orrery_model::log::{Operation, Transaction};
use orrery_model::{Lsn, Position};
use orrery_partition::overlay::Overlay;
use orrery_partition::project::Projector;
use orrery_partition::storage::{BoxFuture, Log, Project as _, Staged, StorageError};
use tokio::sync::mpsc;

use super::link::{Link, Parcel};
use super::progress::LogProgress;
use super::topology::RegionId;

/// Bytes read from the leader's log at a time.
const PARCEL_BYTES: usize = 256 * 1024;
/// Parcels under way at a time.
const PARCELS_MAX: usize = 64;

/// Transactions from which on no more parcels are applied together.
const TOGETHER_MAX: usize = 256;

/// About what a word on progress takes.
const REPORT_BYTES: usize = 32;

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
}

/// Takes transactions that follow the own log's head and makes them durable and visible.
pub trait Sink: Send + Sync {
    fn log(&self) -> Arc<dyn Log>;

    fn apply(&self, transactions: Vec<Transaction>) -> BoxFuture<'_, Result<(), StorageError>>;

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
    source.progress.restart(source.region, start.lsn);
    tokio::select! {
        // Whatever is dropped half way has left the own log at a position it can go on from.
        ended = ship(source, sink, start, parcels) => ended,
        ended = receive(source, sink, arriving, reports) => ended,
        () = tell(source, sink, reported) => Ended::Broken,
        () = learn_committed(source, sink) => Ended::Broken,
    }
}

/// Reads the leader's log and sends it off.
async fn ship(
    source: &Source,
    sink: &dyn Sink,
    start: Position,
    parcels: mpsc::Sender<(Parcel, Vec<Transaction>)>,
) -> Ended {
    let hold = source.log.hold(start.lsn);
    let mut last = start;
    source.there.ready().await;
    let theirs = source.log.head();
    if theirs.lsn < start.lsn || (theirs.lsn == start.lsn && theirs.hash != start.hash) {
        return Ended::Diverged;
    }
    loop {
        source.there.ready().await;
        let head = source.log.wait_past(last.lsn).await;
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
        last = transactions.last().unwrap_or(first).position();
        let parcel = source.there.depart(transactions.iter().map(size_bytes).sum());
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
    let mut waiting = None;
    loop {
        let next = match waiting.take() {
            Some(next) => Some(next),
            None => arriving.recv().await,
        };
        let Some((parcel, mut transactions)) = next else {
            return Ended::Broken;
        };
        if !source.there.arrival(&parcel).await {
            return Ended::Broken;
        }
        let mut carried = vec![parcel];
        while transactions.len() < TOGETHER_MAX
            && let Ok((parcel, more)) = arriving.try_recv()
        {
            if !source.there.has_arrived(&parcel) {
                waiting = Some((parcel, more));
                break;
            }
            transactions.extend(more);
            carried.push(parcel);
        }
        match sink.apply(transactions).await {
            Ok(()) => {}
            Err(StorageError::Corrupt(_)) => return Ended::Diverged,
            Err(error) => return Ended::Failed(error),
        }
        drop(carried);
        let report = source.back.depart(REPORT_BYTES);
        // Whoever tells makes up for what finds the queue full.
        let _ = reports.try_send((report, sink.log().head().lsn));
    }
}

/// Carries progress back to the leader, and again when it was lost: the leader may be waiting for it.
async fn tell(source: &Source, sink: &dyn Sink, mut reported: mpsc::Receiver<(Parcel, Lsn)>) {
    while let Some((parcel, lsn)) = reported.recv().await {
        tell_one(source, parcel, lsn).await;
        let head = sink.log().head().lsn;
        if reported.is_empty() && head > lsn {
            tell_one(source, source.back.depart(REPORT_BYTES), head).await;
        }
    }
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

/// Projects transactions decided elsewhere on the view they meet here.
pub fn stage(log: &dyn Log, transactions: Vec<Transaction>) -> Result<(Position, Vec<Staged>), StorageError> {
    let snapshot = log.snapshot()?;
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
