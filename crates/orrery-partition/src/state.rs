//! What a partition remembers besides its items: who it is, where numbering stands, how much it holds.

use bytes::Bytes;
use orrery_model::{Epk, EpkRange, Lsn, PartitionId, Timestamp};

use crate::index::IndexProgress;
use crate::keys;
use crate::storage::{Result, StorageError, View};

/// The state entry of a partition's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionState {
    pub partition: PartitionId,
    pub range: EpkRange,
    /// Version that session tokens of this partition carry.
    pub session_version: u64,
    pub definition_version: u64,
    /// The next item's number is this, followed by 16 bits of the partition's.
    pub next_counter: u64,
    pub n_items: u64,
    /// Bytes of all stored items.
    pub size_bytes: u64,
    /// When the last transaction happened. Time never runs backwards in a log.
    pub head_at: Timestamp,
    /// Changes after this LSN are in the order of time; those up to it may come from several partitions that were merged.
    pub ordered_after: Lsn,
    /// Where the partition went on after a split or merge; empty while it lives.
    pub children: Vec<PartitionId>,
    pub index: IndexProgress,
    /// Names the indexing policy that index entries are made under.
    pub index_policy: u64,
}

impl PartitionState {
    pub fn new(partition: PartitionId, range: EpkRange) -> PartitionState {
        PartitionState {
            partition,
            range,
            session_version: 0,
            definition_version: 0,
            next_counter: 1,
            n_items: 0,
            size_bytes: 0,
            head_at: Timestamp(0),
            ordered_after: Lsn::ZERO,
            children: Vec::new(),
            index: IndexProgress::Ready,
            index_policy: 0,
        }
    }

    /// The index is to follow this policy, which a partition that never had one does at once.
    pub(crate) fn follow_index_policy(&mut self, policy: u64) {
        if self.index_policy != policy {
            let is_new = self.index_policy == 0 && self.n_items == 0 && self.index.is_ready();
            self.index_policy = policy;
            if !is_new {
                self.index = IndexProgress::Clearing;
            }
        }
    }

    /// The number a new item gets, unique in the container and rising within this partition and its children.
    pub fn next_number(&self) -> u64 {
        self.next_counter << 16 | u64::from(self.partition.0 & 0xFFFF)
    }

    /// Whether an item of this number may exist: counters only rise, so none at or above the next one does.
    pub(crate) fn has_numbered(&self, number: u64) -> bool {
        number >> 16 < self.next_counter
    }

    /// The state a view holds; `None` before the partition was opened.
    pub fn load(view: &dyn View) -> Result<Option<PartitionState>> {
        view.get(&keys::state())?
            .map(|bytes| PartitionState::decode(&bytes))
            .transpose()
    }

