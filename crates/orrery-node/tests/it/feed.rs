//! Whatever is written, split and merged in whatever order: the feed of latest versions replays to what is there, and the
//! feed of all versions to everything that ever was.

use std::collections::BTreeMap;

use orrery_model::json::{self, Value};
use orrery_node::api::{
    Change, ChangeFeedRead, ChangeKind, FeedMode, FeedStart, FeedTarget, FromHistory, ItemSelector, ItemVerb,
    Operation, Outcome,
};
use orrery_node::{Clock as _, NodeSettings};
use proptest::prelude::*;

use crate::support::{World, container, item, settings};

#[derive(Clone, Debug)]
enum Step {
    Upsert(u8, u8),
    Delete(u8, u8),
    /// Several writes of one key in one transaction.
    Batch(u8, Vec<u8>),
    Split(u8),
    Merge(u8),
    /// Both readers read a page.
    Read,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0..8u8, 0..3u8).prop_map(|(key, id)| Step::Upsert(key, id)),
        4 => (0..8u8, 0..3u8).prop_map(|(key, id)| Step::Delete(key, id)),
        3 => (0..8u8, prop::collection::vec(0..3u8, 1..6)).prop_map(|(key, ids)| Step::Batch(key, ids)),
        2 => any::<u8>().prop_map(Step::Split),
        2 => any::<u8>().prop_map(Step::Merge),
        5 => Just(Step::Read),
    ];
    prop::collection::vec(step, 1..60)
}

type Name = (String, String);

/// Everything that was written, and what is there now.
#[derive(Default)]
struct Ledger {
    n: i64,
    versions: BTreeMap<Name, Vec<Option<i64>>>,
}

impl Ledger {
    fn note(&mut self, key: &str, id: &str, n: Option<i64>) {
        let name = (key.to_owned(), id.to_owned());
        self.versions.entry(name).or_default().push(n);
    }

    fn live(&self) -> BTreeMap<Name, i64> {
        let last = |(name, versions): (&Name, &Vec<Option<i64>>)| Some((name.clone(), (*versions.last()?)?));
        self.versions.iter().filter_map(last).collect()
    }
}

/// A reader with the token it goes on from.
struct Reader {
    mode: FeedMode,
    start: FeedStart,
    changes: Vec<Change>,
}

impl Reader {
    /// Reads a page; `false` when there was nothing new.
    async fn page(&mut self, world: &World) -> bool {
        let read = ChangeFeedRead {
            container: container(),
            target: FeedTarget::default(),
            mode: self.mode,
            start: self.start.clone(),
            newer_than: None,
            n_items_max: Some(3),
            filter: None,
            wait_ms: 0,
            from_history: FromHistory::No,
            facts_only: false,
            committed_only: false,
            lasting_tag: true,
        };
        match world.execute(Operation::ChangeFeed(read)).await.unwrap().outcome {
            Outcome::Changes(page) => {
                self.changes.extend(page.changes);
                self.start = FeedStart::After(page.etag);
                true
            }
            Outcome::NotModified { etag } => {
                self.start = FeedStart::After(etag);
                false
            }
            other => panic!("{other:?}"),
        }
    }
}

fn facts(text: &[u8]) -> (Name, i64) {
    let value = json::parse_value(text).unwrap();
    let member = |name| value.get(name).and_then(Value::as_str).unwrap().to_owned();
    let n = value.get("n").and_then(Value::as_number).unwrap().as_i64().unwrap();
    ((member("pk"), member("id")), n)
}

