//! Splits and merges, online: children are copied while the parents serve, the last changes follow while the parents'
//! writers wait, and the seal is the moment at which the children take over.
//!
//! ```text
//! system: Started ── copy ── catch up ── hold ── last changes ── parents: Sealed ── children: Opened ── system: Done
//! ```
//!
//! A crash before the first seal drops the children; a crash after it rolls forward from the sealed parents, whose views no
//! longer change. Either way no acknowledged write is lost and none happens twice.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use orrery_model::{EpkRange, Epoch, Error, LogId, PartitionId, ResourceId, Result, Status};
use orrery_partition::decide::unreadable;

use crate::catalogue::{ContainerEntry, PartitionRecord, RangeEntry, Record, ReshardRecord};
use crate::node::{Node, define};

mod copy;
pub mod phases;

use phases::{Phase, Steps};

/// Replaces `parents` by new partitions with `ranges`; answers the children once they serve.
pub async fn run(
    node: &Arc<Node>,
    container: &ResourceId,
    parents: Vec<PartitionId>,
    divide: Divide,
) -> Result<Vec<PartitionId>> {
    let (worker, container) = (Arc::clone(node), container.clone());
    node.uncancelled(async move { run_to_the_end(&worker, &container, parents, divide, None).await })
        .await
}

/// The same, led by hand: answers when it has begun.
pub async fn run_by_hand(
    node: &Arc<Node>,
    container: &ResourceId,
    parents: Vec<PartitionId>,
    divide: Divide,
) -> Result<Phase> {
    let (worker, rid, own) = (Arc::clone(node), container.clone(), parents.clone());
    let start = |steps: Arc<Steps>| {
        node.tasks.spawn(async move {
            let ended = run_to_the_end(&worker, &rid, own, divide, Some(&steps)).await;
            steps.end(ended.err());
        });
    };
    node.by_hand.begin(container, &parents, start).await
}

async fn run_to_the_end(
    node: &Arc<Node>,
    container: &ResourceId,
    parents: Vec<PartitionId>,
    divide: Divide,
    steps: Option<&Steps>,
) -> Result<Vec<PartitionId>> {
    let record = begin(node, container, parents, divide).await?;
    let children = record.children.iter().map(|(child, ..)| *child).collect();
    let carried_out = {
        let _alone = node.resharding.alone(container, &record).await;
        carry_out(node, container, &record, None, steps).await
    };
    match carried_out {
        Ok(()) => {
            let meter = match divide {
                Divide::InTwo => &node.meters.splits,
                Divide::IntoOne => &node.meters.merges,
            };
            meter.add(1);
            Ok(children)
        }
        Err(error) => {
            tracing::warn!(%error, "a split or merge did not finish");
            settle(node, container, &record).await;
            Err(error)
        }
    }
}

/// Waits at a phase if somebody leads by hand.
async fn stop_at(node: &Node, steps: Option<&Steps>, phase: Phase) -> Result<()> {
    match steps {
        Some(steps) => steps.stop_at(node, phase).await,
        None => Ok(()),
    }
}

/// Sees to it that one attempt is made at a time at the same split or merge: a node that has lost and won back the right to write
/// recovers it, while the one who was at it before may not have given up yet.
#[derive(Debug, Default)]
pub struct AtWork {
    turns: Mutex<HashMap<(ResourceId, PartitionId), Turn>>,
}

/// Forgotten with the last who waits for it.
type Turn = Weak<tokio::sync::Mutex<()>>;

impl AtWork {
    async fn alone(&self, container: &ResourceId, record: &ReshardRecord) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| turn.strong_count() > 0);
            let key = (container.clone(), record.children[0].0);
            let turn = turns.get(&key).and_then(Weak::upgrade).unwrap_or_default();
            turns.insert(key, Arc::downgrade(&turn));
            turn
        };
        turn.lock_owned().await
    }
}

/// How the parents' range becomes the children's.
#[derive(Clone, Copy, Debug)]
pub enum Divide {
    InTwo,
    IntoOne,
}

/// Is a partition being split or merged, as far as this region knows?
pub fn is_parent(node: &Node, container: &ResourceId, partition: PartitionId) -> bool {
    let catalogue = node.control.catalogue();
    let mut reshards = catalogue.reshards.iter();
    reshards.any(|((other, _), record)| other == container && record.parents.contains(&partition))
}

/// After a start: finishes or undoes what was under way. Children begin in `epoch`, if there is one.
pub async fn recover(node: &Arc<Node>, epoch: Option<Epoch>) -> Result<()> {
    let under_way: Vec<_> = node
        .control
        .catalogue()
        .reshards
        .iter()
        .map(|((container, _), record)| (container.clone(), record.clone()))
        .collect();
    for (container, record) in under_way {
        let _alone = node.resharding.alone(&container, &record).await;
        if !is_under_way(node, &container, &record) {
            continue;
        }
        if any_sealed(node, &container, &record)? {
            carry_out(node, &container, &record, epoch, None).await?;
        } else {
            undo(node, &container, &record).await?;
        }
    }
    Ok(())
}

