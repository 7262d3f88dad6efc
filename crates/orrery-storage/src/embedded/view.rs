//! The views of all logs in one tree on disk, with what must be known to go on after a restart. Keys and values are
//! described in `docs/formats/view-store.md`; a change of one is a change of both.
//!
//! The tree keeps no journal of its own: what was written since its last flush is rebuilt from the log. One thread writes
//! and seals; a flush therefore always holds whole groups, and names the last of them. Readers see a version of the tree
//! that moves only in [`ViewStore::publish`], so they never see a part of a group either.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

use bytes::{BufMut, Bytes, BytesMut};
use lsm_tree::compaction::Leveled;
use lsm_tree::compaction::filter::{CompactionFilter, Context, Factory, ItemAccessor, Verdict};
use lsm_tree::config::{CompressionPolicy, PinningPolicy};
use lsm_tree::{AbstractTree, AnyTree, CompressionType, Guard, InternalValue, SeqNo, SequenceNumberCounter, ValueType};
use orrery_model::{Epoch, LogId, Position};
use orrery_partition::storage::{Result, StorageError, ViewWrite};

use super::damage::Damage;
use super::layers::Layers;
use super::record::ViewId;
use super::settings::ViewCache;
use crate::body::{POSITION_BYTES, decode_position, encode_position, u32_of, u64_of};
use crate::frame::Sequence;

const STATE: u8 = 0;
const LOGS: u8 = 1;
const ENTRIES: u8 = 2;
/// Version of the values below. A reader refuses what it does not know.
const FORMAT: u8 = 1;
/// Of a log that stands on views of others.
const FORMAT_LAYERED: u8 = 2;
/// Size of a table. Small ones make merges short.
const TABLE_BYTES: u64 = 16 << 20;
/// Bytes before the log's own key in an entry's key.
pub(super) const ENTRY_PREFIX_BYTES: usize = 9;

/// What the view store remembers about a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogMeta {
    pub(super) layers: Layers,
    pub(super) owner: Epoch,
    pub(super) position: Position,
}

/// Changes that become visible together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    writes: Vec<(Bytes, Option<Bytes>)>,
}

impl Batch {
    /// Adds entries of a log's own view in the order of their keys, the last of each. Neighbours are written one after the other,
    /// which finds their places in the tree faster, and their keys share one allocation.
    pub(super) fn entries(&mut self, layers: &Layers, writes: Vec<ViewWrite>) {
        let (view, writes) = (layers.own, layers.marked(writes));
        let mut order: Vec<(u128, usize)> = writes
            .iter()
            .enumerate()
            .map(|(index, (key, _))| (first_bytes(key), index))
            .collect();
        let key = |index: usize| &writes[index].0;
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a.1).cmp(key(b.1))).then(a.1.cmp(&b.1)));
        let n_key_bytes: usize = writes.iter().map(|(key, _)| ENTRY_PREFIX_BYTES + key.len()).sum();
        let mut keys = BytesMut::with_capacity(n_key_bytes);
        let mut kept = Vec::with_capacity(order.len());
        for (place, &(first, index)) in order.iter().enumerate() {
            let is_overwritten = order
                .get(place + 1)
                .is_some_and(|&(next_first, next)| first == next_first && key(index) == key(next));
            if !is_overwritten {
                put_entry_key(&mut keys, view, key(index));
                kept.push((keys.len(), index));
            }
        }
        let (keys, mut writes, mut start) = (keys.freeze(), writes, 0);
        self.writes.reserve(kept.len());
        for (end, index) in kept {
            self.writes.push((keys.slice(start..end), writes[index].1.take()));
            start = end;
        }
    }

    /// The same changes in another view, which their log has come to since they were made.
    pub(super) fn moved_to(self, layers: &Layers) -> Batch {
        let entries = self.writes.into_iter();
        let entries = entries.map(|(key, value)| (key.slice(ENTRY_PREFIX_BYTES..), value));
        let mut moved = Batch::default();
        moved.entries(layers, entries.collect());
        moved
    }

    /// Removes an entry by its whole key.
    pub(super) fn remove(&mut self, key: Bytes) {
        self.writes.push((key, None));
    }

    pub(super) fn log(&mut self, log: LogId, meta: Option<LogMeta>) {
        self.writes.push((log_key(log), meta.as_ref().map(encode_meta)));
    }

    /// Adds everything in `other`.
    pub(super) fn append(&mut self, mut other: Batch) {
        self.writes.append(&mut other.writes);
    }

    /// Everything up to this group has been applied.
    pub(super) fn applied(&mut self, sequence: Sequence) {
        let mut value = BytesMut::with_capacity(9);
        value.put_u8(FORMAT);
        value.put_u64_le(sequence);
        self.writes.push((Bytes::from_static(&[STATE]), Some(value.freeze())));
    }
}

