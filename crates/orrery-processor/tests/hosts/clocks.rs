//! Hosts that die without a word, and hosts whose clocks disagree.

use std::time::Duration;

use orrery_processor::Running;
use tokio::time::Instant;

use crate::scene::{Scene, TIMING};
use crate::way::Way;

const GRACE: Duration = Duration::from_secs(1);

/// `_ts` counts whole seconds.
const PRECISION: Duration = Duration::from_secs(1);

async fn started(scene: &Scene, name: &str, way: &Way) -> Running {
    let host = scene.host(name).leases(way.clone());
    scene.try_start(host, name).await.unwrap()
}

fn epochs(scene: &Scene) -> Vec<u64> {
    scene.stored().values().map(|lease| lease.epoch()).collect()
}

/// Waits until `name` owns nothing any more; how long that took.
async fn until_robbed(scene: &Scene, name: &str) -> Duration {
    let began = Instant::now();
    scene
        .until("the others have its leases", || {
            !scene.shares().contains_key(name) && scene.shares().values().sum::<usize>() == scene.stored().len()
        })
        .await;
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn the_leases_of_a_dead_host_run_elsewhere_within_expiry_and_a_cycle() {
    // Wherever between two renewals and two looks it dies.
    for moment in [0, 5, 11, 16, 23] {
        let scene = Scene::new(10);
        let ways = [Way::new(&scene.leases, 0), Way::new(&scene.leases, 0)];
        let (victim, other) = (
            started(&scene, "victim", &ways[0]).await,
            started(&scene, "other", &ways[1]).await,
        );
        scene
            .until("equal shares", || scene.shares().values().all(|share| *share == 5))
            .await;
        tokio::time::sleep(Duration::from_secs(60 + moment)).await;
        ways[0].cut();
        let took = until_robbed(&scene, "victim").await;
        assert!(took <= TIMING.expiry + TIMING.acquire + PRECISION, "{moment}: {took:?}");
        scene.write(50);
        scene.until_complete().await;
        other.stop(GRACE).await;
        victim.stop(GRACE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn clocks_that_are_minutes_apart_move_no_lease_and_do_not_delay_a_takeover() {
    let scene = Scene::new(12);
    let ways = [-300, 0, 300].map(|skew_s| Way::new(&scene.leases, skew_s));
    let mut hosts = Vec::new();
    for (name, way) in ["early", "right", "late"].iter().zip(&ways) {
        hosts.push(started(&scene, name, way).await);
    }
    scene
        .until("equal shares", || {
            scene.shares().len() == 3 && scene.shares().values().all(|share| *share == 4)
        })
        .await;
    // A lease that was handed over is taken up at the next look.
    tokio::time::sleep(2 * TIMING.acquire).await;
    let before = epochs(&scene);
    for _ in 0..60 {
        scene.write(24);
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(epochs(&scene), before, "in an hour nobody took anything from anybody");
    let stamps = |name: &str| {
        let leases = scene.stored();
        let of = leases.values().find(|lease| lease.owner() == Some(name));
        of.and_then(|lease| lease.timestamp.clone()).unwrap()
    };
    assert!(stamps("early") < stamps("right") && stamps("right") < stamps("late"));
    ways[2].cut();
    let took = until_robbed(&scene, "late").await;
    assert!(took <= TIMING.expiry + TIMING.acquire + PRECISION, "{took:?}");
    scene.write(24);
    scene.until_complete().await;
    for host in hosts {
        host.stop(GRACE).await;
    }
}
