//! Saving, restoring and resetting a whole account: instant isolation between tests.
//!
//! A saved snapshot is every partition's view under a log of its own, and the catalogue's records. Restoring makes new logs of
//! those, in a new epoch: resource ids stay, LSNs start above all earlier ones, so that older session
//! tokens and feed positions are superseded and never mistaken.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use orrery_model::log::{Operation, Transaction};
use orrery_model::{Epoch, Error, LogId, Lsn, Position, Result, Status, Timestamp, name};
use orrery_partition::decide::unreadable;
use orrery_partition::state::PartitionState;
use orrery_partition::storage::{Role, Snapshot, Store, ViewWrite};

use crate::admin::SnapshotInfo;
use crate::catalogue::{ContainerEntry, PartitionRecord, RangeEntry, Record, SavedPartition, SnapshotRecord};
use crate::control::Change;
use crate::feed::blocking;
use crate::node::{Node, append_transaction};

/// Entries copied at a time, at most, and the bytes after which no more are taken.
const CHUNK: usize = 4_000;
const CHUNK_BYTES: usize = 4 << 20;

impl Node {
    /// Saves the whole account under a name, replacing what was saved under it before.
    pub async fn save_snapshot(self: &Arc<Node>, name: &str) -> Result<SnapshotInfo> {
        name::validate_name(name::NameKind::Script, name)?;
        let (node, name) = (Arc::clone(self), name.to_owned());
        self.uncancelled(async move { save(&node, name).await }).await
    }

    /// Brings the account back to what it was when the snapshot was saved.
    pub async fn restore_snapshot(self: &Arc<Node>, name: &str) -> Result<SnapshotInfo> {
        let (node, name) = (Arc::clone(self), name.to_owned());
        self.change_catalogue(async move { restore(&node, &name).await }).await
    }

    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        let catalogue = self.control.catalogue();
        let mut all: Vec<SnapshotInfo> = catalogue
            .snapshots
            .iter()
            .map(|(name, record)| info(name, record))
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    pub async fn drop_snapshot(self: &Arc<Node>, name: &str) -> Result<()> {
        let (node, name) = (Arc::clone(self), name.to_owned());
        self.uncancelled(async move {
            let mut change = node.control.change().await;
            let record = find(&node, &name)?;
            change.put(Record::Snapshot(name, None));
            change.commit().await?;
            node.retire_partitions(record.partitions.iter().map(|saved| saved.copy).collect());
            Ok(())
        })
        .await
    }

    /// Empties the account: no databases. Saved snapshots stay.
    pub async fn reset(self: &Arc<Node>) -> Result<()> {
        let node = Arc::clone(self);
        self.change_catalogue(async move {
            let mut change = node.control.change().await;
            let gone = clear(&node, &mut change)?;
            change.commit().await?;
            node.retire_partitions(gone);
            Ok(())
        })
        .await
    }
}

async fn save(node: &Arc<Node>, name: String) -> Result<SnapshotInfo> {
    let mut change = node.control.change().await;
    let containers: Vec<Arc<ContainerEntry>> = node.control.catalogue().containers().cloned().collect();
    if !node.control.catalogue().reshards.is_empty() {
        return Err(Error::new(Status::LOCKED, "A partition is being split or merged."));
    }
    let replaced = node.control.catalogue().snapshots.get(&name).cloned();
    let mut record = SnapshotRecord {
        saved_at: change.now,
        n_items: 0,
        records: Vec::new(),
        partitions: Vec::new(),
    };
    for prefix in ["resource/", "offer/"] {
        record.records.extend(node.control.stored_below(prefix)?);
    }
    let n_copies = containers.iter().map(|container| container.ranges.len()).sum();
    let copies = change.reserve_logs(n_copies, &node.duty).await?;
    if let Err(error) = copy_all(node, &containers, &copies, &mut record).await {
        node.retire_partitions(copies);
        return Err(error);
    }
    change.put(Record::Snapshot(name.clone(), Some(record.clone())));
    if let Err(error) = change.commit().await {
        node.retire_unless_unknown(copies, &error);
        return Err(error);
    }
    if let Some(replaced) = replaced {
        node.retire_partitions(replaced.partitions.iter().map(|saved| saved.copy).collect());
    }
    Ok(info(&name, &record))
}

