//! Entries of the order of changes together with the items they point to, several at a time: those of the latest transactions
//! from memory, the others from the view, in the order of keys, since neighbours in time lie all over the key space.
//!
//! How many are read ahead follows from the sizes met so far, so that a page of large items reads little that it cannot hold.
//! Small items say nothing about the sizes behind them: no more are read at a time than may all be as large as items get.

use std::collections::VecDeque;

use bytes::Bytes;
use orrery_model::Result;
use orrery_partition::decide::unreadable;
use orrery_partition::storage::{Scan, View};
use orrery_partition::stored::StoredItem;

use crate::recent::ChangeId;

/// Entries of the first batch, when nothing is known about the items.
const FIRST_BATCH: usize = 16;
const BATCH_MAX: usize = 32;

/// Finds versions that changes have made, as far as they are in memory.
pub type Recent<'v> = dyn Fn(&[ChangeId]) -> Vec<Option<StoredItem>> + 'v;

/// An entry, and the item that was looked up for it.
pub struct Entry {
    pub key: Bytes,
    pub value: Bytes,
    pub item: Looked,
}

pub enum Looked {
    NotWanted,
    Missing,
    Found(StoredItem),
}

/// Which item an entry needs.
pub struct Place {
    pub change: ChangeId,
    /// Its key in the view.
    pub key: Bytes,
}

pub struct Ahead<'v> {
    view: &'v dyn View,
    recent: &'v Recent<'v>,
    entries: Scan<'v>,
    ready: VecDeque<Entry>,
    /// What all batches together should have.
    n_items_wanted: usize,
    n_bytes_wanted: usize,
    n_items: usize,
    n_bytes: usize,
}

impl<'v> Ahead<'v> {
    pub fn new(
        view: &'v dyn View,
        recent: &'v Recent<'v>,
        entries: Scan<'v>,
        n_items_wanted: usize,
        n_bytes_wanted: usize,
    ) -> Ahead<'v> {
        Ahead {
            view,
            recent,
            entries,
            ready: VecDeque::new(),
            n_items_wanted,
            n_bytes_wanted,
            n_items: 0,
            n_bytes: 0,
        }
    }

    /// The next entry. `place` says from an entry's key and value which item to look up with it.
    pub fn next(&mut self, place: impl Fn(&Bytes, &Bytes) -> Result<Option<Place>>) -> Result<Option<Entry>> {
        if self.ready.is_empty() {
            self.read(place)?;
        }
        Ok(self.ready.pop_front())
    }

    fn read(&mut self, place: impl Fn(&Bytes, &Bytes) -> Result<Option<Place>>) -> Result<()> {
        let (mut changes, mut keys) = (Vec::new(), Vec::new());
        let n_entries = self.batch();
        for entry in self.entries.by_ref().take(n_entries) {
            let (key, value) = entry.map_err(unreadable)?;
            if let Some(place) = place(&key, &value)? {
                changes.push(place.change);
                keys.push((place.key, self.ready.len()));
            }
            self.ready.push_back(Entry {
                key,
                value,
                item: Looked::NotWanted,
            });
        }
        let recent = (self.recent)(&changes);
        let mut unknown = Vec::new();
        for ((key, index), item) in keys.into_iter().zip(recent) {
            match item {
                Some(item) => self.found(index, Some(item)),
                None => unknown.push((key, index)),
            }
        }
        unknown.sort_unstable();
        for (key, index) in unknown {
            let stored = self.view.get(&key).map_err(unreadable)?;
            let item = stored.as_ref().map(StoredItem::decode);
            self.found(index, item.transpose().map_err(unreadable)?);
        }
        Ok(())
    }

    fn found(&mut self, index: usize, item: Option<StoredItem>) {
        self.n_items += 1;
        self.n_bytes += item.as_ref().map_or(0, |item| item.body.len());
        self.ready[index].item = item.map_or(Looked::Missing, Looked::Found);
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

#[cfg(test)]
mod tests {
    use std::ops::Bound;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use orrery_model::{Etag, IndexingDirective, Lsn};
    use orrery_partition::storage;

    use super::*;

    const N_SMALL: u64 = 500;
    const LARGE_BYTES: usize = 2 << 20;

    /// Items by number, which are also their keys: small ones and, behind them, large ones. Counts the bytes it gives.
    struct Items(AtomicUsize);

    impl View for Items {
        fn get(&self, key: &[u8]) -> storage::Result<Option<Bytes>> {
            let number = u64::from_be_bytes(key.try_into().unwrap());
            let n_bytes = if number < N_SMALL { 100 } else { LARGE_BYTES };
            self.0.fetch_add(n_bytes, Ordering::Relaxed);
            let item = StoredItem {
                lsn: Lsn(number),
                index: 0,
                ts: 1,
                etag: Etag([0; 16]),
                ttl: None,
                directive: IndexingDirective::Default,
                id: Bytes::from_static(b"id"),
                body: vec![b' '; n_bytes].into(),
            };
            Ok(Some(item.encode()))
        }

        fn scan<'a>(&'a self, _: Bound<&[u8]>, _: Bound<&[u8]>, _: bool) -> Scan<'a> {
            let entry = |number: u64| Ok((Bytes::copy_from_slice(&number.to_be_bytes()), Bytes::new()));
            Box::new((0..10_000).map(entry))
        }
    }

    #[test]
    fn large_items_behind_small_ones_are_not_read_ahead_by_the_hundred() {
        const PAGE_BYTES: usize = 4 << 20;
        let items = Items(AtomicUsize::new(0));
        let nothing = |changes: &[ChangeId]| vec![None; changes.len()];
        let entries = items.scan(Bound::Unbounded, Bound::Unbounded, false);
        let mut ahead = Ahead::new(&items, &nothing, entries, 1_000, PAGE_BYTES);
        let place = |key: &Bytes, _: &Bytes| {
            let (lsn, index, number) = (Lsn(1), 0, 0);
            let change = ChangeId { lsn, index, number };
            Ok(Some(Place {
                change,
                key: key.clone(),
            }))
        };
        let (mut n_bytes, mut n_entries) = (0, 0);
        while n_bytes < PAGE_BYTES {
            let Some(Entry {
                item: Looked::Found(item),
                ..
            }) = ahead.next(place).unwrap()
            else {
                panic!("every entry has its item");
            };
            (n_bytes, n_entries) = (n_bytes + item.body.len(), n_entries + 1);
        }
        assert_eq!(n_entries, N_SMALL + 2, "the page holds two large ones");
        let n_read = items.0.load(Ordering::Relaxed);
        assert!(n_read <= n_bytes + 32 * LARGE_BYTES, "{n_read} bytes for {n_bytes}");
    }
}
