//! Splitting a view anywhere and merging the parts gives the view back, and catching up with a log gives what splitting at
//! its end would have given.

use std::collections::BTreeMap;

use bytes::Bytes;
use orrery_model::etag::Precondition;
use orrery_model::{Epk, EpkRange, Lsn, PartitionId};
use proptest::prelude::*;

use super::replay::{bench, events, play};
use super::{Bench, MapView};
use crate::command::{Action, Command};
use crate::history::{self, Floor};
use crate::index::shape_of_posting;
use crate::keys::{EpkForm, KeySpace, read_change};
use crate::project::Projector;
use crate::reshard::{ChildView, belongs, child_state, count, floors, tail};
use crate::state::PartitionState;

/// A child of a view: its entries and its state.
#[derive(Clone, Debug, PartialEq)]
struct Child {
    range: EpkRange,
    entries: MapView,
    state: PartitionState,
}

fn split(view: &MapView, form: EpkForm, ranges: &[EpkRange]) -> Vec<Child> {
    let parent = PartitionState::load(view).unwrap().unwrap();
    let child = |(index, range): (usize, &EpkRange)| {
        let mut state = child_state(
            PartitionId(10 + index as u32),
            range.clone(),
            std::slice::from_ref(&parent),
        );
        let mut entries = MapView::default();
        for (key, value) in view.0.iter().filter(|(key, value)| belongs(form, key, value, range)) {
            count(&mut state, key, value);
            entries.apply([(key.clone(), Some(value.clone()))]);
        }
        Child {
            range: range.clone(),
            entries,
            state,
        }
    };
    ranges.iter().enumerate().map(child).collect()
}

/// Brings children made from `base` to the end of the parent's log.
fn catch_up(children: &mut [Child], base: &MapView, parent: &Bench, n_copied: usize) {
    let definitions = Projector::default();
    for child in children {
        let mut view = ChildView::new(base, &child.state);
        for transaction in &parent.log[n_copied..] {
            let definition = definitions.definition_in(&view).unwrap().unwrap();
            let writes = tail(&definition, &view, transaction, &child.range).unwrap();
            view.apply(writes);
        }
        child.state = PartitionState::load(&view).unwrap().unwrap();
        child.entries.apply(view.into_writes());
    }
}

