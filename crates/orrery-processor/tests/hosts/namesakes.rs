//! A process that starts under the name of another one, which may be dead, or alive.

use std::time::Duration;

use orrery_processor::{Event, Running};
use serde_json::Value;
use tokio::time::Instant;

use crate::scene::{Scene, TIMING, next};
use crate::way::Way;

const GRACE: Duration = Duration::from_secs(1);

/// Every lease as if its owner had started five minutes later than it did: this machine's clock has been set back since.
fn set_clock_back(scene: &Scene) {
    let mut documents = scene.leases.documents();
    for document in &mut documents {
        if let Some(started) = document.pointer_mut("/properties/orrery.incarnation") {
            let (ms, chance) = started.as_str().unwrap().split_at(16);
            let ms = u64::from_str_radix(ms, 16).unwrap() + 300_000;
            *started = Value::from(format!("{ms:016x}{chance}"));
        }
    }
    scene.leases.restore(documents);
}

/// A host that held every lease and was killed, and whose clock was ahead.
async fn killed(scene: &Scene) -> Running {
    let way = Way::new(&scene.leases, 0);
    let host = scene.host("twin").leases(way.clone());
    let running = scene.try_start(host, "twin").await.unwrap();
    scene.write(20);
    scene.until_complete().await;
    way.cut();
    set_clock_back(scene);
    running
}

#[tokio::test(start_paused = true)]
async fn a_restart_under_the_name_of_a_dead_process_goes_on_at_once_whatever_its_clock_said() {
    let scene = Scene::new(4);
    let dead = killed(&scene).await;
    tokio::time::sleep(TIMING.expiry + Duration::from_secs(2)).await;
    let began = Instant::now();
    let again = scene.start("twin").await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(again.health().len(), 4, "all its leases are read");
    scene.write(20);
    scene.until_complete().await;
    tokio::time::sleep(TIMING.expiry).await;
    assert!(again.is_running());
    again.stop(GRACE).await;
    dead.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_cannot_tell_whether_its_namesake_lives_waits_for_the_expiry_instead_of_stopping() {
    let scene = Scene::new(4);
    let dead = killed(&scene).await;
    let began = Instant::now();
    let again = scene.start("twin").await;
    scene.write(20);
    scene.until_complete().await;
    assert!(began.elapsed() <= TIMING.expiry + TIMING.acquire + Duration::from_secs(2));
    assert!(again.is_running());
    again.stop(GRACE).await;
    dead.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_living_namesake_whose_clock_is_ahead_wins_over_the_newcomer() {
    let scene = Scene::new(4);
    scene.write(20);
    let dead = killed(&scene).await;
    // It is alive after all: it renews.
    let living = tokio::spawn({
        let leases = scene.leases.clone();
        async move {
            loop {
                tokio::time::sleep(TIMING.renew).await;
                leases.restore(leases.documents());
            }
        }
    });
    let processor = scene.host("twin").build_raw(scene.noting("newcomer")).unwrap();
    let mut events = processor.events();
    let newcomer = processor.start().await.unwrap();
    scene.write(20);
    let began = Instant::now();
    let named = next(&mut events, |event| match event {
        Event::DuplicateInstance { instance } => Some(instance),
        _ => None,
    });
    assert_eq!(named.await, "twin");
    assert!(
        began.elapsed() <= TIMING.renew + TIMING.acquire,
        "{:?}",
        began.elapsed()
    );
    newcomer.ended().await;
    let delivered = scene.ledger.deliveries();
    assert!(delivered.iter().all(|one| one.host != "newcomer"), "it took nothing");
    newcomer.stop(GRACE).await;
    living.abort();
    dead.stop(GRACE).await;
}
