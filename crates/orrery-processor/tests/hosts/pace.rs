//! When a host reads, calls its delegate and saves, and how long a call may take.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use orrery_processor::token::FeedToken;
use orrery_processor::{BatchContext, Event, Poll, Position, RawBatch};

use crate::door::Door;
use crate::scene::{Scene, next};

const GRACE: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn polls_follow_the_interval_when_idle_and_do_not_pause_between_full_pages() {
    let scene = Scene::new(1);
    scene.write(500);
    let began = tokio::time::Instant::now();
    let host = scene.host("a").max_items(10).poll(Poll::every(Duration::from_secs(5)));
    let running = scene.try_start(host, "a").await.unwrap();
    scene.until_complete().await;
    assert!(began.elapsed() < Duration::from_secs(5), "fifty pages without a pause");
    let n_before = scene.feed.n_reads();
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!((9..=11).contains(&(scene.feed.n_reads() - n_before)));
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_holds_everything_looks_seldom_until_something_happens_to_its_leases() {
    let (scene, minute) = (Scene::new(1), Duration::from_secs(60));
    let door = Door::new(&scene.leases);
    let alone = || scene.host("a").leases(door.clone()).look_when_alone(10 * minute);
    let running = scene.try_start(alone(), "a").await.unwrap();
    scene.write(1);
    scene.until_complete().await;
    let n_listed = door.n_listed();
    tokio::time::sleep(9 * minute).await;
    assert_eq!(door.n_listed(), n_listed);
    // Another process under its name takes the lease; this one finds out when it renews, and stops.
    let newer = scene.start("a").await;
    let ended = tokio::time::timeout(minute, running.ended()).await;
    assert!(ended.is_ok(), "the older one goes on");
    newer.stop(GRACE).await;

    let running = scene.try_start(alone(), "a").await.unwrap();
    tokio::time::sleep(minute).await;
    let n_listed = door.n_listed();
    scene.feed.split(0);
    scene.write(10);
    tokio::time::timeout(minute, scene.until_complete()).await.unwrap();
    assert!(door.n_listed() > n_listed, "it looks at once when its lease was cut");

    // One that joins has its share soon all the same, and from then on both look as often as ever.
    let joining = scene.start("b").await;
    let shared = scene.until("both have one", || scene.shares().get("b") == Some(&1));
    tokio::time::timeout(2 * minute, shared).await.unwrap();
    tokio::time::sleep(minute).await;
    let n_listed = door.n_listed();
    tokio::time::sleep(minute).await;
    assert!(door.n_listed() >= n_listed + 4);
    running.stop(GRACE).await;
    joining.stop(GRACE).await;
}

/// A call of the delegate.
#[derive(Debug)]
struct Called {
    from: Position,
    /// What the lease said when the call began.
    saved: Option<FeedToken>,
    attempt: u32,
}

#[tokio::test(start_paused = true)]
async fn a_position_is_saved_after_each_success_and_after_nothing_else() {
    let scene = Scene::new(1);
    scene.write(50);
    let calls: Arc<Mutex<Vec<Called>>> = Arc::default();
    let (noted, seen, note) = (Arc::clone(&calls), scene.clone(), scene.noting("a"));
    let saved = |scene: &Scene| scene.stored().into_values().next().unwrap().continuation;
    let delegate = move |batch: RawBatch, context: BatchContext| {
        let mut calls = noted.lock().unwrap();
        calls.push(Called {
            from: context.from.clone(),
            saved: saved(&seen),
            attempt: context.attempt,
        });
        // Every third call fails, and the same batch comes again.
        if calls.len().is_multiple_of(3) {
            return std::future::ready(Err("no".to_owned()));
        }
        note(batch, context)
    };
    let host = scene.host("a").max_items(10);
    let running = host.build_raw(delegate).unwrap().start().await.unwrap();
    scene.until_complete().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(saved(&scene), Some(FeedToken::at(50)), "the last one too");
    running.stop(GRACE).await;
    let calls = calls.lock().unwrap();
    let attempts: Vec<u32> = calls.iter().map(|call| call.attempt).collect();
    assert_eq!(
        attempts,
        [1, 1, 1, 2, 1, 1, 2],
        "five batches, two of them twice: {calls:?}"
    );
    for call in &*calls {
        let from = call.from.token().cloned();
        assert_eq!(
            call.saved, from,
            "what was handled before is saved, and no more: {call:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_delegate_that_runs_for_ten_minutes_keeps_its_lease_beside_another_host_and_is_reported() {
    let scene = Scene::new(2);
    let note = scene.noting("a");
    let delegate = move |batch: RawBatch, context: BatchContext| {
        let (cancelled, handled) = (context.cancelled.clone(), note(batch, context));
        async move {
            let long = tokio::time::sleep(Duration::from_secs(600));
            tokio::select! {
                () = long => {}
                () = cancelled.cancelled() => {}
            }
            handled.await
        }
    };
    let host = scene.host("a").stuck_after(Duration::from_secs(120));
    let host = host.build_raw(delegate).unwrap();
    let mut events = host.events();
    let running = host.start().await.unwrap();
    let other = scene.start("b").await;
    scene
        .until("each has a lease", || {
            scene.shares().len() == 2 && scene.shares().values().all(|share| *share == 1)
        })
        .await;
    let leases = || {
        let leases = scene.stored().into_values();
        let held = leases.map(|lease| (lease.token.clone(), lease.owner.clone(), lease.epoch()));
        held.collect::<Vec<_>>()
    };
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = leases();
    scene.write(20);
    next(&mut events, |event| matches!(event, Event::Stuck { .. }).then_some(())).await;
    let health = running.health();
    assert!(
        health
            .values()
            .any(|lease| lease.delegate_running >= Some(Duration::from_secs(119)))
    );
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(leases(), before, "nobody took it, however long it runs");
    scene.assert_complete();
    assert!(
        scene.ledger.repeated().is_empty(),
        "delivered once, saved after ten minutes"
    );
    scene.write(20);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let began = tokio::time::Instant::now();
    let stopped = running.stop(GRACE).await;
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "it is told to stop: {:?}",
        began.elapsed()
    );
    assert_eq!(stopped.not_released, Vec::<String>::new());
    scene
        .until("the other one goes on", || scene.shares().get("b") == Some(&2))
        .await;
    scene.until_complete().await;
    assert!(
        scene.ledger.repeated().is_empty(),
        "what was finished at the stop is saved"
    );
    other.stop(GRACE).await;
}
