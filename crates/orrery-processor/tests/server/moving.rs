//! Splits and merges of a real server below running processes.

use orrery_processor::range::Tiling;
use serde_json::json;

use crate::process::until_told;
use crate::scene::{Scene, until};

/// Waits until so many leases cover every key once.
pub async fn assert_tiled(scene: &Scene, n_leases: usize) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let leases = scene.stored().await;
        let ranges: Vec<_> = leases.values().filter_map(|lease| lease.range.clone()).collect();
        if leases.len() == n_leases && Tiling::of(&ranges).is_exact() {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{:?}", leases.keys());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn splits_and_merges_under_load_lose_nothing_and_keep_the_order_of_every_key() {
    let scene = Scene::new(2).await;
    let _hosts = [scene.started("a").await, scene.started("b").await];
    scene.write(80).await;
    let partitions = scene.partitions();
    scene.split(partitions[0]);
    scene.write(80).await;
    scene.until_complete().await;
    assert_tiled(&scene, 3).await;
    let partitions = scene.partitions();
    scene.merge(partitions[0], partitions[1]);
    scene.write(80).await;
    scene.until_complete().await;
    assert_tiled(&scene, 3).await;
    assert!(scene.ledger().repeated().len() < 160, "history is not replayed");
}

#[tokio::test]
async fn splits_while_every_process_is_stopped_are_caught_up_without_a_replay() {
    let scene = Scene::new(1).await;
    scene.write(40).await;
    let mut host = scene.started("a").await;
    scene.until_complete().await;
    host.signal("TERM");
    until("the host ends", || host.has_ended()).await;
    let first = scene.partitions()[0];
    scene.split(first);
    let second = scene.partitions()[1];
    scene.split(second);
    scene.write(40).await;
    let _again = scene.started("a").await;
    scene.until_complete().await;
    assert_tiled(&scene, 3).await;
    assert!(
        scene.ledger().repeated().is_empty(),
        "{:?}",
        scene.ledger().repeated().len()
    );
}

#[tokio::test]
async fn a_cut_that_a_killed_process_left_half_done_is_finished_by_another() {
    let scene = Scene::new(1).await;
    let settings = [("MAX_ITEMS", "10")];
    let mut cutting = scene.started_with("cutting", &settings).await;
    let _waiting = scene.started_with("waiting", &settings).await;
    scene.until_shares(&[("cutting", 1)]).await;
    scene.write(40).await;
    scene.until_complete().await;
    scene.add_fault(&json!({"operation": "create_item", "container": "leases", "delayMs": 1500}));
    scene.split(scene.partitions()[0]);
    scene.write(40).await;
    until_told("the first child is made", async || scene.stored().await.len() == 2).await;
    cutting.kill();
    scene.clear_faults();
    let left = scene.stored().await;
    assert!(left["-FF"].is_retired(), "the parent is there, and marked");
    assert_eq!(left.len(), 2, "the second child is not");
    scene.write(40).await;
    scene.until_complete().await;
    assert_tiled(&scene, 2).await;
    scene.assert_at_most_a_batch_of_each_lease_came_again();
}

#[tokio::test]
async fn leases_finer_than_a_partition_are_cut_by_a_split_only_where_it_falls_within() {
    // A split in the middle of the partition is a bound of four leases, and lies within the middle one of three.
    for (per_partition, n_before, n_after, n_same) in [("4", 4, 4, 4), ("3", 3, 4, 2)] {
        let scene = Scene::new(1).await;
        let _host = scene
            .started_with("a", &[("LEASES_PER_PARTITION", per_partition)])
            .await;
        scene.write(40).await;
        scene.until_complete().await;
        assert_tiled(&scene, n_before).await;
        let before = scene.lease_ids().await;
        scene.split(scene.partitions()[0]);
        scene.write(40).await;
        scene.until_complete().await;
        assert_tiled(&scene, n_after).await;
        let n_kept = scene.lease_ids().await.intersection(&before).count();
        assert_eq!(n_kept, n_same);
        assert!(scene.ledger().repeated().is_empty());
    }
}
