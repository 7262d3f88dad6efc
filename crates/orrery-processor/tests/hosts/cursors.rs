//! A unit's position as a value: kept, started from, and come back to.

use std::time::Duration;

use orrery_processor::error::StartError;
use orrery_processor::lease::FeedMode;
use orrery_processor::operations::{Operations, ResetError, ResetTo};
use orrery_processor::pull::{BadCursor, Puller};
use orrery_processor::range::EpkRange;
use orrery_processor::{Cursor, Processor, StartFrom};
use serde_json::json;

use crate::scene::{Scene, TIMING};

const GRACE: Duration = Duration::from_secs(30);

async fn operations(scene: &Scene) -> Operations {
    let opened = Operations::open("unit", scene.feed.clone(), scene.leases.clone(), TIMING.expiry);
    opened.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_unit_starts_where_another_one_stands() {
    let scene = Scene::new(3);
    scene.write(30);
    let running = scene.start("a").await;
    scene.until_complete().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let text = running.cursor().await.unwrap().to_text();
    running.stop(GRACE).await;
    scene.write(7);
    scene.feed.split(1);
    let mut other = Scene::new(0);
    other.feed = scene.feed.clone();
    let second = Processor::builder("second")
        .source(other.feed.clone())
        .leases(other.leases.clone())
        .instance(orrery_processor::InstanceName::new("b").unwrap())
        .start_at(Cursor::parse(&text).unwrap())
        .lease_timing(TIMING);
    let running = other.try_start(second, "b").await.unwrap();
    other.until("what came later", || other.ledger.len() == 7).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(other.ledger.len(), 7, "and nothing from before");
    assert_eq!(other.stored().len(), 4, "one lease per partition of today");
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_cursor_does_not_cover_starts_as_the_unit_is_told_to() {
    let scene = Scene::new(2);
    scene.write(40);
    let left = EpkRange::full().split_evenly(2).remove(0);
    let mode = FeedMode::LatestVersion;
    let puller = Puller::start(scene.feed.clone(), left.clone(), StartFrom::Now, mode);
    let cursor = puller.await.unwrap().cursor().clone();
    let running = scene.try_start(scene.host("a").start_at(cursor), "a").await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let leases: Vec<String> = scene.ledger.deliveries().into_iter().map(|one| one.lease).collect();
    assert!(!leases.is_empty() && leases.iter().all(|lease| *lease != left.to_string()));
    scene.write(40);
    scene.until_complete().await;
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_cursor_of_something_else_is_refused() {
    let scene = Scene::new(1);
    let mode = FeedMode::LatestVersion;
    let puller = Puller::start(scene.feed.clone(), EpkRange::full(), StartFrom::Now, mode);
    let cursor = puller.await.unwrap().cursor().clone();
    let all = scene.host("a").mode(FeedMode::AllVersionsAndDeletes);
    let all = all.start_from(StartFrom::Now).start_at(cursor.clone());
    let refused = scene.try_start(all, "a").await.unwrap_err();
    assert!(
        matches!(refused, StartError::Cursor(BadCursor::OtherMode)),
        "{refused:?}"
    );
    scene.feed.drop_container(true);
    let refused = scene.try_start(scene.host("a").start_at(cursor.clone()), "a").await;
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, StartError::Cursor(BadCursor::OtherContainer)),
        "{refused:?}"
    );
    let refused = operations(&scene).await.reset(&ResetTo::Cursor(cursor), false).await;
    assert!(matches!(refused, Err(ResetError::Cursor(BadCursor::OtherContainer))));
}

#[tokio::test(start_paused = true)]
async fn a_unit_comes_back_to_where_it_stood_also_after_its_leases_were_cut() {
    let scene = Scene::new(2);
    scene.write(20);
    let running = scene.start("a").await;
    scene.until_complete().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let then = operations(&scene).await.cursor().await.unwrap();
    for number in 0..8 {
        scene.feed.put(&format!("later{number}"), "item", json!(number));
    }
    scene.until_complete().await;
    scene.feed.split(0);
    scene.until("the lease is cut", || scene.stored().len() == 3).await;
    scene.until_complete().await;
    running.stop(GRACE).await;
    assert!(scene.ledger.repeated().is_empty());
    let n_moved = operations(&scene).await.reset(&ResetTo::Cursor(then), false).await;
    assert_eq!(n_moved.unwrap(), 3);
    let running = scene.start("a").await;
    scene
        .until("the later ones come again", || scene.ledger.repeated().len() == 8)
        .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.ledger.len(), 20 + 2 * 8, "and nothing else does");
    running.stop(GRACE).await;
}
