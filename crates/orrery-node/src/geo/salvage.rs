//! What a region wrote and no other has, when another region has taken over without it: kept as conflicts before the region
//! gives it up.
//!
//! Everything is durable in the region that writes now before the region that comes back drops anything. When that is cut
//! off it happens again, and keeps nothing twice.

use std::ops::Bound;
use std::sync::Arc;

use orrery_model::json::{Object, Value};
use orrery_model::log::{Operation, Transaction};
use orrery_model::{Epk, LogId, Lsn, ResourceId, Result};
use orrery_partition::decide::unreadable;
use orrery_partition::keys::{self, EpkForm, KeySpace};
use orrery_partition::storage::{Log, Snapshot, StorageError};
use orrery_partition::stored::StoredItem;

use super::fleet::{Fleet, Loss};
use super::topology::Region;
use crate::catalogue::{ContainerEntry, RangeEntry};
use crate::metadata::conflicts::{Lost, LostKind, keep};
use crate::node::Node;

/// Read and kept at a time.
const CHUNK_BYTES: usize = 1024 * 1024;

/// A region that comes back, and the one that writes by now.
#[derive(Debug)]
pub struct Salvage<'a> {
    pub back: &'a Arc<Node>,
    /// Name of the region that comes back.
    pub region: &'a str,
    pub writer: &'a Arc<Node>,
}

impl Salvage<'_> {
    /// Keeps what a log holds after `after`. Answers how many versions that are.
    pub async fn log(&self, log: LogId, after: Lsn) -> Result<usize> {
        let ranges = self.back.all_ranges();
        let Some((container, range)) = ranges.into_iter().find(|(_, range)| range.log == log) else {
            return Ok(0);
        };
        let known = self.writer.control.catalogue().container(&container.rid).is_some();
        if !known {
            tracing::warn!(%log, container = container.name, "writes are lost with a container that only one region knew");
            return Ok(0);
        }
        let own = Arc::clone(&self.back.partition(&range)?.log);
        if !self.writer.ranges_by_log().contains_key(&log) {
            // Split or merged since, here or there: the log may begin long after what was lost, the view has it.
            let lost = self.lost_versions(&container, &range, after)?;
            return keep(self.writer, &container.rid, &lost).await;
        }
        let (mut last, mut n_kept) = (after, 0);
        while last < own.head().lsn {
            let transactions = match own.read_log(last, CHUNK_BYTES).await {
                Ok(transactions) => transactions,
                Err(StorageError::Trimmed { start }) => {
                    tracing::warn!(%log, %start, "the first of the lost writes are no longer in the log");
                    last = start;
                    continue;
                }
                Err(error) => return Err(unreadable(error)),
            };
            let Some(end) = transactions.last().map(|transaction| transaction.lsn) else {
                break;
            };
            last = end;
            let lost = self.lost(&container, &range, &transactions)?;
            n_kept += keep(self.writer, &container.rid, &lost).await?;
        }
        Ok(n_kept)
    }

    /// The latest versions of what changed after an LSN and is not the same in the region that writes.
    fn lost_versions(&self, container: &ContainerEntry, range: &RangeEntry, after: Lsn) -> Result<Vec<Lost>> {
        let form = EpkForm::of(container.definition.partition_key());
        let view = self.back.partition(range)?.snapshot()?;
        let mut found = Vec::new();
        for (epk, number, item) in versions_after(&*view, form, after)? {
            let theirs = self.current(&container.rid, &epk)?;
            let theirs = theirs.map(|view| view.get(&keys::item(form, &epk, number))).transpose();
            let theirs = theirs.map_err(unreadable)?.flatten();
            let theirs = theirs
                .map(|bytes| StoredItem::decode(&bytes).map_err(unreadable))
                .transpose()?;
            if theirs.as_ref().is_some_and(|theirs| theirs.lsn == item.lsn) {
                continue;
            }
            found.push(Lost {
                region: self.region.to_owned(),
                log: range.log,
                lsn: item.lsn,
                index: 0,
                kind: if theirs.is_some() {
                    LostKind::Replace
                } else {
                    LostKind::Create
                },
                number,
                content: String::from_utf8_lossy(&item.body).into_owned(),
            });
        }
        Ok(found)
    }

    /// What the region that writes has where an item belongs.
    fn current(&self, container: &ResourceId, epk: &Epk) -> Result<Option<Arc<dyn Snapshot>>> {
        let catalogue = self.writer.control.catalogue();
        let ranges = catalogue
            .container(container)
            .into_iter()
            .flat_map(|entry| &entry.ranges);
        let serving = ranges.into_iter().find(|range| range.range.contains(epk));
        serving
            .map(|range| self.writer.partition(range)?.snapshot())
            .transpose()
    }

    fn lost(&self, container: &ContainerEntry, range: &RangeEntry, transactions: &[Transaction]) -> Result<Vec<Lost>> {
        // Whether a version was a new item shows where it is missing now. A partition that is gone cannot tell.
        let current = self.writer.ranges_by_log().remove(&range.log);
        let current = current.and_then(|range| self.writer.partition(&range).ok());
        let view = current.map(|partition| partition.snapshot()).transpose()?;
        let form = EpkForm::of(container.definition.partition_key());
        let mut found = Vec::new();
        for transaction in transactions {
            for (index, operation) in transaction.operations.iter().enumerate() {
                let (kind, number, content) = match operation {
                    Operation::Put(put) => {
                        let key = keys::id(form, &put.epk, &put.id);
                        let there = view.as_ref().map(|view| view.get(&key)).transpose();
                        let kind = match there.map_err(unreadable)?.flatten() {
                            Some(_) => LostKind::Replace,
                            None => LostKind::Create,
                        };
                        (kind, put.number, String::from_utf8_lossy(&put.body).into_owned())
                    }
                    Operation::Delete(delete) if !delete.expired => {
                        let mut id = Object::new();
                        id.insert("id", Value::String(delete.id.clone()));
                        (LostKind::Delete, delete.number, Value::Object(id).to_text())
                    }
                    _ => continue,
                };
                found.push(Lost {
                    region: self.region.to_owned(),
                    log: range.log,
                    lsn: transaction.lsn,
                    index,
                    kind,
                    number,
                    content,
                });
            }
        }
        Ok(found)
    }
}