pub(super) struct ViewStore {
    tree: AnyTree,
    merging: Merging,
    sequence: SequenceNumberCounter,
    readers: Mutex<Readers>,
    damage: Arc<Damage>,
}

/// Which versions of the tree are being read.
#[derive(Debug, Default)]
struct Readers {
    /// New snapshots see writes below this.
    visible: SeqNo,
    living: BTreeMap<SeqNo, usize>,
}

impl fmt::Debug for ViewStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewStore").finish_non_exhaustive()
    }
}

impl ViewStore {
    pub(super) fn open(dir: &Path, cache: &ViewCache, damage: Arc<Damage>) -> Result<ViewStore> {
        let sequence = SequenceNumberCounter::default();
        let merging = Merging::default();
        // The tree moves its own notion of visible when it flushes; ours moves only with whole groups.
        let tree = lsm_tree::Config::new(dir, sequence.clone(), SequenceNumberCounter::default())
            .use_cache(cache.blocks.clone())
            .use_descriptor_table(Some(cache.descriptors.clone()))
            .data_block_compression_policy(CompressionPolicy::new([
                CompressionType::None,
                CompressionType::None,
                CompressionType::Lz4,
            ]))
            .index_block_pinning_policy(pinned_levels())
            .filter_block_pinning_policy(pinned_levels())
            .with_compaction_filter_factory(Some(Arc::new(merging.clone())))
            .open()
            .map_err(|error| damaged("open the view", &error))?;
        let visible = tree.get_highest_persisted_seqno().map_or(1, |highest| highest + 1);
        sequence.set(visible);
        Ok(ViewStore {
            tree,
            merging,
            sequence,
            readers: Mutex::new(Readers {
                visible,
                living: BTreeMap::new(),
            }),
            damage,
        })
    }

    /// Writes a batch where nobody sees it yet. Only one thread may write or seal.
    pub(super) fn write(&self, batch: Batch) -> SeqNo {
        let sequence = self.sequence.next();
        let memtable = self.tree.active_memtable();
        for (key, value) in batch.writes {
            let kind = if value.is_some() {
                ValueType::Value
            } else {
                ValueType::Tombstone
            };
            memtable.insert(InternalValue::from_components(
                key,
                value.unwrap_or_default(),
                sequence,
                kind,
            ));
        }
        sequence
    }

    /// Shows a written batch to everyone, together with what `then` changes.
    pub(super) fn publish(&self, written: SeqNo, then: impl FnOnce()) {
        let mut readers = self.lock();
        readers.visible = written + 1;
        then();
    }

    /// A reader of what is visible now, and what `then` finds at the same moment.
    pub(super) fn reader<T>(self: &Arc<Self>, then: impl FnOnce() -> T) -> (Reader, T) {
        let mut readers = self.lock();
        let at = readers.visible;
        *readers.living.entry(at).or_default() += 1;
        (
            Reader {
                store: self.clone(),
                at,
            },
            then(),
        )
    }

    /// The last group the view holds.
    pub(super) fn applied(&self) -> Result<Sequence> {
        let Some(value) = self.get(&[STATE])? else { return Ok(0) };
        match value.first() {
            Some(&FORMAT) if value.len() == 9 => Ok(u64_of(&value[1..])),
            _ => Err(StorageError::Corrupt("the view's state is of an unknown format".into())),
        }
    }

    /// Every log the view knows.
    pub(super) fn logs(&self) -> Result<Vec<(LogId, LogMeta)>> {
        let range = [LOGS].as_slice()..[ENTRIES].as_slice();
        self.tree
            .range(range, SeqNo::MAX, None)
            .map(|entry| {
                let (key, value) = entry.into_inner().map_err(|error| self.unreadable(&error))?;
                decode_log(&key, &value).ok_or_else(|| StorageError::Corrupt("a log of the view is unreadable".into()))
            })
            .collect()
    }

    /// Every view that has entries, ascending.
    pub(super) fn views(&self) -> Result<Vec<ViewId>> {
        let mut views = Vec::new();
        let mut from = entry_key(ViewId(0), &[]);
        while let Some(entry) = self.tree.range(from.., SeqNo::MAX, None).next() {
            let key = entry.key().map_err(|error| self.unreadable(&error))?;
            let view = ViewId(u64::from_be_bytes(
                key[1..ENTRY_PREFIX_BYTES].try_into().expect("eight bytes"),
            ));
            views.push(view);
            from = entry_key(ViewId(view.0 + 1), &[]);
        }
        Ok(views)
    }