async fn play(world: &World, ledger: &mut Ledger, step: &Step) {
    match step {
        Step::Upsert(key, id) => write(world, ledger, *key, &[*id]).await,
        Step::Batch(key, ids) => write(world, ledger, *key, ids).await,
        Step::Delete(key, id) => {
            let (key, id) = (format!("k{key}"), id.to_string());
            let selector = ItemSelector::Id(id.clone());
            if world.item(&key, ItemVerb::Delete { item: selector }).await.is_ok() {
                ledger.note(&key, &id, None);
            }
        }
        Step::Split(pick) => {
            let partitions = world.node.partitions(Some(("db", "c"))).unwrap();
            let one = &partitions[usize::from(*pick) % partitions.len()];
            if partitions.len() < 5 {
                world.node.split("db", "c", one.partition.0).await.unwrap();
            }
        }
        Step::Merge(pick) => {
            let mut partitions = world.node.partitions(Some(("db", "c"))).unwrap();
            partitions.sort_by(|a, b| a.range.min.cmp(&b.range.min));
            if let Some(n_pairs) = partitions.len().checked_sub(1).filter(|n| *n > 0) {
                let pair = usize::from(*pick) % n_pairs;
                let ids = (partitions[pair].partition.0, partitions[pair + 1].partition.0);
                world.node.merge("db", "c", ids).await.unwrap();
            }
        }
        Step::Read => {}
    }
}

