//! Host processes that come and go in peace.

use std::time::{Duration, Instant};

use crate::scene::{Scene, until};

#[tokio::test]
async fn three_processes_share_twelve_leases_and_a_graceful_stop_repeats_nothing() {
    let scene = Scene::new(12).await;
    scene.write(100).await;
    let mut hosts = vec![scene.started("a").await];
    scene.until_shares(&[("a", 12)]).await;
    hosts.push(scene.started("b").await);
    scene.until_shares(&[("a", 6), ("b", 6)]).await;
    hosts.push(scene.started("c").await);
    scene.until_shares(&[("a", 4), ("b", 4), ("c", 4)]).await;
    scene.write(100).await;
    scene.until_complete().await;
    let mut leaving = hosts.remove(1);
    leaving.signal("TERM");
    until("b ends", || leaving.has_ended()).await;
    assert!(leaving.printed("stopped []"));
    scene.until_shares(&[("a", 6), ("c", 6)]).await;
    scene.write(100).await;
    scene.until_complete().await;
    assert!(scene.ledger().repeated().is_empty(), "{:?}", scene.ledger().repeated());
}

#[tokio::test]
async fn all_versions_and_deletes_reach_a_process() {
    let scene = Scene::new(2).await;
    let host = scene.host_with("a", &[("MODE", "all-versions")]);
    until("the host is ready", || host.printed("ready")).await;
    for _ in 0..3 {
        scene.write_one("x".into()).await;
    }
    scene.orders.delete_item("key-x", "x", None).await.unwrap();
    until("every version arrives", || scene.ledger().len() == 4).await;
    let lsns: Vec<u64> = scene
        .ledger()
        .deliveries()
        .iter()
        .map(|delivery| delivery.lsn)
        .collect();
    assert!(
        lsns.is_sorted() && scene.ledger().deliveries().iter().all(|one| one.id == "x"),
        "{lsns:?}"
    );
}

#[tokio::test]
async fn the_lease_container_may_be_in_another_account() {
    let scene = Scene::new(2).await;
    let other = Scene::new(1).await;
    scene.write(20).await;
    let host = scene.host_with("a", &[("LEASE_ENDPOINT", &other.server.endpoint)]);
    until("the host is ready", || host.printed("ready")).await;
    scene.until_complete().await;
    assert_eq!((scene.stored().await.len(), other.stored().await.len()), (0, 2));
}

#[tokio::test]
async fn a_hundred_and_twenty_eight_leases_are_shared_by_four_processes_within_three_cycles() {
    let scene = Scene::new(8).await;
    let cycle = Duration::from_secs(3);
    let settings = [
        ("LEASES_PER_PARTITION", "16"),
        ("ACQUIRE_MS", "3000"),
        ("RENEW_MS", "4000"),
        ("EXPIRY_MS", "15000"),
    ];
    scene.write(100).await;
    let first = scene.host_with("a", &settings);
    until("the first host is ready", || first.printed("ready")).await;
    scene.until_shares(&[("a", 128)]).await;
    let others: Vec<_> = ["b", "c", "d"].map(|name| scene.host_with(name, &settings)).into();
    until("the others are ready", || {
        others.iter().all(|host| host.printed("ready"))
    })
    .await;
    let began = Instant::now();
    scene.until_shares(&[("a", 32), ("b", 32), ("c", 32), ("d", 32)]).await;
    // A cycle more for what a busy machine adds to 128 writes.
    assert!(began.elapsed() <= 4 * cycle, "{:?}", began.elapsed());
    scene.write(100).await;
    scene.until_complete().await;
    assert!(scene.ledger().repeated().is_empty(), "{:?}", scene.ledger().repeated());
}
