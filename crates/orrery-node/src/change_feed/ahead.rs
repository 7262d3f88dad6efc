//! Entries of the order of changes together with the items they point to, several at a time: neighbours in time lie all over
//! the key space, and looking a batch of them up in the order of keys takes a good deal less than one after the other.
//!
//! How many are read ahead follows from the sizes met so far, so that a page of large items reads little that it cannot hold.

use std::collections::VecDeque;

use bytes::Bytes;
use orrery_model::Result;
use orrery_partition::decide::unreadable;
use orrery_partition::storage::{Scan, View};

/// Entries of the first batch, when nothing is known about the items.
const FIRST_BATCH: usize = 16;
const BATCH_MAX: usize = 1_024;

/// An entry, and the item that was looked up for it.
pub struct Entry {
    pub key: Bytes,
    pub value: Bytes,
    pub item: Looked,
}

pub enum Looked {
    NotWanted,
    Missing,
    Found(Bytes),
}

pub struct Ahead<'v> {
    view: &'v dyn View,
    entries: Scan<'v>,
    ready: VecDeque<Entry>,
    /// What all batches together should have.
    n_items_wanted: usize,
    n_bytes_wanted: usize,
    n_items: usize,
    n_bytes: usize,
}

impl<'v> Ahead<'v> {
    pub fn new(view: &'v dyn View, entries: Scan<'v>, n_items_wanted: usize, n_bytes_wanted: usize) -> Ahead<'v> {
        Ahead {
            view,
            entries,
            ready: VecDeque::new(),
            n_items_wanted,
            n_bytes_wanted,
            n_items: 0,
            n_bytes: 0,
        }
    }

    /// The next entry. `place` says from an entry's key and value which item to look up with it.
    pub fn next(&mut self, place: impl Fn(&Bytes, &Bytes) -> Result<Option<Bytes>>) -> Result<Option<Entry>> {
        if self.ready.is_empty() {
            self.read(place)?;
        }
        Ok(self.ready.pop_front())
    }

    fn read(&mut self, place: impl Fn(&Bytes, &Bytes) -> Result<Option<Bytes>>) -> Result<()> {
        let mut places = Vec::new();
        let n_entries = self.batch();
        for entry in self.entries.by_ref().take(n_entries) {
            let (key, value) = entry.map_err(unreadable)?;
            if let Some(place) = place(&key, &value)? {
                places.push((place, self.ready.len()));
            }
            self.ready.push_back(Entry {
                key,
                value,
                item: Looked::NotWanted,
            });
        }
        places.sort_unstable();
        for (place, index) in places {
            let item = self.view.get(&place).map_err(unreadable)?;
            self.n_items += 1;
            self.n_bytes += item.as_ref().map_or(0, Bytes::len);
            self.ready[index].item = item.map_or(Looked::Missing, Looked::Found);
        }
        Ok(())
    }

    fn batch(&self) -> usize {
        let n_items_left = self.n_items_wanted.saturating_sub(self.n_items);
        let n_bytes_left = self.n_bytes_wanted.saturating_sub(self.n_bytes);
        let n_fitting = match self.n_bytes.checked_div(self.n_items) {
            None => FIRST_BATCH,
            Some(mean) => n_bytes_left / mean.max(1),
        };
        // One more shows whether the last transaction goes on.
        n_fitting.min(n_items_left + 1).clamp(1, BATCH_MAX)
    }
}
