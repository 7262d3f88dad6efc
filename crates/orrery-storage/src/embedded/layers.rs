//! Views that stand on others: what a log shows is what its own view says, and below it what the views beneath say.
//!
//! A log that is branched leaves its view to both branches and begins a new, empty one above it, so that branching costs the
//! same for any number of entries. A view beneath another is never written again. What is removed above it is marked there:
//! an entry whose key begins with [`REMOVED`], a byte that no log's keys begin with. A value in the same view counts more than
//! a mark, which may be older.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use orrery_partition::storage::{Result, ViewWrite};

use super::record::ViewId;
use crate::body::u64_of;

/// Begins the keys of marks.
pub(super) const REMOVED: u8 = 0xFF;
/// Views beneath a log's own. Each costs a read two lookups more.
pub(super) const BENEATH_MAX: usize = 4;

/// The views a log reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layers {
    /// The one that is written.
    pub(super) own: ViewId,
    /// From the highest to the lowest. Most logs have none.
    beneath: Option<Arc<[ViewId]>>,
}

impl Layers {
    pub(super) fn single(own: ViewId) -> Layers {
        Layers { own, beneath: None }
    }

    pub(super) fn above(own: ViewId, beneath: &[ViewId]) -> Layers {
        Layers {
            own,
            beneath: (!beneath.is_empty()).then(|| beneath.into()),
        }
    }

    pub(super) fn beneath(&self) -> &[ViewId] {
        self.beneath.as_deref().unwrap_or_default()
    }

    /// From the highest to the lowest.
    pub(super) fn all(&self) -> impl Iterator<Item = ViewId> {
        std::iter::once(self.own).chain(self.beneath().iter().copied())
    }

    pub(super) fn contains(&self, view: ViewId) -> bool {
        self.all().any(|one| one == view)
    }

    /// The changes as they are written to the own view: with a mark for whatever is removed that may lie beneath.
    pub(super) fn marked(&self, mut writes: Vec<ViewWrite>) -> Vec<ViewWrite> {
        if self.beneath.is_some() {
            let removals = writes.iter().filter(|(_, value)| value.is_none());
            let marks: Vec<ViewWrite> = removals.map(|(key, _)| (mark_of(key), Some(Bytes::new()))).collect();
            writes.extend(marks);
        }
        writes
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(9 + 8 * self.beneath().len());
        bytes.put_u64_le(self.own.0);
        bytes.put_u8(self.beneath().len() as u8);
        self.beneath().iter().for_each(|view| bytes.put_u64_le(view.0));
        bytes
    }

    /// Reads what [`Layers::encode`] has written, and what comes after it.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Layers, &[u8])> {
        let (head, rest) = bytes.split_at_checked(9)?;
        let (views, rest) = rest.split_at_checked(8 * usize::from(head[8]))?;
        let beneath: Vec<ViewId> = views.chunks_exact(8).map(|view| ViewId(u64_of(view))).collect();
        Some((Layers::above(ViewId(u64_of(&head[..8])), &beneath), rest))
    }
}

/// The key of the mark that says that a key was removed.
pub(super) fn mark_of(key: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(1 + key.len());
    bytes.put_u8(REMOVED);
    bytes.put_slice(key);
    bytes.freeze()
}

pub(super) type Entries = Box<dyn Iterator<Item = Result<(Bytes, Bytes)>> + Send>;

/// Entries or marks of one view, in order.
struct Source {
    rest: Entries,
    head: Option<(Bytes, Bytes)>,
    /// Of two with the same key the one with the lower rank counts.
    rank: usize,
    marks: bool,
}

impl Source {
    fn advance(&mut self) -> Result<()> {
        self.head = self.rest.next().transpose()?;
        Ok(())
    }
}

/// What several views show together.
pub(super) struct Merged {
    sources: Vec<Source>,
    reverse: bool,
    is_begun: bool,
    has_failed: bool,
}

impl Merged {
    pub(super) fn new(reverse: bool) -> Merged {
        Merged {
            sources: Vec::new(),
            reverse,
            is_begun: false,
            has_failed: false,
        }
    }

