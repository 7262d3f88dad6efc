//! Host processes that are killed, frozen, or end themselves in the middle of a batch.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::scene::{Scene, is_soak, until};

#[tokio::test]
async fn the_leases_of_a_killed_process_run_elsewhere_within_expiry_and_a_cycle() {
    let scene = Scene::new(10).await;
    let per_look = scene.queries_per_look().await;
    let settings = [
        ("MAX_ITEMS", "5"),
        ("DELAY_MS", "40"),
        ("ACQUIRE_MS", "1000"),
        ("RENEW_MS", "1200"),
        ("EXPIRY_MS", "4000"),
    ];
    let mut victim = scene.started_with("victim", &settings).await;
    let other = scene.started_with("other", &settings).await;
    scene.until_shares(&[("other", 5), ("victim", 5)]).await;
    let n_acquired = other.n_printed("LeaseAcquired");
    let by_victim = || {
        scene
            .notes()
            .iter()
            .filter(|note| note.delivery.host == "victim")
            .count()
    };
    let killing = async {
        until("the victim is at work", || by_victim() > 0).await;
        victim.kill();
        scene.requests("query_items")
    };
    let ((), n_before) = futures::join!(scene.write(200), killing);
    until("the other one has its leases", || {
        other.n_printed("LeaseAcquired") >= n_acquired + 5
    })
    .await;
    // Four looks of expiry, one because the server counts in whole seconds, the cycle in which it is noticed, and the look
    // that was under way. Looks are counted, because a busy machine makes them rarer.
    let n_looks = (scene.requests("query_items") - n_before) / per_look;
    assert!(n_looks <= 7, "{n_looks}");
    scene.until_shares(&[("other", 10)]).await;
    scene.until_complete().await;
    scene.assert_at_most_a_batch_of_each_lease_came_again();
}

#[tokio::test]
async fn leases_are_taken_over_although_every_look_at_them_takes_longer_than_they_last() {
    let scene = Scene::new(2).await;
    let mut victim = scene.started("victim").await;
    let other = scene.started("other").await;
    scene.until_shares(&[("other", 1), ("victim", 1)]).await;
    until("the other one has begun", || other.printed("LeaseAcquired")).await;
    let (n_acquired, n_released) = (other.n_printed("LeaseAcquired"), other.n_printed("LeaseReleased"));
    let before = scene.requests("query_items");
    scene.add_fault(&json!({"operation": "query_items", "container": "leases", "delayMs": 3000}));
    // Slow as they are, looks rob nobody who is alive.
    until("both have looked some times", || {
        scene.requests("query_items") >= before + 6
    })
    .await;
    assert_eq!(other.n_printed("LeaseAcquired"), n_acquired);
    victim.kill();
    until("the other one has its lease", || {
        other.n_printed("LeaseAcquired") == n_acquired + 1
    })
    .await;
    assert_eq!(other.n_printed("LeaseReleased"), n_released);
    scene.clear_faults();
    scene.write(10).await;
    scene.until_complete().await;
}

/// The late deliveries, by the lease and the number of their batch.
fn late_batches(scene: &Scene) -> BTreeSet<(String, u64)> {
    let late = scene.late().into_iter();
    late.map(|note| (note.delivery.lease, note.batch)).collect()
}

#[tokio::test]
async fn a_process_frozen_in_the_middle_of_a_batch_cannot_save_it_when_it_wakes() {
    let scene = Scene::new(4).await;
    let frozen = scene.started_with("frozen", &[("STUBBORN_MS", "1000")]).await;
    let _other = scene.started("other").await;
    scene.until_shares(&[("frozen", 2), ("other", 2)]).await;
    scene.write(40).await;
    until("both of its leases are at work", || frozen.n_printed("handling") >= 2).await;
    let froze = Instant::now();
    scene.freeze("frozen", &frozen);
    let n_saved = frozen.n_printed("saved");
    scene.write(40).await;
    scene.until_shares(&[("other", 4)]).await;
    scene.until_complete().await;
    if is_soak() {
        tokio::time::sleep(Duration::from_secs(90).saturating_sub(froze.elapsed())).await;
    }
    let before = scene.stored().await;
    assert!(scene.late().is_empty());
    frozen.signal("CONT");
    // What it had at hand is delivered, because nothing can hold it back; it is not saved, and both leases are let go.
    until("the frozen one notices", || {
        frozen.n_printed("not saved: LeaseLost") >= 2 && frozen.n_printed("LeaseReleased") >= 2
    })
    .await;
    assert_eq!(n_saved, 0, "it was in the middle of its first batches");
    let late = late_batches(&scene);
    assert_eq!(late.len(), 2, "one batch of each lease: {late:?}");
    assert!(scene.late().iter().all(|note| note.delivery.host == "frozen"));
    scene.until_shares(&[("frozen", 2), ("other", 2)]).await;
    let after = scene.stored().await;
    for (token, lease) in &before {
        let lsn = |lease: &orrery_processor::lease::Lease| lease.continuation.as_ref().and_then(|token| token.lsn());
        assert!(lsn(&after[token]) >= lsn(lease), "no position goes back");
        assert!(after[token].epoch() >= lease.epoch());
    }
    scene.write(40).await;
    scene.until_complete().await;
    assert_eq!(late_batches(&scene), late, "nothing else came late");
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
async fn leases_that_cannot_be_written_are_worked_on_while_held_let_go_in_time_and_taken_again() {
    let scene = Scene::new(2).await;
    let settings = [("EXPIRY_MS", "12000")];
    let hosts = [
        scene.started_with("a", &settings).await,
        scene.started_with("b", &settings).await,
    ];
    scene.until_shares(&[("a", 1), ("b", 1)]).await;
    let n_fenced = || hosts.iter().map(|host| host.n_printed("Fenced")).sum::<usize>();
    // Two minutes of it in a soak.
    let lasts = Duration::from_secs(if is_soak() { 120 } else { 0 });
    for (status, n_before) in [(503, 0), (429, 2)] {
        scene.write(10).await;
        scene.until_complete().await;
        let began = Instant::now();
        let rule = json!({"operation": "replace_item", "container": "leases", "status": status, "message": "down"});
        scene.add_fault(&rule);
        scene.write(10).await;
        scene.until_complete().await;
        assert_eq!(n_fenced(), n_before, "it was handled while the leases were held");
        until("the hosts fence themselves", || n_fenced() == n_before + 2).await;
        tokio::time::sleep(lasts.saturating_sub(began.elapsed())).await;
        scene.clear_faults();
        scene.write(10).await;
        scene.until_complete().await;
        scene.until_shares(&[("a", 1), ("b", 1)]).await;
    }
    let repeated = scene.ledger().repeated();
    assert!(
        repeated.len() <= 20,
        "what could not be saved, and no more: {repeated:?}"
    );
    assert!(repeated.values().all(|count| *count == 2), "{repeated:?}");
}