impl Fleet {
    /// Keeps as conflicts what a region has and the account has not.
    pub(super) async fn salvage(&self, region: &Region) -> Result<()> {
        let Some(back) = self.find_node(region.id) else {
            return Ok(());
        };
        let writer = self.writer();
        let salvage = Salvage {
            back: &back,
            region: &region.name,
            writer: &writer,
        };
        for (log, after) in region.cut_off.iter().filter(|(log, _)| **log != LogId::SYSTEM) {
            let n_kept = salvage.log(*log, *after).await?;
            tracing::info!(region = region.name, %log, n_kept, "writes that were lost are kept as conflicts");
        }
        Ok(())
    }
}

/// What one region has and another has not.
pub async fn difference(old: &Arc<Node>, heir: &Arc<Node>) -> Loss {
    let has = heir.live_logs();
    let mut loss = Loss::default();
    for (log, theirs) in old.live_logs() {
        let (reached, n_missing) = match has.get(&log) {
            Some(own) => (own.head().lsn, count_after(&*theirs, own.head().lsn).await),
            None => match reached_around(old, heir, log) {
                // Only one of the two has split or merged: transactions cannot be told apart, versions can.
                Some(reached) => (reached, count_versions_after(old, log, reached)),
                None => (Lsn::ZERO, count_after(&*theirs, Lsn::ZERO).await),
            },
        };
        if n_missing > 0 {
            loss.transactions.insert(log.0, n_missing);
            loss.kept.insert(log.0, reached);
        }
    }
    loss
}

/// How far another region has come in the part of a container that a log serves, when it has other partitions there.
fn reached_around(old: &Node, heir: &Node, log: LogId) -> Option<Lsn> {
    let ranges = old.all_ranges();
    let (container, range) = ranges.into_iter().find(|(_, range)| range.log == log)?;
    let others = heir.all_ranges().into_iter();
    let around =
        others.filter(|(other, part)| other.rid == container.rid && part.range.intersection(&range.range).is_some());
    let heads = around.filter_map(|(_, part)| heir.partition(&part).ok());
    heads.map(|partition| partition.log.head().lsn).min()
}

fn count_versions_after(node: &Node, log: LogId, after: Lsn) -> u64 {
    let ranges = node.all_ranges();
    let Some((container, range)) = ranges.into_iter().find(|(_, range)| range.log == log) else {
        return 0;
    };
    let form = EpkForm::of(container.definition.partition_key());
    let view = node.partition(&range).and_then(|partition| partition.snapshot());
    let versions = view.and_then(|view| versions_after(&*view, form, after));
    versions.map_or(0, |versions| versions.len() as u64)
}

/// The items of a view that changed after an LSN, as they are now, in the order of their changes.
fn versions_after(view: &dyn Snapshot, form: EpkForm, after: Lsn) -> Result<Vec<(Epk, u64, StoredItem)>> {
    let (first, end) = (keys::changes_after(after), keys::bounds(KeySpace::Change).1);
    let mut found = Vec::new();
    for change in view.scan(Bound::Included(&first), Bound::Excluded(&end), false) {
        let (key, pointer) = change.map_err(unreadable)?;
        let place = keys::read_change(&key).zip(keys::read_change_pointer(form, &pointer));
        let Some(((_, number), (epk, _))) = place else {
            continue;
        };
        if let Some(bytes) = view.get(&keys::item(form, &epk, number)).map_err(unreadable)? {
            found.push((epk, number, StoredItem::decode(&bytes).map_err(unreadable)?));
        }
    }
    Ok(found)
}

/// Counts the transactions after an LSN: LSNs jump where an epoch begins. A log that no longer reaches back so far is counted
/// by its LSNs.
async fn count_after(log: &dyn Log, after: Lsn) -> u64 {
    let head = log.head().lsn;
    let (mut last, mut n_counted) = (after, 0);
    while last < head {
        match log.read_log(last, 1024 * 1024).await {
            Ok(transactions) if !transactions.is_empty() => {
                n_counted += transactions.len() as u64;
                last = transactions.last().map_or(head, |transaction| transaction.lsn);
            }
            _ => return n_counted + head.0 - last.0,
        }
    }
    n_counted
}
