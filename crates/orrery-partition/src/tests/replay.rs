//! Whatever happened to a partition, replaying its log gives the view it has, and the view agrees with itself.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;
use orrery_model::etag::Precondition;
use orrery_model::json;
use orrery_model::log::{Operation, Transaction};
use orrery_model::patch::Patch;
use orrery_model::{ContainerDefinition, EpkRange, IndexingDirective};
use proptest::prelude::*;

use super::{Bench, MapView, definition};
use crate::command::{Action, Command, Step, Target};
use crate::expiry::own_expiry;
use crate::history::{self, ChangeKind, Version};
use crate::index::{self, IndexProgress};
use crate::keys::{self, KeySpace};
use crate::project::{Projector, unique_hashes};
use crate::state::PartitionState;
use crate::storage::{Project as _, View as _};
use crate::stored::StoredItem;

/// Something that happens, in terms small enough that things meet.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Step(StepEvent),
    Batch(u8, Vec<StepEvent>),
    DeleteKey(u8, usize),
    Purge,
    /// Versions that have left the window are forgotten.
    Trim(usize),
    /// The container's default time to live changes, whether it keeps versions, and its indexing policy.
    Define(Option<i32>, bool, u8),
    /// A changed policy is applied to so many items.
    Reindex(u32),
    /// Seconds pass.
    Advance(u64),
}

#[derive(Clone, Debug)]
pub(super) struct StepEvent {
    verb: u8,
    key: u8,
    id: u8,
    email: u8,
    ttl: Option<i32>,
    condition: u8,
}

const KEYS: [&str; 4] = ["p", "q", "r", "s"];
const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Long for the little time that passes here, so that some is trimmed and some is not.
const KEEPS: &str = r#","changeFeedPolicy":{"retentionDuration":1}"#;
const POLICIES: [&str; 5] = [
    r#"{"includedPaths":[{"path":"/*"}]}"#,
    r#"{"includedPaths":[{"path":"/email/?"}],"excludedPaths":[{"path":"/*"}]}"#,
    r#"{"includedPaths":[{"path":"/*"}],"compositeIndexes":[[{"path":"/pk"},{"path":"/email","order":"descending"}],[{"path":"/email"},{"path":"/pk"}],[{"path":"/id"},{"path":"/email"}]]}"#,
    r#"{"indexingMode":"none","automatic":false}"#,
    r#"{"includedPaths":[{"path":"/*"}],"fullTextIndexes":[{"path":"/id"},{"path":"/pk"}],"spatialIndexes":[{"path":"/at/?"}]}"#,
];
const TEXTS: &str = r#","fullTextPolicy":{"fullTextPaths":[{"path":"/id"},{"path":"/pk","language":"de-DE"}]}"#;
const UNIQUE: &str = r#","uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/email"]}]}"#;

fn step() -> impl Strategy<Value = StepEvent> {
    let ttl = prop_oneof![4 => Just(None), 1 => Just(Some(-1)), 2 => (1..20i32).prop_map(Some)];
    (0..7u8, 0..4u8, 0..5u8, 0..6u8, ttl, 0..6u8).prop_map(|(verb, key, id, email, ttl, condition)| StepEvent {
        verb,
        key,
        id,
        email,
        ttl,
        condition,
    })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => step().prop_map(Event::Step),
        5 => (0..4u8, prop::collection::vec(step(), 1..5)).prop_map(|(key, steps)| Event::Batch(key, steps)),
        1 => (0..4u8, 1..4usize).prop_map(|(key, limit)| Event::DeleteKey(key, limit)),
        2 => Just(Event::Purge),
        1 => (1..4usize).prop_map(Event::Trim),
        1 => (prop::option::of(prop_oneof![Just(-1), 1..30i32]), any::<bool>(), 0..5u8)
            .prop_map(|(ttl, keeps, policy)| Event::Define(ttl, keeps, policy)),
        3 => (1..4u32).prop_map(Event::Reindex),
        3 => (1..15u64).prop_map(Event::Advance),
    ]
}

pub(super) fn events(n_max: usize) -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(event(), 1..n_max)
}

