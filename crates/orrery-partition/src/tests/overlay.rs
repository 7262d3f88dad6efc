//! An overlay is its base with the changes made: whoever reads cannot tell the difference.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use proptest::prelude::*;

use super::MapView;
use crate::overlay::Overlay;
use crate::storage::View;

/// State, items, and what the index is made of, which an overlay treats in its own way.
const SPACES: [u8; 6] = [0x01, 0x10, 0x20, 0x21, 0x22, 0x23];

/// Few keys, so that changes and base meet often.
fn key() -> impl Strategy<Value = Bytes> {
    (prop::sample::select(&SPACES[..]), prop::option::of(0u8..3))
        .prop_map(|(space, rest)| Bytes::from_iter(std::iter::once(space).chain(rest)))
}

fn value() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..3).prop_map(Bytes::from)
}

fn bound() -> impl Strategy<Value = Bound<Bytes>> {
    prop_oneof![
        Just(Bound::Unbounded),
        key().prop_map(Bound::Included),
        key().prop_map(Bound::Excluded)
    ]
}

/// Maps panic on bounds that are the wrong way round, and so may views.
fn in_order(from: &Bound<Bytes>, to: &Bound<Bytes>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        (Bound::Excluded(from), Bound::Excluded(to)) => from < to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from <= to,
    }
}

fn slices(bound: &Bound<Bytes>) -> Bound<&[u8]> {
    bound.as_ref().map(AsRef::as_ref)
}

type Rounds = Vec<Vec<(Bytes, Option<Bytes>)>>;

proptest! {
    #[test]
    fn an_overlay_reads_as_its_base_with_the_changes_made(
        base in prop::collection::btree_map(key(), value(), 0..20),
        rounds in prop::collection::vec(prop::collection::vec((key(), prop::option::of(value())), 0..6), 0..4),
        ranges in prop::collection::vec((bound(), bound()), 1..6),
    ) {
        check(base, rounds, ranges)?;
    }
}

fn check(
    base: BTreeMap<Bytes, Bytes>,
    rounds: Rounds,
    ranges: Vec<(Bound<Bytes>, Bound<Bytes>)>,
) -> Result<(), TestCaseError> {
    let base = MapView(base);
    let mut expected = base.clone();
    let mut overlay = Overlay::new(&base);
    for changes in rounds {
        expected.apply(changes.clone());
        overlay.apply(changes);
    }
    let all_keys: Vec<Bytes> = SPACES
        .iter()
        .flat_map(|&space| (0..3u8).map(move |rest| Bytes::from(vec![space, rest])))
        .collect();
    for key in &all_keys {
        prop_assert_eq!(overlay.get(key), expected.get(key));
    }
    for (from, to) in ranges.iter().filter(|(from, to)| in_order(from, to)) {
        for reverse in [false, true] {
            let found: Vec<_> = overlay.scan(slices(from), slices(to), reverse).collect();
            let wanted: Vec<_> = expected.scan(slices(from), slices(to), reverse).collect();
            prop_assert_eq!(found, wanted, "{:?} {:?} reverse {}", from, to, reverse);
        }
    }
    // An overlay on an overlay, as a batch inside a commit group has it.
    let upper = Overlay::new(&overlay);
    let found: Vec<_> = upper.scan(Bound::Unbounded, Bound::Unbounded, false).collect();
    let wanted: Vec<_> = expected.scan(Bound::Unbounded, Bound::Unbounded, false).collect();
    prop_assert_eq!(found, wanted);
    drop(upper);
    let mut applied = base.clone();
    let writes = overlay.into_writes();
    prop_assert!(writes.is_sorted_by(|(a, _), (b, _)| a < b), "in order, one of each key");
    applied.apply(writes);
    prop_assert_eq!(applied, expected);
    Ok(())
}
