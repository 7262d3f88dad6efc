//! Hosts that come too late: after their lease could have been taken they deliver nothing, whatever they were waiting for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use orrery_processor::error::FeedError;
use orrery_processor::feed::{FeedPage, FeedRead, FeedSource, SourceDescription};
use orrery_processor::reshard::Partition;
use orrery_processor::store::LeaseStore as _;
use orrery_processor::testkit::ScriptedFeed;
use orrery_processor::{BatchContext, Event, Loss, RawBatch};
use tokio::time::Instant;

use crate::door::Door;
use crate::scene::{Scene, TIMING, next};

const GRACE: Duration = Duration::from_secs(1);
/// How long a read takes.
const READ: Duration = Duration::from_secs(10);

/// A feed whose reads take their time.
struct Slow(ScriptedFeed);

impl FeedSource for Slow {
    fn describe(&self) -> BoxFuture<'_, Result<SourceDescription, FeedError>> {
        self.0.describe()
    }

    fn container_rid(&self) -> BoxFuture<'_, Result<String, FeedError>> {
        self.0.container_rid()
    }

    fn partitions(&self) -> BoxFuture<'_, Result<Vec<Partition>, FeedError>> {
        self.0.partitions()
    }

    fn read<'a>(&'a self, read: FeedRead<'a>) -> BoxFuture<'a, Result<FeedPage, FeedError>> {
        async move {
            tokio::time::sleep(READ).await;
            self.0.read(read).await
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_was_read_before_a_process_was_suspended_over_its_fence_is_not_delivered() {
    let scene = Scene::new(1);
    scene.write(10);
    let epochs = Arc::new(Mutex::new(Vec::new()));
    let (noted, note) = (Arc::clone(&epochs), scene.noting("a"));
    let delegate = move |batch: RawBatch, context: BatchContext| {
        noted.lock().unwrap().push(context.epoch);
        note(batch, context)
    };
    let host = scene.host("a").source(Slow(scene.feed.clone()));
    let running = host.build_raw(delegate).unwrap().start().await.unwrap();
    let mut events = running.events();
    // The whole process sleeps; when it wakes, the answer has long been there.
    tokio::time::advance(2 * TIMING.expiry).await;
    let why = next(&mut events, |event| match event {
        Event::LeaseReleased { why, .. } => Some(why),
        _ => None,
    });
    assert_eq!(why.await, Loss::Fenced);
    scene.until_complete().await;
    assert!(epochs.lock().unwrap().iter().all(|epoch| *epoch == 2), "{epochs:?}");
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_looked_at_again_is_let_go_before_it_expires() {
    let scene = Scene::new(1);
    let door = Door::new(&scene.leases);
    let running = scene
        .try_start(scene.host("a").leases(door.clone()), "a")
        .await
        .unwrap();
    let mut events = running.events();
    tokio::time::sleep(TIMING.renew / 2).await;
    door.hang_reads();
    // Somebody else has written the lease; whether it is still ours, only a read would tell.
    let lease = scene.stored().into_values().next().unwrap();
    let etag = lease.etag.clone().unwrap();
    scene.leases.replace(&lease.to_document(), &etag).await.unwrap();
    let began = Instant::now();
    let why = next(&mut events, |event| match event {
        Event::LeaseReleased { why, .. } => Some(why),
        _ => None,
    });
    assert_eq!(why.await, Loss::Fenced);
    assert!(began.elapsed() < TIMING.expiry, "{:?}", began.elapsed());
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn hosts_whose_leases_cannot_be_written_go_on_while_they_hold_them_and_no_longer() {
    let scene = Scene::new(2);
    let door = Door::new(&scene.leases);
    let mut hosts = Vec::new();
    for name in ["a", "b"] {
        let host = scene.host(name).leases(door.clone());
        hosts.push(scene.try_start(host, name).await.unwrap());
    }
    scene
        .until("each has a lease", || scene.shares().values().eq(&[1, 1]))
        .await;
    scene.write(10);
    scene.until_complete().await;
    door.throttle_writes(true);
    let began = Instant::now();
    // The last renewal may be as old as the renewals are apart, and a tenth of the expiry is kept as a margin.
    let held = TIMING.expiry - TIMING.expiry / 10 - TIMING.renew;
    while began.elapsed() < held - Duration::from_secs(3) {
        scene.write(10);
        let wrote = Instant::now();
        scene.until_complete().await;
        assert!(wrote.elapsed() <= Duration::from_secs(2), "{:?}", began.elapsed());
    }
    assert!(
        door.n_refused() < 300,
        "{} writes in {:?}",
        door.n_refused(),
        began.elapsed()
    );
    tokio::time::sleep_until(began + TIMING.expiry).await;
    scene.write(10);
    let n_before = scene.ledger.len();
    tokio::time::sleep_until(began + Duration::from_secs(120)).await;
    assert_eq!(scene.ledger.len(), n_before, "nobody knows whose the leases are");
    door.throttle_writes(false);
    scene.until_complete().await;
    scene.assert_complete();
    scene
        .until("each has a lease again", || scene.shares().values().eq(&[1, 1]))
        .await;
    for host in hosts {
        host.stop(GRACE).await;
    }
}
