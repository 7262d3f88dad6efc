//! Items in the order of an index, read and checked: an item is given only at the place where its own values put it, so
//! that paths which share a hash do no harm.

use std::collections::VecDeque;

use bytes::Bytes;
use orrery_model::json::Wanted;
use orrery_query::index::SortedBy;

use super::ordered::{Found, Group, Ordered};
use crate::storage::{Result, StorageError};
use crate::stored::StoredItem;

/// Bytes of items held while they are sorted by values that the index does not tell apart.
const SORTED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// An item and its number.
#[derive(Debug)]
pub struct OrderedItem {
    pub number: u64,
    pub stored: StoredItem,
    sorted_by: SortedBy,
}

#[derive(Debug)]
pub struct OrderedItems<'v> {
    ordered: Ordered<'v>,
    wanted: Wanted,
    waiting: VecDeque<Found>,
    sorted: VecDeque<OrderedItem>,
    gave_up: bool,
}

impl<'v> OrderedItems<'v> {
    pub fn new(ordered: Ordered<'v>) -> OrderedItems<'v> {
        OrderedItems {
            wanted: ordered.order().wanted(),
            ordered,
            waiting: VecDeque::new(),
            sorted: VecDeque::new(),
            gave_up: false,
        }
    }

    /// Whether the items ended early because the index cannot put them in order. What was given is to be forgotten.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// The next item among those that `is_alive`.
    pub fn next(&mut self, is_alive: &dyn Fn(&StoredItem) -> bool) -> Result<Option<OrderedItem>> {
        loop {
            if let Some(item) = self.sorted.pop_front() {
                return Ok(Some(item));
            }
            if let Some(found) = self.waiting.pop_front() {
                match self.read(&found, is_alive)? {
                    Some(item) => return Ok(Some(item)),
                    None => continue,
                }
            }
            match self.ordered.next_group()? {
                None => return Ok(None),
                Some(Group::Sorted(found)) => self.waiting = found.into(),
                Some(Group::Loose(found)) => self.sort(found, is_alive)?,
                Some(Group::TooLarge) => self.gave_up = true,
            }
            if self.gave_up {
                return Ok(None);
            }
        }
    }

    fn read(&self, found: &Found, is_alive: &dyn Fn(&StoredItem) -> bool) -> Result<Option<OrderedItem>> {
        let Some(bytes) = self.ordered.view(found.scope).get(&found.key)? else {
            return Ok(None);
        };
        let stored = StoredItem::decode(&bytes)?;
        if !is_alive(&stored) {
            return Ok(None);
        }
        let wanted = self
            .wanted
            .read(&stored.body)
            .map_err(|_| StorageError::Corrupt("a stored item is not JSON".to_owned()))?;
        let order = self.ordered.order();
        let Some(sorted_by) = order.values(&wanted) else {
            return Ok(None);
        };
        let stands_here = match &found.code {
            Some(code) => order.code(&sorted_by) == code.as_ref(),
            None => order.is_undefined(&sorted_by),
        };
        Ok(stands_here.then_some(OrderedItem {
            number: found.number,
            stored,
            sorted_by,
        }))
    }

    fn sort(&mut self, found: Vec<Found>, is_alive: &dyn Fn(&StoredItem) -> bool) -> Result<()> {
        let (mut items, mut size_bytes) = (Vec::new(), 0);
        for found in &found {
            let Some(item) = self.read(found, is_alive)? else {
                continue;
            };
            size_bytes += Bytes::len(&item.stored.body);
            items.push(item);
            if size_bytes > SORTED_BYTES_MAX {
                self.gave_up = true;
                return Ok(());
            }
        }
        let order = self.ordered.order();
        items.sort_by(|a, b| {
            order
                .compare(&a.sorted_by, &b.sorted_by)
                .then_with(|| a.number.cmp(&b.number))
        });
        self.sorted = items.into();
        Ok(())
    }
}