async fn write(world: &World, ledger: &mut Ledger, key: u8, ids: &[u8]) {
    let key = format!("k{key}");
    let verbs = ids.iter().map(|id| {
        ledger.n += 1;
        ledger.note(&key, &id.to_string(), Some(ledger.n));
        let body = item(&format!(r#"{{"id":"{id}","pk":"{key}","n":{}}}"#, ledger.n));
        ItemVerb::Upsert { body }
    });
    let verbs: Vec<ItemVerb> = verbs.collect();
    let results = world.batch(&key, verbs).await;
    assert!(results.iter().all(|result| result.status < 300));
}

async fn check(steps: &[Step]) {
    let world = World::new().await;
    world
        .with_container(r#","changeFeedPolicy":{"retentionDuration":60}"#)
        .await;
    let reader = |mode, start| Reader {
        mode,
        start,
        changes: Vec::new(),
    };
    let mut latest = reader(FeedMode::LatestVersions, FeedStart::Beginning);
    let mut all = reader(FeedMode::AllVersions, FeedStart::Now);
    all.page(&world).await;
    let mut ledger = Ledger::default();
    for step in steps {
        play(&world, &mut ledger, step).await;
        if matches!(step, Step::Read) {
            latest.page(&world).await;
            all.page(&world).await;
        }
    }
    while latest.page(&world).await {}
    while all.page(&world).await {}

    let mut copy = BTreeMap::new();
    for change in &latest.changes {
        let (name, n) = facts(&change.current);
        let before = copy.insert(name.clone(), n);
        assert!(before.is_none_or(|before| before < n), "{name:?}: {before:?} then {n}");
    }
    for (name, n) in ledger.live() {
        assert_eq!(copy.get(&name), Some(&n), "the latest version of {name:?}");
    }

    let mut versions: BTreeMap<Name, Vec<Option<i64>>> = BTreeMap::new();
    for change in &all.changes {
        let version = change.version.as_ref().unwrap();
        let deleted = version.kind == ChangeKind::Delete;
        let (name, n) = facts(if deleted { &version.previous } else { &change.current });
        let known = versions.entry(name).or_default();
        let exists = known.last().is_some_and(Option::is_some);
        assert_eq!(exists, version.kind != ChangeKind::Create);
        known.push((!deleted).then_some(n));
    }
    assert_eq!(versions, ledger.versions);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_feeds_replay_to_what_is_there_and_to_everything_that_was(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(&steps));
    }
}

#[tokio::test]
async fn kept_versions_outlive_a_restored_snapshot() {
    let world = World::new().await;
    world
        .with_container(r#","changeFeedPolicy":{"retentionDuration":60}"#)
        .await;
    let mut reader = Reader {
        mode: FeedMode::AllVersions,
        start: FeedStart::Now,
        changes: Vec::new(),
    };
    reader.page(&world).await;
    let mut ledger = Ledger::default();
    for _ in 0..3 {
        play(&world, &mut ledger, &Step::Upsert(1, 1)).await;
    }
    play(&world, &mut ledger, &Step::Delete(1, 1)).await;
    world.node.save_snapshot("before").await.unwrap();
    play(&world, &mut ledger, &Step::Upsert(2, 1)).await;
    world.node.restore_snapshot("before").await.unwrap();
    while reader.page(&world).await {}
    let kinds: Vec<_> = reader
        .changes
        .iter()
        .map(|change| change.version.as_ref().unwrap().kind)
        .collect();
    let replace = ChangeKind::Replace;
    assert_eq!(
        kinds,
        [ChangeKind::Create, replace, replace, ChangeKind::Delete],
        "the lost write is not among them"
    );
    play(&world, &mut ledger, &Step::Upsert(3, 1)).await;
    assert!(reader.page(&world).await, "the feed goes on in the new epoch");
}

#[tokio::test]
async fn versions_that_leave_the_window_are_forgotten() {
    let world = World::new().await;
    world
        .with_container(r#","changeFeedPolicy":{"retentionDuration":1}"#)
        .await;
    let mut ledger = Ledger::default();
    play(&world, &mut ledger, &Step::Upsert(1, 1)).await;
    let head = world.node.partitions(Some(("db", "c"))).unwrap()[0].lsn;
    // In steps that the server believes; a clock that leaps is not trusted to forget anything.
    let forgotten = async {
        while world.node.partitions(Some(("db", "c"))).unwrap()[0].lsn == head {
            world.clock.advance_ms(50);
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), forgotten)
        .await
        .expect("the version is forgotten");
    assert_eq!(world.all(10).await.len(), 1, "the item itself stays");
}

/// Reads of latest versions page by page until there is nothing new: how many pages that took, and what they held.
async fn pages(world: &World, mut start: FeedStart, newer_than: Option<u64>, filter: &str) -> (usize, Vec<Change>) {
    let (mut n_pages, mut changes) = (0, Vec::new());
    loop {
        let read = ChangeFeedRead {
            container: container(),
            target: FeedTarget::default(),
            mode: FeedMode::LatestVersions,
            start: start.clone(),
            newer_than,
            n_items_max: None,
            filter: Some(filter.to_owned()),
            wait_ms: 0,
            from_history: FromHistory::No,
            facts_only: false,
            committed_only: false,
            lasting_tag: false,
        };
        n_pages += 1;
        match world.execute(Operation::ChangeFeed(read)).await.unwrap().outcome {
            Outcome::Changes(page) => {
                changes.extend(page.changes);
                start = FeedStart::After(page.etag);
            }
            Outcome::NotModified { .. } => return (n_pages, changes),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_page_looks_at_a_bounded_part_of_the_feed_also_for_readers_that_say_a_time() {
    let few = NodeSettings {
        feed_entries_max: 10,
        ..settings()
    };
    let world = World::with(few).await;
    world.with_container("").await;
    let before = world.clock.now().seconds() - 60;
    for n in 0..100 {
        let body = format!(r#"{{"id":"{n}","pk":"k{n}","n":{n}}}"#);
        world.create(&format!("k{n}"), &body).await.unwrap();
    }
    let (first, last) = (FeedStart::After("0".to_owned()), "c.current.n = 99");
    for (start, newer_than) in [
        (first.clone(), None),
        (first, Some(before)),
        (FeedStart::Time(before), None),
        (FeedStart::Time(before), Some(before)),
    ] {
        let (n_pages, changes) = pages(&world, start.clone(), newer_than, last).await;
        assert!(n_pages >= 10, "{n_pages} pages from {start:?} with {newer_than:?}");
        assert_eq!(changes.len(), 1);
    }
    // Nothing is newer: that is found out before the first answer, however much was merged.
    let whole = world.node.partitions(Some(("db", "c"))).unwrap()[0].partition.0;
    world.node.split("db", "c", whole).await.unwrap();
    let halves = world.node.partitions(Some(("db", "c"))).unwrap();
    let halves = (halves[0].partition.0, halves[1].partition.0);
    world.node.merge("db", "c", halves).await.unwrap();
    let now = FeedStart::Time(world.clock.now().seconds());
    assert_eq!(pages(&world, now, None, "true").await, (1, Vec::new()));
}