    /// Up to `limit` whole keys of a view after `after`.
    pub(super) fn keys(&self, view: ViewId, after: Option<&Bytes>, limit: usize) -> Result<Vec<Bytes>> {
        let from = after.map_or_else(|| entry_key(view, &[]), |after| [after, [0].as_slice()].concat().into());
        let to = entry_key(ViewId(view.0 + 1), &[]);
        let keys = self.tree.range(from..to, SeqNo::MAX, None).take(limit);
        keys.map(|entry| entry.key().map(Bytes::from).map_err(|error| self.unreadable(&error)))
            .collect()
    }

    /// Deletes the tables that hold nothing but this view. Entries in other tables remain.
    pub(super) fn drop_tables(&self, view: ViewId) -> lsm_tree::Result<()> {
        self.tree
            .drop_range(entry_key(view, &[])..entry_key(ViewId(view.0 + 1), &[]))
    }

    /// Bytes written since the last seal.
    pub(super) fn unsealed_bytes(&self) -> u64 {
        self.tree.active_memtable().size()
    }

    /// Ends the part that [`ViewStore::flush`] makes durable. Only the writing thread may do so.
    pub(super) fn seal(&self) {
        self.tree.rotate_memtable();
    }

    pub(super) fn sealed_count(&self) -> usize {
        self.tree.sealed_memtable_count()
    }

    /// Tables that a read may have to look through one by one.
    pub(super) fn run_count(&self) -> usize {
        self.tree.l0_run_count()
    }

    /// Makes everything sealed durable.
    pub(super) fn flush(&self) -> lsm_tree::Result<()> {
        let lock = self.tree.get_flush_lock();
        self.tree.flush(&lock, self.oldest_needed()).map(|_| ())
    }

    /// Merges some tables; answers whether there was anything to do.
    pub(super) fn merge(&self) -> lsm_tree::Result<bool> {
        let before = self.tree.current_version().id();
        let strategy = Leveled::default().with_table_target_size(TABLE_BYTES);
        match self.tree.compact(Arc::new(strategy), self.oldest_needed()) {
            Ok(()) => Ok(self.tree.current_version().id() != before),
            Err(_) if self.merging.is_interrupted() => Ok(false),
            Err(error) => {
                // A table that cannot be read stays as it is, and nothing of it goes into another one.
                self.damage.noted(damaged("merge tables", &error));
                Err(error)
            }
        }
    }

    /// Gives up the merge under way, and all later ones. What it wrote is removed at the next open.
    pub(super) fn interrupt_merging(&self) {
        self.merging.interrupted.store(true, Ordering::Relaxed);
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.disk_bytes() + self.unsealed_bytes()
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        self.tree.disk_space()
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let value = self
            .tree
            .get(key, SeqNo::MAX)
            .map_err(|error| self.unreadable(&error))?;
        Ok(value.map(Bytes::from))
    }

    fn unreadable(&self, error: &lsm_tree::Error) -> StorageError {
        self.damage.noted(damaged("read the view", error))
    }

    /// Versions below this may go: no snapshot, living or future, reads there.
    fn oldest_needed(&self) -> SeqNo {
        let readers = self.lock();
        let oldest = readers.living.first_key_value().map_or(readers.visible, |(at, _)| *at);
        oldest.saturating_sub(1)
    }

    fn lock(&self) -> MutexGuard<'_, Readers> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Levels whose indexes and filters stay in memory: a lookup goes through all of them, and where they had to compete with data
/// for the cache, point reads grew dearer with the number of items. Deeper levels partition both and keep only the top.
fn pinned_levels() -> PinningPolicy {
    PinningPolicy::new([true, true, true, false])
}

/// Lets a merge of many tables be given up, by failing where the tree would let us drop entries.
#[derive(Clone, Debug, Default)]
struct Merging {
    interrupted: Arc<AtomicBool>,
}

impl Merging {
    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

impl Factory for Merging {
    fn name(&self) -> &str {
        "interruptible"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(self.clone())
    }
}

impl CompactionFilter for Merging {
    fn filter_item(&mut self, _: ItemAccessor<'_>, _: &Context) -> lsm_tree::Result<Verdict> {
        match self.is_interrupted() {
            true => Err(lsm_tree::Error::Io(io::ErrorKind::Interrupted.into())),
            false => Ok(Verdict::Keep),
        }
    }
}

/// Reads all views as they were at one moment.
pub(super) struct Reader {
    store: Arc<ViewStore>,
    at: SeqNo,
}

impl Reader {
    pub(super) fn get(&self, view: ViewId, key: &[u8]) -> Result<Option<Bytes>> {
        let value = self.store.tree.get(entry_key(view, key), self.at);
        Ok(value.map_err(|error| self.store.unreadable(&error))?.map(Bytes::from))
    }

