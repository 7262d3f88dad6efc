//! Leases that are lost, and leases that cannot be deleted.

use std::time::Duration;

use orrery_processor::error::StartError;
use orrery_processor::lease::{FeedMode, Lease};
use orrery_processor::store::LeaseStore as _;
use orrery_processor::{Event, Filled, Running, StartFrom};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::door::Door;
use crate::scene::{Scene, TIMING, next};

const GRACE: Duration = Duration::from_secs(30);
const PREFIX: &str = "unitscripted_d_c1";

/// What a repair tells of the leases it made.
fn filled(event: Event) -> Option<Vec<Filled>> {
    match event {
        Event::TilingRepaired { filled, .. } => Some(filled),
        _ => None,
    }
}

/// Deletes the leftmost lease; its token.
async fn delete_one(scene: &Scene) -> String {
    let gone = scene.stored().into_values().next().unwrap();
    scene.leases.delete(&gone.to_document(), None).await.unwrap();
    gone.token
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_cannot_be_deleted_is_tried_again_with_pauses_and_holds_up_nothing() {
    let scene = Scene::new(1);
    let door = Door::new(&scene.leases);
    let running = scene
        .try_start(scene.host("a").leases(door.clone()), "a")
        .await
        .unwrap();
    let mut events = running.events();
    scene.write(30);
    scene.until_complete().await;
    door.refuse_deletes(true);
    scene.feed.split(0);
    let refused = next(&mut events, |event| match event {
        Event::Error { error, .. } if error.contains("forbidden") => Some(error),
        _ => None,
    });
    refused.await;
    let began = Instant::now();
    scene.write(30);
    scene.until_complete().await;
    assert!(
        began.elapsed() < TIMING.acquire,
        "the children need not wait: {:?}",
        began.elapsed()
    );
    let other = scene.start("b").await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    scene.write(30);
    scene.until_complete().await;
    let stored = scene.stored();
    assert_eq!(stored.len(), 3, "{:?}", stored.keys());
    let parent = &stored["-FF"];
    assert!(parent.is_retired() && parent.epoch() <= 2, "{parent:?}");
    assert!(door.n_refused() < 30, "{} attempts in ten minutes", door.n_refused());
    assert!(scene.ledger.repeated().is_empty(), "no replay of history");
    door.refuse_deletes(false);
    scene.until("the parent is gone", || scene.stored().len() == 2).await;
    scene.assert_complete();
    running.stop(GRACE).await;
    other.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_retired_parent_that_cannot_be_deleted_is_released_when_its_host_stops() {
    let scene = Scene::new(1);
    let door = Door::new(&scene.leases);
    door.refuse_deletes(true);
    let running = scene.try_start(scene.host("a").leases(door), "a").await.unwrap();
    let mut events = running.events();
    scene.feed.split(0);
    next(&mut events, |event| {
        matches!(event, Event::Resharded { .. }).then_some(())
    })
    .await;
    let stopped = running.stop(GRACE).await;
    assert_eq!(stopped.not_released, Vec::<String>::new());
    assert!(scene.stored()["-FF"].is_retired());
    let running = scene.start("b").await;
    scene
        .until("another host deletes it", || scene.stored().len() == 2)
        .await;
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_while_its_host_runs_is_made_again_within_one_renewal() {
    let scene = Scene::new(4);
    scene.write(40);
    let running = scene.start("a").await;
    let mut events = running.events();
    scene.until_complete().await;
    let n_before = scene.ledger.len();
    let token = delete_one(&scene).await;
    let began = Instant::now();
    let made = next(&mut events, filled).await;
    let from = StartFrom::Beginning;
    assert_eq!(
        made,
        [Filled {
            lease: token.clone(),
            from
        }]
    );
    scene
        .until("it is read from the beginning", || scene.ledger.len() > n_before)
        .await;
    assert!(began.elapsed() <= TIMING.renew, "{:?}", began.elapsed());
    assert_eq!(scene.stored()[&token].owner(), Some("a"));
    scene.write(40);
    scene.until_complete().await;
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_reads_is_missed_at_the_next_look_when_it_is_deleted() {
    let scene = Scene::new(4);
    let limited = orrery_processor::balance::BalanceSettings {
        leases_max: Some(2),
        ..Default::default()
    };
    let running = scene.try_start(scene.host("a").balance(limited), "a").await.unwrap();
    let mut events = running.events();
    let free = scene
        .stored()
        .into_values()
        .find(|lease| lease.owner().is_none())
        .unwrap();
    scene.leases.delete(&free.to_document(), None).await.unwrap();
    let began = Instant::now();
    let made = next(&mut events, filled).await;
    assert_eq!((made.len(), &made[0].lease), (1, &free.token));
    assert!(began.elapsed() <= TIMING.acquire, "{:?}", began.elapsed());
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_all_versions_that_is_made_again_begins_with_the_oldest_that_is_kept() {
    let scene = Scene::new(2);
    let running = scene.start_of_all_versions("a").await;
    scene.write(10);
    scene.until_complete().await;
    running.stop(GRACE).await;
    scene.feed.forget_versions();
    scene.write(10);
    delete_one(&scene).await;
    let n_kept = scene.ledger.len();
    let (running, made) = started_again(&scene).await;
    assert!(
        made.iter().all(|one| one.from == StartFrom::Beginning) && made.len() == 1,
        "{made:?}"
    );
    scene.until_complete().await;
    assert!(scene.ledger.len() >= n_kept + 10);
    running.stop(GRACE).await;
    scene.assert_complete();
}

#[tokio::test(start_paused = true)]
async fn where_versions_can_only_be_read_from_now_on_a_lease_made_again_says_that_it_begins_now() {
    let scene = Scene::new(2);
    scene.feed.refuse_the_past();
    scene.start_of_all_versions("a").await.stop(GRACE).await;
    let token = delete_one(&scene).await;
    let (running, made) = started_again(&scene).await;
    let from = StartFrom::Now;
    assert_eq!(made, [Filled { lease: token, from }]);
    running.stop(GRACE).await;
}

async fn started_again(scene: &Scene) -> (Running, Vec<Filled>) {
    let host = scene.host("a").mode(FeedMode::AllVersionsAndDeletes);
    let processor = host.start_from(StartFrom::Now).build_raw(scene.noting("a")).unwrap();
    let mut events = processor.events();
    let running = processor.start().await.unwrap();
    (running, next(&mut events, filled).await)
}

#[tokio::test(start_paused = true)]
async fn all_leases_of_a_unit_that_was_made_are_made_again_from_the_beginning() {
    let scene = Scene::new(2);
    let host = || scene.host("a").start_from(StartFrom::Now);
    scene.try_start(host(), "a").await.unwrap().stop(GRACE).await;
    scene.write(10);
    delete_one(&scene).await;
    delete_one(&scene).await;
    let running = scene.try_start(host(), "a").await.unwrap();
    scene.until_complete().await;
    running.stop(GRACE).await;
}

/// A lease of a partition id, as .NET writes it before it has acquired it.
fn by_id(id: &str, token: &str) -> Value {
    json!({
        "id": format!("{PREFIX}..{id}"), "LeaseToken": id, "Owner": null, "ContinuationToken": token, "properties": {},
        "timestamp": null,
    })
}

#[tokio::test(start_paused = true)]
async fn a_set_of_partition_leases_that_was_left_half_made_is_completed_before_it_is_marked() {
    let scene = Scene::new(3);
    scene.leases.restore(vec![by_id("1", "\"0\"")]);
    let running = scene.start("a").await;
    let ids: Vec<Value> = scene.leases.documents().iter().map(|one| one["id"].clone()).collect();
    assert!(ids.contains(&json!(format!("{PREFIX}.info"))));
    assert_eq!(scene.stored().len(), 3, "{ids:?}");
    scene.write(30);
    scene.until_complete().await;
    running.stop(GRACE).await;
    scene.assert_complete();
}

/// Makes the leftmost lease unreadable; what it was.
async fn spoil_one(scene: &Scene) -> Lease {
    let lease = scene.stored().into_values().next().unwrap();
    let mut document = lease.to_document();
    document["properties"] = json!({"team": 7});
    let etag = lease.etag.clone().unwrap();
    scene.leases.replace(&document, &etag).await.unwrap();
    lease
}

#[tokio::test(start_paused = true)]
async fn a_lease_document_that_cannot_be_read_is_named_and_a_unit_with_one_does_not_start() {
    let scene = Scene::new(4);
    let running = scene.start("a").await;
    running.stop(GRACE).await;
    let spoilt = spoil_one(&scene).await;
    let refused = scene.try_start(scene.host("a"), "a").await.unwrap_err();
    assert!(
        matches!(&refused, StartError::UnreadableLease { id, .. } if *id == spoilt.id),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_document_that_becomes_unreadable_is_told_once_and_costs_no_more_listings() {
    let scene = Scene::new(4);
    let door = Door::new(&scene.leases);
    let running = scene
        .try_start(scene.host("a").leases(door.clone()), "a")
        .await
        .unwrap();
    let mut events = running.events();
    let spoilt = spoil_one(&scene).await;
    let told = next(&mut events, |event| match event {
        Event::LeaseUnreadable { id, .. } => Some(id),
        _ => None,
    });
    assert_eq!(told.await, spoilt.id);
    tokio::time::sleep(TIMING.acquire).await;
    let n_before = door.n_listed();
    tokio::time::sleep(10 * TIMING.acquire).await;
    let n_looks = door.n_listed() - n_before;
    assert!((9..=11).contains(&n_looks), "{n_looks} listings in ten cycles");
    let mut n_told = 0;
    while let Ok(event) = events.try_recv() {
        n_told += usize::from(matches!(event, Event::LeaseUnreadable { .. }));
    }
    assert_eq!(n_told, 0, "it was told");
    // Another one that is lost is made again all the same.
    let gone = scene.leases.documents();
    let mut gone = gone.iter().filter_map(|one| Lease::from_document(one).ok());
    let gone = gone.rfind(|lease| lease.range.is_some()).unwrap();
    scene.leases.delete(&gone.to_document(), None).await.unwrap();
    let made = next(&mut events, filled).await;
    assert_eq!(made[0].lease, gone.token);
    // Deleted, the spoilt one is too.
    scene.leases.delete(&spoilt.to_document(), None).await.unwrap();
    let made = next(&mut events, filled).await;
    assert_eq!(made[0].lease, spoilt.token);
    running.stop(GRACE).await;
}
