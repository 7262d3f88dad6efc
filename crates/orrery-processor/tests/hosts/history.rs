//! Feeds whose past is gone, whose region changes, and of which little is for the reader.

use std::time::Duration;

use orrery_processor::estimator::{Estimator, Unknown};
use orrery_processor::lease::{Condition, FeedMode};
use orrery_processor::pull::Puller;
use orrery_processor::range::EpkRange;
use orrery_processor::{Event, Poll, ProcessorBuilder, StartFrom, WindowPolicy};
use serde_json::json;

use crate::scene::{Scene, next};

const GRACE: Duration = Duration::from_secs(30);

/// A host of all versions whose position has left the window while it was stopped: three changes before, two after.
async fn left_behind(scene: &Scene) -> ProcessorBuilder {
    let host = || {
        let host = scene.host("a").mode(FeedMode::AllVersionsAndDeletes);
        host.start_from(StartFrom::Now)
    };
    let running = scene.try_start(host(), "a").await.unwrap();
    running.stop(GRACE).await;
    scene.write(3);
    scene.feed.forget_versions();
    scene.feed.put("new", "one", json!(1));
    scene.feed.put("new", "two", json!(2));
    host()
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_has_left_the_window_halts_and_says_so() {
    let scene = Scene::new(1);
    let host = left_behind(&scene).await;
    let processor = host.build_raw(scene.noting("a")).unwrap();
    let mut events = processor.events();
    let running = processor.start().await.unwrap();
    let position = next(&mut events, |event| match event {
        Event::WindowExceeded { position, .. } => position,
        _ => None,
    });
    assert_eq!(position.await, "\"0\"");
    next(&mut events, |event| matches!(event, Event::Halted { .. }).then_some(())).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let stored = scene.stored();
    let lease = stored.values().next().unwrap();
    assert!(matches!(lease.condition(), Some(Condition::Halted { .. })), "{lease:?}");
    assert!(scene.ledger.is_empty() && !running.is_healthy());
    assert_eq!(lease.owner(), Some("a"), "held, so that nobody else tries in vain");
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_may_go_on_with_the_oldest_change_that_is_kept_and_tells_what_is_lost() {
    let scene = Scene::new(1);
    let host = left_behind(&scene).await.window(WindowPolicy::ResumeFromOldest);
    let processor = host.build_raw(scene.noting("a")).unwrap();
    let mut events = processor.events();
    let running = processor.start().await.unwrap();
    let skipped = next(&mut events, |event| match event {
        Event::WindowSkipped { lost_from, lost_to, .. } => Some((lost_from, lost_to)),
        _ => None,
    });
    assert_eq!(skipped.await, ("\"0\"".to_owned(), "3".to_owned()));
    scene.until("what is kept comes", || scene.ledger.len() == 2).await;
    assert!(running.is_healthy());
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_may_go_on_with_what_comes_and_tells_what_is_lost() {
    let scene = Scene::new(1);
    let host = left_behind(&scene).await.window(WindowPolicy::ResumeFromNow);
    let processor = host.build_raw(scene.noting("a")).unwrap();
    let mut events = processor.events();
    let running = processor.start().await.unwrap();
    let skipped = next(&mut events, |event| match event {
        Event::WindowSkipped { lost_from, lost_to, .. } => Some((lost_from, lost_to)),
        _ => None,
    });
    assert_eq!(skipped.await, ("\"0\"".to_owned(), "\"5\"".to_owned()));
    scene.feed.put("new", "three", json!(3));
    scene.until("what is new comes", || scene.ledger.len() == 1).await;
    running.stop(GRACE).await;
    let again = scene.start_of_all_versions("a").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.ledger.len(), 1, "the new position was saved");
    again.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn another_region_and_another_history_are_told() {
    let scene = Scene::new(1);
    scene.feed.move_to("West US", false);
    let running = scene.start("a").await;
    scene.write(5);
    scene.until_complete().await;
    let mut events = running.events();
    scene.feed.move_to("North Europe", true);
    scene.feed.put("new", "item", json!(1));
    let moved = next(&mut events, |event| match event {
        Event::RegionChanged { from, to, .. } => Some((from, to)),
        _ => None,
    });
    assert_eq!(moved.await, ("West US".to_owned(), "North Europe".to_owned()));
    let changed = next(&mut events, |event| match event {
        Event::HistoryChanged { before, after, .. } => Some((before, after)),
        _ => None,
    });
    assert_eq!(changed.await, ("\"5\"".to_owned(), 1 << 32));
    let regions: Vec<_> = running.health().into_values().map(|lease| lease.region).collect();
    assert_eq!(regions, [Some("North Europe".to_owned())]);
    scene.until_complete().await;
    scene.assert_complete();
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn what_lies_across_a_forced_failover_is_not_counted_by_lsns() {
    let scene = Scene::new(1);
    let running = scene.start("a").await;
    scene.write(1);
    scene.until_complete().await;
    running.stop(GRACE).await;
    let estimator = Estimator::new("unit", scene.feed.clone(), scene.leases.clone()).unwrap();
    scene.feed.put("k", "one", json!(1));
    assert_eq!(estimator.snapshot().await.unwrap().transactions(), Some(1));
    scene.feed.move_to("North Europe", true);
    scene.feed.put("k", "two", json!(2));
    let lag = estimator.snapshot().await.unwrap();
    assert_eq!(lag.leases[0].transactions, Err(Unknown::Uncountable));
    assert_eq!(
        (lag.is_known(), lag.signal()),
        (false, 1),
        "unknown is work to do, never zero"
    );
}

/// Four leases on one partition, and a server that looks at ten changes at a time.
fn sparse() -> Scene {
    let scene = Scene::new(1);
    scene.write(400);
    scene.feed.look_at_most(10);
    scene
}

#[tokio::test(start_paused = true)]
async fn pages_that_are_empty_before_the_end_are_no_reason_to_wait() {
    let scene = sparse();
    let host = scene
        .host("a")
        .leases_per_partition(64)
        .poll(Poll::every(Duration::from_secs(60)));
    let began = tokio::time::Instant::now();
    let running = scene.try_start(host, "a").await.unwrap();
    scene.until_complete().await;
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(scene.stored().len(), 64);
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_a_reader_and_an_estimator_look_behind_empty_pages() {
    let scene = sparse();
    let host = || scene.host("a").leases_per_partition(64).max_items(1);
    let processor = host().build_raw(scene.noting("a")).unwrap();
    processor.run_until_caught_up(GRACE).await.unwrap();
    scene.assert_complete();
    let narrow = EpkRange::full().split_evenly(64).remove(3);
    let start = Puller::start(
        scene.feed.clone(),
        narrow,
        StartFrom::Beginning,
        FeedMode::LatestVersion,
    );
    let mut puller = start.await.unwrap();
    let mut n_pulled = 0;
    while let Some(page) = puller.next().await.unwrap() {
        n_pulled += page.changes.len();
    }
    let expected = scene.ledger.deliveries();
    let range = scene.stored().keys().nth(3).unwrap().clone();
    assert_eq!(n_pulled, expected.iter().filter(|one| one.lease == range).count());
    scene.write(100);
    let estimator = Estimator::new("unit", scene.feed.clone(), scene.leases.clone()).unwrap();
    let lag = estimator.snapshot().await.unwrap();
    let n_behind = lag.leases.iter().filter(|lease| lease.transactions != Ok(0)).count();
    assert!(n_behind > 32, "most leases have something waiting: {n_behind}");
}
