//! Splits and merges while everything goes on: nothing acknowledged is lost, nothing happens twice, nobody who addresses
//! items by their key notices.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use orrery_model::etag::Precondition;
use orrery_model::json::{self, Value};
use orrery_model::{IndexingDirective, Lsn, PartitionId, PartitionKey, SessionToken, Status, Timestamp};
use orrery_node::api::{
    BatchOperation, BatchStep, FeedTarget, ItemOperation, ItemSelector, ItemVerb, MetadataVerb, Operation, Options,
    Outcome, Page, Principal, ResourceKind,
};
use orrery_node::{Failure, ManualClock, Node, Reply, Request};
use orrery_partition::project::Projector;
use orrery_partition::storage::Store;
use orrery_storage::{EmbeddedSettings, EmbeddedStore, MemoryStore};
use tokio::task::JoinSet;

use crate::failing::{Cut, FailingStore};
use crate::support::{World, body_of, code, container, item, named, settings};

pub async fn world_on(store: Arc<dyn Store>) -> World {
    let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
    let node = Node::start(settings(), Arc::clone(&store), clock.clone())
        .await
        .unwrap();
    World { node, clock, store }
}

pub fn embedded(dir: &std::path::Path) -> Arc<EmbeddedStore> {
    // Small sizes, so that flushing and rolling over happen during the test.
    let settings = EmbeddedSettings {
        write_buffer_bytes: 256 << 10,
        segment_bytes: 256 << 10,
        replay_bytes_max: 512 << 10,
        log_keep_bytes: 0,
        ..EmbeddedSettings::default()
    };
    EmbeddedStore::open(dir, settings, Arc::new(Projector::default())).unwrap()
}

fn key_of(writer: usize) -> String {
    format!("key-{writer}")
}

fn body(writer: usize, id: &str, n: u64) -> String {
    format!(r#"{{"id":"{id}","pk":"key-{writer}","n":{n}}}"#)
}

fn lsn_of(reply: &Reply) -> Lsn {
    reply.facts.partition.as_ref().and_then(|facts| facts.item_lsn).unwrap()
}

fn integer(value: &Value, name: &str) -> u64 {
    value.get(name).unwrap().to_text().parse().unwrap()
}

/// What one writer was told: the last version of each of its items and the LSN it got.
type Ledger = BTreeMap<String, (u64, Lsn)>;

/// Creates, replaces and deletes items of one key until told to stop, and reads back what it was told. Any error ends it.
async fn write_until(world: Arc<World>, stop: Arc<AtomicBool>, n_done: Arc<AtomicU64>, writer: usize) -> Ledger {
    let (key, mut ledger) = (key_of(writer), Ledger::new());
    let mut session = SessionToken::default();
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let id = format!("w{writer}-{}", n / 4);
        let target = ItemSelector::Id(id.clone());
        let answer = match n % 4 {
            0 => world.create(&key, &body(writer, &id, n)).await,
            3 if n % 8 == 3 => world.item(&key, ItemVerb::Delete { item: target }).await,
            _ => {
                let replacement = item(&body(writer, &id, n));
                world
                    .item(
                        &key,
                        ItemVerb::Replace {
                            item: target,
                            body: replacement,
                        },
                    )
                    .await
            }
        };
        let reply = answer.unwrap_or_else(|failure| panic!("writer {writer}, step {n}: {failure:?}"));
        session.merge(&reply.facts.partition.as_ref().unwrap().session());
        match reply.outcome {
            Outcome::Deleted => drop(ledger.remove(&id)),
            _ => drop(ledger.insert(id.clone(), (n, lsn_of(&reply)))),
        }
        n_done.fetch_add(1, Ordering::Relaxed);
        read_back(&world, &session, &key, &id, ledger.get(&id)).await;
    }
    ledger
}

