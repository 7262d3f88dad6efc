//! What all items of one partition key may take.

use std::time::Duration;

use orrery_model::Status;
use orrery_node::NodeSettings;
use orrery_node::api::{ItemSelector, ItemVerb};

use crate::support::{World, item, settings};

const LIMIT: u64 = 256 * 1024;
/// Far more items of 8 KiB than fit.
const MANY: usize = 10_000;
/// Between two writes: whoever counts needs a processor, too.
const PAUSE: Duration = Duration::from_millis(2);

fn body(key: &str, id: usize) -> String {
    format!(r#"{{"id":"{id}","pk":"{key}","text":"{}"}}"#, "x".repeat(8 * 1024))
}

/// Creates an item, unless its logical partition is full.
async fn create(world: &World, key: &str, id: usize) -> bool {
    match world.create(key, &body(key, id)).await {
        Ok(_) => true,
        Err(failure) => {
            assert_eq!(failure.error.status(), Status::LOGICAL_PARTITION_FULL);
            false
        }
    }
}

#[tokio::test]
async fn a_logical_partition_that_is_full_takes_no_more_until_something_is_deleted() {
    let world = World::with(NodeSettings {
        logical_partition_bytes_max: LIMIT,
        ..settings()
    })
    .await;
    world.with_container("").await;
    let mut n_items = 0;
    while create(&world, "a", n_items).await {
        n_items += 1;
        assert!(n_items < MANY, "it grows without end");
        tokio::time::sleep(PAUSE).await;
    }
    assert!(n_items as u64 >= LIMIT / (9 * 1024), "{n_items} items");
    assert!(create(&world, "b", 0).await, "others have room");

    for id in 0..n_items / 2 {
        let item = ItemSelector::Id(id.to_string());
        world.item("a", ItemVerb::Delete { item }).await.unwrap();
    }
    // Whatever is written next to it lets somebody look again.
    let mut n_writes = 0;
    while !create(&world, "a", MANY).await {
        let body = item(&body("b", 0));
        world.item("b", ItemVerb::Upsert { body }).await.unwrap();
        n_writes += 1;
        assert!(n_writes < MANY, "it stays full");
        tokio::time::sleep(PAUSE).await;
    }
}
