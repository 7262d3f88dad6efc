//! Units of all versions that an operator moves.

use std::time::{Duration, SystemTime};

use orrery_processor::StartFrom;
use orrery_processor::operations::{Operations, ResetError, ResetTo};

use crate::scene::{Scene, TIMING};

const GRACE: Duration = Duration::from_secs(30);

async fn operations(scene: &Scene) -> Operations {
    let (feed, leases) = (scene.feed.clone(), scene.leases.clone());
    Operations::open("unit", feed, leases, TIMING.expiry).await.unwrap()
}

/// A stopped unit of all versions that has seen ten.
async fn stopped(scene: &Scene) {
    let running = scene.start_of_all_versions("a").await;
    scene.write(10);
    scene.until("every version arrives", || scene.ledger.len() == 10).await;
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_unit_of_all_versions_is_moved_to_the_oldest_that_is_kept() {
    for start in [StartFrom::Beginning, StartFrom::Time(SystemTime::UNIX_EPOCH)] {
        let scene = Scene::new(2);
        stopped(&scene).await;
        let moved = operations(&scene).await.reset(&ResetTo::Start(start), false).await;
        assert_eq!(moved.unwrap(), 2);
        let running = scene.start_of_all_versions("a").await;
        scene.until("everything comes again", || scene.ledger.len() == 20).await;
        running.stop(GRACE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_unit_of_all_versions_stays_where_it_is_if_the_server_has_no_way_back() {
    let scene = Scene::new(2);
    stopped(&scene).await;
    scene.feed.refuse_the_past();
    let before = scene.leases.documents();
    let to = ResetTo::Start(StartFrom::Beginning);
    let refused = operations(&scene).await.reset(&to, false).await.unwrap_err();
    assert!(matches!(refused, ResetError::Mode), "{refused}");
    assert_eq!(scene.leases.documents(), before);
}