    pub fn encode(&self) -> Bytes {
        let mut out = vec![FORMAT];
        out.extend_from_slice(&self.partition.0.to_le_bytes());
        for number in [
            self.session_version,
            self.definition_version,
            self.next_counter,
            self.n_items,
            self.size_bytes,
            self.head_at.0,
            self.ordered_after.0,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for bound in [&self.range.min, &self.range.max] {
            out.extend_from_slice(&(bound.as_bytes().len() as u16).to_le_bytes());
            out.extend_from_slice(bound.as_bytes());
        }
        out.extend_from_slice(&self.index_policy.to_le_bytes());
        self.index.encode(&mut out);
        self.children
            .iter()
            .for_each(|child| out.extend_from_slice(&child.0.to_le_bytes()));
        Bytes::from(out)
    }

    pub fn decode(bytes: &[u8]) -> Result<PartitionState> {
        decode(bytes).ok_or_else(|| StorageError::Corrupt("the partition state is malformed".to_owned()))
    }
}

/// Version of the layout written. A reader refuses what it does not know.
const FORMAT: u8 = 8;
/// The same layout; the index may lack entries of items that were changed, where the policy has several composite indexes.
const FORMAT_HOLED: u8 = 7;
/// The same layout; the index has neither words nor cells.
const FORMAT_WORDLESS: u8 = 6;
/// The same layout; the index tells integers beyond 64 signed bits apart from their doubles.
const FORMAT_WIDE: u8 = 5;
/// The same layout; the index does not tell whether there are items without terms.
const FORMAT_UNTOLD: u8 = 4;
/// The layouts before, without `ordered_after`, and without an index.
const FORMAT_UNORDERED: u8 = 3;
const FORMAT_UNINDEXED: u8 = 2;
/// What stands for `ordered_after` where it is not known: nothing is in order.
const NOWHERE: Lsn = Lsn(u64::MAX);

fn decode(bytes: &[u8]) -> Option<PartitionState> {
    let (&format, rest) = bytes.split_first()?;
    let (partition, mut rest) = rest.split_first_chunk::<4>()?;
    let mut numbers = [0; 6];
    for number in &mut numbers {
        *number = take_number(&mut rest)?;
    }
    let ordered_after = match format {
        FORMAT | FORMAT_HOLED | FORMAT_WORDLESS | FORMAT_WIDE | FORMAT_UNTOLD => Lsn(take_number(&mut rest)?),
        _ => NOWHERE,
    };
    let mut bounds = [Epk::min(), Epk::min()];
    for bound in &mut bounds {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let (bytes, after) = after.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        *bound = Epk::from_bytes(bytes);
        rest = after;
    }
    let (index_policy, index, rest) = match format {
        // Written before there was an index: everything is to be indexed.
        FORMAT_UNINDEXED => (0, IndexProgress::Clearing, rest),
        FORMAT_UNORDERED | FORMAT_UNTOLD | FORMAT_WIDE | FORMAT_WORDLESS | FORMAT_HOLED | FORMAT => {
            let policy = take_number(&mut rest)?;
            let (index, rest) = IndexProgress::decode(rest)?;
            // An index that lacks something, or has it at another place, is made anew.
            let index = if format == FORMAT {
                index
            } else {
                IndexProgress::Clearing
            };
            (policy, index, rest)
        }
        _ => return None,
    };
    let (children, []) = rest.as_chunks::<4>() else {
        return None;
    };
    let [min, max] = bounds;
    let [
        session_version,
        definition_version,
        next_counter,
        n_items,
        size_bytes,
        head_at,
    ] = numbers;
    Some(PartitionState {
        partition: PartitionId(u32::from_le_bytes(*partition)),
        range: EpkRange::new(min, max),
        session_version,
        definition_version,
        next_counter,
        n_items,
        size_bytes,
        head_at: Timestamp(head_at),
        ordered_after,
        children: children
            .iter()
            .map(|child| PartitionId(u32::from_le_bytes(*child)))
            .collect(),
        index,
        index_policy,
    })
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> PartitionState {
        PartitionState {
            ordered_after: Lsn(7),
            children: vec![PartitionId(3)],
            ..PartitionState::new(PartitionId(1), EpkRange::new(Epk::min(), Epk::min()))
        }
    }

    #[test]
    fn a_state_reads_as_it_was_written() {
        assert_eq!(PartitionState::decode(&state().encode()), Ok(state()));
    }

    #[test]
    fn an_index_of_an_earlier_format_is_made_anew() {
        for format in [FORMAT_UNTOLD, FORMAT_WIDE, FORMAT_WORDLESS, FORMAT_HOLED] {
            let mut bytes = state().encode().to_vec();
            bytes[0] = format;
            let expected = PartitionState {
                index: IndexProgress::Clearing,
                ..state()
            };
            assert_eq!(PartitionState::decode(&bytes), Ok(expected));
        }
    }

    #[test]
    fn a_state_of_the_first_indexed_layout_has_no_changes_in_the_order_of_time() {
        let mut bytes = state().encode().to_vec();
        bytes[0] = FORMAT_UNORDERED;
        // Format, partition and six numbers stand before the one that was added.
        bytes.drain(1 + 4 + 6 * 8..1 + 4 + 7 * 8);
        let expected = PartitionState {
            ordered_after: NOWHERE,
            index: IndexProgress::Clearing,
            ..state()
        };
        assert_eq!(PartitionState::decode(&bytes), Ok(expected));
    }
}
