//! Processes that live as long as there is something to do.

use std::time::Duration;

use orrery_processor::Processor;
use serde_json::json;

use crate::scene::{Scene, TIMING};
use crate::way::Way;

const GRACE: Duration = Duration::from_secs(30);

fn job(scene: &Scene, name: &str) -> Processor {
    scene.host(name).build_raw(scene.noting(name)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_job_does_what_waits_and_ends_and_the_next_one_goes_on_there() {
    let scene = Scene::new(4);
    scene.write(250);
    let stopped = job(&scene, "one").run_until_caught_up(GRACE).await.unwrap();
    assert_eq!(stopped.not_released, Vec::<String>::new());
    scene.assert_complete();
    assert!(scene.shares().is_empty(), "its leases are free");
    scene.feed.put("later", "item", json!(1));
    scene.feed.split(0);
    job(&scene, "two").run_until_caught_up(GRACE).await.unwrap();
    scene.assert_complete();
    assert!(scene.ledger.repeated().is_empty());
    let began = tokio::time::Instant::now();
    job(&scene, "three").run_until_caught_up(GRACE).await.unwrap();
    assert!(began.elapsed() < TIMING.acquire, "nothing to do is soon done");
}

#[tokio::test(start_paused = true)]
async fn a_job_waits_for_the_leases_of_one_that_died() {
    let scene = Scene::new(2);
    let way = Way::new(&scene.leases, 0);
    let dead = scene
        .try_start(scene.host("dead").leases(way.clone()), "dead")
        .await
        .unwrap();
    way.cut();
    dead.stop(GRACE).await;
    scene.write(20);
    let before = scene.ledger.len();
    job(&scene, "next").run_until_caught_up(GRACE).await.unwrap();
    scene.assert_complete();
    assert_eq!((before, scene.ledger.len()), (0, 20));
}

#[tokio::test(start_paused = true)]
async fn two_jobs_at_once_share_the_work_and_both_end() {
    let scene = Scene::new(8);
    scene.write(400);
    let (one, two) = (job(&scene, "one"), job(&scene, "two"));
    let both = tokio::join!(one.run_until_caught_up(GRACE), two.run_until_caught_up(GRACE));
    assert!(both.0.is_ok() && both.1.is_ok());
    scene.assert_complete();
}
