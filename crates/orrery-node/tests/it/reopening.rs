//! After a failed sync the store is reopened in process, and what may have happened is found out.

use std::sync::Arc;
use std::time::Duration;

use orrery_model::Timestamp;
use orrery_node::api::ResourceKind;
use orrery_node::{ManualClock, Node};
use orrery_partition::storage::{Health, Store};
use orrery_storage::MemoryStore;

use crate::failing::{Cut, FailingStore};
use crate::support::{World, code, create, named, settings};

const CONTAINER: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;

#[tokio::test(start_paused = true)]
async fn a_container_whose_creation_was_cut_off_is_there_or_not_after_the_store_reopens() {
    let mut n_there = 0;
    for cut_at in 0..6 {
        for cut in [Cut::Before, Cut::After] {
            let store = FailingStore::new(MemoryStore::new());
            store.allow_reopening();
            let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
            let node = Node::start(settings(), store.clone(), clock.clone()).await.unwrap();
            let world = World {
                node,
                clock,
                store: store.clone(),
            };
            world.create_database("db").await;
            store.fail_after(cut_at, cut);
            let created = world
                .metadata(ResourceKind::Container, vec![named("db")], create(CONTAINER))
                .await;
            while store.health() != Health::Writable {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            // Where the creation needed fewer changes, nothing was cut off, and nothing shall be.
            store.fail_after(i64::MAX, Cut::Before);
            // Recovery ends after the store has become writable.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let again = code(
                world
                    .metadata(ResourceKind::Container, vec![named("db")], create(CONTAINER))
                    .await,
            );
            assert!(again == 201 || again == 409, "cut {cut:?} at {cut_at}: {again}");
            assert!(
                again == 409 || created.is_err(),
                "cut {cut:?} at {cut_at}: acknowledged and gone"
            );
            n_there += usize::from(again == 409 && created.is_err());
            let item = world.create("p", r#"{"id":"a","pk":"p"}"#).await;
            assert_eq!(code(item), 201, "cut {cut:?} at {cut_at}");
        }
    }
    assert!(n_there > 0, "no creation was cut off after it had happened");
}
