//! An ordered map that keeps the versions its living snapshots still see, and no others for long.
//!
//! Every change carries the sequence number of its append. A reader at sequence `s` sees, per key, the newest version
//! written at or before `s`. A version nobody can see any more is dropped when it is overwritten, or later by
//! [`VersionedMap::collect`].

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use bytes::Bytes;

/// Number of an append to one log. Snapshots are taken at one.
pub(super) type Sequence = u64;

#[derive(Debug, Default)]
pub(super) struct VersionedMap {
    entries: BTreeMap<Bytes, Entry>,
    /// Keys with an older version or a removal to clean up, by the sequence that superseded it.
    garbage: VecDeque<(Sequence, Bytes)>,
    size_bytes: u64,
}

#[derive(Debug)]
struct Entry {
    newest: Version,
    /// Superseded versions, oldest first. Almost always empty.
    older: Vec<Version>,
}

#[derive(Debug)]
struct Version {
    since: Sequence,
    /// `None` when the key was removed.
    value: Option<Bytes>,
}

impl Version {
    fn size_bytes(&self) -> u64 {
        self.value.as_ref().map_or(0, |value| value.len() as u64)
    }
}

impl Entry {
    fn at(&self, sequence: Sequence) -> Option<&Bytes> {
        let visible = |version: &&Version| version.since <= sequence;
        let version = Some(&self.newest)
            .filter(visible)
            .or_else(|| self.older.iter().rev().find(visible));
        version.and_then(|version| version.value.as_ref())
    }
}

impl VersionedMap {
    /// Writes one change. `newest_reader` is the sequence of the youngest living snapshot.
    pub(super) fn write(
        &mut self,
        sequence: Sequence,
        key: Bytes,
        value: Option<Bytes>,
        newest_reader: Option<Sequence>,
    ) {
        let version = Version { since: sequence, value };
        let Some(entry) = self.entries.get_mut(&key) else {
            if version.value.is_some() {
                self.size_bytes += key.len() as u64 + version.size_bytes();
                self.entries.insert(
                    key,
                    Entry {
                        newest: version,
                        older: Vec::new(),
                    },
                );
            }
            return;
        };
        let is_removal = version.value.is_none();
        self.size_bytes += version.size_bytes();
        let superseded = std::mem::replace(&mut entry.newest, version);
        let is_seen = superseded.since < sequence && newest_reader.is_some_and(|reader| reader >= superseded.since);
        if is_seen {
            entry.older.push(superseded);
        } else {
            self.size_bytes -= superseded.size_bytes();
        }
        if is_removal && entry.older.is_empty() {
            self.size_bytes -= key.len() as u64;
            self.entries.remove(&key);
        } else if is_seen || is_removal {
            self.garbage.push_back((sequence, key));
        }
    }

    pub(super) fn get(&self, sequence: Sequence, key: &[u8]) -> Option<Bytes> {
        self.entries.get(key)?.at(sequence).cloned()
    }

    /// Up to `limit` visible entries within the bounds, which must not be inverted.
    pub(super) fn range(
        &self,
        sequence: Sequence,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        limit: usize,
    ) -> VecDeque<(Bytes, Bytes)> {
        let range = self.entries.range::<[u8], _>(bounds);
        let visible = |(key, entry): (&Bytes, &Entry)| Some((key.clone(), entry.at(sequence)?.clone()));
        if reverse {
            range.rev().filter_map(visible).take(limit).collect()
        } else {
            range.filter_map(visible).take(limit).collect()
        }
    }

    /// Cleans up to `budget` keys of what no snapshot at or after `oldest_reader` can see.
    pub(super) fn collect(&mut self, oldest_reader: Option<Sequence>, budget: usize) {
        let horizon = oldest_reader.unwrap_or(Sequence::MAX);
        for _ in 0..budget {
            if self
                .garbage
                .front()
                .is_none_or(|(superseded_at, _)| *superseded_at > horizon)
            {
                return;
            }
            if let Some((_, key)) = self.garbage.pop_front() {
                self.prune(&key, horizon);
            }
        }
    }

