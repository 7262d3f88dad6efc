//! The hot-item cache: recently read or written items, so that a point read need not search the view.
//!
//! A cached item is never older than what any reader has already been shown. Two rules make that true:
//! - a writer bars the keys it is about to change before it appends, and puts the new versions in when the append is
//!   visible, before it acknowledges; while a key's shard is barred nothing is filled in;
//! - a fill carries the LSN of the snapshot it was read from, and is dropped when anything in its shard has changed since.
//!
//! Of a log that others write nobody announces changes: there an item counts only while the log stands where it stood when
//! the item was read ([`HotCache::get_at`]). In a cluster a log may become such a one at any time.
//!
//! Queries look items up by their numbers, in a snapshot: there an item counts that is no newer than the snapshot
//! ([`HotCache::get_as_of`]), since one that had changed in between would be barred or gone. Such entries come from reads only; writers
//! bar them like the others.
//!
//! Memory is bounded: each shard evicts in the order of entry, giving items read in the meantime a second turn.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use orrery_model::{LogId, Lsn};
use orrery_partition::stored::StoredItem;

use super::sync::Mutex;

/// Names one item of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheKey<'a> {
    /// By its EPK and id.
    Id {
        log: LogId,
        epk: &'a [u8],
        id: &'a str,
    },
    Number {
        log: LogId,
        number: u64,
    },
}

impl CacheKey<'_> {
    fn log(&self) -> LogId {
        match self {
            CacheKey::Id { log, .. } | CacheKey::Number { log, .. } => *log,
        }
    }
}

#[derive(Debug)]
pub struct HotCache {
    shards: Vec<Mutex<Shard>>,
    shard_bytes_max: usize,
    hasher: DefaultHashBuilder,
}

const SHARDS: usize = 64;
/// What an entry costs besides the item itself.
const ENTRY_BYTES: usize = 200;

#[derive(Debug, Default)]
struct Shard {
    entries: HashTable<Entry>,
    /// Names in the order they entered, with their hashes. A place whose very name is not in `entries` any more is dead.
    order: VecDeque<(u64, Arc<Name>)>,
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
    hash: u64,
    name: Arc<Name>,
    item: Arc<StoredItem>,
    /// Where its log stood when this was the item's version.
    as_of: Lsn,
    read_since: bool,
}

/// A key that the cache owns.
#[derive(Debug)]
struct Name {
    log: LogId,
    kind: NameKind,
}

#[derive(Debug)]
enum NameKind {
    Id {
        /// EPK, then id.
        text: Box<[u8]>,
        n_epk_bytes: usize,
    },
    Number(u64),
}

impl Name {
    fn of(key: CacheKey<'_>) -> Name {
        let kind = match key {
            CacheKey::Id { epk, id, .. } => NameKind::Id {
                text: [epk, id.as_bytes()].concat().into(),
                n_epk_bytes: epk.len(),
            },
            CacheKey::Number { number, .. } => NameKind::Number(number),
        };
        Name { log: key.log(), kind }
    }

    fn is(&self, key: CacheKey<'_>) -> bool {
        let same = match (&self.kind, key) {
            (NameKind::Id { text, n_epk_bytes }, CacheKey::Id { epk, id, .. }) => {
                text.split_at(*n_epk_bytes) == (epk, id.as_bytes())
            }
            (NameKind::Number(own), CacheKey::Number { number, .. }) => *own == number,
            _ => false,
        };
        same && self.log == key.log()
    }

    fn size_bytes(&self) -> usize {
        match &self.kind {
            NameKind::Id { text, .. } => text.len(),
            NameKind::Number(_) => 0,
        }
    }
}

/// A key with its hash.
#[derive(Clone, Copy)]
struct Hashed<'a> {
    key: CacheKey<'a>,
    hash: u64,
}

