//! Whole nodes on a store that NATS JetStream keeps, with a real server: what one node was told is there for the next.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where by panicking")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orrery_model::Timestamp;
use orrery_nats_server::{Server, Settings};
use orrery_node::{ManualClock, Node};
use orrery_partition::project::Projector;
use orrery_storage::{EmbeddedSettings, NatsSettings, NatsStore};

#[path = "../it/support/mod.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod support;

/// Nodes that share a store: who follows, who takes over.
mod members;

use support::{World, code, settings};

/// How long a node may take to finish what it does.
const STOP: Duration = Duration::from_secs(10);

fn start_of_time() -> Timestamp {
    Timestamp(1_700_000_000_000)
}

async fn open_store(server: &Server, dir: &Path) -> Arc<NatsStore> {
    let client = async_nats::connect(server.url()).await.unwrap();
    let on_nats = NatsSettings {
        replicas: 1,
        n_streams: 4,
        // Small enough that snapshots are saved and logs trimmed while the test runs.
        save_after_bytes: 64 << 10,
        local: EmbeddedSettings {
            free_reserve_bytes: 0,
            ..EmbeddedSettings::default()
        },
        ..NatsSettings::new("here")
    };
    let store = NatsStore::open(client, dir, on_nats, Arc::new(Projector::default())).await;
    store.unwrap()
}

async fn world_on(server: &Server, dir: &Path) -> World {
    let store = open_store(server, dir).await;
    let clock = Arc::new(ManualClock::at(start_of_time()));
    let node = Node::start(settings(), store.clone(), clock.clone()).await.unwrap();
    World { node, clock, store }
}

/// Creates items and answers the ids of those that were acknowledged.
async fn create_some(world: &World, ids: std::ops::Range<usize>) -> BTreeSet<String> {
    let mut created = BTreeSet::new();
    for n in ids {
        let body = format!(r#"{{"id":"item-{n}","pk":"key-{}","n":{n}}}"#, n % 7);
        let answer = code(world.create(&format!("key-{}", n % 7), &body).await);
        assert_eq!(answer, 201, "item {n}");
        created.insert(format!("item-{n}"));
    }
    created
}

async fn ids(world: &World) -> BTreeSet<String> {
    let rows = world.query("SELECT VALUE c.id FROM c WHERE c.n >= 0").await.unwrap();
    rows.iter().map(|row| row.trim_matches('"').to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_an_empty_directory_serves_what_another_was_told() {
    let server = Server::start(&Settings::default()).unwrap();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = world_on(&server, dirs[0].path()).await;
    first.with_container("").await;
    let mut created = create_some(&first, 0..300).await;
    first.node.split("db", "c", 0).await.unwrap();
    created.extend(create_some(&first, 300..400).await);
    first.node.stop(STOP).await.unwrap();

    let second = world_on(&server, dirs[1].path()).await;
    assert_eq!(ids(&second).await, created);
    assert_eq!(code(second.read("key-3", "item-3").await), 200);
    created.extend(create_some(&second, 400..410).await);
    assert_eq!(ids(&second).await, created);
    second.node.stop(STOP).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_another_has_replaced_acknowledges_nothing_more() {
    let server = Server::start(&Settings::default()).unwrap();
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let former = world_on(&server, dirs[0].path()).await;
    former.with_container("").await;
    let mut created = create_some(&former, 0..20).await;
    let latter = world_on(&server, dirs[1].path()).await;
    let refused = code(former.create("key-1", r#"{"id":"late","pk":"key-1","n":1}"#).await);
    assert!(refused >= 400, "{refused}");
    created.extend(create_some(&latter, 20..40).await);
    assert_eq!(ids(&latter).await, created);
    latter.node.stop(STOP).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_wait_for_a_server_that_is_killed_and_comes_back() {
    let mut server = Server::start(&Settings::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let world = Arc::new(world_on(&server, dir.path()).await);
    world.with_container("").await;
    let mut created = create_some(&world, 0..20).await;
    server.kill();
    let writer = tokio::spawn({
        let world = world.clone();
        async move { create_some(&world, 20..40).await }
    });
    server.restart().unwrap();
    created.extend(writer.await.unwrap());
    assert_eq!(ids(&world).await, created);
    world.node.stop(STOP).await.unwrap();
}