    /// Bytes of keys and values, superseded versions included.
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn prune(&mut self, key: &Bytes, horizon: Sequence) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        // A version is dead once its successor is visible to the oldest reader.
        let successors = entry.older.iter().skip(1).chain([&entry.newest]);
        let n_dead = successors.take_while(|successor| successor.since <= horizon).count();
        // A key superseded twice is collected twice; the first time may have dropped all.
        let n_dead = n_dead.min(entry.older.len());
        let dead: u64 = entry.older.drain(..n_dead).map(|version| version.size_bytes()).sum();
        self.size_bytes -= dead;
        if entry.newest.value.is_none() && entry.older.is_empty() {
            self.size_bytes -= key.len() as u64;
            self.entries.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn all(map: &VersionedMap, sequence: Sequence) -> Vec<(Bytes, Bytes)> {
        map.range(sequence, (Bound::Unbounded, Bound::Unbounded), false, usize::MAX)
            .into()
    }

    #[test]
    fn a_reader_sees_the_version_of_its_sequence() {
        let mut map = VersionedMap::default();
        map.write(1, bytes("k"), Some(bytes("one")), None);
        map.write(2, bytes("k"), Some(bytes("two")), Some(1));
        map.write(3, bytes("k"), None, Some(2));
        assert_eq!(map.get(0, b"k"), None);
        assert_eq!(map.get(1, b"k"), Some(bytes("one")));
        assert_eq!(map.get(2, b"k"), Some(bytes("two")));
        assert_eq!(map.get(3, b"k"), None);
    }

    #[test]
    fn without_readers_nothing_superseded_is_kept() {
        let mut map = VersionedMap::default();
        for sequence in 1..100 {
            map.write(sequence, bytes("k"), Some(bytes("value")), None);
        }
        assert_eq!(map.size_bytes(), 6);
        map.write(100, bytes("k"), None, None);
        assert_eq!((map.size_bytes(), map.entries.len(), map.garbage.len()), (0, 0, 0));
    }

    #[test]
    fn collecting_drops_exactly_what_the_oldest_reader_cannot_see() {
        let mut map = VersionedMap::default();
        map.write(1, bytes("k"), Some(bytes("one")), None);
        map.write(2, bytes("k"), Some(bytes("two")), Some(1));
        map.write(3, bytes("k"), None, Some(2));
        map.collect(Some(2), usize::MAX);
        assert_eq!((map.get(1, b"k"), map.get(2, b"k")), (None, Some(bytes("two"))));
        map.collect(None, usize::MAX);
        assert_eq!((map.size_bytes(), map.entries.len(), map.garbage.len()), (0, 0, 0));
    }

    #[test]
    fn a_key_overwritten_twice_while_it_was_read_is_collected_once() {
        let mut map = VersionedMap::default();
        map.write(1, bytes("k"), Some(bytes("one")), None);
        map.write(2, bytes("k"), Some(bytes("two")), Some(1));
        map.write(3, bytes("k"), Some(bytes("six")), Some(2));
        map.collect(None, usize::MAX);
        assert_eq!(all(&map, 3), [(bytes("k"), bytes("six"))]);
        assert_eq!((map.size_bytes(), map.garbage.len()), (4, 0));
    }

    #[test]
    fn a_key_written_twice_in_one_append_keeps_the_later_value() {
        let mut map = VersionedMap::default();
        map.write(1, bytes("k"), Some(bytes("one")), None);
        map.write(2, bytes("k"), None, Some(1));
        map.write(2, bytes("k"), Some(bytes("two")), Some(1));
        assert_eq!(
            (map.get(1, b"k"), map.get(2, b"k")),
            (Some(bytes("one")), Some(bytes("two")))
        );
        map.collect(None, usize::MAX);
        assert_eq!(all(&map, 2), [(bytes("k"), bytes("two"))]);
        assert_eq!(map.size_bytes(), 4);
    }
}
