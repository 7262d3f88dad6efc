//! The hot-item cache: recently read or written items, so that a point read need not search the view.
//!
//! A cached item is never older than what any reader has already been shown. Two rules make that true:
//! - a writer bars the keys it is about to change before it appends, and puts the new versions in when the append is
//!   visible, before it acknowledges; while a key's shard is barred nothing is filled in;
//! - a fill carries the LSN of the snapshot it was read from, and is dropped when anything in its shard has changed since.
//!
//! Memory is bounded: each shard evicts in the order of entry, giving items read in the meantime a second turn.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use orrery_model::{LogId, Lsn};
use orrery_partition::stored::StoredItem;

use super::sync::Mutex;

/// Names one item: its log, EPK bytes and id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey {
    pub log: LogId,
    pub epk: Vec<u8>,
    pub id: String,
}

#[derive(Debug)]
pub struct HotCache {
    shards: Vec<Mutex<Shard>>,
    shard_bytes_max: usize,
}

const SHARDS: usize = 64;
/// What an entry costs besides the item itself.
const ENTRY_BYTES: usize = 200;

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<CacheKey, Entry>,
    /// Keys in the order they entered; a key may be gone from `entries`.
    order: VecDeque<CacheKey>,
    bytes: usize,
    /// Writers between bar and release.
    n_barred: usize,
    n_hits: u64,
    n_misses: u64,
    /// LSN of the last change per log; logs are few per shard and forgotten with [`HotCache::clear`].
    changed: HashMap<LogId, Lsn>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUsage {
    pub n_hits: u64,
    pub n_misses: u64,
    pub bytes: u64,
}

#[derive(Debug)]
struct Entry {
    item: Arc<StoredItem>,
    read_since: bool,
}

impl HotCache {
    pub fn new(bytes_max: usize) -> HotCache {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect();
        HotCache {
            shards,
            shard_bytes_max: bytes_max / SHARDS,
        }
    }

    pub fn get(&self, key: &CacheKey) -> Option<Arc<StoredItem>> {
        self.shard(key, |shard| {
            let Some(entry) = shard.entries.get_mut(key) else {
                shard.n_misses += 1;
                return None;
            };
            entry.read_since = true;
            shard.n_hits += 1;
            Some(Arc::clone(&entry.item))
        })
    }

    /// What the cache holds and how often it helped.
    pub fn usage(&self) -> CacheUsage {
        let mut usage = CacheUsage::default();
        for shard in &self.shards {
            let shard = lock(shard);
            usage.n_hits += shard.n_hits;
            usage.n_misses += shard.n_misses;
            usage.bytes += shard.bytes as u64;
        }
        usage
    }

    /// Offers an item read from a snapshot at `lsn`.
    pub fn fill(&self, key: CacheKey, item: Arc<StoredItem>, lsn: Lsn) {
        let bytes_max = self.shard_bytes_max;
        self.shard(&key.clone(), |shard| {
            let changed_since = shard.changed.get(&key.log).is_some_and(|changed| *changed > lsn);
            if shard.n_barred == 0 && !changed_since {
                shard.insert(key, item, bytes_max);
            }
        });
    }

    /// Announces that a writer is about to change a key. Must be followed by [`HotCache::release`].
    pub fn bar(&self, key: &CacheKey) {
        self.shard(key, |shard| {
            shard.n_barred += 1;
            shard.remove(key);
        });
    }

    /// Ends what [`HotCache::bar`] began: the key changed at `lsn` to `item`, or to nothing that may be shown (`None`).
    pub fn release(&self, key: CacheKey, lsn: Option<Lsn>, item: Option<Arc<StoredItem>>) {
        let bytes_max = self.shard_bytes_max;
        self.shard(&key.clone(), |shard| {
            shard.n_barred -= 1;
            // A key changed twice in one batch is released twice; the later version must win.
            shard.remove(&key);
            if let Some(lsn) = lsn {
                let changed = shard.changed.entry(key.log).or_insert(lsn);
                *changed = (*changed).max(lsn);
            }
            if let Some(item) = item {
                shard.insert(key, item, bytes_max);
            }
        });
    }

    /// Forgets everything of a log: it was dropped, restored, or changed its role.
    pub fn clear(&self, log: LogId) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let keys: Vec<CacheKey> = shard.entries.keys().filter(|key| key.log == log).cloned().collect();
            keys.iter().for_each(|key| shard.remove(key));
            shard.changed.remove(&log);
        }
    }

    fn shard<T>(&self, key: &CacheKey, with: impl FnOnce(&mut Shard) -> T) -> T {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let index = hasher.finish() as usize % self.shards.len();
        with(&mut lock(&self.shards[index]))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> impl std::ops::DerefMut<Target = T> + '_ {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Shard {
    fn insert(&mut self, key: CacheKey, item: Arc<StoredItem>, bytes_max: usize) {
        let bytes = size(&key, &item);
        if bytes > bytes_max / 4 {
            return;
        }
        self.remove(&key);
        while self.bytes + bytes > bytes_max && self.evict_one() {}
        self.bytes += bytes;
        self.order.push_back(key.clone());
        self.entries.insert(
            key,
            Entry {
                item,
                read_since: false,
            },
        );
        // Removed keys leave their place in the order behind; drop those now and then.
        if self.order.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            let mut seen = std::collections::HashSet::new();
            self.order
                .retain(|key| entries.contains_key(key) && seen.insert(key.clone()));
        }
    }

    fn remove(&mut self, key: &CacheKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= size(key, &entry.item);
        }
    }

    fn evict_one(&mut self) -> bool {
        while let Some(key) = self.order.pop_front() {
            match self.entries.get_mut(&key) {
                Some(entry) if entry.read_since => {
                    entry.read_since = false;
                    self.order.push_back(key);
                }
                Some(_) => {
                    self.remove(&key);
                    return true;
                }
                None => {}
            }
        }
        false
    }
}

fn size(key: &CacheKey, item: &StoredItem) -> usize {
    ENTRY_BYTES + 2 * (key.epk.len() + key.id.len()) + item.id.len() + item.body.len()
}