/// Records what is about to happen.
async fn begin(
    node: &Arc<Node>,
    container: &ResourceId,
    parents: Vec<PartitionId>,
    divide: Divide,
) -> Result<ReshardRecord> {
    let mut change = node.control.change().await;
    // Another region may have taken over while this waited.
    node.duty.check_writes()?;
    let entry = container_entry(node, container)?;
    let busy =
        node.control.catalogue().reshards.iter().any(|((other, _), record)| {
            other == container && record.parents.iter().any(|parent| parents.contains(parent))
        });
    if busy {
        return Err(Error::new(
            Status::LOCKED,
            "The partition is being split or merged already.",
        ));
    }
    let ranges = child_ranges(&entry, &parents, divide)?;
    let first = next_partition(node, &entry);
    if first + ranges.len() as u32 > orrery_model::limits::PARTITIONS_MAX {
        return Err(Error::bad_request(
            "The container has had as many physical partitions as it can have.",
        ));
    }
    let children = ranges
        .into_iter()
        .enumerate()
        .map(|(index, range)| (PartitionId(first + index as u32), change.next_log(), range))
        .collect();
    let record = ReshardRecord { parents, children };
    change.put(Record::Reshard(
        container.clone(),
        record.children[0].0,
        Some(record.clone()),
    ));
    change.commit().await?;
    Ok(record)
}

fn child_ranges(entry: &ContainerEntry, parents: &[PartitionId], divide: Divide) -> Result<Vec<EpkRange>> {
    let find = |parent: &PartitionId| entry.range(*parent).map(|range| range.range.clone());
    let ranges: Option<Vec<EpkRange>> = parents.iter().map(find).collect();
    let mut ranges =
        ranges.ok_or_else(|| Error::new(Status::NOT_FOUND, "The container has no such physical partition."))?;
    ranges.sort_by(|a, b| a.min.cmp(&b.min));
    match (divide, ranges.as_slice()) {
        (Divide::InTwo, [range]) => {
            let halves = range.divide(entry.definition.partition_key(), 2);
            halves.ok_or_else(|| Error::bad_request("The partition's range is too narrow to be split."))
        }
        (Divide::IntoOne, [left, right]) if left.max == right.min => {
            Ok(vec![EpkRange::new(left.min.clone(), right.max.clone())])
        }
        (Divide::IntoOne, _) => Err(Error::bad_request("Only two neighbouring partitions can be merged.")),
        (Divide::InTwo, _) => Err(Error::bad_request("One partition is split at a time.")),
    }
}

/// Numbers given to children that do not serve yet are taken as well.
fn next_partition(node: &Node, entry: &ContainerEntry) -> u32 {
    let catalogue = node.control.catalogue();
    let mine = catalogue
        .reshards
        .iter()
        .filter(|((container, _), _)| *container == entry.rid);
    let taken = mine
        .flat_map(|(_, record)| record.children.iter().map(|(child, ..)| child.0 + 1))
        .max()
        .unwrap_or(0);
    taken.max(entry.n_partitions_ever)
}

fn container_entry(node: &Node, container: &ResourceId) -> Result<Arc<ContainerEntry>> {
    node.control
        .catalogue()
        .container(container)
        .cloned()
        .ok_or_else(crate::catalogue::owner_not_found)
}

