//! What a region wrote and no other has, when another region has taken over without it: kept as conflicts before the region
//! gives it up.
//!
//! Everything is durable in the region that writes now before the region that comes back drops anything. When that is cut
//! off it happens again, and keeps nothing twice. Where conflicts have no room for it the region stays out with what it has,
//! unless whoever brings it back accepts the loss, which is counted.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use orrery_model::json::{Object, Value};
use orrery_model::log::{Operation, Transaction};
use orrery_model::{ContainerDefinition, Epk, EpkRange, Error, LogId, Lsn, ResourceId, Result, Status, Timestamp};
use orrery_partition::decide::unreadable;
use orrery_partition::expiry::is_expired;
use orrery_partition::keys::{self, EpkForm, KeySpace};
use orrery_partition::storage::{Health, Snapshot, StorageError};
use orrery_partition::stored::StoredItem;

use super::failover::AcceptLoss;
use super::fleet::Fleet;
use super::topology::{Region, RegionId};
use crate::catalogue::{ContainerEntry, RangeEntry};
use crate::events::Happening;
use crate::feed::blocking;
use crate::metadata::conflicts::{Kept, Lost, LostKind, Room, keep, no_room};
use crate::node::Node;

/// Read and kept at a time.
const CHUNK_BYTES: usize = 1024 * 1024;
/// Items compared at a time.
const COMPARED_MAX: usize = 10_000;

/// A region that comes back, and the one that writes by now.
#[derive(Debug)]
pub struct Salvage<'a> {
    pub back: &'a Arc<Node>,
    /// Name of the region that comes back.
    pub region: &'a str,
    pub writer: &'a Arc<Node>,
    pub accept: AcceptLoss,
}

/// What has become of what a region had alone.
#[derive(Debug, Default)]
pub struct Tally {
    /// By container, looked at once: what is there is listed only to be counted.
    rooms: BTreeMap<Vec<u8>, Room>,
    n_kept: usize,
    /// For which there was no room.
    n_dropped: usize,
    /// Logs whose end cannot be read, or not to the end.
    n_unreadable: usize,
}

