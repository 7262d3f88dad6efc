//! All versions of a container's items, for as long as its change feed policy says: what was written, what it replaced and
//! what was deleted, in the order of the log.
//!
//! Kept apart from the items, so that whoever wants only the latest versions pays nothing for the rest. Up to the *floor*
//! nothing is kept: because it has left the window, or because the container did not ask for it then. Above the floor
//! nothing is missing. Partitions that were merged bring their floors along, each for its part of the key space.

use std::ops::Bound;

use bytes::Bytes;
use orrery_model::log::{DeleteItem, PutItem};
use orrery_model::{ContainerDefinition, Epk, EpkRange, Lsn, Timestamp};

use crate::keys::{self, EpkForm, KeySpace};
use crate::storage::{Result, StorageError, View, ViewWrite};
use crate::stored::StoredItem;

const FORMAT: u8 = 1;
const EXPIRED: u8 = 1;
/// Format, kind, flags, time, LSN of the version before, length of the new version.
const HEADER_BYTES: usize = 1 + 1 + 1 + 8 + 8 + 4;

/// The place of an operation in a partition's log.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub form: EpkForm,
    pub lsn: Lsn,
    pub index: u16,
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Create,
    Replace,
    Delete,
}

/// One change of one item, as it was kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    pub kind: ChangeKind,
    /// Deleted because its time to live ran out.
    pub expired: bool,
    pub at: Timestamp,
    /// LSN of the version before; zero if there is none.
    pub previous: Lsn,
    /// The item after the change; empty after a delete.
    pub after: Bytes,
    /// The item before the change; empty before a create.
    pub before: Bytes,
}

/// Up to where versions are not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    pub lsn: Lsn,
    pub at: Timestamp,
}

impl Floor {
    fn max(self, other: Floor) -> Floor {
        Floor {
            lsn: self.lsn.max(other.lsn),
            at: self.at.max(other.at),
        }
    }
}

/// What a put adds to the history.
pub fn of_put(
    definition: &ContainerDefinition,
    moment: Moment,
    put: &PutItem,
    before: Option<&(StoredItem, u64)>,
) -> Option<ViewWrite> {
    definition.change_feed_retention_minutes()?;
    let before = before.map(|(item, _)| item);
    let version = Version {
        kind: if before.is_some() {
            ChangeKind::Replace
        } else {
            ChangeKind::Create
        },
        expired: false,
        at: moment.at,
        previous: before.map_or(Lsn::ZERO, |before| before.lsn),
        after: put.body.clone(),
        before: before.map_or_else(Bytes::new, |before| before.body.clone()),
    };
    Some(entry(moment, &put.epk, put.number, &version))
}

/// What a delete adds to the history.
pub fn of_delete(
    definition: &ContainerDefinition,
    moment: Moment,
    delete: &DeleteItem,
    before: &StoredItem,
) -> Option<ViewWrite> {
    definition.change_feed_retention_minutes()?;
    let version = Version {
        kind: ChangeKind::Delete,
        expired: delete.expired,
        at: moment.at,
        previous: before.lsn,
        after: Bytes::new(),
        before: before.body.clone(),
    };
    Some(entry(moment, &delete.epk, delete.number, &version))
}

fn entry(moment: Moment, epk: &Epk, number: u64, version: &Version) -> ViewWrite {
    let key = keys::history(moment.lsn, moment.index, number);
    (key, Some(version.encode(moment.form, epk)))
}

