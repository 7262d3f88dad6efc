//! The items of a target in the order of their keys, partition after partition: all of them, or those that the index says
//! can pass the filter.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use orrery_model::{EpkRange, Error, Result, Status, Timestamp};
use orrery_partition::decide::unreadable;
use orrery_partition::expiry::is_expired;
use orrery_partition::index::{Access, EFFORT, Scope};
use orrery_partition::keys::{self, EpkForm};
use orrery_partition::state::PartitionState;
use orrery_partition::storage::Snapshot;
use orrery_partition::stored::StoredItem;
use orrery_query::index::Condition;
use orrery_query::run::{Content, Cursor, Item};

use crate::catalogue::ContainerEntry;
use crate::continuation::Continuation;

/// Entries fetched at first, and later at a time: a query that wants few items should not pay for many.
const CHUNK_FIRST: usize = 8;
const CHUNK: usize = 128;

/// A part of the target that lies in one partition.
#[derive(Debug)]
pub struct Part {
    pub snapshot: Arc<dyn Snapshot>,
    pub range: EpkRange,
    /// Names the indexing policy that the query was planned with.
    pub policy: u64,
    /// Of the partition, once it is read.
    pub state: Option<PartitionState>,
    /// The number of its items, once they are counted.
    pub n_items: Option<usize>,
    /// How its items are found, once that is decided.
    pub access: Option<Access>,
}

impl Part {
    pub fn scope(&self, form: EpkForm) -> Scope<'_> {
        Scope {
            view: &*self.snapshot,
            form,
            range: &self.range,
            policy: self.policy,
            state: self.state.as_ref(),
            n_items: self.n_items,
        }
    }

    /// The partition's state, read once; `None` before it was opened.
    pub fn state(&mut self) -> Result<Option<&PartitionState>> {
        if self.state.is_none() {
            self.state = PartitionState::load(&*self.snapshot).map_err(unreadable)?;
        }
        Ok(self.state.as_ref())
    }
}

pub struct ItemCursor<'a> {
    container: &'a ContainerEntry,
    condition: &'a Condition,
    form: EpkForm,
    now: Timestamp,
    parts: VecDeque<Part>,
    /// Where the current part goes on.
    from: Bound<Bytes>,
    fetched: VecDeque<(Bytes, Bytes)>,
    chunk: usize,
    current: Bytes,
    last: Option<Bytes>,
    looks_ahead: bool,
    pub bytes_read: usize,
}

impl<'a> ItemCursor<'a> {
    /// Begins at `start`, itself included when `inclusive`, or at the beginning.
    pub fn new(
        container: &'a ContainerEntry,
        condition: &'a Condition,
        parts: Vec<Part>,
        start: Option<Continuation>,
        inclusive: bool,
        now: Timestamp,
    ) -> ItemCursor<'a> {
        let form = EpkForm::of(container.definition.partition_key());
        let mut parts: VecDeque<Part> = parts.into();
        let mut from = Bound::Unbounded;
        if let Some(start) = start {
            while parts.front().is_some_and(|part| part.range.max <= start.epk) {
                parts.pop_front();
            }
            let key = keys::item(form, &start.epk, start.number);
            from = if inclusive {
                Bound::Included(key)
            } else {
                Bound::Excluded(key)
            };
        }
        ItemCursor {
            container,
            condition,
            form,
            now,
            parts,
            from,
            fetched: VecDeque::new(),
            chunk: CHUNK_FIRST,
            current: Bytes::new(),
            last: None,
            looks_ahead: false,
            bytes_read: 0,
        }
    }

    /// The item yielded last, apart from those that were only looked at.
    pub fn last(&self) -> Option<Continuation> {
        let (epk, number) = keys::read_item(self.form, self.last.as_ref()?)?;
        Some(Continuation { epk, number })
    }

    fn fetch(&mut self) -> Result<bool> {
        while let Some(part) = self.parts.front_mut() {
            let access = match part.access.take() {
                Some(access) => access,
                None => Access::choose(part.scope(self.form), self.condition, EFFORT).map_err(unreadable)?,
            };
            let from = self.from.as_ref().map(Bytes::as_ref);
            let next = match &access {
                Access::Scan => scan(part, self.form, from, self.chunk, &mut self.fetched)?,
                found => fetch_found(part, found, self.form, from, self.chunk, &mut self.fetched)?,
            };
            part.access = Some(access);
            match next {
                Some(last) => self.from = Bound::Excluded(last),
                None => {
                    self.parts.pop_front();
                    self.from = Bound::Unbounded;
                }
            }
            if !self.fetched.is_empty() {
                self.chunk = (self.chunk * 2).min(CHUNK);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Reads the next items of a part; answers the last key, `None` at the end.
fn scan(
    part: &Part,
    form: EpkForm,
    from: Bound<&[u8]>,
    limit: usize,
    out: &mut VecDeque<(Bytes, Bytes)>,
) -> Result<Option<Bytes>> {
    let first = keys::items_from(form, &part.range.min);
    let from = match from {
        Bound::Included(key) | Bound::Excluded(key) if *key < *first => Bound::Included(first.as_ref()),
        Bound::Unbounded => Bound::Included(first.as_ref()),
        from => from,
    };
    let to = keys::items_from(form, &part.range.max);
    for entry in part.snapshot.scan(from, Bound::Excluded(&to), false).take(limit) {
        out.push_back(entry.map_err(unreadable)?);
    }
    Ok(out.back().map(|(key, _)| key.clone()))
}

/// Reads the next items that an index led to; answers the last key, `None` at the end.
fn fetch_found(
    part: &Part,
    access: &Access,
    form: EpkForm,
    from: Bound<&[u8]>,
    limit: usize,
    out: &mut VecDeque<(Bytes, Bytes)>,
) -> Result<Option<Bytes>> {
    let keys = access.keys(part.scope(form), from, limit).map_err(unreadable)?;
    let last = keys.last().cloned();
    for key in keys {
        if let Some(value) = part.snapshot.get(&key).map_err(unreadable)? {
            out.push_back((key, value));
        }
    }
    Ok(last)
}

impl Cursor for ItemCursor<'_> {
    fn next(&mut self) -> Result<Option<Item<'_>>> {
        loop {
            let Some((key, value)) = self.fetched.pop_front() else {
                if self.fetch()? {
                    continue;
                }
                return Ok(None);
            };
            let item = StoredItem::decode(&value).map_err(unreadable)?;
            if is_expired(&self.container.definition, &item, self.now) {
                continue;
            }
            let malformed = || Error::new(Status::INTERNAL, "a stored item is malformed");
            let (_, number) = keys::read_item(self.form, &key).ok_or_else(malformed)?;
            // Whoever goes on with what was only looked at reads it again.
            if !self.looks_ahead {
                self.last = Some(key);
                self.bytes_read += item.body.len();
            }
            self.current = item.body;
            return Ok(Some(Item {
                content: Content::Text(&self.current),
                rank: number,
            }));
        }
    }

    fn look_ahead(&mut self) {
        self.looks_ahead = true;
    }
}
