//! Leases that are lost or of another time, against a real server.

use std::time::{Duration, SystemTime};

use orrery_processor::feed::{FeedSource as _, token_now};
use orrery_processor::lease::{FeedMode, Lease};
use orrery_processor::names::UnitNames;
use orrery_processor::operations::{Operations, ResetTo};
use orrery_processor::range::{EpkRange, Tiling};
use orrery_processor::reshard::Partition;
use orrery_processor::store::{ContainerLeases, LeaseStore as _};
use orrery_processor::{ProcessorBuilder, StartFrom};
use serde_json::json;

use crate::library::{Seen, builder, feed, start};
use crate::scene::{Scene, until};

const GRACE: Duration = Duration::from_secs(5);

fn of_all_versions(scene: &Scene) -> ProcessorBuilder {
    let host = builder(scene).mode(FeedMode::AllVersionsAndDeletes);
    host.start_from(StartFrom::Now)
}

fn n_seen(seen: &Seen) -> usize {
    seen.lock().unwrap().len()
}

#[tokio::test]
async fn a_lease_of_all_versions_that_was_lost_is_read_again_from_the_oldest_that_the_server_keeps() {
    let scene = Scene::new(2).await;
    let (running, seen) = start(of_all_versions(&scene)).await.unwrap();
    scene.write(10).await;
    until("every version arrives", || n_seen(&seen) == 10).await;
    running.stop(GRACE).await;
    scene.write(10).await;
    let store = ContainerLeases::new(scene.leases.clone());
    for lease in scene.stored().await.into_values() {
        store.delete(&lease.to_document(), None).await.unwrap();
    }
    let (running, seen) = start(of_all_versions(&scene)).await.unwrap();
    until("every version comes, old and new", || n_seen(&seen) == 20).await;
    running.stop(GRACE).await;
    let (running, again) = start(of_all_versions(&scene)).await.unwrap();
    scene.write_one("last".into()).await;
    until("and what comes later", || n_seen(&again) == 1).await;
    running.stop(GRACE).await;
}

#[tokio::test]
async fn a_unit_of_all_versions_is_moved_to_the_beginning_of_what_is_kept_and_to_a_time() {
    let scene = Scene::new(2).await;
    let (running, seen) = start(of_all_versions(&scene)).await.unwrap();
    scene.write(10).await;
    until("every version arrives", || n_seen(&seen) == 10).await;
    running.stop(GRACE).await;
    // The service counts in whole seconds.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let between = SystemTime::UNIX_EPOCH + now - Duration::from_secs(1);
    scene.write(4).await;
    let store = ContainerLeases::new(scene.leases.clone());
    let unit = Operations::open("unit", feed(&scene), store, GRACE).await.unwrap();
    for (to, expected) in [(StartFrom::Beginning, 14), (StartFrom::Time(between), 4)] {
        assert_eq!(unit.reset(&ResetTo::Start(to), false).await.unwrap(), 2);
        let (running, seen) = start(of_all_versions(&scene)).await.unwrap();
        until("they come again", || n_seen(&seen) == expected).await;
        running.stop(GRACE).await;
        assert_eq!(n_seen(&seen), expected, "{to:?}");
    }
}

/// A unit of one lease per partition id that stands at the end of the feed, as .NET would have left it.
async fn made_by_dotnet(scene: &Scene, with_ranges: bool) -> Vec<Partition> {
    let (feed, store) = (feed(scene), ContainerLeases::new(scene.leases.clone()));
    let names = UnitNames::new("unit", &feed.describe().await.unwrap().identity);
    let partitions = feed.named_partitions().await.unwrap();
    for Partition { range, id } in &partitions {
        let position = token_now(&feed, range, FeedMode::LatestVersion).await.unwrap();
        let id = id.as_deref().expect("the server names its partitions");
        let mut lease = json!({
            "id": names.lease(id), "version": 0, "LeaseToken": id, "Owner": null, "ContinuationToken": position.as_str(),
            "properties": {}, "timestamp": null, "Mode": "Incremental Feed",
        });
        if with_ranges {
            lease["FeedRange"] = json!({"Range": range});
        }
        store.create(&lease).await.unwrap();
    }
    store.create(&json!({"id": names.info()})).await.unwrap();
    partitions
}

/// Waits until the unit has leases that satisfy a condition.
async fn until_stored(scene: &Scene, what: &str, is_so: impl Fn(&[Lease]) -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    loop {
        let leases: Vec<Lease> = scene.stored().await.into_values().collect();
        if is_so(&leases) {
            return;
        }
        let tokens: Vec<&String> = leases.iter().map(|lease| &lease.token).collect();
        assert!(std::time::Instant::now() < deadline, "{what}: {tokens:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn are_of(leases: &[Lease], partitions: &[Partition]) -> bool {
    let mut ids: Vec<&str> = leases.iter().map(|lease| lease.token.as_str()).collect();
    let mut expected: Vec<&str> = partitions.iter().filter_map(|one| one.id.as_deref()).collect();
    ids.sort_unstable();
    expected.sort_unstable();
    ids == expected && leases.iter().all(|lease| lease.version == 0)
}

#[tokio::test]
async fn partition_leases_become_those_of_the_children_after_a_split_and_leases_of_ranges_after_a_merge() {
    let scene = Scene::new(1).await;
    scene.write(20).await;
    made_by_dotnet(&scene, true).await;
    let (running, seen) = start(builder(&scene)).await.unwrap();
    let parent = scene.partitions()[0];
    scene.split(parent);
    scene.write(20).await;
    let children = feed(&scene).named_partitions().await.unwrap();
    assert_eq!(children.len(), 2);
    until_stored(&scene, "a lease per child", |leases| are_of(leases, &children)).await;
    until("what is new arrives, once", || n_seen(&seen) == 20).await;
    let ids = scene.partitions();
    scene.merge(ids[0], ids[1]);
    let ranges: Vec<EpkRange> = children.into_iter().map(|child| child.range).collect();
    until_stored(&scene, "a lease per old range", |leases| {
        let found: Vec<EpkRange> = leases.iter().filter_map(|lease| lease.range.clone()).collect();
        leases.iter().all(|lease| lease.version == 1) && Tiling::of(&found).is_exact() && found.len() == ranges.len()
    })
    .await;
    scene.write(20).await;
    until("what is new arrives, once", || n_seen(&seen) == 40).await;
    running.stop(GRACE).await;
}

#[tokio::test]
async fn a_partition_lease_without_a_range_outlives_the_split_of_its_partition_while_all_were_stopped() {
    let scene = Scene::new(2).await;
    scene.write(20).await;
    made_by_dotnet(&scene, false).await;
    let first = scene.partitions()[0];
    scene.split(first);
    scene.write(20).await;
    let partitions = feed(&scene).named_partitions().await.unwrap();
    let (running, seen) = start(builder(&scene)).await.unwrap();
    until_stored(&scene, "a lease per partition", |leases| are_of(leases, &partitions)).await;
    until("what is new arrives, once", || n_seen(&seen) == 20).await;
    running.stop(GRACE).await;
}