impl Salvage<'_> {
    /// Keeps what a log holds after `after`, which moves on with what is durable.
    async fn log(&self, log: LogId, after: &mut Lsn, tally: &mut Tally) -> Result<()> {
        let ranges = self.back.all_ranges();
        let Some((container, range)) = ranges.into_iter().find(|(_, range)| range.log == log) else {
            return Ok(());
        };
        let known = self.writer.control.catalogue().container(&container.rid).is_some();
        if !known {
            tracing::warn!(%log, container = container.name, "writes are lost with a container that only one region knew");
            return Ok(());
        }
        let own = match self.back.partition(&range) {
            Ok(partition) => Arc::clone(&partition.log),
            Err(error) => return self.unreadable(log, error, tally),
        };
        let end = own.head().lsn;
        if !self.writer.ranges_by_log().contains_key(&log) {
            // Split or merged since, here or there: the log may begin long after what was lost, the view has it.
            self.versions(&container, &range, (after, end), tally).await?;
            return self.deletions(&container, &range, end, tally).await;
        }
        let theirs = self.taken_over_at(log, *after).await?;
        while *after < end {
            let transactions = match own.read_log(*after, CHUNK_BYTES).await {
                Ok(transactions) => transactions,
                Err(StorageError::Trimmed { start }) => {
                    tracing::warn!(%log, %start, "the first of the lost writes are no longer in the log: of what they wrote, only what is still there is kept");
                    let end = theirs.map_or(start, |theirs| start.min(Lsn(theirs.0 - 1)));
                    self.versions(&container, &range, (after, end), tally).await?;
                    if end < start {
                        break;
                    }
                    continue;
                }
                Err(error) => return self.unreadable(log, unreadable(error), tally),
            };
            let Some(last) = transactions.last().map(|transaction| transaction.lsn) else {
                break;
            };
            // What comes after was copied from the region that writes, by a return that was not finished.
            let lost = transactions
                .iter()
                .take_while(|one| theirs.is_none_or(|theirs| one.lsn < theirs));
            let transactions: Vec<Transaction> = lost.cloned().collect();
            if transactions.is_empty() {
                break;
            }
            let lost = self.lost(&container, &range, &transactions)?;
            self.keep(&container, &lost, tally).await?;
            *after = last;
        }
        Ok(())
    }

    /// A log that the region cannot read keeps it out, unless the loss is accepted.
    fn unreadable(&self, log: LogId, error: Error, tally: &mut Tally) -> Result<()> {
        match self.accept {
            AcceptLoss::IfNotPromised => Err(error),
            AcceptLoss::Damaged | AcceptLoss::Any => {
                tracing::error!(%log, %error, "what a region alone has cannot be read and is dropped");
                tally.n_unreadable += 1;
                Ok(())
            }
        }
    }

    /// Keeps versions, or counts them where there is no room and the loss is accepted.
    async fn keep(&self, container: &ContainerEntry, lost: &[Lost], tally: &mut Tally) -> Result<()> {
        let room = match tally.rooms.entry(container.rid.as_bytes().to_vec()) {
            Entry::Occupied(room) => room.into_mut(),
            Entry::Vacant(place) => place.insert(Room::of(self.writer, &container.rid)),
        };
        match (keep(self.writer, &container.rid, lost, room).await?, self.accept) {
            (Kept::All(n_new), _) => tally.n_kept += n_new,
            (Kept::NoRoom(n_dropped), AcceptLoss::Any) => tally.n_dropped += n_dropped,
            (Kept::NoRoom(_), AcceptLoss::IfNotPromised | AcceptLoss::Damaged) => {
                return Err(no_room(self.writer, &container.name));
            }
        }
        Ok(())
    }

    /// Where the region that writes went on after `after`: above everything that was lost. Where its log does not reach back so far,
    /// where the epoch began in which it now starts.
    async fn taken_over_at(&self, log: LogId, after: Lsn) -> Result<Option<Lsn>> {
        let Some(range) = self.writer.ranges_by_log().remove(&log) else {
            return Ok(None);
        };
        match self.writer.partition(&range)?.log.read_log(after, 1).await {
            Ok(transactions) => Ok(transactions.first().map(|first| first.lsn)),
            Err(StorageError::Trimmed { start }) => Ok(Some(Lsn((start.0 >> 32) << 32).max(after.next()))),
            Err(error) => Err(unreadable(error)),
        }
    }

    /// Keeps the latest versions of what changed after one LSN and up to another and is not the same in the region that writes.
    async fn versions(
        &self,
        container: &ContainerEntry,
        range: &RangeEntry,
        (after, end): (&mut Lsn, Lsn),
        tally: &mut Tally,
    ) -> Result<()> {
        let form = EpkForm::of(container.definition.partition_key());
        while *after < end {
            // A new one each time: what is kept takes long, and a view holds resources of the store.
            let view = self.back.partition(range)?.snapshot()?;
            let (found, last) = versions_between(&*view, form, (*after, end), CHUNK_BYTES)?;
            drop(view);
            let lost: Result<Vec<Option<Lost>>> = found
                .iter()
                .map(|version| self.lost_version(container, range, version))
                .collect();
            let lost: Vec<Lost> = lost?.into_iter().flatten().collect();
            self.keep(container, &lost, tally).await?;
            *after = last;
        }
        Ok(())
    }

    fn lost_version(&self, container: &ContainerEntry, range: &RangeEntry, version: &Version) -> Result<Option<Lost>> {
        let form = EpkForm::of(container.definition.partition_key());
        let theirs = self.current(&container.rid, &version.epk)?;
        let key = keys::item(form, &version.epk, version.number);
        let theirs = theirs.map(|view| view.get(&key)).transpose().map_err(unreadable)?;
        let theirs = theirs
            .flatten()
            .map(|bytes| StoredItem::decode(&bytes).map_err(unreadable))
            .transpose()?;
        if theirs.as_ref().is_some_and(|theirs| theirs.lsn == version.item.lsn) {
            return Ok(None);
        }
        Ok(Some(Lost {
            region: self.region.to_owned(),
            log: range.log,
            lsn: version.item.lsn,
            index: version.index,
            kind: match theirs {
                Some(_) => LostKind::Replace,
                None => LostKind::Create,
            },
            number: version.number,
            content: String::from_utf8_lossy(&version.item.body).into_owned(),
        }))
    }

    /// Keeps as deletions what the region that writes has from before it took over, and the region that comes back has no more:
    /// nobody else could have deleted it. When it was deleted is not known; the version that was is named instead.
    async fn deletions(
        &self,
        container: &ContainerEntry,
        range: &RangeEntry,
        end: Lsn,
        tally: &mut Tally,
    ) -> Result<()> {
        let entry = self.writer.control.catalogue().container(&container.rid).cloned();
        let Some(entry) = entry else { return Ok(()) };
        for part in entry.overlapping(&range.range) {
            let mut from = None;
            loop {
                let comparison = Comparison {
                    theirs: self.writer.partition(part)?.snapshot()?,
                    own: self.back.partition(range)?.snapshot()?,
                    definition: Arc::clone(&entry.definition),
                    range: range.range.clone(),
                    end,
                    now: self.writer.now(),
                };
                let (missing, next) = blocking(move || comparison.missing_after(from)).await?;
                let lost: Vec<Lost> = missing.iter().map(|gone| self.lost_deletion(range, gone)).collect();
                self.keep(container, &lost, tally).await?;
                if next.is_none() {
                    break;
                }
                from = next;
            }
        }
        Ok(())
    }

    fn lost_deletion(&self, range: &RangeEntry, Gone { number, item }: &Gone) -> Lost {
        let mut id = Object::new();
        id.insert("id", Value::String(String::from_utf8_lossy(&item.id).into_owned()));
        Lost {
            region: self.region.to_owned(),
            log: range.log,
            lsn: item.lsn,
            // Tells two items of one transaction apart.
            index: *number as usize,
            kind: LostKind::Delete,
            number: *number,
            content: Value::Object(id).to_text(),
        }
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
    /// Keeps as conflicts what a region has and the account has not. Answers how many versions are dropped because there was no
    /// room and the loss was accepted. Whoever calls this holds the lock.
    pub(super) async fn salvage(&self, region: &Region, accept: AcceptLoss) -> Result<usize> {
        let Some(back) = self.find_node(region.id) else {
            return Ok(0);
        };
        let writer = self.writer();
        let salvage = Salvage {
            back: &back,
            region: &region.name,
            writer: &writer,
            accept,
        };
        let (mut left, mut tally) = (region.cut_off.clone(), Tally::default());
        for (log, after) in region.cut_off.iter().filter(|(log, _)| **log != LogId::SYSTEM) {
            let (mut after, n_kept_before) = (*after, tally.n_kept);
            let kept = match salvage.log(*log, &mut after, &mut tally).await {
                // The own view, where the log does not have it all.
                Err(error)
                    if accept == AcceptLoss::Damaged && error.status() == Status::UNAVAILABLE && is_lost(&back) =>
                {
                    salvage.unreadable(*log, error, &mut tally)
                }
                kept => kept,
            };
            if let Err(error) = kept {
                left.insert(*log, after);
                // What has been kept is not kept again, also if it has been looked at and deleted by then.
                self.set_left(region.id, left)?;
                return Err(error);
            }
            left.remove(log);
            let n_kept = tally.n_kept - n_kept_before;
            tracing::info!(region = region.name, %log, n_kept, "writes that were lost are kept as conflicts");
        }
        if tally.n_dropped + tally.n_unreadable > 0 {
            self.n_dropped.fetch_add(tally.n_dropped as u64, Ordering::Relaxed);
            self.events.tell(Happening::ConflictsDropped {
                region: region.name.clone(),
                n_versions: tally.n_dropped as u64,
                n_unreadable_logs: tally.n_unreadable as u64,
            });
        }
        Ok(tally.n_dropped)
    }

    /// Notes what of a region's cut-off logs is not kept elsewhere yet.
    pub(super) fn set_left(&self, region: RegionId, left: BTreeMap<LogId, Lsn>) -> Result<()> {
        let next = self.topology().with_cut_off(region, left);
        self.keeper.save(&next)?;
        self.set_topology(next);
        Ok(())
    }
}

