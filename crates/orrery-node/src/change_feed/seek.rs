//! Where the changes after a moment begin, found by halving instead of reading everything before it.
//!
//! Within a log time never runs backwards, so neither does it along the LSNs of one partition's changes. Only the LSNs of
//! partitions that were merged say nothing about each other; the partition's state knows up to where that is so, and there
//! the reader looks at each change.

use std::ops::Bound;

use bytes::Bytes;
use orrery_model::{Lsn, Result};
use orrery_partition::decide::unreadable;
use orrery_partition::state::PartitionState;
use orrery_partition::storage::View;

/// Changes of one kind: where those after an LSN begin and end, and when one happened, in seconds.
pub struct Changes<'a> {
    pub view: &'a dyn View,
    pub after: fn(Lsn) -> Bytes,
    pub end: Bytes,
    pub time_of: &'a dyn Fn(&Bytes) -> Result<u64>,
}

impl Changes<'_> {
    /// The greatest LSN, from `from` to `head`, up to which nothing has changed after `seconds`, as far as order tells.
    pub fn none_newer_than(&self, seconds: u64, from: Lsn, head: Lsn) -> Result<Lsn> {
        let state = PartitionState::load(self.view).map_err(unreadable)?;
        let ordered_after = state.map_or(from, |state| state.ordered_after);
        // What is older than an old change that stands in order is older still.
        if ordered_after > from && (ordered_after >= head || self.is_newer_after(ordered_after, seconds)?) {
            return Ok(from);
        }
        let (mut low, mut high) = (from.max(ordered_after).0, head.0);
        while low < high {
            let middle = low.midpoint(high);
            match self.is_newer_after(Lsn(middle), seconds)? {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        Ok(Lsn(low))
    }

    /// Whether the first change after an LSN is newer, or there is none.
    fn is_newer_after(&self, lsn: Lsn, seconds: u64) -> Result<bool> {
        let first = (self.after)(lsn);
        let mut changes = self
            .view
            .scan(Bound::Included(&first), Bound::Excluded(&self.end), false);
        match changes.next() {
            Some(entry) => Ok((self.time_of)(&entry.map_err(unreadable)?.1)? > seconds),
            None => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;

    use orrery_model::{Epk, EpkRange, PartitionId};
    use orrery_partition::keys::{self, KeySpace};
    use orrery_partition::storage::{self, Scan};

    use super::*;

    /// A view in memory that has changes at some LSNs, each at a time, and a state.
    struct Known(BTreeMap<Bytes, Bytes>);

    impl View for Known {
        fn get(&self, key: &[u8]) -> storage::Result<Option<Bytes>> {
            Ok(self.0.get(key).cloned())
        }

        fn scan<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, _: bool) -> Scan<'a> {
            let entries = self.0.range::<[u8], _>((from, to));
            Box::new(entries.map(|(key, value)| Ok((key.clone(), value.clone()))))
        }
    }

    fn known(changes: &[(u64, u64)], ordered_after: u64) -> Known {
        let state = PartitionState {
            ordered_after: Lsn(ordered_after),
            ..PartitionState::new(PartitionId(1), EpkRange::new(Epk::min(), Epk::min()))
        };
        let time = |seconds: u64| Bytes::copy_from_slice(&seconds.to_be_bytes());
        let changes = changes
            .iter()
            .map(|(lsn, at)| (keys::change(Lsn(*lsn), 0, 1), time(*at)));
        Known(changes.chain([(keys::state(), state.encode())]).collect())
    }

    /// The answer, and how many changes were looked at for it.
    fn found(view: &Known, seconds: u64, head: u64) -> (u64, usize) {
        let n_looked_at = Cell::new(0);
        let time_of = |value: &Bytes| {
            n_looked_at.set(n_looked_at.get() + 1);
            Ok(u64::from_be_bytes(value.as_ref().try_into().unwrap()))
        };
        let changes = Changes {
            view,
            after: keys::changes_after,
            end: keys::bounds(KeySpace::Change).1,
            time_of: &time_of,
        };
        let lsn = changes.none_newer_than(seconds, Lsn::ZERO, Lsn(head)).unwrap();
        (lsn.0, n_looked_at.get())
    }

    #[test]
    fn a_moment_lies_right_before_the_first_newer_change() {
        let view = known(&[(2, 10), (3, 10), (7, 20), (9, 30)], 0);
        let cases = [(5, 0), (10, 3), (15, 3), (20, 7), (29, 7), (30, 9), (99, 9)];
        for (seconds, expected) in cases {
            let (lsn, _) = found(&view, seconds, 9);
            let skipped = [(2, 10), (3, 10), (7, 20), (9, 30)].map(|(change, at)| (change <= lsn, at <= seconds));
            assert!(
                skipped.iter().all(|(is_skipped, is_old)| is_skipped == is_old),
                "{seconds}: {lsn}"
            );
            assert!(lsn >= expected, "{seconds}: {lsn}");
        }
    }

    #[test]
    fn few_changes_are_looked_at_among_many() {
        let changes: Vec<(u64, u64)> = (1..=10_000).map(|lsn| (lsn, lsn / 10)).collect();
        let (lsn, n_looked_at) = found(&known(&changes, 0), 500, 10_000);
        assert_eq!(lsn, 5_009);
        assert!(n_looked_at < 20, "{n_looked_at}");
    }

    #[test]
    fn changes_of_merged_partitions_are_not_skipped_unless_all_are_older() {
        // Two partitions, merged at 10.
        let view = known(&[(3, 50), (5, 20), (11, 60), (12, 70)], 10);
        assert_eq!(found(&view, 30, 12).0, 0);
        assert_eq!(found(&view, 60, 12).0, 11);
        assert_eq!(
            found(&known(&[(3, 50)], u64::MAX), 90, 12).0,
            0,
            "nothing is known of the order"
        );
    }
}
