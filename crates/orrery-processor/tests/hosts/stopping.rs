//! How long stopping may take when the lease store does not answer.

use std::time::Duration;

use tokio::time::Instant;

use crate::door::Door;
use crate::scene::{Scene, TIMING};

const GRACE: Duration = Duration::from_secs(2);
/// What releasing may take beyond that.
const RELEASE: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn a_host_that_waits_for_a_listing_stops_at_once() {
    let scene = Scene::new(2);
    let door = Door::new(&scene.leases);
    let running = scene
        .try_start(scene.host("a").leases(door.clone()), "a")
        .await
        .unwrap();
    let n_before = door.n_listed();
    door.hang_lists();
    scene
        .until("it waits for a listing", || door.n_listed() > n_before)
        .await;
    let began = Instant::now();
    assert!(running.stop(GRACE).await.not_released.is_empty());
    assert!(began.elapsed() <= GRACE, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_waits_for_leases_it_takes_stops_in_time_and_says_which_it_may_hold() {
    let scene = Scene::new(4);
    let other = scene.start("b").await;
    let door = Door::new(&scene.leases);
    let running = scene
        .try_start(scene.host("a").leases(door.clone()), "a")
        .await
        .unwrap();
    scene
        .until("both have their share", || scene.shares().values().eq(&[2, 2]))
        .await;
    other.stop(GRACE).await;
    door.hang_writes();
    // It finds the leases of the other one at its next look, and waits for an answer.
    tokio::time::sleep(TIMING.acquire).await;
    let began = Instant::now();
    let stopped = running.stop(GRACE).await;
    assert!(began.elapsed() <= GRACE + RELEASE, "{:?}", began.elapsed());
    assert_eq!(stopped.not_released.len(), 4, "{stopped:?}");
}

#[tokio::test(start_paused = true)]
async fn the_time_for_stopping_may_be_as_long_as_anybody_likes() {
    let scene = Scene::new(1);
    let running = scene.start("a").await;
    assert!(running.stop(Duration::MAX).await.not_released.is_empty());
}