/// Is what a region cannot read gone for good?
fn is_lost(node: &Node) -> bool {
    node.store.damage().is_some() || node.store.health() == Health::Closed
}

/// An item that one view has and another has no more.
struct Gone {
    number: u64,
    item: StoredItem,
}

/// Two views of the same part of a container.
struct Comparison {
    theirs: Arc<dyn Snapshot>,
    own: Arc<dyn Snapshot>,
    definition: Arc<ContainerDefinition>,
    range: EpkRange,
    /// Everything up to there was in both, or in the own one alone.
    end: Lsn,
    now: Timestamp,
}

impl Comparison {
    /// The next items that only the other view has, after a key, and the key up to which these are all.
    fn missing_after(&self, from: Option<Bytes>) -> Result<(Vec<Gone>, Option<Bytes>)> {
        let form = EpkForm::of(self.definition.partition_key());
        let (first, bound) = keys::bounds(KeySpace::Item);
        let start = match &from {
            Some(key) => Bound::Excluded(key.as_ref()),
            None => Bound::Included(first.as_ref()),
        };
        let (mut missing, mut last, mut n_seen) = (Vec::new(), None, 0);
        for entry in self
            .theirs
            .scan(start, Bound::Excluded(&bound), false)
            .take(COMPARED_MAX)
        {
            let (key, value) = entry.map_err(unreadable)?;
            let place = keys::read_item(form, &key);
            n_seen += 1;
            last = Some(key.clone());
            let Some((_, number)) = place.filter(|(epk, _)| self.range.contains(epk)) else {
                continue;
            };
            let item = StoredItem::decode(&value).map_err(unreadable)?;
            // What has expired was purged by nobody's wish.
            let is_older = item.lsn <= self.end && !is_expired(&self.definition, &item, self.now);
            if is_older && self.own.get(&key).map_err(unreadable)?.is_none() {
                missing.push(Gone { number, item });
            }
        }
        Ok((missing, last.filter(|_| n_seen == COMPARED_MAX)))
    }
}