/// Copies every partition's view to a log of its own, and notes it in the record.
async fn copy_all(
    node: &Node,
    containers: &[Arc<ContainerEntry>],
    copies: &[LogId],
    record: &mut SnapshotRecord,
) -> Result<()> {
    let mut copies = copies.iter();
    for container in containers {
        for (range, &copy) in container.ranges.iter().zip(copies.by_ref()) {
            let snapshot = duplicate(node, range, copy).await?;
            let state = PartitionState::load(&*snapshot).map_err(unreadable)?;
            record.n_items += state.map_or(0, |state| state.n_items);
            record.partitions.push(SavedPartition {
                container: container.rid.clone(),
                partition: range.partition,
                record: stored(range),
                copy,
                position: snapshot.position(),
            });
        }
    }
    Ok(())
}

/// Makes a log of what a partition holds now; answers what it holds.
async fn duplicate(node: &Node, range: &RangeEntry, copy: LogId) -> Result<Arc<dyn Snapshot>> {
    let partition = node.partition(range)?;
    if node.store.branch(range.log, copy).await.map_err(unreadable)? {
        let copied = node.store.open(copy, Role::Follow).await.map_err(unreadable)?;
        return copied.snapshot().map_err(unreadable);
    }
    let snapshot = partition.snapshot()?;
    copy_view(&*node.store, Arc::clone(&snapshot), copy, snapshot.position()).await?;
    Ok(snapshot)
}

async fn restore(node: &Arc<Node>, name: &str) -> Result<SnapshotInfo> {
    let mut change = node.control.change().await;
    let saved = find(node, name)?;
    let logs = change.reserve_logs(saved.partitions.len(), &node.duty).await?;
    change.counters.restores += 1;
    // In an account of several regions a failover after this one must begin above it, also if only this region knows of it.
    let shared_epoch = node.duty.next_epoch()?;
    let start = start_of_restore(node, &saved, change.counters.restores);
    let start = shared_epoch.map_or(start, |epoch| start.max(epoch.start_above()));
    let gone = clear(node, &mut change)?;
    let mut records: Vec<Record> = Vec::new();
    for (key, value) in &saved.records {
        records.push(Record::decode(key.as_bytes(), Some(value))?);
    }
    // A container needs its database first.
    records.sort_by_key(|record| record.key().len());
    records.into_iter().for_each(|record| change.put(record));
    for (partition, &log) in saved.partitions.iter().zip(&logs) {
        let own_epoch = Epoch(partition.position.epoch.0.max(1) + change.counters.restores as u32);
        let epoch = shared_epoch.unwrap_or(own_epoch);
        if let Err(error) = copy_back(node, partition, log, epoch, start, change.now).await {
            node.retire_partitions(logs);
            return Err(error);
        }
        let record = PartitionRecord {
            log,
            since: change.lsn,
            ..partition.record.clone()
        };
        change.put(Record::Partition(
            partition.container.clone(),
            partition.partition,
            Some(record),
        ));
    }
    // Everything restored serves before the catalogue names it, so that no request finds it missing.
    let restored: Vec<Arc<ContainerEntry>> = change.preview()?.containers().cloned().collect();
    let opened = match open_all(node, &restored).await {
        Ok(()) => change.commit().await.map(drop),
        Err(error) => Err(error),
    };
    if let Err(error) = opened {
        node.retire_unless_unknown(logs, &error);
        return Err(error);
    }
    restored.iter().for_each(|container| node.set_throttles(container));
    node.retire_partitions(gone);
    Ok(info(name, &saved))
}

/// Makes a saved partition's log anew, in an epoch that begins at `start`.
async fn copy_back(
    node: &Node,
    saved: &SavedPartition,
    log: LogId,
    epoch: Epoch,
    start: Lsn,
    now: Timestamp,
) -> Result<()> {
    if !node.store.branch(saved.copy, log).await.map_err(unreadable)? {
        let source = node.store.open(saved.copy, Role::Follow).await.map_err(unreadable)?;
        let view = source.snapshot().map_err(unreadable)?;
        copy_view(&*node.store, view, log, saved.position).await?;
    }
    let owned = node.store.open(log, Role::Own { epoch }).await.map_err(unreadable)?;
    let operation = Operation::EpochStarted {
        previous: saved.position.lsn,
    };
    let transaction = Transaction::at_lsn(saved.position, epoch, start, now, vec![operation]);
    append_transaction(&*owned, transaction).await
}

