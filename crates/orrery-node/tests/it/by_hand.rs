//! Splits and merges that are led by hand: what clients meet at each phase.

use orrery_model::Status;
use orrery_node::admin::Phase;

use crate::support::{World, code};

async fn filled() -> World {
    let world = World::new().await;
    world.with_container("").await;
    for n in 0..10 {
        let created = world.create(&format!("k{n}"), &body(n)).await;
        assert_eq!(code(created), 201);
    }
    world
}

fn body(n: usize) -> String {
    format!(r#"{{"id":"{n}","pk":"k{n}"}}"#)
}

async fn advance(world: &World) -> Phase {
    world.node.advance("db", "c", 0).await.unwrap()
}

fn n_partitions(world: &World) -> usize {
    world.node.partitions(Some(("db", "c"))).unwrap().len()
}

#[tokio::test]
async fn a_split_by_hand_refuses_writes_while_it_is_sealed_and_loses_none() {
    let world = filled().await;
    let phase = world.node.begin_by_hand("db", "c", &[0]).await.unwrap();
    assert_eq!(phase, Phase::Begun);
    assert_eq!(code(world.create("k10", &body(10)).await), 201);
    assert_eq!(advance(&world).await, Phase::Copied);
    assert_eq!(code(world.create("k11", &body(11)).await), 201);
    let busy = world.node.split("db", "c", 0).await.unwrap_err();
    assert_eq!(busy.status(), Status::LOCKED);
    assert_eq!(advance(&world).await, Phase::Sealed);
    let refused = world.create("k12", &body(12)).await.unwrap_err();
    assert_eq!(refused.error.status().code, 410, "{refused:?}");
    assert_eq!(code(world.read("k3", "3").await), 200);
    assert_eq!(n_partitions(&world), 1);
    assert_eq!(advance(&world).await, Phase::Done);
    assert_eq!(n_partitions(&world), 2);
    assert_eq!(code(world.create("k12", &body(12)).await), 201);
    assert_eq!(world.all(100).await.len(), 13);
    assert_eq!(
        world.node.advance("db", "c", 0).await.unwrap_err().status(),
        Status::NOT_FOUND
    );
}

#[tokio::test]
async fn a_merge_is_led_by_hand_by_either_of_its_partitions() {
    let world = filled().await;
    let children = world.node.split("db", "c", 0).await.unwrap();
    let parents: Vec<u32> = children.iter().map(|child| child.partition.0).collect();
    assert_eq!(
        world.node.begin_by_hand("db", "c", &parents).await.unwrap(),
        Phase::Begun
    );
    for (parent, expected) in [(0, Phase::Copied), (1, Phase::Sealed), (0, Phase::Done)] {
        let reached = world.node.advance("db", "c", parents[parent]).await.unwrap();
        assert_eq!(reached, expected);
    }
    assert_eq!((n_partitions(&world), world.all(100).await.len()), (1, 10));
}

#[tokio::test]
async fn what_cannot_be_split_is_refused_at_once() {
    let world = filled().await;
    let refused = world.node.begin_by_hand("db", "c", &[7]).await.unwrap_err();
    assert_eq!(refused.status(), Status::NOT_FOUND);
}

#[tokio::test]
async fn a_node_that_stops_does_not_wait_for_a_hand() {
    let world = filled().await;
    world.node.begin_by_hand("db", "c", &[0]).await.unwrap();
    let started = std::time::Instant::now();
    world.node.stop(std::time::Duration::from_secs(30)).await.unwrap();
    assert!(started.elapsed().as_secs() < 20);
}