fn any_sealed(node: &Node, container: &ResourceId, record: &ReshardRecord) -> Result<bool> {
    let entry = container_entry(node, container)?;
    for range in record.parents.iter().filter_map(|parent| entry.range(*parent)) {
        if copy::is_sealed(&*node.partition(range)?)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// From the copy to the end. May be begun again at any point.
async fn carry_out(
    node: &Arc<Node>,
    container: &ResourceId,
    record: &ReshardRecord,
    epoch: Option<Epoch>,
    steps: Option<&Steps>,
) -> Result<()> {
    stop_at(node, steps, Phase::Begun).await?;
    node.duty.check_writes()?;
    let entry = container_entry(node, container)?;
    drop_children(node, container, record).await?;
    let mut sealed = copy::build(node, &entry, record, epoch, steps).await?;
    if steps.is_some() {
        // Whoever writes meanwhile is not to wait, but to see what there is to be seen.
        sealed.clear();
    }
    stop_at(node, steps, Phase::Sealed).await?;
    node.duty.check_writes()?;
    let children = child_entries(node, &entry, record);
    for child in &children {
        node.open_partition(&entry, child).await?;
    }
    publish(node, &entry, record, &children).await?;
    drop(sealed);
    let parents = record.parents.iter().filter_map(|parent| entry.range(*parent));
    node.retire_partitions(parents.map(|range| range.log).collect());
    // The children serve: from here on a failure must not undo anything.
    if let Err(error) = catch_up_definition(node, container, &children).await {
        tracing::warn!(%error, "a child learns its new definition when it opens next");
    }
    Ok(())
}

fn child_entries(node: &Node, entry: &ContainerEntry, record: &ReshardRecord) -> Vec<RangeEntry> {
    let mut parents: Vec<PartitionId> = Vec::new();
    for parent in record.parents.iter().filter_map(|parent| entry.range(*parent)) {
        parents.extend(parent.parents.iter().chain([&parent.partition]));
    }
    parents.sort_unstable();
    parents.dedup();
    let since = node.control.lsn();
    let child = |(partition, log, range): &(PartitionId, LogId, EpkRange)| RangeEntry {
        partition: *partition,
        range: range.clone(),
        log: *log,
        parents: parents.clone(),
        since,
    };
    record.children.iter().map(child).collect()
}

/// The one transaction after which clients see the children instead of the parents.
async fn publish(node: &Node, entry: &ContainerEntry, record: &ReshardRecord, children: &[RangeEntry]) -> Result<()> {
    let mut change = node.control.change().await;
    node.duty.check_writes()?;
    container_entry(node, &entry.rid)?;
    for parent in &record.parents {
        change.put(Record::Partition(entry.rid.clone(), *parent, None));
    }
    for child in children {
        let stored = PartitionRecord {
            range: child.range.clone(),
            log: child.log,
            parents: child.parents.clone(),
            since: change.lsn,
        };
        change.put(Record::Partition(entry.rid.clone(), child.partition, Some(stored)));
    }
    change.put(Record::Reshard(entry.rid.clone(), record.children[0].0, None));
    change.commit().await?;
    if let Some(container) = node.control.catalogue().container(&entry.rid).cloned() {
        node.set_throttles(&container);
    }
    Ok(())
}

/// A definition that changed while the children were built reaches them now.
async fn catch_up_definition(node: &Arc<Node>, container: &ResourceId, children: &[RangeEntry]) -> Result<()> {
    let Ok(entry) = container_entry(node, container) else {
        return Ok(());
    };
    for child in children {
        let partition = node.partition(child)?;
        let state = copy::state_of(&partition)?;
        if state.definition_version < entry.definition_version {
            partition.command(define(&entry)).await?;
        }
    }
    Ok(())
}

/// After a failure: back to the parents if none is sealed, otherwise forward, again and again.
async fn settle(node: &Arc<Node>, container: &ResourceId, record: &ReshardRecord) {
    let mut wait = Duration::from_millis(100);
    // A region that another one took over from leaves it to that one.
    while node.duty.writes() && is_under_way(node, container, record) {
        let alone = node.resharding.alone(container, record).await;
        if !is_under_way(node, container, record) {
            return;
        }
        let sealed = any_sealed(node, container, record);
        let settled = match sealed {
            Ok(true) => carry_out(node, container, record, None, None).await,
            Ok(false) => undo(node, container, record).await,
            Err(error) if error.status() == Status::PARENT_NOT_FOUND => return,
            Err(error) => Err(error),
        };
        match settled {
            Ok(()) => return,
            Err(error) => tracing::warn!(%error, "a split or merge is tried again"),
        }
        drop(alone);
        tokio::select! {
            biased;
            // Both are safe to drop: neither has begun anything.
            () = node.tasks.stopped() => return,
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(Duration::from_secs(10)),
        }
    }
}

/// Once published, or deleted with its container, a split or merge is nobody's to undo: the children may be all there is.
fn is_under_way(node: &Node, container: &ResourceId, record: &ReshardRecord) -> bool {
    let key = (container.clone(), record.children[0].0);
    node.control.catalogue().reshards.contains_key(&key)
}

async fn undo(node: &Arc<Node>, container: &ResourceId, record: &ReshardRecord) -> Result<()> {
    node.duty.check_writes()?;
    drop_children(node, container, record).await?;
    let mut change = node.control.change().await;
    change.put(Record::Reshard(container.clone(), record.children[0].0, None));
    change.commit().await.map(drop)
}

/// Drops what an earlier attempt has left of the children. In a cluster another node may have finished the split or merge
/// meanwhile, and its children serve: they are marked before this node proves that it coordinates, and dropped as they were.
async fn drop_children(node: &Arc<Node>, container: &ResourceId, record: &ReshardRecord) -> Result<()> {
    let mut marked = Vec::new();
    for (_, log, _) in &record.children {
        marked.push((*log, node.store.mark(*log).await.map_err(unreadable)?));
    }
    // Nobody publishes them from here on.
    let _unchanged = node.control.hold().await;
    node.prove_leads().await?;
    if !is_under_way(node, container, record) {
        return Err(Error::new(Status::NOT_FOUND, "The split or merge is over."));
    }
    for (log, mark) in marked {
        drop(node.close_partition(log));
        node.store.drop_marked(log, mark).await.map_err(unreadable)?;
    }
    Ok(())
}
