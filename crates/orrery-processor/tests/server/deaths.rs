//! Host processes that are killed, frozen, or end themselves in the middle of a batch.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::scene::{Scene, is_soak, until};

#[tokio::test]
async fn the_leases_of_a_killed_process_run_elsewhere_within_expiry_and_a_cycle() {
    let scene = Scene::new(6).await;
    let mut victim = scene.started("victim").await;
    let _other = scene.started("other").await;
    scene.until_shares(&[("other", 3), ("victim", 3)]).await;
    scene.write(60).await;
    scene.until_complete().await;
    let n_before = scene.ledger().repeated().len();
    victim.kill();
    let killed = Instant::now();
    scene.write(60).await;
    scene.until_shares(&[("other", 6)]).await;
    // 2.5 s of expiry, half a second until the next look, and what a busy machine adds.
    assert!(killed.elapsed() < Duration::from_secs(10), "{:?}", killed.elapsed());
    scene.until_complete().await;
    assert!(
        scene.ledger().repeated().len() - n_before <= 60,
        "at most what was in flight comes again"
    );
}

#[tokio::test]
async fn a_frozen_process_writes_nothing_stale_when_it_wakes() {
    let scene = Scene::new(4).await;
    let frozen = scene.started("frozen").await;
    let _other = scene.started("other").await;
    scene.until_shares(&[("frozen", 2), ("other", 2)]).await;
    scene.write(40).await;
    scene.until_complete().await;
    let froze = Instant::now();
    frozen.signal("STOP");
    scene.write(40).await;
    scene.until_shares(&[("other", 4)]).await;
    scene.until_complete().await;
    if is_soak() {
        tokio::time::sleep(Duration::from_secs(90).saturating_sub(froze.elapsed())).await;
    }
    let before = scene.stored().await;
    frozen.signal("CONT");
    // It lets go, and gets its share again only by asking.
    until("the frozen one notices", || frozen.printed("LeaseReleased")).await;
    scene.until_shares(&[("frozen", 2), ("other", 2)]).await;
    let after = scene.stored().await;
    for (token, lease) in &before {
        let lsn = |lease: &orrery_processor::lease::Lease| lease.continuation.as_ref().and_then(|token| token.lsn());
        assert!(lsn(&after[token]) >= lsn(lease), "no position goes back");
        assert!(after[token].epoch() >= lease.epoch());
    }
    scene.write(40).await;
    scene.until_complete().await;
}

#[tokio::test]
async fn a_process_killed_between_success_and_checkpoint_repeats_that_batch_and_nothing_else() {
    let scene = Scene::new(1).await;
    scene.write(30).await;
    let mut dying = scene.host_with("a", &[("MAX_ITEMS", "10"), ("DIE_AFTER", "2")]);
    until("it dies after its second batch", || dying.has_ended()).await;
    assert_eq!(scene.ledger().len(), 20);
    let _again = scene.started("a").await;
    scene.until_complete().await;
    assert_eq!(
        scene.ledger().repeated().len(),
        10,
        "the second batch came again, the first did not"
    );
    assert_eq!(scene.ledger().len(), 40);
}

#[tokio::test]
async fn an_item_that_ends_the_process_is_found_and_set_aside() {
    let scene = Scene::new(1).await;
    scene.write(20).await;
    scene.write_one("killer".into()).await;
    let settings = [("ABORT_ON", "killer"), ("DEAD_LETTERS", "letters")];
    let mut n_deaths = 0;
    // The same name each time, so that nobody waits for the lease to expire.
    while n_deaths < 10 {
        let mut host = scene.host_with("a", &settings);
        until("it dies or finishes", || {
            host.has_ended() || scene.ledger().latest().len() == 20 && host.printed("DeadLettered")
        })
        .await;
        if !host.has_ended() {
            break;
        }
        n_deaths += 1;
    }
    assert!((3..=5).contains(&n_deaths), "{n_deaths}");
    let ledger = scene.ledger();
    assert_eq!(ledger.latest().len(), 20);
    assert!(ledger.deliveries().iter().all(|one| one.id != "killer"));
}

#[tokio::test]
async fn leases_that_cannot_be_written_are_let_go_in_time_and_taken_again() {
    let scene = Scene::new(2).await;
    let host = scene.started("a").await;
    // Two minutes of it in a soak.
    let lasts = Duration::from_secs(if is_soak() { 120 } else { 0 });
    for status in [503, 429] {
        scene.write(10).await;
        scene.until_complete().await;
        let (began, n_before) = (Instant::now(), host.n_printed("Fenced"));
        let rule = json!({"operation": "replace_item", "container": "leases", "status": status, "message": "down"});
        scene.add_fault(&rule);
        until("the host fences itself", || host.n_printed("Fenced") >= n_before + 2).await;
        tokio::time::sleep(lasts.saturating_sub(began.elapsed())).await;
        scene.clear_faults();
        scene.write(10).await;
        scene.until_complete().await;
        scene.until_shares(&[("a", 2)]).await;
    }
    assert!(scene.ledger().repeated().is_empty(), "it stopped before it had to");
}
