//! Many operations in one request: what the client is told it has seen, and how much comes back.

use std::sync::Arc;
use std::time::Duration;

use orrery_model::etag::Precondition;
use orrery_model::patch::Patch;
use orrery_model::session::SessionProgress;
use orrery_model::{IndexingDirective, Lsn, PartitionId, PartitionKey, SessionToken, Timestamp, json};
use orrery_node::api::{
    BatchOperation, BatchStep, Consistency, ItemOperation, ItemSelector, ItemVerb, MetadataVerb, Operation, Options,
    Outcome, Principal, ResourceKind, StepResult,
};
use orrery_node::{ManualClock, Node, Reply, Request};
use orrery_storage::MemoryStore;

use crate::failing::{Cut, FailingStore};
use crate::support::{World, code, container, item, named, settings};

fn key(text: &str) -> PartitionKey {
    PartitionKey::parse(&format!("[{text:?}]")).unwrap()
}

/// Steps under the key `a`, each on its own.
async fn bulk(world: &World, continue_on_error: bool, verbs: Vec<ItemVerb>) -> (Vec<StepResult>, Reply) {
    let step = |verb| BatchStep {
        partition_key: Some(key("a")),
        precondition: Precondition::None,
        directive: IndexingDirective::Default,
        verb,
    };
    let operation = BatchOperation {
        container: container(),
        partition_key: None,
        partition: Some(PartitionId(0)),
        atomic: false,
        continue_on_error,
        steps: verbs.into_iter().map(step).collect(),
    };
    let reply = world.execute(Operation::Batch(operation)).await.unwrap();
    match &reply.outcome {
        Outcome::Batch(results) => (results.clone(), reply),
        other => panic!("{other:?}"),
    }
}

fn by_id(id: &str) -> ItemSelector {
    ItemSelector::Id(id.into())
}

#[tokio::test]
async fn the_answer_to_a_bulk_request_tells_of_its_own_writes() {
    for continue_on_error in [true, false] {
        let world = World::new().await;
        world.with_container("").await;
        let upsert = |n: usize| ItemVerb::Upsert {
            body: item(&format!(r#"{{"id":"{n}","pk":"a"}}"#)),
        };
        let (results, reply) = bulk(&world, continue_on_error, (0..20).map(upsert).collect()).await;
        assert!(results.iter().all(|result| result.status == 201));
        let told = reply.facts.partition.expect("a partition was reached").lsn;
        for n in 0..20 {
            let read = world.read("a", &n.to_string()).await.unwrap();
            let written = read.facts.partition.unwrap().item_lsn.unwrap();
            assert!(told >= written, "{told} is before {written}, which item {n} has");
        }
    }
}

#[tokio::test]
async fn a_bulk_request_gives_back_no_more_than_fits_and_forgets_no_write() {
    let world = World::new().await;
    world.with_container("").await;
    let text = "x".repeat(1_900_000);
    let large = format!(r#"{{"id":"1","pk":"a","text":"{text}","n":0}}"#);
    assert_eq!(code(world.create("a", &large).await), 201);
    let given = |results: &[StepResult]| -> usize {
        results
            .iter()
            .flat_map(|result| &result.body)
            .map(|body| body.len())
            .sum()
    };
    let reads = (0..20).map(|_| ItemVerb::Read { item: by_id("1") }).collect();
    let (results, _) = bulk(&world, true, reads).await;
    let statuses: Vec<u16> = results.iter().map(|result| result.status).collect();
    assert_eq!(
        statuses.iter().filter(|status| **status == 200).count(),
        8,
        "{statuses:?}"
    );
    assert!(
        statuses.iter().all(|status| [200, 413].contains(status)),
        "{statuses:?}"
    );
    assert!(given(&results) <= 16 << 20);
    let increment = json::parse_value(br#"[{"op":"incr","path":"/n","value":1}]"#).unwrap();
    let patch = |_| ItemVerb::Patch {
        item: by_id("1"),
        patch: Patch::parse(&increment).unwrap(),
    };
    let (results, _) = bulk(&world, true, (0..20).map(patch).collect()).await;
    assert!(
        results.iter().all(|result| result.status == 200),
        "what was written is not answered as failed"
    );
    assert!(given(&results) <= 16 << 20);
    let rows = world.query("SELECT VALUE c.n FROM c").await.unwrap();
    assert_eq!(rows, ["20"]);
}

#[tokio::test]
async fn a_read_below_session_does_not_wait_for_a_token() {
    let world = World::new().await;
    world.with_container("").await;
    assert_eq!(code(world.create("a", r#"{"id":"1","pk":"a"}"#).await), 201);
    let progress = SessionProgress {
        version: 0,
        lsn: Lsn(1_000_000),
    };
    let ahead = SessionToken::single(PartitionId(0), progress);
    let read = async |level: Consistency| {
        let operation = Operation::Item(ItemOperation {
            container: container(),
            partition_key: Some(key("a")),
            precondition: Precondition::None,
            directive: IndexingDirective::Default,
            verb: ItemVerb::Read { item: by_id("1") },
        });
        let options = Options {
            session: Some(ahead.clone()),
            consistency: Some(level),
            ..Options::default()
        };
        let request = Request {
            principal: Principal::Account { read_only: false },
            options,
            operation,
        };
        code(world.node.execute(request).await)
    };
    assert_eq!(read(Consistency::Session).await, 404);
    assert_eq!(read(Consistency::ConsistentPrefix).await, 200);
    assert_eq!(read(Consistency::Eventual).await, 200);
}

#[tokio::test]
async fn deleting_a_logical_partition_goes_on_without_the_client() {
    let world = World::new().await;
    world.with_container("").await;
    for n in 0..1_200 {
        world.create("a", &format!(r#"{{"id":"{n}","pk":"a"}}"#)).await.unwrap();
    }
    let deletion = world.execute(Operation::DeletePartitionKey {
        container: container(),
        partition_key: key("a"),
    });
    // Begun, and then left by the client.
    tokio::select! {
        biased;
        deleted = deletion => panic!("done before anybody could leave: {deleted:?}"),
        () = std::future::ready(()) => {}
    }
    let gone = async {
        while !world.all(2_000).await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone)
        .await
        .expect("all of it is deleted");
}

#[tokio::test]
async fn a_replaced_definition_that_a_partition_could_not_take_reaches_it_later() {
    let store = FailingStore::new(MemoryStore::new());
    let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
    let node = Node::start(settings(), store.clone(), clock.clone()).await.unwrap();
    let world = World {
        node,
        clock: clock.clone(),
        store: store.clone(),
    };
    world.with_container("").await;
    assert_eq!(code(world.create("a", r#"{"id":"1","pk":"a"}"#).await), 201);
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":10}"#;
    // The catalogue is changed, and the partition cannot write down what that means for it.
    store.fail_after(1, Cut::Once);
    let replaced = world
        .metadata(
            ResourceKind::Container,
            vec![named("db")],
            MetadataVerb::Replace {
                target: named("c"),
                body: json::parse_value(body.as_bytes()).unwrap(),
                precondition: Precondition::None,
                migration: orrery_model::offer::Migration::default(),
            },
        )
        .await;
    store.failed().await;
    assert_eq!(code(replaced), 200, "it has happened");
    clock.advance_ms(20_000);
    // Only a partition that knows of the time to live lets an item take the place of one whose time has run out.
    let learnt = async {
        while code(world.create("a", r#"{"id":"1","pk":"a"}"#).await) != 201 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), learnt)
        .await
        .expect("the partition learns of it");
}