async fn open_all(node: &Node, containers: &[Arc<ContainerEntry>]) -> Result<()> {
    for container in containers {
        for range in &container.ranges {
            node.open_partition(container, range).await?;
        }
    }
    Ok(())
}

/// Above everything the account has ever shown, and in an epoch of its own.
fn start_of_restore(node: &Node, saved: &SnapshotRecord, n_restores: u64) -> Lsn {
    let catalogue = node.control.catalogue();
    let live = catalogue.containers().flat_map(|container| container.ranges.iter());
    let highest = live
        .filter_map(|range| node.partition(range).ok())
        .map(|partition| partition.log.head().lsn);
    let highest = highest
        .chain(saved.partitions.iter().map(|saved| saved.position.lsn))
        .max()
        .unwrap_or(Lsn::ZERO);
    highest.next_epoch_start().max(Lsn(n_restores << 32))
}

/// Removes everything but snapshots and keys from the catalogue; answers the logs that are no longer needed.
fn clear(node: &Node, change: &mut Change<'_>) -> Result<Vec<LogId>> {
    let catalogue = node.control.catalogue();
    let mut logs = Vec::new();
    if !catalogue.reshards.is_empty() {
        return Err(Error::new(Status::LOCKED, "A partition is being split or merged."));
    }
    for container in catalogue.containers() {
        for range in &container.ranges {
            change.put(Record::Partition(container.rid.clone(), range.partition, None));
            logs.push(range.log);
        }
    }
    catalogue
        .offers()
        .into_iter()
        .for_each(|(rid, _)| change.put(Record::Offer(rid.clone(), None)));
    for rid in catalogue.all_resources() {
        change.put(Record::Resource(rid, None));
    }
    Ok(logs)
}

/// Installs a copy of a view as the log `to` of a store. The next entries are read while the last are written.
pub async fn copy_view(store: &dyn Store, from: Arc<dyn Snapshot>, to: LogId, position: Position) -> Result<()> {
    let mut seed = store.seed(to).await.map_err(unreadable)?;
    let mut writes = read_chunk(Arc::clone(&from), None).await?;
    while let Some((last, _)) = writes.last() {
        let next = read_chunk(Arc::clone(&from), Some(last.clone()));
        let write = async { seed.write(writes).await.map_err(unreadable) };
        (writes, ()) = tokio::try_join!(next, write)?;
    }
    seed.finish(position).await.map_err(unreadable)
}

/// The entries of a view after a key.
async fn read_chunk(view: Arc<dyn Snapshot>, after: Option<Bytes>) -> Result<Vec<ViewWrite>> {
    blocking(move || {
        let after = after
            .as_ref()
            .map_or(Bound::Unbounded, |key| Bound::Excluded(key.as_ref()));
        let (mut writes, mut n_bytes) = (Vec::with_capacity(CHUNK), 0);
        for entry in view.scan(after, Bound::Unbounded, false).take(CHUNK) {
            let (key, value) = entry.map_err(unreadable)?;
            n_bytes += key.len() + value.len();
            writes.push((key, Some(value)));
            if n_bytes >= CHUNK_BYTES {
                break;
            }
        }
        Ok(writes)
    })
    .await
}

fn stored(range: &RangeEntry) -> PartitionRecord {
    PartitionRecord {
        range: range.range.clone(),
        log: range.log,
        parents: range.parents.clone(),
        since: range.since,
    }
}

fn find(node: &Node, name: &str) -> Result<SnapshotRecord> {
    let catalogue = node.control.catalogue();
    catalogue
        .snapshots
        .get(name)
        .cloned()
        .ok_or_else(|| Error::new(Status::NOT_FOUND, "There is no snapshot of this name."))
}

fn info(name: &str, record: &SnapshotRecord) -> SnapshotInfo {
    SnapshotInfo {
        name: name.to_owned(),
        saved_at: record.saved_at.seconds(),
        n_items: record.n_items,
    }
}