    /// Adds the entries of the next lower view, and the marks above what lies beneath it; both in the order of this scan, keys
    /// as the log knows them.
    pub(super) fn push(&mut self, entries: Entries, marks: Option<Entries>) {
        for (rest, marks) in [(Some(entries), false), (marks, true)] {
            let rank = self.sources.len();
            self.sources.extend(rest.map(|rest| Source {
                rest,
                head: None,
                rank,
                marks,
            }));
        }
    }

    /// The next entry; nothing at the end.
    fn step(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        if !std::mem::replace(&mut self.is_begun, true) {
            for source in &mut self.sources {
                source.advance()?;
            }
        }
        loop {
            let heads = self.sources.iter().filter_map(|source| source.head.as_ref());
            let keys = heads.map(|(key, _)| key);
            let next = match self.reverse {
                false => keys.min(),
                true => keys.max(),
            };
            let Some(key) = next.cloned() else { return Ok(None) };
            let mut found: Option<(usize, Option<Bytes>)> = None;
            for source in &mut self.sources {
                let is_it = source.head.as_ref().is_some_and(|(head, _)| *head == key);
                if !is_it {
                    continue;
                }
                let value = source.head.take().map(|(_, value)| value);
                if found.as_ref().is_none_or(|(rank, _)| source.rank < *rank) {
                    found = Some((source.rank, value.filter(|_| !source.marks)));
                }
                source.advance()?;
            }
            if let Some((_, Some(value))) = found {
                return Ok(Some((key, value)));
            }
        }
    }
}

impl Iterator for Merged {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let step = self.step();
        self.has_failed = step.is_err();
        step.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    fn entries(pairs: &[(&str, &str)], reverse: bool) -> Entries {
        let mut pairs: Vec<_> = pairs
            .iter()
            .map(|(key, value)| Ok((bytes(key), bytes(value))))
            .collect();
        if reverse {
            pairs.reverse();
        }
        Box::new(pairs.into_iter())
    }

    #[test]
    fn the_highest_view_that_has_a_key_or_a_mark_decides_and_a_value_counts_more_than_a_mark() {
        for reverse in [false, true] {
            let mut merged = Merged::new(reverse);
            let top = [("b", "top"), ("e", "again")];
            merged.push(
                entries(&top, reverse),
                Some(entries(&[("c", ""), ("e", ""), ("x", "")], reverse)),
            );
            let middle = [("c", "middle"), ("d", "middle")];
            merged.push(entries(&middle, reverse), Some(entries(&[("a", "")], reverse)));
            let bottom = [("a", "low"), ("b", "low"), ("c", "low"), ("e", "low"), ("f", "low")];
            merged.push(entries(&bottom, reverse), None);
            let mut shown: Vec<_> = merged.map(Result::unwrap).collect();
            if reverse {
                shown.reverse();
            }
            let expected = [("b", "top"), ("d", "middle"), ("e", "again"), ("f", "low")];
            let expected: Vec<_> = expected.iter().map(|(key, value)| (bytes(key), bytes(value))).collect();
            assert_eq!(shown, expected, "reverse {reverse}");
        }
    }

    #[test]
    fn layers_are_read_as_they_were_written() {
        for beneath in [vec![], vec![ViewId(3)], vec![ViewId(9), ViewId(2), ViewId(1)]] {
            let layers = Layers::above(ViewId(12), &beneath);
            let mut bytes = layers.encode();
            bytes.push(7);
            assert_eq!(Layers::decode(&bytes), Some((layers, [7].as_slice())));
            assert_eq!(Layers::decode(&bytes[..bytes.len() - 2]), None);
        }
    }

    #[test]
    fn removals_are_marked_only_where_something_lies_beneath() {
        let writes = vec![(bytes("a"), None), (bytes("b"), Some(bytes("1")))];
        assert_eq!(Layers::single(ViewId(1)).marked(writes.clone()), writes);
        let marked = Layers::above(ViewId(2), &[ViewId(1)]).marked(writes.clone());
        assert_eq!(marked[..2], writes);
        assert_eq!(marked[2..], [(mark_of(b"a"), Some(Bytes::new()))]);
    }
}
