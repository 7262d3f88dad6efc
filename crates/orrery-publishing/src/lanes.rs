//! Several ordered sources read as one: the k-way merge below the union of accounts and below the audience of an article.
//!
//! A lane holds what was read of one source and not used yet. The lowest key of all lanes comes next, together with every
//! other lane that has the same key. Invariant: nothing is given out while a source that has more to say could still say
//! something lower; so what comes out is in order whatever the order of the answers.

use std::cmp::Ordering;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
struct Lane<R> {
    rows: VecDeque<(String, R)>,
    /// The source has not said that it is at its end.
    has_more: bool,
}

/// The order in which servers sort texts: by UTF-16 units. Characters beyond the first 65,536 come before some of those within,
/// unlike in the order of `str`.
pub fn server_order(one: &str, other: &str) -> Ordering {
    one.encode_utf16().cmp(other.encode_utf16())
}

/// Sources side by side, known by their number.
#[derive(Clone, Debug)]
pub struct Lanes<R> {
    lanes: Vec<Lane<R>>,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<R> {
    /// The rows with the lowest key, by lane.
    Rows {
        key: String,
        rows: Vec<(usize, R)>,
    },
    /// These lanes must be read first.
    Starving(Vec<usize>),
    End,
}

impl<R> Lanes<R> {
    pub fn new(n_lanes: usize) -> Lanes<R> {
        let lane = |_| Lane {
            rows: VecDeque::new(),
            has_more: true,
        };
        Lanes {
            lanes: (0..n_lanes).map(lane).collect(),
        }
    }

    /// Adds what a source answered, in ascending order of keys; see [`server_order`].
    pub fn supply(&mut self, lane: usize, rows: impl IntoIterator<Item = (String, R)>, has_more: bool) {
        let lane = &mut self.lanes[lane];
        lane.rows.extend(rows);
        lane.has_more = has_more;
    }

    /// Goes on without a source.
    pub fn close(&mut self, lane: usize) {
        self.supply(lane, [], false);
        self.lanes[lane].rows.clear();
    }

    /// Something of a lane is left, here or at its source.
    pub fn is_open(&self, lane: usize) -> bool {
        let lane = &self.lanes[lane];
        lane.has_more || !lane.rows.is_empty()
    }

    pub fn take_lowest(&mut self) -> Next<R> {
        let is_starving = |lane: &Lane<R>| lane.rows.is_empty() && lane.has_more;
        let starving: Vec<usize> = (0..self.lanes.len())
            .filter(|index| is_starving(&self.lanes[*index]))
            .collect();
        if !starving.is_empty() {
            return Next::Starving(starving);
        }
        let lowest = self
            .lanes
            .iter()
            .filter_map(|lane| lane.rows.front())
            .map(|(key, _)| key)
            .min_by(|one, other| server_order(one, other));
        let Some(key) = lowest.cloned() else {
            return Next::End;
        };
        let mut rows = Vec::new();
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            if lane.rows.front().is_some_and(|(front, _)| *front == key) {
                rows.extend(lane.rows.pop_front().map(|(_, row)| (index, row)));
            }
        }
        Next::Rows { key, rows }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_comes_out_while_a_source_could_say_something_lower() {
        let mut lanes = Lanes::new(2);
        lanes.supply(0, [("b".to_owned(), 1)], false);
        assert_eq!(lanes.take_lowest(), Next::Starving(vec![1]));
        lanes.supply(1, [("a".to_owned(), 2), ("b".to_owned(), 3)], true);
        let rows = |key: &str, rows: Vec<_>| Next::Rows {
            key: key.to_owned(),
            rows,
        };
        assert_eq!(lanes.take_lowest(), rows("a", vec![(1, 2)]));
        assert_eq!(lanes.take_lowest(), rows("b", vec![(0, 1), (1, 3)]));
        assert_eq!(lanes.take_lowest(), Next::Starving(vec![1]));
        lanes.close(1);
        assert_eq!(lanes.take_lowest(), Next::End);
    }

    #[test]
    fn keys_come_in_the_order_of_servers() {
        let keys = [
            "z",
            "\u{d7ff}",
            "\u{10000}",
            "\u{1f600}",
            "\u{e000}",
            "\u{ff21}",
            "\u{ffff}",
        ];
        let mut lanes = Lanes::new(keys.len());
        for (lane, key) in keys.iter().rev().enumerate() {
            lanes.supply(lane, [((*key).to_owned(), ())], false);
        }
        for expected in keys {
            assert!(
                matches!(lanes.take_lowest(), Next::Rows { key, .. } if key == expected),
                "{expected}"
            );
        }
    }

    proptest! {
        #[test]
        fn pages_of_any_size_in_any_order_of_answers_merge_alike(
            sources in prop::collection::vec(prop::collection::btree_set(0u32..200, 0..40), 1..5),
            sizes in prop::collection::vec(1usize..7, 1..5),
        ) {
            let sources: Vec<Vec<u32>> = sources.into_iter().map(|source| source.into_iter().collect()).collect();
            let mut lanes = Lanes::new(sources.len());
            let mut read = vec![0; sources.len()];
            let mut out = Vec::new();
            loop {
                match lanes.take_lowest() {
                    Next::End => break,
                    Next::Rows { rows, .. } => out.push(rows.iter().map(|(_, row)| *row).collect::<Vec<u32>>()),
                    Next::Starving(starving) => for lane in starving.into_iter().rev() {
                        let end = (read[lane] + sizes[lane % sizes.len()]).min(sources[lane].len());
                        let page = sources[lane][read[lane]..end].iter().map(|row| (format!("{row:05}"), *row));
                        lanes.supply(lane, page, end < sources[lane].len());
                        read[lane] = end;
                    },
                }
            }
            let mut expected: Vec<u32> = sources.iter().flatten().copied().collect();
            expected.sort_unstable();
            prop_assert_eq!(out.iter().flatten().copied().collect::<Vec<_>>(), expected);
            prop_assert!(out.windows(2).all(|pair| pair[0][0] < pair[1][0]));
        }
    }
}
