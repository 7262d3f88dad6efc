//! What a host does when something it was given panics: the feed, the lease store, the listener to its measurements.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use orrery_processor::error::FeedError;
use orrery_processor::feed::{FeedPage, FeedRead, FeedSource, SourceDescription};
use orrery_processor::reshard::Partition;
use orrery_processor::testkit::ScriptedFeed;
use orrery_processor::{Event, Labels, LeaseChange, Loss, Metrics};

use crate::door::Door;
use crate::scene::{Scene, next};

const GRACE: Duration = Duration::from_secs(30);

/// A feed whose next read ends in a panic, when it is told so.
#[derive(Clone)]
struct Panicking {
    feed: ScriptedFeed,
    is_told: Arc<AtomicBool>,
}

impl FeedSource for Panicking {
    fn describe(&self) -> BoxFuture<'_, Result<SourceDescription, FeedError>> {
        self.feed.describe()
    }

    fn container_rid(&self) -> BoxFuture<'_, Result<String, FeedError>> {
        self.feed.container_rid()
    }

    fn partitions(&self) -> BoxFuture<'_, Result<Vec<Partition>, FeedError>> {
        self.feed.partitions()
    }

    fn read<'a>(&'a self, read: FeedRead<'a>) -> BoxFuture<'a, Result<FeedPage, FeedError>> {
        assert!(!self.is_told.swap(false, Ordering::SeqCst), "told to panic");
        self.feed.read(read)
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_feed_panicked_is_read_on_by_the_same_host() {
    let scene = Scene::new(2);
    let source = Panicking {
        feed: scene.feed.clone(),
        is_told: Arc::default(),
    };
    let running = scene
        .try_start(scene.host("a").source(source.clone()), "a")
        .await
        .unwrap();
    let mut events = running.events();
    scene.write(20);
    scene.until_complete().await;
    source.is_told.store(true, Ordering::SeqCst);
    let (lost, error) = next(&mut events, |event| match event {
        Event::Error { lease, error } => Some((lease, error)),
        _ => None,
    })
    .await;
    assert!(error.contains("panicked"), "{error}");
    let released = next(&mut events, |event| match event {
        Event::LeaseReleased { lease, why } => Some((lease, why)),
        _ => None,
    });
    assert_eq!(released.await, (lost.unwrap(), Loss::Failed));
    scene.write(20);
    scene.until_complete().await;
    assert_eq!(running.health().len(), 2);
    assert!(running.stop(GRACE).await.not_released.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_lease_store_panicked_at_a_listing_looks_again() {
    let scene = Scene::new(2);
    let door = Door::new(&scene.leases);
    let running = scene
        .try_start(scene.host("a").leases(door.clone()), "a")
        .await
        .unwrap();
    let mut events = running.events();
    door.panic_at_list();
    let told = next(&mut events, |event| match event {
        Event::Error { error, .. } => Some(error),
        _ => None,
    });
    assert!(told.await.contains("panic"));
    scene.feed.split(0);
    scene.write(20);
    scene.until_complete().await;
    assert!(running.is_running());
    running.stop(GRACE).await;
}

/// Panics whatever it is told.
struct Panics;

impl Metrics for Panics {
    fn batch(&self, _: Labels<'_>, _: usize, _: Duration, _: u32) {
        panic!("told to");
    }
    fn lag(&self, _: Labels<'_>, _: Option<u64>) {
        panic!("told to");
    }
    fn lease_change(&self, _: Labels<'_>, _: LeaseChange) {
        panic!("told to");
    }
    fn leases_owned(&self, _: Labels<'_>, _: usize) {
        panic!("told to");
    }
    fn feed_charge(&self, _: Labels<'_>, _: f64) {
        panic!("told to");
    }
    fn lease_charge(&self, _: Labels<'_>, _: f64) {
        panic!("told to");
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_to_measurements_that_panics_does_not_reach_the_host() {
    let scene = Scene::new(2);
    scene.write(20);
    let running = scene.try_start(scene.host("a").metrics(Panics), "a").await.unwrap();
    scene.until_complete().await;
    assert!(running.stop(GRACE).await.not_released.is_empty());
    assert!(scene.ledger.repeated().is_empty());
}
