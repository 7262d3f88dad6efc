//! How a page is shared between calls of the delegate that run beside each other.
//!
//! Every key belongs to one lane, and a lane is delivered in the order of the page: so the changes of a key keep their
//! order, however many lanes there are. Invariant: the lanes hold every change exactly once.

use std::collections::HashMap;
use std::ops::Range;

use crate::feed::Change;

/// Puts the changes into at most `n_max` lanes, lane after lane; where each of them lies.
pub(super) fn lanes(changes: Vec<Change>, key_paths: &[String], n_max: usize) -> (Vec<Change>, Vec<Range<usize>>) {
    if n_max <= 1 || changes.is_empty() {
        let whole = 0..changes.len();
        return (changes, vec![whole]);
    }
    let mut lane_of_key: HashMap<String, usize> = HashMap::new();
    let mut lanes: Vec<Vec<Change>> = Vec::new();
    for change in changes {
        let next = lane_of_key.len() % n_max;
        let lane = *lane_of_key.entry(change.key(key_paths)).or_insert(next);
        if lane == lanes.len() {
            lanes.push(Vec::new());
        }
        lanes[lane].push(change);
    }
    let mut bounds = Vec::with_capacity(lanes.len());
    let mut start = 0;
    for lane in &lanes {
        bounds.push(start..start + lane.len());
        start += lane.len();
    }
    (lanes.into_iter().flatten().collect(), bounds)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::feed::ChangeMetadata;

    fn change(key: u8, lsn: u64) -> Change {
        Change {
            current: Some(json!({"id": lsn.to_string(), "pk": key})),
            previous: None,
            metadata: ChangeMetadata {
                lsn: Some(lsn),
                ..ChangeMetadata::default()
            },
        }
    }

    proptest! {
        #[test]
        fn a_key_has_one_lane_and_keeps_its_order(keys in prop::collection::vec(0u8..12, 0..60), n_max in 0usize..9) {
            let paths = ["/pk".to_owned()];
            let page: Vec<Change> = keys.iter().zip(1..).map(|(key, lsn)| change(*key, lsn)).collect();
            let (changes, bounds) = lanes(page, &paths, n_max);
            prop_assert_eq!(changes.len(), keys.len());
            prop_assert!(bounds.len() <= n_max.max(1));
            prop_assert_eq!(bounds.last().map_or(0, |last| last.end), keys.len());
            let mut home: HashMap<String, usize> = HashMap::new();
            for (lane, bound) in bounds.iter().enumerate() {
                let mut last: HashMap<String, u64> = HashMap::new();
                for change in &changes[bound.clone()] {
                    let (key, lsn) = (change.key(&paths), change.metadata.lsn.unwrap());
                    prop_assert_eq!(*home.entry(key.clone()).or_insert(lane), lane);
                    prop_assert!(last.insert(key, lsn).is_none_or(|before| before < lsn));
                }
            }
        }
    }
}