impl HotCache {
    pub fn new(bytes_max: usize) -> HotCache {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect();
        HotCache {
            shards,
            shard_bytes_max: bytes_max / SHARDS,
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// The latest version of an item in a log whose changes are announced.
    pub fn get(&self, key: CacheKey<'_>) -> Option<Arc<StoredItem>> {
        self.find(key, |_| true)
    }

    /// The version of an item in a log that others write and that stands at `lsn`.
    pub fn get_at(&self, key: CacheKey<'_>, lsn: Lsn) -> Option<Arc<StoredItem>> {
        self.find(key, |entry| entry.as_of == lsn)
    }

    /// The version of an item in a snapshot at `lsn`, of a log whose changes have been announced up to there.
    pub fn get_as_of(&self, key: CacheKey<'_>, lsn: Lsn) -> Option<Arc<StoredItem>> {
        self.find(key, |entry| entry.item.lsn <= lsn)
    }

    fn find(&self, key: CacheKey<'_>, counts: impl Fn(&Entry) -> bool) -> Option<Arc<StoredItem>> {
        self.shard(key, |shard, hashed| {
            let Some(entry) = shard.entry(hashed).filter(|entry| counts(entry)) else {
                shard.n_misses += 1;
                return None;
            };
            entry.read_since = true;
            let item = Arc::clone(&entry.item);
            shard.n_hits += 1;
            Some(item)
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
    pub fn fill(&self, key: CacheKey<'_>, item: Arc<StoredItem>, lsn: Lsn) {
        let bytes_max = self.shard_bytes_max;
        self.shard(key, |shard, hashed| {
            let changed_since = shard.changed.get(&key.log()).is_some_and(|changed| *changed > lsn);
            if shard.n_barred == 0 && !changed_since {
                shard.insert(hashed, item, lsn, bytes_max);
            }
        });
    }

    /// Announces that a writer is about to change a key. Must be followed by [`HotCache::release`].
    pub fn bar(&self, key: CacheKey<'_>) {
        self.shard(key, |shard, hashed| {
            shard.n_barred += 1;
            shard.remove(hashed);
        });
    }

    /// Ends what [`HotCache::bar`] began: the key changed at `lsn` to `item`, or to nothing that may be shown (`None`).
    pub fn release(&self, key: CacheKey<'_>, lsn: Option<Lsn>, item: Option<Arc<StoredItem>>) {
        let bytes_max = self.shard_bytes_max;
        self.shard(key, |shard, hashed| {
            shard.n_barred -= 1;
            // A key changed twice in one batch is released twice; the later version must win.
            shard.remove(hashed);
            let mut is_latest = true;
            if let Some(lsn) = lsn {
                let changed = shard.changed.entry(key.log()).or_insert(lsn);
                is_latest = *changed <= lsn;
                *changed = (*changed).max(lsn);
            }
            // Else the log has been with another owner since.
            if let Some(item) = item.filter(|_| is_latest) {
                shard.insert(hashed, item, lsn.unwrap_or_default(), bytes_max);
            }
        });
    }

    /// Forgets everything of a log: it was dropped, restored, or changed its role.
    pub fn clear(&self, log: LogId) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let shard = &mut *shard;
            let gone = shard.entries.extract_if(|entry| entry.name.log == log);
            shard.bytes -= gone.map(|entry| size(&entry)).sum::<usize>();
            shard.changed.remove(&log);
        }
    }

    /// The same for a log that stands at `lsn` and may have been changed by others up to there: what was read before does not
    /// come back.
    pub fn begin(&self, log: LogId, lsn: Lsn) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let shard = &mut *shard;
            let gone = shard.entries.extract_if(|entry| entry.name.log == log);
            shard.bytes -= gone.map(|entry| size(&entry)).sum::<usize>();
            shard.changed.insert(log, lsn);
        }
    }

    fn shard<T>(&self, key: CacheKey<'_>, with: impl FnOnce(&mut Shard, Hashed<'_>) -> T) -> T {
        let hash = self.hasher.hash_one(key);
        // The table inside the shard goes by the lowest and the highest bits.
        let index = (hash >> 32) as usize % self.shards.len();
        with(&mut lock(&self.shards[index]), Hashed { key, hash })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> impl std::ops::DerefMut<Target = T> + '_ {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Shard {
    fn entry(&mut self, Hashed { key, hash }: Hashed<'_>) -> Option<&mut Entry> {
        self.entries.find_mut(hash, |entry| entry.name.is(key))
    }

    fn insert(&mut self, hashed: Hashed<'_>, item: Arc<StoredItem>, as_of: Lsn, bytes_max: usize) {
        let Hashed { key, hash } = hashed;
        let entry = Entry {
            hash,
            name: Arc::new(Name::of(key)),
            item,
            as_of,
            read_since: false,
        };
        let bytes = size(&entry);
        if bytes > bytes_max / 4 {
            return;
        }
        self.remove(hashed);
        while self.bytes + bytes > bytes_max && self.evict_one() {}
        self.bytes += bytes;
        self.order.push_back((hash, Arc::clone(&entry.name)));
        self.entries.insert_unique(hash, entry, |entry| entry.hash);
        // Removed keys leave their place in the order behind; drop those now and then.
        if self.order.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            self.order.retain(|(hash, name)| {
                let same = |entry: &Entry| Arc::ptr_eq(&entry.name, name);
                entries.find(*hash, same).is_some()
            });
        }
    }

    fn remove(&mut self, Hashed { key, hash }: Hashed<'_>) {
        self.remove_if(hash, |entry| entry.name.is(key));
    }

    fn remove_if(&mut self, hash: u64, is_it: impl FnMut(&Entry) -> bool) {
        if let Ok(found) = self.entries.find_entry(hash, is_it) {
            let (entry, _) = found.remove();
            self.bytes -= size(&entry);
        }
    }

    fn evict_one(&mut self) -> bool {
        while let Some((hash, name)) = self.order.pop_front() {
            let same = |entry: &Entry| Arc::ptr_eq(&entry.name, &name);
            match self.entries.find_mut(hash, same) {
                Some(entry) if entry.read_since => {
                    entry.read_since = false;
                    self.order.push_back((hash, name));
                }
                Some(_) => {
                    self.remove_if(hash, same);
                    return true;
                }
                None => {}
            }
        }
        false
    }
}

fn size(entry: &Entry) -> usize {
    ENTRY_BYTES + 2 * entry.name.size_bytes() + entry.item.id.len() + entry.item.body.len()
}
