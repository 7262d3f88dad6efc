//! A snapshot that takes items from the hot-item cache where it can, and leaves there what it had to look for. Everything else comes
//! from the snapshot, and nothing differs from what is in it.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use orrery_model::{LogId, Position};
use orrery_partition::keys;
use orrery_partition::storage::{Result, Scan, Snapshot, View};
use orrery_partition::stored::StoredItem;

use crate::cache::CacheKey;
use crate::caches::Caches;

/// Items that one snapshot leaves in the cache: a query that goes through many would drive out what others come for.
const LEFT_MAX: usize = 128;

#[derive(Debug)]
pub struct HotSnapshot {
    snapshot: Arc<dyn Snapshot>,
    cache: Arc<Caches>,
    log: LogId,
    /// Whether the cache was told of all changes up to the snapshot.
    is_announced: bool,
    n_left: AtomicUsize,
}

impl HotSnapshot {
    pub fn new(snapshot: Arc<dyn Snapshot>, cache: Arc<Caches>, log: LogId, is_announced: bool) -> HotSnapshot {
        HotSnapshot {
            snapshot,
            cache,
            log,
            is_announced,
            n_left: AtomicUsize::new(0),
        }
    }

    fn item(&self, key: CacheKey<'_>, item_key: &[u8]) -> Result<Option<Bytes>> {
        let lsn = self.position().lsn;
        let hot = match self.is_announced {
            true => self.cache.items.get_as_of(key, lsn),
            false => self.cache.items.get_at(key, lsn),
        };
        if let Some(item) = hot {
            return Ok(Some(item.encode()));
        }
        let found = self.snapshot.get(item_key)?;
        if let Some(bytes) = &found
            && self.n_left.fetch_add(1, Ordering::Relaxed) < LEFT_MAX
        {
            // A copy, which keeps no block of the store alive.
            let item = StoredItem::decode(&Bytes::copy_from_slice(bytes))?;
            self.cache.items.fill(key, Arc::new(item), lsn);
        }
        Ok(found)
    }
}

impl View for HotSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match keys::number_of_item(key) {
            Some(number) => self.item(CacheKey::Number { log: self.log, number }, key),
            None => self.snapshot.get(key),
        }
    }

    fn scan<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> Scan<'a> {
        self.snapshot.scan(from, to, reverse)
    }
}

impl Snapshot for HotSnapshot {
    fn position(&self) -> Position {
        self.snapshot.position()
    }
}
