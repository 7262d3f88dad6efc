//! The items of a target, partition after partition, a bounded number fetched at a time.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use orrery_model::{EpkRange, Error, Result, Status, Timestamp};
use orrery_partition::decide::unreadable;
use orrery_partition::expiry::is_expired;
use orrery_partition::keys::{self, EpkForm};
use orrery_partition::storage::Snapshot;
use orrery_partition::stored::StoredItem;
use orrery_query::run::{Content, Cursor, Item};

use crate::catalogue::ContainerEntry;
use crate::continuation::Continuation;

/// Entries fetched at a time.
const CHUNK: usize = 128;

/// A part of the target that lies in one partition.
#[derive(Debug)]
pub struct Part {
    pub snapshot: Arc<dyn Snapshot>,
    pub range: EpkRange,
}

pub struct ItemCursor<'a> {
    container: &'a ContainerEntry,
    form: EpkForm,
    now: Timestamp,
    parts: VecDeque<Part>,
    /// Where the current part goes on.
    from: Bound<Bytes>,
    fetched: VecDeque<(Bytes, Bytes)>,
    current: Bytes,
    last: Option<Bytes>,
    pub bytes_read: usize,
}

impl<'a> ItemCursor<'a> {
    /// Begins at `start`, itself included when `inclusive`, or at the beginning.
    pub fn new(
        container: &'a ContainerEntry,
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
            form,
            now,
            parts,
            from,
            fetched: VecDeque::new(),
            current: Bytes::new(),
            last: None,
            bytes_read: 0,
        }
    }

    /// The item yielded last.
    pub fn last(&self) -> Option<Continuation> {
        let (epk, number) = keys::read_item(self.form, self.last.as_ref()?)?;
        Some(Continuation { epk, number })
    }

    fn fetch(&mut self) -> Result<bool> {
        while let Some(part) = self.parts.front() {
            let first = keys::items_from(self.form, &part.range.min);
            let from = match &self.from {
                Bound::Included(key) if *key >= first => Bound::Included(key.as_ref()),
                Bound::Excluded(key) if *key >= first => Bound::Excluded(key.as_ref()),
                _ => Bound::Included(first.as_ref()),
            };
            let to = keys::items_from(self.form, &part.range.max);
            for entry in part.snapshot.scan(from, Bound::Excluded(&to), false).take(CHUNK) {
                self.fetched.push_back(entry.map_err(unreadable)?);
            }
            if let Some((key, _)) = self.fetched.back() {
                self.from = Bound::Excluded(key.clone());
                return Ok(true);
            }
            self.parts.pop_front();
            self.from = Bound::Unbounded;
        }
        Ok(false)
    }
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
            self.bytes_read += item.body.len();
            let malformed = || Error::new(Status::INTERNAL, "a stored item is malformed");
            let (_, number) = keys::read_item(self.form, &key).ok_or_else(malformed)?;
            self.last = Some(key);
            self.current = item.body;
            return Ok(Some(Item {
                content: Content::Text(&self.current),
                rank: number,
            }));
        }
    }
}
