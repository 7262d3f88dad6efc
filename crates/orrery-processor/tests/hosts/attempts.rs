//! Attempts at a batch that fails, counted across hosts, and what follows when there were enough.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orrery_processor::lease::Condition;
use orrery_processor::retry::RetryPolicy;
use orrery_processor::{Batch, BatchContext, Event, GiveUp, Loss, RawBatch};
use serde_json::json;

use crate::scene::{Scene, next};

const GRACE: Duration = Duration::from_secs(30);

fn attempts(attempts: u32) -> RetryPolicy {
    RetryPolicy {
        attempts,
        ..RetryPolicy::default()
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_are_counted_on_by_the_next_host() {
    let scene = Scene::new(1);
    scene.write(5);
    let told = Arc::new(Mutex::new(Vec::new()));
    for (host, until) in [("a", 3), ("b", 5)] {
        let told = Arc::clone(&told);
        let delegate = move |_: RawBatch, context: BatchContext| {
            told.lock().unwrap().push(context.attempt);
            std::future::ready(Err::<(), _>("no"))
        };
        let processor = scene.host(host).build_raw(delegate).unwrap();
        let mut events = processor.events();
        let running = processor.start().await.unwrap();
        next(&mut events, |event| match event {
            Event::BatchFailed { attempt, .. } if attempt == until => Some(()),
            _ => None,
        })
        .await;
        running.stop(GRACE).await;
        assert_eq!(scene.stored()["-FF"].n_failures(), until);
    }
    assert_eq!(*told.lock().unwrap(), [1, 2, 3, 4, 5]);
    let running = scene.start("c").await;
    scene.until_complete().await;
    running.stop(GRACE).await;
    assert_eq!(scene.stored()["-FF"].n_failures(), 0, "the position is another one");
}

#[tokio::test(start_paused = true)]
async fn a_lease_may_halt_where_its_delegate_has_failed_often_enough() {
    let scene = Scene::new(1);
    scene.write(5);
    let n_calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&n_calls);
    let delegate = move |_: RawBatch, _: BatchContext| {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Err::<(), _>("no"))
    };
    let host = scene.host("a").retry(attempts(3)).give_up(GiveUp::Halt);
    let processor = host.build_raw(delegate).unwrap();
    let mut events = processor.events();
    let running = processor.start().await.unwrap();
    let reason = next(&mut events, |event| match event {
        Event::Halted { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(reason.await, "no");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(n_calls.load(Ordering::SeqCst), 3);
    let lease = scene.stored().remove("-FF").unwrap();
    assert!(matches!(lease.condition(), Some(Condition::Halted { .. })), "{lease:?}");
    assert!(
        lease.continuation.is_none() && !running.is_healthy(),
        "kept, and not moved"
    );
    running.stop(GRACE).await;
    let again = scene.start("b").await;
    scene.until_complete().await;
    again.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn an_item_that_cannot_be_read_is_not_left_out_where_leases_are_released_or_halted() {
    for (give_up, loss) in [(GiveUp::Release, Loss::DelegateFailed), (GiveUp::Halt, Loss::Stopped)] {
        let scene = Scene::new(1);
        scene.feed.put("k", "item", json!("no number"));
        let delegate = |_: Batch<Numbered>, _| std::future::ready(Ok::<_, String>(()));
        let host = scene.host("a").retry(attempts(2)).give_up(give_up);
        let processor = host.build(delegate).unwrap();
        let mut events = processor.events();
        let running = processor.start().await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        running.stop(GRACE).await;
        let why = next(&mut events, |event| match event {
            Event::LeaseReleased { why, .. } => Some(why),
            Event::DeadLettered { .. } => panic!("left out"),
            _ => None,
        });
        assert_eq!(why.await, loss);
        assert_eq!(scene.stored()["-FF"].continuation, None, "{give_up:?}");
    }
}

#[derive(serde::Deserialize)]
struct Numbered {
    #[serde(rename = "value")]
    _value: u32,
}