async fn read_back(world: &World, session: &SessionToken, key: &str, id: &str, expected: Option<&(u64, Lsn)>) {
    let options = Options {
        session: Some(session.clone()),
        ..Options::default()
    };
    match (read_with(world, options, key, id).await, expected) {
        (Ok(reply), Some((n, lsn))) => {
            assert_eq!(lsn_of(&reply), *lsn, "{id}");
            assert_eq!(integer(&body_of(reply), "n"), *n, "{id}");
        }
        (Err(failure), None) => assert_eq!(failure.error.status(), Status::NOT_FOUND, "{id}"),
        (found, expected) => panic!("{id}: expected {expected:?}, found {found:?}"),
    }
}

async fn read_with(world: &World, options: Options, key: &str, id: &str) -> Result<Reply, Failure> {
    let partition_key = Some(PartitionKey::parse(&format!("[{key:?}]")).unwrap());
    let verb = ItemVerb::Read {
        item: ItemSelector::Id(id.into()),
    };
    let operation = Operation::Item(ItemOperation {
        container: container(),
        partition_key,
        precondition: Precondition::None,
        directive: IndexingDirective::Default,
        verb,
    });
    let principal = Principal::Account { read_only: false };
    world
        .node
        .execute(Request {
            principal,
            options,
            operation,
        })
        .await
}

/// Everything that was acknowledged is there once, as it was acknowledged, and nothing else is.
async fn check_ledgers(world: &World, ledgers: &[Ledger]) {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for value in world.all(500).await {
        let id = value.get("id").unwrap().as_str().unwrap().to_owned();
        assert_eq!(
            found.insert(id.clone(), integer(&value, "n")),
            None,
            "{id} is there twice"
        );
    }
    let expected: BTreeMap<String, u64> = ledgers.iter().flatten().map(|(id, (n, _))| (id.clone(), *n)).collect();
    assert_eq!(found, expected);
    for (writer, ledger) in ledgers.iter().enumerate() {
        for (id, (_, lsn)) in ledger {
            assert_eq!(lsn_of(&world.read(&key_of(writer), id).await.unwrap()), *lsn, "{id}");
        }
    }
    let n_items: u64 = world
        .node
        .partitions(None)
        .unwrap()
        .iter()
        .map(|partition| partition.n_items)
        .sum();
    assert_eq!(n_items, expected.len() as u64);
}

fn live(world: &World) -> Vec<u32> {
    world
        .node
        .partitions(Some(("db", "c")))
        .unwrap()
        .iter()
        .map(|info| info.partition.0)
        .collect()
}

/// Waits until the writers have done this much more.
async fn let_write(n_done: &AtomicU64, more: u64) {
    let target = n_done.load(Ordering::Relaxed) + more;
    while n_done.load(Ordering::Relaxed) < target {
        tokio::task::yield_now().await;
    }
}

