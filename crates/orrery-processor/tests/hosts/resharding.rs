//! Partitions that split and merge below a running unit.

use std::time::Duration;

use orrery_processor::lease::FeedMode;
use orrery_processor::range::Tiling;
use orrery_processor::{Checkpoint, Event, RawBatch, StartFrom};
use serde_json::json;

use crate::scene::{Scene, next};

const GRACE: Duration = Duration::from_secs(30);

fn assert_tiled(scene: &Scene, n_leases: usize) {
    let leases = scene.stored();
    let ranges: Vec<_> = leases.values().filter_map(|lease| lease.range.clone()).collect();
    assert_eq!(leases.len(), n_leases, "{:?}", leases.keys());
    assert!(Tiling::of(&ranges).is_exact());
}

#[tokio::test(start_paused = true)]
async fn a_split_under_load_keeps_every_change_and_its_order() {
    for n_hosts in [2, 4] {
        let scene = Scene::new(2);
        let mut hosts = Vec::new();
        for n in 0..n_hosts {
            hosts.push(scene.start(&format!("host{n}")).await);
        }
        for round in 0..6 {
            scene.write(50);
            if round == 2 {
                scene.feed.split(0);
            }
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
        scene.until_complete().await;
        scene.until("the lease is cut", || scene.stored().len() == 3).await;
        assert_tiled(&scene, 3);
        scene.write(50);
        scene.until_complete().await;
        scene.assert_complete();
        futures::future::join_all(hosts.into_iter().map(|host| host.stop(GRACE))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn children_start_at_the_last_checkpoint_not_at_the_last_read() {
    let scene = Scene::new(1);
    let note = scene.noting("a");
    let delegate = move |batch: RawBatch, context| note(batch, context);
    let host = scene
        .host("a")
        .start_from(StartFrom::Now)
        .checkpoint(Checkpoint::Manual);
    let running = host.build_raw(delegate).unwrap().start().await.unwrap();
    let mut events = running.events();
    scene.write(20);
    scene.until_complete().await;
    scene.feed.split(0);
    next(&mut events, |event| {
        matches!(event, Event::Resharded { .. }).then_some(())
    })
    .await;
    scene
        .until("what was never saved comes again", || {
            scene.ledger.repeated().len() == 20
        })
        .await;
    running.stop(GRACE).await;
    assert_tiled(&scene, 2);
}

#[tokio::test(start_paused = true)]
async fn splits_while_everybody_is_stopped_are_caught_up_without_a_fresh_start() {
    let scene = Scene::new(1);
    scene.write(50);
    let running = scene.start("a").await;
    scene.until_complete().await;
    running.stop(GRACE).await;
    scene.feed.split(0);
    scene.feed.split(0);
    scene.write(50);
    let running = scene.start("a").await;
    scene.until_complete().await;
    scene
        .until("the lease is cut at both places", || scene.stored().len() == 3)
        .await;
    running.stop(GRACE).await;
    assert_tiled(&scene, 3);
    assert!(scene.ledger.repeated().is_empty(), "no replay of history");
    scene.assert_complete();
}

#[tokio::test(start_paused = true)]
async fn a_cut_that_was_left_half_done_is_finished_by_another_host() {
    let scene = Scene::new(1);
    scene.write(30);
    let running = scene.start("a").await;
    scene.until_complete().await;
    running.stop(GRACE).await;
    scene.feed.split(0);
    // The parent is marked and one child exists; then the host died.
    let parent = scene.stored().into_values().next().unwrap();
    let halves = orrery_processor::range::EpkRange::full().split_evenly(2);
    let child = orrery_processor::lease::Lease {
        id: parent.id.replace("-FF", &halves[0].to_string()),
        token: halves[0].to_string(),
        range: Some(halves[0].clone()),
        etag: None,
        ..parent.clone()
    };
    let mut documents = scene.leases.documents();
    documents.retain(|document| document["id"] != parent.id.as_str());
    documents.extend([parent.retired("t").to_document(), child.to_document()]);
    scene.leases.restore(documents);
    scene.write(30);
    let running = scene.start("b").await;
    scene.until_complete().await;
    scene
        .until("the parent is gone", || !scene.stored().contains_key("-FF"))
        .await;
    assert_tiled(&scene, 2);
    assert!(scene.ledger.repeated().is_empty());
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_merge_keeps_both_leases_and_a_split_elsewhere_cuts_only_where_needed() {
    for mode in [FeedMode::LatestVersion, FeedMode::AllVersionsAndDeletes] {
        let scene = Scene::new(2);
        let host = scene.host("a").start_from(StartFrom::Now).mode(mode);
        let running = scene.try_start(host, "a").await.unwrap();
        scene.write(30);
        scene.feed.merge(0);
        scene.write(30);
        scene.until_complete().await;
        assert_tiled(&scene, 2);
        // Cut in four: the left lease at its middle, the right one at its own.
        scene.feed.split(0);
        scene.feed.split(0);
        scene.feed.split(2);
        scene.write(30);
        scene.until_complete().await;
        scene.until("the leases are cut", || scene.stored().len() == 4).await;
        assert_tiled(&scene, 4);
        scene.assert_complete();
        running.stop(GRACE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn leases_finer_than_partitions_are_cut_only_where_a_new_bound_lies_within() {
    let scene = Scene::new(1);
    let running = scene
        .try_start(scene.host("a").leases_per_partition(4), "a")
        .await
        .unwrap();
    scene.write(40);
    scene.until_complete().await;
    scene.feed.split(0);
    scene.write(40);
    scene.until_complete().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_tiled(&scene, 4);
    running.stop(GRACE).await;
    assert!(scene.ledger.repeated().is_empty());
}

#[tokio::test(start_paused = true)]
async fn deletes_reach_an_all_versions_unit_with_their_key() {
    let scene = Scene::new(2);
    let host = scene
        .host("a")
        .start_from(StartFrom::Now)
        .mode(FeedMode::AllVersionsAndDeletes);
    let running = scene.try_start(host, "a").await.unwrap();
    scene.feed.put("k", "item", json!(1));
    scene.feed.put("k", "item", json!(2));
    scene.feed.delete("k", "item");
    scene.until("every version arrives", || scene.ledger.len() == 3).await;
    let delivered: Vec<_> = scene
        .ledger
        .deliveries()
        .into_iter()
        .map(|one| (one.key, one.id, one.lsn))
        .collect();
    let expected = [1, 2, 3].map(|lsn| ("[\"k\"]".to_owned(), "item".to_owned(), lsn));
    assert_eq!(delivered, expected);
    running.stop(GRACE).await;
}
