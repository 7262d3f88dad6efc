//! How a unit comes into being, and what it refuses.

use std::collections::BTreeSet;
use std::time::Duration;

use orrery_processor::error::{BuildError, StartError};
use orrery_processor::lease::FeedMode;
use orrery_processor::pull::Puller;
use orrery_processor::range::{EpkRange, Tiling};
use orrery_processor::store::{LeaseStore as _, MemoryLeases};
use orrery_processor::testkit::ScriptedFeed;
use orrery_processor::{Event, InstanceName, LeaseTiming, Processor, ProcessorBuilder, StartFrom};
use serde_json::{Value, json};

use crate::door::Door;
use crate::scene::{Scene, TIMING, next};

const GRACE: Duration = Duration::from_secs(30);

#[test]
fn what_is_missing_or_contradictory_is_told_before_anything_is_sent() {
    let feed = ScriptedFeed::new(1);
    let whole = || {
        let leases = MemoryLeases::new();
        let instance = InstanceName::new("a").unwrap();
        Processor::builder("unit")
            .source(feed.clone())
            .leases(leases)
            .instance(instance)
    };
    let handle = |_, _| std::future::ready(Ok::<_, String>(()));
    let refused = |builder: ProcessorBuilder| builder.build_raw(handle).unwrap_err();
    assert!(matches!(refused(Processor::builder("unit")), BuildError::Missing(_)));
    assert!(matches!(
        refused(Processor::builder("").source(feed.clone())),
        BuildError::ProcessorName(_)
    ));
    let timing = LeaseTiming {
        renew: Duration::from_secs(60),
        ..TIMING
    };
    assert!(matches!(
        refused(whole().lease_timing(timing)),
        BuildError::LeaseTiming { .. }
    ));
    assert!(matches!(refused(whole().max_items(0)), BuildError::BatchItems(_)));
    let all = whole().mode(FeedMode::AllVersionsAndDeletes);
    assert!(matches!(
        refused(all.start_from(StartFrom::Beginning)),
        BuildError::StartOfAllVersions(_)
    ));
    assert!(whole().build_raw(handle).is_ok());
    assert_eq!(feed.n_reads(), 0);
}