/// Splits into four and merges back into one, again and again, under load.
async fn check_under_load(store: Arc<dyn Store>, n_writers: usize, n_rounds: usize) {
    let world = Arc::new(world_on(store).await);
    world.with_container("").await;
    let (stop, n_done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut writers = JoinSet::new();
    for writer in 0..n_writers {
        let (world, stop, n_done) = (Arc::clone(&world), Arc::clone(&stop), Arc::clone(&n_done));
        writers.spawn(async move { (writer, write_until(world, stop, n_done, writer).await) });
    }
    for _ in 0..n_rounds {
        let_write(&n_done, 300).await;
        let [whole] = live(&world)[..] else {
            panic!("one partition expected")
        };
        let halves = world.node.split("db", "c", whole).await.unwrap();
        let_write(&n_done, 300).await;
        for half in halves {
            world.node.split("db", "c", half.partition.0).await.unwrap();
        }
        let_write(&n_done, 300).await;
        for _ in 0..3 {
            let partitions = live(&world);
            world
                .node
                .merge("db", "c", (partitions[0], partitions[1]))
                .await
                .unwrap();
        }
    }
    let_write(&n_done, 100).await;
    stop.store(true, Ordering::Relaxed);
    let mut ledgers = vec![Ledger::new(); n_writers];
    while let Some(done) = writers.join_next().await {
        let (writer, ledger) = done.unwrap();
        ledgers[writer] = ledger;
    }
    check_ledgers(&world, &ledgers).await;
    let Ok(world) = Arc::try_unwrap(world) else {
        panic!("writers are gone")
    };
    world.node.stop(std::time::Duration::from_secs(5)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_load_splits_and_merges_lose_nothing_and_nobody_notices() {
    check_under_load(MemoryStore::new(), 64, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_load_on_disk_splits_and_merges_lose_nothing_and_nobody_notices() {
    let dir = tempfile::tempdir().unwrap();
    check_under_load(embedded(dir.path()), 64, 2).await;
}

#[tokio::test]
async fn a_stale_range_id_is_gone() {
    let world = World::new().await;
    world.with_container("").await;
    world.create("a", r#"{"id":"1","pk":"a"}"#).await.unwrap();
    world.node.split("db", "c", 0).await.unwrap();
    let target = FeedTarget {
        partition: Some(PartitionId(0)),
        ..FeedTarget::default()
    };
    let feed = Operation::ReadFeed {
        container: container(),
        target,
        page: Page::default(),
    };
    let step = BatchStep {
        partition_key: Some(PartitionKey::parse(r#"["a"]"#).unwrap()),
        precondition: Precondition::None,
        directive: IndexingDirective::Default,
        verb: ItemVerb::Read {
            item: ItemSelector::Id("1".into()),
        },
    };
    let bulk = Operation::Batch(BatchOperation {
        container: container(),
        partition_key: None,
        partition: Some(PartitionId(0)),
        atomic: false,
        continue_on_error: true,
        steps: vec![step],
    });
    for operation in [feed, bulk] {
        let failure = world.execute(operation).await.unwrap_err();
        assert_eq!(failure.error.status(), Status::PARTITION_GONE);
    }
}

#[tokio::test]
async fn children_accept_the_session_of_their_parents() {
    let world = World::new().await;
    world.with_container("").await;
    let mut session = SessionToken::default();
    for n in 0..20 {
        let key = format!("k{n}");
        let reply = world
            .create(&key, &format!(r#"{{"id":"{n}","pk":"{key}"}}"#))
            .await
            .unwrap();
        session.merge(&reply.facts.partition.unwrap().session());
    }
    let check = async |session: &SessionToken| {
        for n in 0..20 {
            let options = Options {
                session: Some(session.clone()),
                ..Options::default()
            };
            assert_eq!(
                code(read_with(&world, options, &format!("k{n}"), &n.to_string()).await),
                200,
                "{session}"
            );
        }
    };
    world.node.split("db", "c", 0).await.unwrap();
    check(&session).await;
    // What the children tell is accepted by the child of their merge, together with what their parent told.
    for n in 0..20 {
        let reply = world.read(&format!("k{n}"), &n.to_string()).await.unwrap();
        session.merge(&reply.facts.partition.unwrap().session());
    }
    world.node.merge("db", "c", (1, 2)).await.unwrap();
    check(&session).await;
    let ahead = SessionToken::parse("3:1#1000000").unwrap();
    let options = Options {
        session: Some(ahead),
        ..Options::default()
    };
    let failure = read_with(&world, options, "k1", "1").await.unwrap_err();
    assert_eq!(failure.error.status(), Status::READ_SESSION_NOT_AVAILABLE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_definition_that_changes_during_a_split_reaches_the_children() {
    let world = Arc::new(World::new().await);
    world.with_container("").await;
    for n in 0..500 {
        world.create("a", &format!(r#"{{"id":"{n}","pk":"a"}}"#)).await.unwrap();
    }
    for round in 0..20 {
        let changing = Arc::clone(&world);
        let ttl = 1000 + round;
        let change = tokio::spawn(async move { set_default_ttl(&changing, ttl).await });
        let partitions = live(&world);
        match partitions[..] {
            [whole] => drop(world.node.split("db", "c", whole).await.unwrap()),
            [left, right] => drop(world.node.merge("db", "c", (left, right)).await.unwrap()),
            _ => panic!("{partitions:?}"),
        }
        assert_eq!(code(change.await.unwrap()), 200, "round {round}");
        // The writers decide by the new definition: an item is over when the new default says so.
        world.clock.advance_ms(u64::from(ttl) * 1000);
        assert_eq!(world.all(1000).await.len(), 0, "round {round}");
        assert_eq!(
            code(world.create("a", &format!(r#"{{"id":"{round}","pk":"a"}}"#)).await),
            201,
            "round {round}"
        );
        assert_eq!(code(world.read("a", &round.to_string()).await), 200, "round {round}");
    }
}

/// A place to keep a store in, and how to find it again after a crash.
enum Medium {
    Memory,
    Disk(tempfile::TempDir),
}

impl Medium {
    fn open(&self) -> Arc<dyn Store> {
        match self {
            Medium::Memory => MemoryStore::new(),
            Medium::Disk(dir) => embedded(dir.path()),
        }
    }

    fn after_crash(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        match self {
            Medium::Memory => store,
            Medium::Disk(dir) => {
                assert_eq!(
                    Arc::strong_count(&store),
                    1,
                    "the directory is free once the store is gone"
                );
                drop(store);
                embedded(dir.path())
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Reshard {
    Split,
    Merge,
}

impl Reshard {
    async fn run(self, node: &Arc<Node>) -> orrery_model::Result<()> {
        match self {
            Reshard::Split => node.split("db", "c", 0).await.map(drop),
            Reshard::Merge => node.merge("db", "c", (1, 2)).await.map(drop),
        }
    }
}

/// A world with forty items of eight keys, ready for what is to be tried.
async fn prepared(store: Arc<dyn Store>, reshard: Reshard) -> (World, Vec<Ledger>) {
    let world = world_on(store).await;
    world.with_container("").await;
    let mut ledgers = vec![Ledger::new(); 8];
    for (writer, ledger) in ledgers.iter_mut().enumerate() {
        for n in 0..5 {
            let id = format!("{writer}-{n}");
            let reply = world.create(&key_of(writer), &body(writer, &id, n)).await.unwrap();
            ledger.insert(id, (n, lsn_of(&reply)));
        }
    }
    if let Reshard::Merge = reshard {
        Reshard::Split.run(&world.node).await.unwrap();
    }
    (world, ledgers)
}

/// Cuts a split or merge off at its n-th change and starts again on what is left. Answers whether it had finished.
async fn check_cut(medium: &Medium, reshard: Reshard, n: i64, cut: Cut) -> bool {
    let store = FailingStore::new(medium.open());
    let (world, mut ledgers) = prepared(store.clone(), reshard).await;
    store.fail_after(n, cut);
    let finished = {
        let running = reshard.run(&world.node);
        tokio::select! {
            done = running => done.is_ok(),
            () = store.failed() => false,
        }
    };
    let left = store.cut_off();
    world.node.stop(std::time::Duration::from_secs(5)).await.unwrap();
    drop(world);

    let world = world_on(medium.after_crash(left)).await;
    check_ledgers(&world, &ledgers).await;
    let partitions = world.node.partitions(Some(("db", "c"))).unwrap();
    assert_eq!(partitions.first().unwrap().range.min, orrery_model::Epk::min());
    assert_eq!(partitions.last().unwrap().range.max, orrery_model::Epk::max());
    assert!(
        partitions.windows(2).all(|pair| pair[0].range.max == pair[1].range.min),
        "{partitions:?}"
    );
    let mut logs = world.store.list().unwrap();
    logs.retain(|info| info.log != orrery_model::LogId::SYSTEM);
    assert_eq!(logs.len(), partitions.len(), "nothing is left behind");
    // It goes on: every key takes writes, and the same can be done again.
    for (writer, ledger) in ledgers.iter_mut().enumerate() {
        let id = format!("{writer}-later");
        let reply = world.create(&key_of(writer), &body(writer, &id, 9)).await.unwrap();
        assert!(ledger.values().all(|(_, lsn)| *lsn < lsn_of(&reply)), "LSNs go on");
        ledger.insert(id, (9, lsn_of(&reply)));
    }
    match live(&world)[..] {
        [whole] => drop(world.node.split("db", "c", whole).await.unwrap()),
        [left, right] => drop(world.node.merge("db", "c", (left, right)).await.unwrap()),
        ref other => panic!("{other:?}"),
    }
    check_ledgers(&world, &ledgers).await;
    world.node.stop(std::time::Duration::from_secs(5)).await.unwrap();
    finished
}

async fn check_every_cut(medium: impl Fn() -> Medium, reshard: Reshard, step: usize) {
    for cut in [Cut::Before, Cut::After] {
        let mut n_cuts = 0;
        for n in (0..).step_by(step) {
            n_cuts += 1;
            if check_cut(&medium(), reshard, n, cut).await {
                break;
            }
            assert!(n < 500, "{reshard:?} never finishes");
        }
        assert!(n_cuts > 3, "{reshard:?} has more than three steps");
    }
}

#[tokio::test]
async fn a_split_cut_off_anywhere_is_finished_or_undone() {
    check_every_cut(|| Medium::Memory, Reshard::Split, 1).await;
}

#[tokio::test]
async fn a_merge_cut_off_anywhere_is_finished_or_undone() {
    check_every_cut(|| Medium::Memory, Reshard::Merge, 1).await;
}

#[tokio::test]
async fn a_split_on_disk_cut_off_anywhere_is_finished_or_undone() {
    check_every_cut(|| Medium::Disk(tempfile::tempdir().unwrap()), Reshard::Split, 3).await;
}

#[tokio::test]
async fn a_merge_on_disk_cut_off_anywhere_is_finished_or_undone() {
    check_every_cut(|| Medium::Disk(tempfile::tempdir().unwrap()), Reshard::Merge, 3).await;
}

/// Lets one change of a split or merge fail while the container's definition changes. Answers whether none failed.
async fn check_hiccup(reshard: Reshard, n: i64) -> bool {
    let store = FailingStore::new(MemoryStore::new());
    let (world, ledgers) = prepared(store.clone(), reshard).await;
    store.fail_after(n, Cut::Once);
    let redefine = async {
        // Early or late: a few turns of the loop per step.
        for _ in 0..n {
            tokio::task::yield_now().await;
        }
        set_default_ttl(&world, 1_000_000).await
    };
    let (done, redefined) = tokio::join!(reshard.run(&world.node), redefine);
    let undisturbed = done.is_ok() && code(redefined) == 200;
    store.fail_after(i64::MAX, Cut::Before);
    assert!(live(&world).len() <= 2, "either finished or undone");
    check_ledgers(&world, &ledgers).await;
    // What is in memory and what is stored agree.
    world.node.stop(std::time::Duration::from_secs(5)).await.unwrap();
    drop(world);
    let world = world_on(store.cut_off()).await;
    check_ledgers(&world, &ledgers).await;
    undisturbed
}

async fn set_default_ttl(world: &World, seconds: u32) -> Result<Reply, Failure> {
    let body =
        format!(r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},"defaultTtl":{seconds}}}"#);
    let verb = MetadataVerb::Replace {
        target: named("c"),
        body: json::parse_value(body.as_bytes()).unwrap(),
        precondition: Precondition::None,
        migration: orrery_model::offer::Migration::None,
    };
    world.metadata(ResourceKind::Container, vec![named("db")], verb).await
}

#[tokio::test(start_paused = true)]
async fn a_split_or_merge_that_fails_once_settles_by_itself() {
    for reshard in [Reshard::Split, Reshard::Merge] {
        let mut n = 0;
        while !check_hiccup(reshard, n).await {
            n += 1;
            assert!(n < 500, "{reshard:?} never runs undisturbed");
        }
        assert!(n > 5, "{reshard:?} has more than five steps");
    }
}
