//! Saving, restoring and resetting a whole account.

use std::sync::Arc;

use orrery_model::etag::Precondition;
use orrery_model::{IndexingDirective, PartitionKey, SessionToken, Status};
use orrery_node::api::{ItemOperation, ItemSelector, ItemVerb, Operation, Options, Principal};
use orrery_node::{Failure, ManualClock, Node, Reply, Request};
use orrery_partition::storage::Store as _;
use orrery_storage::MemoryStore;

use crate::failing::{Cut, FailingStore};
use crate::resharding::{embedded, world_on};
use crate::support::{World, body_of, code, container, item, settings};

async fn fill(world: &World, n_items: usize) -> SessionToken {
    let mut session = SessionToken::default();
    for n in 0..n_items {
        let key = format!("k{}", n % 50);
        let body = format!(r#"{{"id":"{n}","pk":"{key}","n":{n}}}"#);
        let reply = world.item(&key, ItemVerb::Upsert { body: item(&body) }).await.unwrap();
        session.merge(&reply.facts.partition.unwrap().session());
    }
    session
}

async fn contents(world: &World) -> Vec<String> {
    let mut all: Vec<String> = world.all(1000).await.iter().map(|item| item.to_text()).collect();
    all.sort();
    all
}

async fn read_in(world: &World, session: &SessionToken, key: &str, id: &str) -> Result<Reply, Failure> {
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
    let options = Options {
        session: Some(session.clone()),
        ..Options::default()
    };
    world
        .node
        .execute(Request {
            principal: Principal::Account { read_only: false },
            options,
            operation,
        })
        .await
}

#[tokio::test]
async fn restoring_brings_ten_thousand_items_back_as_they_were() {
    let world = World::new().await;
    world.with_container("").await;
    fill(&world, 10_000).await;
    let before = contents(&world).await;
    assert_eq!(world.node.save_snapshot("first").await.unwrap().n_items, 10_000);
    // Whatever happens after is undone: changes, deletes, splits, other containers.
    let target = ItemSelector::Id("1".into());
    world.item("k1", ItemVerb::Delete { item: target }).await.unwrap();
    world.create("k1", r#"{"id":"new","pk":"k1"}"#).await.unwrap();
    world.create_database("other").await;
    world.node.split("db", "c", 0).await.unwrap();
    assert_ne!(contents(&world).await, before);
    world.node.restore_snapshot("first").await.unwrap();
    assert_eq!(contents(&world).await, before);
    assert_eq!(world.node.partitions(None).unwrap().len(), 1);
    // The restored account takes writes, and its snapshot can be restored again.
    assert_eq!(code(world.create("k1", r#"{"id":"new","pk":"k1"}"#).await), 201);
    world.node.restore_snapshot("first").await.unwrap();
    assert_eq!(contents(&world).await, before);
}

#[tokio::test]
async fn a_reset_leaves_an_empty_account_and_its_snapshots() {
    let world = World::new().await;
    world.with_container("").await;
    fill(&world, 100).await;
    let before = contents(&world).await;
    world.node.save_snapshot("kept").await.unwrap();
    world.node.reset().await.unwrap();
    assert_eq!(
        world.read("k1", "1").await.unwrap_err().error.status(),
        Status::PARENT_NOT_FOUND
    );
    assert!(world.node.partitions(None).unwrap().is_empty());
    world.with_container("").await;
    assert!(contents(&world).await.is_empty());
    assert_eq!(world.node.snapshots().len(), 1);
    world.node.restore_snapshot("kept").await.unwrap();
    assert_eq!(contents(&world).await, before);
}

#[tokio::test]
async fn saving_again_under_a_name_replaces_what_was_saved() {
    let world = World::new().await;
    world.with_container("").await;
    fill(&world, 10).await;
    world.node.save_snapshot("s").await.unwrap();
    fill(&world, 20).await;
    assert_eq!(world.node.save_snapshot("s").await.unwrap().n_items, 20);
    world.node.reset().await.unwrap();
    world.node.restore_snapshot("s").await.unwrap();
    assert_eq!(contents(&world).await.len(), 20);
    world.node.drop_snapshot("s").await.unwrap();
    for gone in [
        world.node.restore_snapshot("s").await.map(drop),
        world.node.drop_snapshot("s").await,
    ] {
        assert_eq!(gone.unwrap_err().status(), Status::NOT_FOUND);
    }
    assert_eq!(
        contents(&world).await.len(),
        20,
        "a snapshot that is not there changes nothing"
    );
}

#[tokio::test]
async fn a_restore_supersedes_every_earlier_session_and_version() {
    let world = World::new().await;
    world.with_container("").await;
    let mut session = fill(&world, 20).await;
    world.node.save_snapshot("oldest").await.unwrap();
    world.node.split("db", "c", 0).await.unwrap();
    world.node.merge("db", "c", (1, 2)).await.unwrap();
    let saved = fill(&world, 20).await;
    session.merge(&saved);
    world.node.save_snapshot("merged").await.unwrap();
    let mut etags = std::collections::HashSet::new();
    // Back and forth: what was saved with a lower version is restored after one with a higher.
    for name in ["oldest", "merged", "oldest", "oldest", "merged", "oldest"] {
        world.node.restore_snapshot(name).await.unwrap();
        for n in 0..20 {
            let (key, id) = (format!("k{n}"), n.to_string());
            assert_eq!(
                code(read_in(&world, &session, &key, &id).await),
                200,
                "{name}: {session}"
            );
        }
        session.merge(&fill(&world, 20).await);
        for n in 0..20 {
            let body = body_of(world.read(&format!("k{n}"), &n.to_string()).await.unwrap());
            assert!(
                etags.insert(body.get("_etag").unwrap().to_text()),
                "{name}: an etag is used twice"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_during_a_restore_are_answered_by_the_one_state_or_the_other() {
    let world = Arc::new(World::new().await);
    world.with_container("").await;
    fill(&world, 200).await;
    world.node.save_snapshot("s").await.unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..8 {
        let (world, stop) = (Arc::clone(&world), Arc::clone(&stop));
        clients.spawn(async move {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let key = format!("k{client}");
                let read = world.read(&key, &client.to_string()).await;
                assert_eq!(code(read), 200);
                let body = item(&format!(r#"{{"id":"{client}","pk":"{key}","n":-1}}"#));
                assert_eq!(code(world.item(&key, ItemVerb::Upsert { body }).await), 200);
            }
        });
    }
    for _ in 0..20 {
        let started = tokio::time::Instant::now();
        world.node.restore_snapshot("s").await.unwrap();
        assert!(
            started.elapsed().as_secs() < 5,
            "nobody waits for a change that never comes"
        );
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
}

/// A new container with a key of its own is empty, and what failed before it has left no logs behind.
async fn is_clean(world: &World, n_logs: usize, what: &str) {
    let created = world.create_container("fresh", "").await;
    assert_eq!(code(created), 201, "{what}");
    let shown = world.node.partitions(None).unwrap();
    let fresh = shown.iter().filter(|partition| partition.container == "fresh");
    assert_eq!(fresh.map(|partition| partition.n_items).sum::<u64>(), 0, "{what}");
    // Logs that are not needed any more are dropped in the background.
    for _ in 0..100 {
        if world.store.list().unwrap().len() == n_logs + 1 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!(
        "{what}: {:?} instead of {n_logs} logs and a new one",
        world.store.list()
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_failed_save_or_restore_copied_is_not_found_in_the_next_container() {
    for restores in [false, true] {
        let mut n_failures = 0;
        for cut_at in 0.. {
            let store = FailingStore::new(MemoryStore::new());
            let clock = Arc::new(ManualClock::at(orrery_model::Timestamp(1_700_000_000_000)));
            let node = Node::start(settings(), store.clone(), clock.clone()).await.unwrap();
            let world = World {
                node,
                clock,
                store: store.clone(),
            };
            world.with_container("").await;
            world.create_container("second", "").await.unwrap();
            fill(&world, 5).await;
            if restores {
                world.node.save_snapshot("s").await.unwrap();
            }
            let n_logs = store.list().unwrap().len();
            store.fail_after(cut_at, Cut::Once);
            let done = match restores {
                false => world.node.save_snapshot("s").await,
                true => world.node.restore_snapshot("s").await,
            };
            store.fail_after(i64::MAX, Cut::Before);
            if done.is_ok() {
                break;
            }
            n_failures += 1;
            let what = format!("restore {restores}, cut at {cut_at}");
            is_clean(&world, n_logs, &what).await;
            // What failed works when it is tried again.
            world.node.save_snapshot("s").await.unwrap();
            world.node.restore_snapshot("s").await.unwrap();
            assert_eq!(contents(&world).await.len(), 5, "{what}");
        }
        assert!(n_failures > 4, "restore {restores}: only {n_failures} steps failed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_disk_a_snapshot_stands_apart_from_everything_that_happens_to_the_account() {
    let dir = tempfile::tempdir().unwrap();
    let world = world_on(embedded(dir.path())).await;
    world.with_container("").await;
    fill(&world, 300).await;
    let before = contents(&world).await;
    world.node.save_snapshot("first").await.unwrap();
    let n_logs = world.store.list().unwrap().len();
    for round in 0..8 {
        // Items are changed, removed, made again under the same id, and moved by splits and merges.
        for n in 0..50 {
            let (key, id) = (format!("k{n}"), n.to_string());
            let target = ItemSelector::Id(id.clone());
            world.item(&key, ItemVerb::Delete { item: target }).await.unwrap();
            if n % 2 == 0 {
                let body = format!(r#"{{"id":"{id}","pk":"{key}","round":{round}}}"#);
                assert_eq!(code(world.create(&key, &body).await), 201);
            }
        }
        if round % 3 == 0 {
            world.node.split("db", "c", 0).await.unwrap();
        }
        let found = world
            .query(&format!("SELECT VALUE COUNT(1) FROM c WHERE c.round = {round}"))
            .await;
        assert_eq!(found.unwrap(), ["25"], "the index is what the items are");
        assert_eq!(contents(&world).await.len(), 275, "round {round}");
        world.node.save_snapshot(&format!("round {round}")).await.unwrap();
        world.node.restore_snapshot("first").await.unwrap();
        assert_eq!(contents(&world).await, before, "round {round}");
        let rounds = world
            .query("SELECT VALUE COUNT(1) FROM c WHERE IS_DEFINED(c.round)")
            .await;
        assert_eq!(rounds.unwrap(), ["0"]);
    }
    // As long as snapshots follow one another without a restore, each stands on the one before, up to a point.
    for round in 0..8 {
        world
            .create("k0", &format!(r#"{{"id":"more {round}","pk":"k0"}}"#))
            .await
            .unwrap();
        world.node.save_snapshot(&format!("more {round}")).await.unwrap();
    }
    world.node.stop(std::time::Duration::from_secs(5)).await.unwrap();
    drop(world);

    let world = world_on(embedded(dir.path())).await;
    assert_eq!(contents(&world).await.len(), 308);
    for round in 0..8 {
        world.node.restore_snapshot(&format!("more {round}")).await.unwrap();
        assert_eq!(contents(&world).await.len(), 301 + round, "more {round}");
        world.node.restore_snapshot(&format!("round {round}")).await.unwrap();
        assert_eq!(contents(&world).await.len(), 275, "round {round}");
        for name in ["more", "round"] {
            world.node.drop_snapshot(&format!("{name} {round}")).await.unwrap();
        }
    }
    world.node.restore_snapshot("first").await.unwrap();
    assert_eq!(contents(&world).await, before);
    for _ in 0..500 {
        if world.store.list().unwrap().len() == n_logs {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("logs that nothing names are left: {:?}", world.store.list());
}
