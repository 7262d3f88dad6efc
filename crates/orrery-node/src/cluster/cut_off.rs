//! What a region wrote and the others never had, when another region has taken over without it: read where it was written, and
//! kept as conflicts where writes are taken now.
//!
//! The two are in different processes, so versions travel as plain values. Keeping one twice keeps it once.

use std::sync::Arc;

use orrery_model::json::{Object, Value};
use orrery_model::log::{Operation, Transaction};
use orrery_model::{Epk, LogId, Lsn, ResourceId, Result};
use orrery_partition::decide::unreadable;
use orrery_partition::keys::{self, EpkForm};
use orrery_partition::storage::StorageError;

use crate::catalogue::ContainerEntry;
use crate::geo::salvage::{Version, versions_between};
use crate::metadata::conflicts::{Kept, Lost, LostKind, Room, keep, no_room};
use crate::node::Node;

/// Read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// A version of an item that is not part of the account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutOff {
    pub log: LogId,
    pub lsn: Lsn,
    /// Its place in the transaction.
    pub index: usize,
    /// The item's number in its container.
    pub number: u64,
    pub epk: Epk,
    pub id: String,
    /// JSON text; `None` when the item was deleted.
    pub body: Option<String>,
}

/// Some of what a log holds beyond where it was cut off.
#[derive(Clone, Debug)]
pub struct Suffix {
    pub container: ResourceId,
    pub versions: Vec<CutOff>,
    /// Where to go on.
    pub last: Lsn,
}

impl Node {
    /// What this node's copy of a log holds after `after`: some of it, or `None` when there is no more.
    pub async fn suffix(&self, log: LogId, after: Lsn) -> Result<Option<Suffix>> {
        let ranges = self.all_ranges();
        let Some((container, range)) = ranges.into_iter().find(|(_, range)| range.log == log) else {
            return Ok(None);
        };
        let partition = self.partition(&range)?;
        let own = &partition.log;
        let mut last = after;
        while last < own.head().lsn {
            let (end, versions) = match own.read_log(last, CHUNK_BYTES).await {
                Ok(transactions) => {
                    let Some(end) = transactions.last() else { break };
                    let versions = transactions.iter().flat_map(|one| versions(log, one)).collect();
                    (end.lsn, versions)
                }
                // A log that begins here has its items from another one: which of them were lost nobody can tell.
                Err(StorageError::Trimmed { start }) if after == Lsn::ZERO => {
                    tracing::warn!(%log, %start, "the first of the lost writes are no longer in the log");
                    last = start;
                    continue;
                }
                Err(StorageError::Trimmed { start }) => {
                    tracing::warn!(%log, %start, "the first of the lost writes are no longer in the log: of what they wrote, only what is still there is kept");
                    let form = EpkForm::of(container.definition.partition_key());
                    let view = partition.snapshot()?;
                    let (found, end) = versions_between(&*view, form, (last, start), CHUNK_BYTES)?;
                    (end, found.into_iter().map(|found| still_there(log, found)).collect())
                }
                Err(error) => return Err(unreadable(error)),
            };
            return Ok(Some(Suffix {
                container: container.rid.clone(),
                last: end,
                versions,
            }));
        }
        Ok(None)
    }

    /// Keeps versions that another region wrote and this account lost. Answers how many are new; refused where there is no room
    /// for them.
    pub async fn keep_cut_off(
        self: &Arc<Node>,
        region: &str,
        container: &ResourceId,
        versions: &[CutOff],
    ) -> Result<usize> {
        self.duty.check_writes()?;
        let known = self.control.catalogue().container(container).cloned();
        let Some(known) = known else {
            tracing::warn!(%container, region, "writes are lost with a container that only one region knew");
            return Ok(0);
        };
        let lost: Result<Vec<Lost>> = versions.iter().map(|one| self.lost(region, &known, one)).collect();
        let (node, rid, lost) = (Arc::clone(self), container.clone(), lost?);
        self.uncancelled(async move {
            let mut room = Room::of(&node, &rid);
            match keep(&node, &rid, &lost, &mut room).await? {
                Kept::All(n_new) => Ok(n_new),
                // Whoever sent them keeps them, and sends them again.
                Kept::NoRoom(_) => Err(no_room(&node, &known.name)),
            }
        })
        .await
    }

    /// Whether a version was a new item shows where it is missing now.
    fn lost(&self, region: &str, container: &ContainerEntry, version: &CutOff) -> Result<Lost> {
        let form = EpkForm::of(container.definition.partition_key());
        let serving = container.route(&version.epk);
        let view = serving.map(|range| self.partition(range)?.snapshot()).transpose()?;
        let key = keys::id(form, &version.epk, &version.id);
        let there = view
            .map(|view| view.get(&key))
            .transpose()
            .map_err(unreadable)?
            .flatten();
        let (kind, content) = match (&version.body, there) {
            (Some(body), Some(_)) => (LostKind::Replace, body.clone()),
            (Some(body), None) => (LostKind::Create, body.clone()),
            (None, _) => {
                let mut id = Object::new();
                id.insert("id", Value::String(version.id.clone()));
                (LostKind::Delete, Value::Object(id).to_text())
            }
        };
        Ok(Lost {
            region: region.to_owned(),
            log: version.log,
            lsn: version.lsn,
            index: version.index,
            kind,
            number: version.number,
            content,
        })
    }
}

/// The version of an item that a view has.
fn still_there(log: LogId, found: Version) -> CutOff {
    CutOff {
        log,
        lsn: found.item.lsn,
        index: found.index,
        number: found.number,
        epk: found.epk,
        id: String::from_utf8_lossy(&found.item.id).into_owned(),
        body: Some(String::from_utf8_lossy(&found.item.body).into_owned()),
    }
}

fn versions(log: LogId, transaction: &Transaction) -> impl Iterator<Item = CutOff> + '_ {
    let operations = transaction.operations.iter().enumerate();
    operations.filter_map(move |(index, operation)| {
        let (number, epk, id, body) = match operation {
            Operation::Put(put) => {
                let body = String::from_utf8_lossy(&put.body).into_owned();
                (put.number, &put.epk, &put.id, Some(body))
            }
            Operation::Delete(delete) if !delete.expired => (delete.number, &delete.epk, &delete.id, None),
            _ => return None,
        };
        Some(CutOff {
            log,
            lsn: transaction.lsn,
            index,
            number,
            epk: epk.clone(),
            id: id.to_string(),
            body,
        })
    })
}
