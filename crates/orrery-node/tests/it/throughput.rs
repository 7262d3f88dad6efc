//! Throughput that is enforced: who draws on what, and when there is more.

use orrery_model::etag::Precondition;
use orrery_model::offer::Throughput;
use orrery_model::{IndexingDirective, PartitionKey, Status, json};
use orrery_node::NodeSettings;
use orrery_node::api::{
    ContainerRef, Failure, ItemOperation, ItemSelector, ItemVerb, MetadataVerb, Operation, Reply, ResourceKind,
};

use crate::support::{World, item, named, settings};

/// More reads of a small item than the least throughput allows in a second.
const MANY: usize = 2_000;

async fn world() -> World {
    World::with(NodeSettings {
        enforce_throughput: true,
        ..settings()
    })
    .await
}

async fn create(world: &World, kind: ResourceKind, body: &str, throughput: Option<u32>) {
    let path = match kind {
        ResourceKind::Container => vec![named("db")],
        _ => Vec::new(),
    };
    let verb = MetadataVerb::Create {
        body: json::parse_value(body.as_bytes()).unwrap(),
        upsert: false,
        throughput: throughput.map(Throughput::Manual),
        precondition: Precondition::None,
    };
    world.metadata(kind, path, verb).await.unwrap();
}

/// A container in the database `db` with one item.
async fn create_container(world: &World, name: &str, throughput: Option<u32>) {
    let body = format!(r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}}}"#);
    create(world, ResourceKind::Container, &body, throughput).await;
    let body = item(r#"{"id":"1","pk":"a"}"#);
    execute(world, name, ItemVerb::Create { body }).await.unwrap();
}

async fn execute(world: &World, container: &str, verb: ItemVerb) -> Result<Reply, Failure> {
    let operation = Operation::Item(ItemOperation {
        container: ContainerRef {
            database: named("db"),
            container: named(container),
        },
        partition_key: Some(PartitionKey::parse(r#"["a"]"#).unwrap()),
        precondition: Precondition::None,
        directive: IndexingDirective::Default,
        verb,
    });
    world.execute(operation).await
}

async fn read(world: &World, container: &str) -> Result<Reply, Failure> {
    let item = ItemSelector::Id("1".into());
    execute(world, container, ItemVerb::Read { item }).await
}

/// How many reads are let in, and for how long the first one that is not is sent away.
async fn reads_until_refused(world: &World, container: &str) -> (usize, u64) {
    for n_read in 0..MANY {
        if let Err(failure) = read(world, container).await {
            assert_eq!(failure.error.status(), Status::THROTTLED);
            return (n_read, failure.error.retry_after_ms().unwrap());
        }
    }
    panic!("nothing was refused");
}

#[tokio::test]
async fn a_container_that_has_used_its_throughput_is_sent_away_until_there_is_more() {
    let world = world().await;
    create(&world, ResourceKind::Database, r#"{"id":"db"}"#, None).await;
    create_container(&world, "small", Some(400)).await;
    create_container(&world, "large", Some(1_000)).await;
    let (n_small, wait_ms) = reads_until_refused(&world, "small").await;
    let (n_large, _) = reads_until_refused(&world, "large").await;
    assert!(n_large > 2 * n_small, "{n_small} and {n_large}");
    world.clock.advance_ms(wait_ms);
    read(&world, "small").await.unwrap();
}

#[tokio::test]
async fn containers_without_throughput_of_their_own_share_what_their_database_has() {
    let world = world().await;
    create(&world, ResourceKind::Database, r#"{"id":"db"}"#, Some(400)).await;
    create_container(&world, "one", None).await;
    create_container(&world, "two", None).await;
    create_container(&world, "own", Some(400)).await;
    let (n_first, wait_ms) = reads_until_refused(&world, "one").await;
    assert!(n_first > 100, "{n_first}");
    assert_eq!(reads_until_refused(&world, "two").await.0, 0, "nothing was left");
    read(&world, "own").await.unwrap();
    world.clock.advance_ms(wait_ms);
    read(&world, "two").await.unwrap();
    // What comes later draws on the same.
    reads_until_refused(&world, "two").await;
    world.clock.advance_ms(1);
    let body = r#"{"id":"late","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    create(&world, ResourceKind::Container, body, None).await;
    assert_eq!(reads_until_refused(&world, "late").await.0, 0);
}