    /// Entries with their whole keys.
    pub(super) fn range(
        &self,
        bounds: (Bound<Bytes>, Bound<Bytes>),
    ) -> impl DoubleEndedIterator<Item = Result<(Bytes, Bytes)>> + Send + 'static {
        let damage = self.store.damage.clone();
        self.store
            .tree
            .range::<Bytes, _>(bounds, self.at, None)
            .map(move |entry| {
                let (key, value) = entry
                    .into_inner()
                    .map_err(|error| damage.noted(damaged("read the view", &error)))?;
                Ok((Bytes::from(key).slice(ENTRY_PREFIX_BYTES..), Bytes::from(value)))
            })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut readers = self.store.lock();
        if let Some(count) = readers.living.get_mut(&self.at) {
            *count -= 1;
            if *count == 0 {
                readers.living.remove(&self.at);
            }
        }
    }
}

pub(super) fn entry_key(view: ViewId, key: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(ENTRY_PREFIX_BYTES + key.len());
    put_entry_key(&mut bytes, view, key);
    bytes.freeze()
}

fn put_entry_key(out: &mut BytesMut, view: ViewId, key: &[u8]) {
    out.put_u8(ENTRIES);
    out.put_u64(view.0);
    out.put_slice(key);
}

/// The first bytes of a key as a number that sorts as they do: most keys are told apart by it.
fn first_bytes(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let length = key.len().min(bytes.len());
    bytes[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(bytes)
}

fn log_key(log: LogId) -> Bytes {
    let mut bytes = BytesMut::with_capacity(9);
    bytes.put_u8(LOGS);
    bytes.put_u64(log.0);
    bytes.freeze()
}

fn encode_meta(meta: &LogMeta) -> Bytes {
    let mut bytes = BytesMut::with_capacity(14 + POSITION_BYTES + 8 * meta.layers.beneath().len());
    if meta.layers.beneath().is_empty() {
        bytes.put_u8(FORMAT);
        bytes.put_u64_le(meta.layers.own.0);
    } else {
        bytes.put_u8(FORMAT_LAYERED);
        bytes.put_slice(&meta.layers.encode());
    }
    bytes.put_u32_le(meta.owner.0);
    bytes.put_slice(&encode_position(meta.position));
    bytes.freeze()
}

fn decode_log(key: &[u8], value: &[u8]) -> Option<(LogId, LogMeta)> {
    let log = LogId(u64::from_be_bytes(key.get(1..)?.try_into().ok()?));
    let (format, value) = value.split_first()?;
    let (layers, value) = match *format {
        FORMAT => {
            let (view, rest) = value.split_at_checked(8)?;
            (Layers::single(ViewId(u64_of(view))), rest)
        }
        FORMAT_LAYERED => Layers::decode(value)?,
        _ => return None,
    };
    let (owner, position) = value.split_at_checked(4)?;
    let meta = LogMeta {
        layers,
        owner: Epoch(u32_of(owner)),
        position: (position.len() == POSITION_BYTES).then(|| decode_position(position))?,
    };
    Some((log, meta))
}

/// Errors of the tree: of the disk, or of what the disk gave back.
fn damaged(what: &str, error: &lsm_tree::Error) -> StorageError {
    match error {
        // A file that is named and missing, or ends early, is damage; a disk that does not answer may do so later.
        lsm_tree::Error::Io(error)
            if !matches!(
                error.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound | io::ErrorKind::InvalidData
            ) =>
        {
            StorageError::Unavailable(format!("cannot {what}: {error}"))
        }
        _ => StorageError::Corrupt(format!("cannot {what}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_added_in_the_order_of_their_keys_and_of_each_key_the_last() {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let long = "a key that is longer than what is compared at first";
        let writes = vec![
            (bytes(long), Some(bytes("1"))),
            (bytes("b"), Some(bytes("2"))),
            (bytes(&format!("{long}!")), None),
            (bytes("b"), Some(bytes("3"))),
            (bytes(""), None),
            (bytes(long), None),
        ];
        let mut batch = Batch::default();
        batch.entries(&Layers::single(ViewId(7)), writes);
        let expected = [("", None), (long, None), (&format!("{long}!"), None), ("b", Some("3"))];
        let expected: Vec<_> = expected
            .iter()
            .map(|(key, value)| (entry_key(ViewId(7), key.as_bytes()), value.map(bytes)))
            .collect();
        assert_eq!(batch.writes, expected);
    }
}