#[tokio::test(start_paused = true)]
async fn by_default_only_what_changes_after_the_first_start_is_delivered() {
    let scene = Scene::new(2);
    scene.write(10);
    let running = scene
        .try_start(scene.host("a").start_from(StartFrom::Now), "a")
        .await
        .unwrap();
    let lsn = scene.feed.put("new", "item", json!(1));
    scene.until("the new item arrives", || !scene.ledger.is_empty()).await;
    let delivered: Vec<u64> = scene.ledger.deliveries().iter().map(|delivery| delivery.lsn).collect();
    assert_eq!(delivered, [lsn]);
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_when_a_unit_is_stopped_before_its_first_batch() {
    let scene = Scene::new(2);
    let host = || scene.host("a").start_from(StartFrom::Now);
    scene.try_start(host(), "a").await.unwrap().stop(GRACE).await;
    scene.write(10);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let running = scene.try_start(host(), "a").await.unwrap();
    scene.until_complete().await;
    running.stop(GRACE).await;
    scene.assert_complete();
}

#[tokio::test(start_paused = true)]
async fn start_options_have_no_effect_once_leases_exist_and_that_is_said() {
    let scene = Scene::new(1);
    scene.write(5);
    scene
        .try_start(scene.host("a").start_from(StartFrom::Now), "a")
        .await
        .unwrap()
        .stop(GRACE)
        .await;
    let processor = scene.host("a").build_raw(scene.noting("a")).unwrap();
    let mut events = processor.events();
    let running = processor.start().await.unwrap();
    next(&mut events, |event| matches!(event, Event::StartIgnored).then_some(())).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(scene.ledger.is_empty());
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn ten_hosts_that_start_at_once_make_one_set_of_leases() {
    let scene = Scene::new(8);
    let starts = (0..10).map(|n| {
        let scene = scene.clone();
        async move { scene.start(&format!("host{n}")).await }
    });
    let running = futures::future::join_all(starts).await;
    let leases = scene.stored();
    let ranges: Vec<_> = leases.values().filter_map(|lease| lease.range.clone()).collect();
    assert_eq!(leases.len(), 8);
    assert!(Tiling::of(&ranges).is_exact());
    let ids: Vec<String> = scene
        .leases
        .documents()
        .iter()
        .map(|one| one["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids.iter().filter(|id| id.ends_with(".info")).count(), 1);
    assert_eq!(ids.iter().filter(|id| id.ends_with(".lock")).count(), 0);
    futures::future::join_all(running.into_iter().map(|host| host.stop(GRACE))).await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_nobody_holds_any_more_is_taken_over_even_without_expiry() {
    let scene = Scene::new(2);
    // As left by a host that died in the middle, in a container that does not expire documents.
    scene
        .leases
        .create(&json!({"id": "unitscripted_d_c1.lock"}))
        .await
        .unwrap();
    let started = tokio::time::Instant::now();
    let running = scene.start("a").await;
    assert!(started.elapsed() > 2 * TIMING.lock);
    assert!(started.elapsed() < 3 * TIMING.lock);
    assert_eq!(scene.stored().len(), 2);
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn an_initialisation_that_was_cut_short_is_finished_by_the_next_host() {
    let scene = Scene::new(8);
    scene.write(40);
    let running = scene.start("a").await;
    running.stop(GRACE).await;
    // Only two of the eight leases had been made, and no mark.
    let documents = scene.leases.documents();
    let mut kept: Vec<Value> = documents
        .into_iter()
        .filter(|one| one["id"].as_str().unwrap().contains(".."))
        .collect();
    kept.truncate(2);
    scene.leases.restore(kept);
    let running = scene.start("b").await;
    assert_eq!(scene.stored().len(), 8);
    scene.until_complete().await;
    running.stop(GRACE).await;
}

/// A unit of eight leases whose first host dies after making two of them.
async fn left_half_made(scene: &Scene, host: ProcessorBuilder) {
    let door = Door::new(&scene.leases);
    door.hang_after_leases(2);
    let starting = scene.try_start(host.leases(door), "a");
    let died = tokio::time::timeout(Duration::from_secs(5), starting).await;
    assert!(died.is_err(), "it was in the middle");
    assert_eq!(scene.stored().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_unit_that_was_left_half_made_begins_where_it_was_told_to_everywhere() {
    let scene = Scene::new(8);
    scene.write(40);
    let host = |name: &str| scene.host(name).start_from(StartFrom::Now);
    left_half_made(&scene, host("a")).await;
    let running = scene.try_start(host("b"), "b").await.unwrap();
    assert_eq!(scene.stored().len(), 8);
    let new: BTreeSet<u64> = (0..40)
        .map(|number| scene.feed.put(&format!("new{number}"), "item", json!(1)))
        .collect();
    scene.until("the new items arrive", || scene.ledger.len() >= 40).await;
    let delivered = scene.ledger.deliveries();
    let delivered: BTreeSet<u64> = delivered.iter().map(|delivery| delivery.lsn).collect();
    assert_eq!(delivered, new, "nothing from before the unit was made");
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_unit_that_was_left_half_made_goes_on_at_its_cursor() {
    let scene = Scene::new(8);
    scene.write(40);
    let mode = FeedMode::LatestVersion;
    let reader = Puller::start(scene.feed.clone(), EpkRange::full(), StartFrom::Now, mode).await;
    let cursor = reader.unwrap().cursor().clone();
    let new: BTreeSet<u64> = (0..40)
        .map(|number| scene.feed.put(&format!("new{number}"), "item", json!(1)))
        .collect();
    let host = |name: &str| scene.host(name).start_at(cursor.clone());
    left_half_made(&scene, host("a")).await;
    let running = scene.try_start(host("b"), "b").await.unwrap();
    scene.until("the new items arrive", || scene.ledger.len() >= 40).await;
    let delivered = scene.ledger.deliveries();
    let delivered: BTreeSet<u64> = delivered.iter().map(|delivery| delivery.lsn).collect();
    assert_eq!(
        delivered, new,
        "nothing from before the cursor, and everything behind it"
    );
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_takes_long_to_make_the_leases_keeps_its_lock() {
    let scene = Scene::new(2);
    let door = Door::new(&scene.leases);
    door.hang_after_leases(0);
    let (slow, scene_of_slow) = (scene.host("a").leases(door), scene.clone());
    let making = tokio::spawn(async move { scene_of_slow.try_start(slow, "a").await });
    tokio::time::sleep(3 * TIMING.lock).await;
    let found = scene.leases.list("unit").await.unwrap().documents;
    let ids: Vec<_> = found.iter().filter_map(|one| one["id"].as_str()).collect();
    assert_eq!(ids, ["unitscripted_d_c1.lock"]);
    // When it dies, another one need not wait long.
    making.abort();
    let began = tokio::time::Instant::now();
    let running = scene.start("b").await;
    assert!(began.elapsed() <= 2 * TIMING.lock, "{:?}", began.elapsed());
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_made_again_and_its_range_is_read_from_the_beginning() {
    let scene = Scene::new(4);
    scene.write(40);
    let running = scene.start("a").await;
    scene.until_complete().await;
    let gone = scene.stored().into_values().next().unwrap();
    scene.leases.delete(&gone.to_document(), None).await.unwrap();
    running.stop(GRACE).await;
    let n_before = scene.ledger.len();
    let again = scene.host("a").build_raw(scene.noting("a")).unwrap();
    let mut told = again.events();
    let running = again.start().await.unwrap();
    let holes = next(&mut told, |event| match event {
        Event::TilingRepaired { holes, .. } => Some(holes),
        _ => None,
    });
    assert_eq!(holes.await, [gone.range.clone().unwrap()]);
    scene
        .until("the range comes again", || scene.ledger.len() > n_before)
        .await;
    assert_eq!(scene.stored().len(), 4);
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_unit_whose_mark_was_deleted_is_verified_and_nothing_is_made_twice() {
    let scene = Scene::new(3);
    scene.write(20);
    let running = scene.start("a").await;
    scene.until_complete().await;
    scene
        .leases
        .delete(&json!({"id": "unitscripted_d_c1.info"}), None)
        .await
        .unwrap();
    let other = scene.start("b").await;
    assert_eq!(scene.stored().len(), 3);
    scene.feed.put("later", "item", json!(1));
    scene.until_complete().await;
    assert!(scene.ledger.repeated().is_empty());
    running.stop(GRACE).await;
    other.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_unit_is_never_switched_to_the_other_mode() {
    let scene = Scene::new(1);
    scene.start("a").await.stop(GRACE).await;
    let all = scene
        .host("a")
        .start_from(StartFrom::Now)
        .mode(FeedMode::AllVersionsAndDeletes);
    let refused = scene.try_start(all, "a").await.unwrap_err();
    assert!(matches!(
        refused,
        StartError::ModeDiffers {
            stored: FeedMode::LatestVersion,
            ..
        }
    ));
    // Leases of old hosts do not say their mode; it is the latest version.
    let mut documents = scene.leases.documents();
    documents
        .iter_mut()
        .for_each(|document| drop(document.as_object_mut().unwrap().remove("Mode")));
    scene.leases.restore(documents);
    scene.start("a").await.stop(GRACE).await;
    let scene = Scene::new(1);
    scene.start_of_all_versions("a").await.stop(GRACE).await;
    let refused = scene.try_start(scene.host("a"), "a").await.unwrap_err();
    assert!(matches!(
        refused,
        StartError::ModeDiffers {
            stored: FeedMode::AllVersionsAndDeletes,
            ..
        }
    ));
}

#[tokio::test(start_paused = true)]
async fn leases_of_the_java_processor_are_not_touched() {
    let scene = Scene::new(1);
    let java =
        json!({"id": "unitscripted_d_c1..-FF", "LeaseToken": "-FF", "feedRange": {"Range": {"min": "", "max": "FF"}}});
    scene.leases.create(&java).await.unwrap();
    let before = scene.leases.documents();
    let refused = scene.try_start(scene.host("a"), "a").await.unwrap_err();
    assert!(matches!(refused, StartError::JavaLeases));
    assert_eq!(scene.leases.documents(), before);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_differs_from_a_running_one_only_in_case_is_refused() {
    let scene = Scene::new(2);
    let running = scene.start("Pod-1").await;
    let refused = scene.try_start(scene.host("pod-1"), "pod-1").await.unwrap_err();
    assert!(matches!(refused, StartError::NameDiffersInCase(name) if name == "Pod-1"));
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_unit_can_have_more_leases_than_partitions() {
    let scene = Scene::new(2);
    scene.write(50);
    let running = scene
        .try_start(scene.host("a").leases_per_partition(4), "a")
        .await
        .unwrap();
    assert_eq!(scene.stored().len(), 8);
    scene.until_complete().await;
    running.stop(GRACE).await;
    scene.assert_complete();
    assert!(scene.ledger.repeated().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_new_unit_warns_of_one_that_was_made_under_another_host_name() {
    let scene = Scene::new(1);
    let theirs = json!({"id": "unitelsewhere_d_c1..0", "LeaseToken": "0", "Owner": null});
    scene.leases.restore(vec![theirs]);
    let processor = scene.host("a").build_raw(scene.noting("a")).unwrap();
    let mut events = processor.events();
    let running = processor.start().await.unwrap();
    let prefix = next(&mut events, |event| match event {
        Event::SiblingUnit { prefix } => Some(prefix),
        _ => None,
    });
    assert_eq!(prefix.await, "unitelsewhere_d_c1");
    running.stop(GRACE).await;
}