pub(super) fn bench() -> Bench {
    Bench::new(definition(&format!(r#","defaultTtl":20{KEEPS}{UNIQUE}"#)))
}

impl StepEvent {
    fn step(&self, bench: &Bench, key: u8) -> Step {
        let (key, id) = (KEYS[usize::from(key)], IDS[usize::from(self.id)]);
        let ttl = self.ttl.map(|ttl| format!(r#","ttl":{ttl}"#)).unwrap_or_default();
        let draft_of = |id| {
            bench
                .draft(key, id, &format!(r#""email":{}{ttl}"#, self.email))
                .unwrap()
        };
        let draft = || draft_of(id);
        let other_id = IDS[usize::from(self.id + self.condition) % IDS.len()];
        let target = || Target::Id(id.to_owned());
        let action = match self.verb {
            0 => Action::Create(draft()),
            1 => Action::Upsert(draft()),
            2 => Action::Replace(target(), draft()),
            3 => Action::Delete(target()),
            4 => Action::Read(target()),
            5 => Action::Replace(target(), draft_of(other_id)),
            _ => {
                let text = format!(r#"[{{"op":"set","path":"/email","value":{}}}]"#, self.email);
                Action::Patch(
                    target(),
                    Patch::parse(&json::parse_value(text.as_bytes()).unwrap()).unwrap(),
                )
            }
        };
        let precondition = match self.condition {
            0 => Precondition::IfMatch("*".to_owned()),
            1 => Precondition::IfMatch("stale".to_owned()),
            _ => Precondition::None,
        };
        Step {
            directive: IndexingDirective::of_code(self.condition % 3).unwrap_or_default(),
            ..bench.step(key, precondition, action)
        }
    }
}

/// Lets one thing happen. Refusals are fine; a refused command must not have changed anything.
pub(super) fn play(bench: &mut Bench, event: &Event, n_definitions: &mut u64) {
    let command = match event {
        Event::Step(step) => Command::Item(step.step(bench, step.key)),
        Event::Batch(key, steps) => Command::Batch(steps.iter().map(|step| step.step(bench, *key)).collect()),
        Event::DeleteKey(key, limit) => Command::DeleteKey {
            epk: bench.epk(KEYS[usize::from(*key)]),
            limit: *limit,
        },
        Event::Purge => Command::Purge {
            candidates: items(bench).into_keys().collect(),
        },
        Event::Trim(limit) => Command::TrimHistory { limit: *limit },
        Event::Define(ttl, keeps, policy) => {
            *n_definitions += 1;
            let mut ttl = ttl.map(|ttl| format!(r#","defaultTtl":{ttl}"#)).unwrap_or_default();
            ttl.push_str(if *keeps { KEEPS } else { "" });
            Command::Define {
                version: *n_definitions,
                definition: definition(&format!(
                    r#"{ttl}{UNIQUE}{TEXTS},"indexingPolicy":{}"#,
                    POLICIES[usize::from(*policy)]
                ))
                .to_stored()
                .into(),
            }
        }
        Event::Reindex(n_items_max) => Command::Reindex {
            n_items_max: *n_items_max,
        },
        Event::Advance(seconds) => {
            bench.now.0 += seconds * 1000;
            return;
        }
    };
    let (n_before, before) = (bench.log.len(), bench.view.clone());
    let decided = bench.run(&command);
    if bench.log.len() == n_before {
        assert_eq!(bench.view, before);
    }
    if let (Command::Batch(steps), Ok(decision)) = (&command, &decided) {
        assert_eq!(decision.results.len(), steps.len(), "every step of a batch is answered");
        let n_failed = decision.results.iter().filter(|result| result.outcome.is_err()).count();
        assert!(
            n_failed == 0 || n_failed == steps.len(),
            "a batch succeeds or fails as a whole"
        );
    }
}

fn items(bench: &Bench) -> BTreeMap<(orrery_model::Epk, u64), (Bytes, StoredItem)> {
    let (from, to) = keys::bounds(KeySpace::Item);
    let entries = bench.view.scan(Bound::Included(&from), Bound::Excluded(&to), false);
    entries
        .map(|entry| {
            let (key, value) = entry.unwrap();
            let item = StoredItem::decode(&value).unwrap();
            (keys::read_item(bench.form(), &key).unwrap(), (value, item))
        })
        .collect()
}

/// Every entry is derived from an item, every item has all its entries, and the counts are right.
fn check_consistent(bench: &Bench) {
    let (form, mut expected) = (bench.form(), BTreeSet::from([keys::state(), keys::definition()]));
    let (mut n_items, mut size_bytes, mut n_unique) = (0, 0, 0);
    for ((epk, number), (value, item)) in items(bench) {
        n_items += 1;
        size_bytes += value.len() as u64;
        expected.insert(keys::item(form, &epk, number));
        expected.insert(keys::id(form, &epk, std::str::from_utf8(&item.id).unwrap()));
        expected.insert(keys::change(item.lsn, item.index, number));
        expected.extend(own_expiry(&item).map(|at| keys::expiry(at, number)));
        for (constraint, values) in unique_hashes(&bench.definition, &json::parse_value(&item.body).unwrap()) {
            n_unique += 1;
            expected.insert(keys::unique(form, &epk, constraint, values));
        }
    }
    let history = |key: &Bytes| matches!(KeySpace::of(key), Some(KeySpace::History | KeySpace::HistoryFloor));
    check_history(bench);
    expected.extend(expected_index(bench));
    // A shape may outlive its last item; that every item's shape is there is checked with the items.
    let found = bench.view.0.keys().filter(|key| !is_shape(key) && !history(key));
    assert_eq!(found.cloned().collect::<BTreeSet<Bytes>>(), expected);
    let (from, to) = keys::bounds(KeySpace::Unique);
    assert_eq!(
        bench.view.0.range(from..to).count(),
        n_unique,
        "no two items share a unique value"
    );
    let state = PartitionState::load(&bench.view).unwrap().unwrap();
    assert_eq!((state.n_items, state.size_bytes), (n_items, size_bytes));
    assert!(
        items(bench).keys().all(|(_, number)| number >> 16 < state.next_counter),
        "the next number is free"
    );
}

/// Above the floor, the history is what the log says: every change of an item while the container kept versions.
fn check_history(bench: &Bench) {
    let floor = history::floor(&bench.view, &EpkRange::full()).unwrap();
    let (mut wanted, mut keeps) = (Vec::new(), true);
    for transaction in &bench.log {
        for (index, operation) in transaction.operations.iter().enumerate() {
            let change = match operation {
                Operation::Put(put) => Some((put.number, put.body.clone(), false)),
                Operation::Delete(delete) => Some((delete.number, Bytes::new(), delete.expired)),
                Operation::Defined { definition, .. } => {
                    let definition = ContainerDefinition::from_stored(definition).unwrap();
                    keeps = definition.change_feed_retention_minutes().is_some();
                    None
                }
                _ => None,
            };
            if let Some((number, after, expired)) = change.filter(|_| keeps && transaction.lsn > floor.lsn) {
                wanted.push((keys::history(transaction.lsn, index as u16, number), after, expired));
            }
        }
    }
    let from = keys::history_after(floor.lsn);
    let (_, to) = keys::bounds(KeySpace::History);
    let kept = bench.view.scan(Bound::Included(&from), Bound::Excluded(&to), false);
    let kept: Vec<_> = kept
        .map(|entry| {
            let (key, value) = entry.unwrap();
            let (_, version) = Version::decode(bench.form(), &value).unwrap();
            assert_eq!(version.kind == ChangeKind::Delete, version.after.is_empty());
            assert_eq!(version.kind == ChangeKind::Create, version.before.is_empty());
            (key, version.after, version.expired)
        })
        .collect();
    assert_eq!(kept, wanted);
}

fn is_shape(key: &[u8]) -> bool {
    KeySpace::of(key) == Some(KeySpace::Shape)
}

/// The index entries that the items ask for, as far as the index has come. Removing entries of an earlier policy is checked
/// when it is done.
fn expected_index(bench: &Bench) -> BTreeSet<Bytes> {
    let state = PartitionState::load(&bench.view).unwrap().unwrap();
    let in_index = |key: &&Bytes| {
        let space = KeySpace::of(key);
        matches!(space, Some(KeySpace::Term | KeySpace::Posting | KeySpace::Composite))
    };
    if state.index == IndexProgress::Clearing {
        return bench.view.0.keys().filter(in_index).cloned().collect();
    }
    let mut expected = BTreeSet::new();
    for ((epk, number), (_, item)) in items(bench) {
        if state.index.covers(&keys::item(bench.form(), &epk, number)) {
            let (indexing, nothing) = (bench.definition.indexing(), MapView::default());
            let place = (&epk, number);
            let writes = index::changes(indexing, &nothing, bench.form(), place, None, Some(&item)).unwrap();
            let (shapes, entries): (Vec<_>, Vec<_>) =
                writes.into_iter().map(|(key, _)| key).partition(|key| is_shape(key));
            assert!(
                shapes.iter().all(|shape| bench.view.0.contains_key(shape)),
                "the item's shape is known"
            );
            expected.extend(entries);
        }
    }
    expected
}

proptest! {
    #[test]
    fn a_changed_policy_is_applied_in_the_end(events in events(30), policy in 0..5u8) {
        let (mut bench, mut n_definitions) = (bench(), 1);
        events.iter().for_each(|event| play(&mut bench, event, &mut n_definitions));
        play(&mut bench, &Event::Define(None, true, policy), &mut n_definitions);
        let is_ready = |bench: &Bench| PartitionState::load(&bench.view).unwrap().unwrap().index.is_ready();
        for _ in 0..1_000 {
            if is_ready(&bench) {
                break;
            }
            play(&mut bench, &Event::Reindex(2), &mut n_definitions);
            check_consistent(&bench);
        }
        prop_assert!(is_ready(&bench));
    }

    #[test]
    fn replaying_the_log_gives_the_live_view(events in events(60)) {
        let (mut bench, mut n_definitions) = (bench(), 1);
        for event in &events {
            play(&mut bench, event, &mut n_definitions);
            check_consistent(&bench);
        }
        let (mut replayed, projector) = (MapView::default(), Projector::default());
        for transaction in &bench.log {
            let writes = projector.project(&replayed, transaction).unwrap();
            replayed.apply(writes);
        }
        prop_assert_eq!(&replayed, &bench.view);
        // And so does replaying what was written to bytes and read back.
        let (mut decoded, projector) = (MapView::default(), Projector::default());
        for transaction in &bench.log {
            let mut bytes = Vec::new();
            transaction.encode(&mut bytes);
            let transaction = Transaction::decode(&Bytes::from(bytes)).unwrap();
            let writes = projector.project(&decoded, &transaction).unwrap();
            decoded.apply(writes);
        }
        prop_assert_eq!(&decoded, &bench.view);
    }
}
