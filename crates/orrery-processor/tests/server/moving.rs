//! Splits and merges of a real server below running processes.

use orrery_processor::range::Tiling;

use crate::scene::{Scene, until};

async fn assert_tiled(scene: &Scene, n_leases: usize) {
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