impl Version {
    pub fn encode(&self, form: EpkForm, epk: &Epk) -> Bytes {
        let n_bytes = epk.as_bytes().len() + 2 + HEADER_BYTES + self.after.len() + self.before.len();
        let mut out = Vec::with_capacity(n_bytes);
        form.write(epk, &mut out);
        out.push(FORMAT);
        out.push(match self.kind {
            ChangeKind::Create => 1,
            ChangeKind::Replace => 2,
            ChangeKind::Delete => 3,
        });
        out.push(if self.expired { EXPIRED } else { 0 });
        out.extend_from_slice(&self.at.0.to_le_bytes());
        out.extend_from_slice(&self.previous.0.to_le_bytes());
        out.extend_from_slice(&(self.after.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.after);
        out.extend_from_slice(&self.before);
        Bytes::from(out)
    }

    /// The EPK and the version of an entry. The item's texts share its bytes.
    pub fn decode(form: EpkForm, bytes: &Bytes) -> Result<(Epk, Version)> {
        decode(form, bytes).ok_or_else(|| StorageError::Corrupt("a kept version is malformed".to_owned()))
    }
}

fn decode(form: EpkForm, bytes: &Bytes) -> Option<(Epk, Version)> {
    let (epk, rest) = form.read(bytes)?;
    let header_at = bytes.len() - rest.len();
    let (header, texts) = rest.split_first_chunk::<HEADER_BYTES>()?;
    let number = |at: usize| header.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let [FORMAT, kind, flags, ..] = *header else {
        return None;
    };
    let kind = match kind {
        1 => ChangeKind::Create,
        2 => ChangeKind::Replace,
        3 => ChangeKind::Delete,
        _ => return None,
    };
    let after_bytes = u32::from_le_bytes(header.get(19..)?.try_into().ok()?) as usize;
    if after_bytes > texts.len() {
        return None;
    }
    let after_at = header_at + HEADER_BYTES;
    let version = Version {
        kind,
        expired: flags & EXPIRED != 0,
        at: Timestamp(number(3)?),
        previous: Lsn(number(11)?),
        after: bytes.slice(after_at..after_at + after_bytes),
        before: bytes.slice(after_at + after_bytes..),
    };
    Some((epk, version))
}

/// A container that begins to keep versions with this definition has none from before.
pub(crate) fn floor_of_definition(definition: &[u8], view: &dyn View, moment: Moment) -> Result<Option<ViewWrite>> {
    let Some(before) = view.get(&keys::definition())? else {
        return Ok(None);
    };
    let begins = !keeps_versions(&before)? && keeps_versions(definition)?;
    let floor = Floor {
        lsn: moment.lsn,
        at: moment.at,
    };
    Ok(begins.then(|| (keys::history_floor(), Some(encode_floor(floor)))))
}

fn keeps_versions(definition: &[u8]) -> Result<bool> {
    let definition = ContainerDefinition::from_stored(definition)
        .map_err(|_| StorageError::Corrupt("a stored container definition is not valid".to_owned()))?;
    Ok(definition.change_feed_retention_minutes().is_some())
}

/// The time before which versions may be forgotten.
pub fn window_start(definition: &ContainerDefinition, now: Timestamp) -> Option<Timestamp> {
    let minutes = definition.change_feed_retention_minutes()?;
    Some(Timestamp(now.0.saturating_sub(u64::from(minutes) * 60_000)))
}

/// The LSN through which about `limit` versions can be forgotten: whole transactions that have left the window, or any if
/// the container keeps none any more.
pub fn trimmable(
    view: &dyn View,
    definition: &ContainerDefinition,
    now: Timestamp,
    limit: usize,
) -> Result<Option<Lsn>> {
    let window = window_start(definition, now);
    let form = EpkForm::of(definition.partition_key());
    let (first, last) = keys::bounds(KeySpace::History);
    let mut through = None;
    for (n_seen, one) in view
        .scan(Bound::Included(&first), Bound::Excluded(&last), false)
        .enumerate()
    {
        let (key, value) = one?;
        let lsn = keys::read_change(&key).map(|(lsn, ..)| lsn);
        if n_seen >= limit && lsn != through {
            break;
        }
        let (_, version) = Version::decode(form, &value)?;
        if lsn != through && window.is_some_and(|window| version.at >= window) {
            break;
        }
        through = lsn;
    }
    Ok(through)
}

/// Forgets every version up to `through`.
pub(crate) fn trim(form: EpkForm, view: &dyn View, through: Lsn) -> Result<Vec<ViewWrite>> {
    let (first, _) = keys::bounds(KeySpace::History);
    let end = keys::history_after(through);
    let mut floor = own_floor(view)?;
    let mut writes = Vec::new();
    for one in view.scan(Bound::Included(&first), Bound::Excluded(&end), false) {
        let (key, value) = one?;
        floor.at = floor.at.max(Version::decode(form, &value)?.1.at);
        writes.push((key, None));
    }
    floor.lsn = floor.lsn.max(through);
    writes.push((keys::history_floor(), Some(encode_floor(floor))));
    Ok(writes)
}

/// Up to where versions of items within `range` are not kept.
pub fn floor(view: &dyn View, range: &EpkRange) -> Result<Floor> {
    let parts = floors_of_parts(view)?;
    let within = parts.into_iter().filter(|(part, _)| part.overlaps(range));
    Ok(within.fold(own_floor(view)?, |floor, (_, other)| floor.max(other)))
}

/// The floors of a child's part of `parent`.
pub(crate) fn floors_for(parent: &dyn View, range: &EpkRange) -> Result<Vec<ViewWrite>> {
    let own = own_floor(parent)?;
    let Some(state) = crate::state::PartitionState::load(parent)? else {
        return Ok(Vec::new());
    };
    let mut parts = floors_of_parts(parent)?;
    if own != Floor::default() {
        parts.push((state.range, own));
    }
    let write = |(part, floor): (EpkRange, Floor)| {
        let part = part.intersection(range)?;
        Some((keys::history_floor_of(&part), Some(encode_floor(floor.max(own)))))
    };
    Ok(parts.into_iter().filter_map(write).collect())
}

fn own_floor(view: &dyn View) -> Result<Floor> {
    let stored = view.get(&keys::history_floor())?;
    let floor = stored.map(|bytes| decode_floor(&bytes));
    floor.map_or(Ok(Floor::default()), |floor| floor.ok_or_else(malformed_floor))
}

fn floors_of_parts(view: &dyn View) -> Result<Vec<(EpkRange, Floor)>> {
    let own = keys::history_floor();
    let (_, last) = keys::bounds(KeySpace::HistoryFloor);
    view.scan(Bound::Excluded(&own), Bound::Excluded(&last), false)
        .map(|one| {
            let (key, value) = one?;
            let part = keys::read_history_floor(&key).zip(decode_floor(&value));
            part.ok_or_else(malformed_floor)
        })
        .collect()
}

fn malformed_floor() -> StorageError {
    StorageError::Corrupt("a floor of the history is malformed".to_owned())
}

fn encode_floor(floor: Floor) -> Bytes {
    let mut out = vec![FORMAT];
    out.extend_from_slice(&floor.lsn.0.to_le_bytes());
    out.extend_from_slice(&floor.at.0.to_le_bytes());
    Bytes::from(out)
}

fn decode_floor(bytes: &[u8]) -> Option<Floor> {
    let (lsn, at) = bytes.strip_prefix(&[FORMAT])?.split_first_chunk::<8>()?;
    Some(Floor {
        lsn: Lsn(u64::from_le_bytes(*lsn)),
        at: Timestamp(u64::from_le_bytes(at.try_into().ok()?)),
    })
}