/// What belongs to items: everything but the state, the definition and the floor, which are each partition's own, the
/// versions that the parent has forgotten, and the shapes, of which a partition may know more than it needs. While the index
/// is being rebuilt a child makes its own.
fn of_items(view: &MapView, parent: &MapView, index_is_ready: bool) -> BTreeMap<Bytes, Bytes> {
    let own = |key: &Bytes| match KeySpace::of(key) {
        Some(KeySpace::State | KeySpace::Definition | KeySpace::HistoryFloor | KeySpace::Shape) => true,
        Some(KeySpace::Term | KeySpace::Posting | KeySpace::Composite) => !index_is_ready,
        _ => false,
    };
    // What a parent has forgotten meanwhile a child may still hold, but nobody can ask for it.
    let floor = history::floor(parent, &EpkRange::full()).unwrap();
    let forgotten = |key: &Bytes| {
        KeySpace::of(key) == Some(KeySpace::History) && read_change(key).is_some_and(|(lsn, ..)| lsn <= floor.lsn)
    };
    view.0
        .iter()
        .filter(|(key, _)| !own(key) && !forgotten(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Every item's shape must be known to the child that has it.
fn check_shapes(child: &Child) {
    for key in child.entries.0.keys() {
        if let Some(shape) = shape_of_posting(key) {
            let known = child.entries.0.contains_key(&shape);
            assert!(known || !child.state.index.is_ready(), "{}", child.range);
        }
    }
}

/// Ranges that meet at the given places.
fn ranges(bounds: &[u8]) -> Vec<EpkRange> {
    let mut bounds: Vec<Epk> = bounds.iter().map(|byte| Epk::from_bytes([byte & 0x3F])).collect();
    bounds.extend([Epk::min(), Epk::max()]);
    bounds.sort();
    bounds.dedup();
    bounds
        .windows(2)
        .map(|pair| EpkRange::new(pair[0].clone(), pair[1].clone()))
        .collect()
}

proptest! {
    #[test]
    fn a_split_anywhere_loses_and_doubles_nothing(events in events(40), bounds in prop::collection::vec(any::<u8>(), 1..4)) {
        let (mut bench, mut n_definitions) = (bench(), 1);
        events.iter().for_each(|event| play(&mut bench, event, &mut n_definitions));
        let parent = PartitionState::load(&bench.view).unwrap().unwrap();
        let children = split(&bench.view, bench.form(), &ranges(&bounds));
        let mut merged = BTreeMap::new();
        for child in &children {
            for (key, value) in of_items(&child.entries, &bench.view, true) {
                prop_assert_eq!(merged.insert(key, value), None, "an entry went to two children");
            }
            prop_assert!(child.state.next_number() > 0 && child.state.next_counter >= parent.next_counter);
        }
        prop_assert_eq!(merged, of_items(&bench.view, &bench.view, true));
        let sum = |pick: fn(&PartitionState) -> u64| children.iter().map(|child| pick(&child.state)).sum::<u64>();
        prop_assert_eq!((sum(|state| state.n_items), sum(|state| state.size_bytes)), (parent.n_items, parent.size_bytes));
    }

    #[test]
    fn catching_up_gives_what_splitting_at_the_end_gives(
        events in events(50),
        at in 0.0..1.0f64,
        bounds in prop::collection::vec(any::<u8>(), 1..4),
    ) {
        let (mut bench, mut n_definitions) = (bench(), 1);
        let n_before = (events.len() as f64 * at) as usize;
        events[..n_before].iter().for_each(|event| play(&mut bench, event, &mut n_definitions));
        let (base, n_copied) = (bench.view.clone(), bench.log.len());
        let mut children = split(&base, bench.form(), &ranges(&bounds));
        events[n_before..].iter().for_each(|event| play(&mut bench, event, &mut n_definitions));
        catch_up(&mut children, &base, &bench, n_copied);
        let wanted = split(&bench.view, bench.form(), &ranges(&bounds));
        for (child, wanted) in children.iter().zip(&wanted) {
            let ready = child.state.index.is_ready() && wanted.state.index.is_ready();
            prop_assert_eq!(of_items(&child.entries, &bench.view, ready), of_items(&wanted.entries, &bench.view, ready), "{}", &child.range);
            check_shapes(child);
            let counts = |state: &PartitionState| (state.n_items, state.size_bytes);
            prop_assert_eq!(counts(&child.state), counts(&wanted.state), "{}", &child.range);
        }
    }

    #[test]
    fn catching_up_in_rounds_gives_the_same_as_at_once(events in events(50), bounds in prop::collection::vec(any::<u8>(), 1..3)) {
        let (mut bench, mut n_definitions) = (bench(), 1);
        let mut base = bench.view.clone();
        let mut children = split(&base, bench.form(), &ranges(&bounds));
        for round in events.chunks(8) {
            let n_copied = bench.log.len();
            round.iter().for_each(|event| play(&mut bench, event, &mut n_definitions));
            catch_up(&mut children, &base, &bench, n_copied);
            base = bench.view.clone();
        }
        for (child, wanted) in children.iter().zip(split(&bench.view, bench.form(), &ranges(&bounds))) {
            let ready = child.state.index.is_ready() && wanted.state.index.is_ready();
            prop_assert_eq!(of_items(&child.entries, &bench.view, ready), of_items(&wanted.entries, &bench.view, ready));
            check_shapes(child);
            prop_assert_eq!(child.state.n_items, wanted.state.n_items);
        }
    }
}

#[test]
fn a_child_knows_what_its_parents_had_forgotten_each_in_its_part() {
    let mut bench = bench();
    let step = |bench: &mut Bench, id| {
        let draft = bench.draft("p", id, "").unwrap();
        let step = bench.step("p", Precondition::None, Action::Create(draft));
        bench.run(&Command::Item(step)).unwrap();
    };
    step(&mut bench, "a");
    bench.now.0 += 120_000;
    step(&mut bench, "b");
    let middle = Epk::from_bytes([0x20]);
    let left = EpkRange::new(Epk::min(), middle.clone());
    let right = EpkRange::new(middle, Epk::max());
    let mut merged = MapView::default();
    merged.apply(floors(&bench.view, &left).unwrap());
    bench.run(&Command::TrimHistory { limit: 10 }).unwrap();
    let forgotten = history::floor(&bench.view, &left).unwrap();
    assert_eq!(forgotten.lsn, Lsn(2));
    merged.apply(floors(&bench.view, &right).unwrap());
    assert_eq!(history::floor(&merged, &left).unwrap(), Floor::default());
    assert_eq!(history::floor(&merged, &right).unwrap(), forgotten);
    assert_eq!(history::floor(&merged, &EpkRange::full()).unwrap(), forgotten);
}