/// A version of an item, with its place in the log.
#[derive(Debug)]
pub(crate) struct Version {
    pub epk: Epk,
    pub number: u64,
    pub index: usize,
    pub item: StoredItem,
}

/// The items of a view that changed after one LSN and up to another, as they are now, in the order of their changes: about so
/// many bytes of them, and up to which LSN these are all.
pub(crate) fn versions_between(
    view: &dyn Snapshot,
    form: EpkForm,
    (after, end): (Lsn, Lsn),
    limit_bytes: usize,
) -> Result<(Vec<Version>, Lsn)> {
    let (first, bound) = (keys::changes_after(after), keys::bounds(KeySpace::Change).1);
    let (mut found, mut n_bytes, mut last) = (Vec::new(), 0, after);
    for change in view.scan(Bound::Included(&first), Bound::Excluded(&bound), false) {
        let (key, pointer) = change.map_err(unreadable)?;
        let place = keys::read_change(&key).zip(keys::read_change_pointer(form, &pointer));
        let Some(((lsn, index, number), (epk, _))) = place else {
            continue;
        };
        if lsn > end {
            break;
        }
        // Transactions are told whole.
        if n_bytes >= limit_bytes && lsn > last {
            return Ok((found, last));
        }
        last = lsn;
        if let Some(bytes) = view.get(&keys::item(form, &epk, number)).map_err(unreadable)? {
            n_bytes += bytes.len();
            found.push(Version {
                epk,
                number,
                index: usize::from(index),
                item: StoredItem::decode(&bytes).map_err(unreadable)?,
            });
        }
    }
    Ok((found, end))
}
