//! Regions that come and go while the account is served, and what operators are told meanwhile.

use orrery_model::IndexingDirective;
use orrery_model::Result;
use orrery_node::geo::membership::Sites;
use orrery_node::geo::topology::{Region, RegionState};
use orrery_node::meters::Reading;
use orrery_partition::storage::BoxFuture;

use super::*;

const BRAZIL: &str = "Brazil South";

/// Gives new regions stores in memory, and remembers them.
#[derive(Debug, Default)]
struct Stores(std::sync::Mutex<Vec<(String, Arc<dyn Store>)>>);

impl Stores {
    fn of(&self, name: &str) -> Option<Arc<dyn Store>> {
        let known = self.0.lock().unwrap();
        known
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, store)| Arc::clone(store))
    }
}

impl Sites for Stores {
    fn prepare<'a>(&'a self, region: &'a Region) -> BoxFuture<'a, Result<RegionParts>> {
        let store: Arc<dyn Store> = MemoryStore::new();
        self.0.lock().unwrap().push((region.name.clone(), Arc::clone(&store)));
        let parts = RegionParts {
            name: region.name.clone(),
            store,
            clock: Arc::new(ManualClock::at(Timestamp(1_700_000_000_000))),
        };
        Box::pin(async move { Ok(parts) })
    }

    fn release<'a>(&'a self, _region: &'a Region) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

impl Regions {
    fn settle(&self) -> Arc<Stores> {
        let stores = Arc::new(Stores::default());
        self.fleet.settle(stores.clone());
        stores
    }

    fn states(&self) -> Vec<(String, RegionState)> {
        let regions = self.fleet.regions();
        regions.into_iter().map(|region| (region.name, region.state)).collect()
    }
}

/// A region that has come, seen through its node.
fn world(fleet: &Fleet, name: &str, stores: &Stores) -> World {
    World {
        node: fleet.node(fleet.topology().named(name).unwrap().id),
        clock: Arc::new(ManualClock::at(Timestamp(0))),
        store: stores.of(name).unwrap(),
    }
}

fn state_of(regions: &Regions, name: &str) -> Option<RegionState> {
    let states = regions.states();
    states
        .into_iter()
        .find(|(known, _)| known == name)
        .map(|(_, state)| state)
}

/// Writes until it is told to stop; answers how many were acknowledged.
fn load(regions: &Arc<Regions>, stop: &Arc<std::sync::atomic::AtomicBool>) -> tokio::task::JoinHandle<usize> {
    let (regions, stop) = (Arc::clone(regions), Arc::clone(stop));
    tokio::spawn(async move {
        let mut n = 0;
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            let (key, body) = document(n);
            regions.writer().create(&key, &body).await.unwrap();
            n += 1;
            tokio::task::yield_now().await;
        }
        n
    })
}

#[tokio::test]
async fn a_region_added_under_load_never_serves_a_gap_and_ends_equal() {
    let regions = Arc::new(Regions::new().await);
    let stores = regions.settle();
    regions.with_container().await;
    fill(&regions.writer(), 100_000..100_200).await;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let load = load(&regions, &stop);
    regions.fleet.clone().add_region(BRAZIL).await.unwrap();
    assert_eq!(state_of(&regions, BRAZIL), Some(RegionState::Online));
    assert!(regions.writer().node.account().regions.contains(&BRAZIL.to_owned()));
    let brazil = world(&regions.fleet, BRAZIL, &stores);
    // A prefix of what was written, one after the other: whoever lacks n has nothing after n.
    let seen: std::collections::BTreeSet<usize> = brazil
        .all(1000)
        .await
        .iter()
        .map(|item| item.get("id").unwrap().as_str().unwrap().parse().unwrap())
        .filter(|n| *n < 100_000)
        .collect();
    assert!(seen.iter().copied().eq(0..seen.len()), "a gap");
    assert!(contents(&brazil).await.len() >= 200);
    regions.writer().node.split("db", "c", 0).await.unwrap();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let n_acknowledged = load.await.unwrap();
    let wanted = contents(&regions.writer()).await;
    assert_eq!(wanted.len(), n_acknowledged + 200);
    until(|| async { contents(&brazil).await == wanted }).await;
    regions.all_equal_but(BRAZIL).await;
}

impl Regions {
    async fn all_equal_but(&self, left_out: &str) {
        let wanted = contents(&self.writer()).await;
        for region in self.fleet.topology().online().filter(|region| region.name != left_out) {
            until(|| async { contents(&self.at(&region.name)).await == wanted }).await;
        }
    }
}

#[tokio::test]
async fn a_region_that_was_added_can_take_over_and_the_first_one_can_leave() {
    let regions = Regions::new().await;
    let stores = regions.settle();
    regions.with_container().await;
    fill(&regions.writer(), 0..20).await;
    regions.fleet.clone().add_region(BRAZIL).await.unwrap();
    regions.fleet.clone().change_writer(BRAZIL).await.unwrap();
    let brazil = world(&regions.fleet, BRAZIL, &stores);
    fill(&brazil, 20..30).await;
    regions.fleet.clone().remove_region(WEST, Duration::ZERO).await.unwrap();
    assert_eq!(state_of(&regions, WEST), None);
    assert_eq!(regions.fleet.writer().account().regions, [BRAZIL, NORTH, ASIA]);
    assert!(
        regions.stores[0].list().unwrap().is_empty(),
        "nothing is left of its data"
    );
    fill(&brazil, 30..40).await;
    until(|| async { contents(&regions.at(ASIA)).await.len() == 40 }).await;
    // It comes back with the number it had.
    regions.fleet.clone().add_region("west us").await.unwrap();
    assert_eq!(regions.fleet.topology().named(WEST).unwrap().id.0, 0);
    assert_eq!(contents(&world(&regions.fleet, WEST, &stores)).await.len(), 40);
}

/// The version in a token about the container's only partition.
fn version(session: &SessionToken) -> i64 {
    session.get(orrery_model::PartitionId(0)).unwrap().version
}

#[tokio::test]
async fn the_version_of_session_tokens_rises_when_a_region_comes_and_when_one_goes() {
    let regions = Regions::new().await;
    let stores = regions.settle();
    regions.with_container().await;
    let before = fill(&regions.writer(), 0..5).await;
    regions.fleet.clone().add_region(BRAZIL).await.unwrap();
    let with_brazil = fill(&regions.writer(), 5..10).await;
    assert_eq!(version(&with_brazil), version(&before) + 1);
    let brazil = world(&regions.fleet, BRAZIL, &stores);
    // Every region takes both tokens once it has what they stand for, and no region before.
    for (session, n) in [(&before, 4), (&with_brazil, 9)] {
        until(|| async { read_in_session(&brazil, session, n).await == (200, 0) }).await;
    }
    regions.fleet.set_link(WEST, ASIA, cut()).unwrap();
    regions
        .fleet
        .clone()
        .remove_region(BRAZIL, Duration::ZERO)
        .await
        .unwrap();
    let without_brazil = fill(&regions.writer(), 10..15).await;
    assert_eq!(version(&without_brazil), version(&before) + 2);
    let behind = regions.at(ASIA);
    assert_eq!(read_in_session(&behind, &without_brazil, 14).await, (404, 1002));
    assert_eq!(read_in_session(&behind, &before, 4).await, (200, 0));
    regions.fleet.set_link(WEST, ASIA, LinkSettings::default()).unwrap();
    until(|| async { read_in_session(&behind, &without_brazil, 14).await == (200, 0) }).await;
    assert_eq!(read_in_session(&behind, &before, 4).await, (200, 0));
}

#[tokio::test]
async fn what_cannot_be_added_or_removed_is_refused_and_one_change_happens_at_a_time() {
    let regions = Arc::new(Regions::new().await);
    let refused = regions.fleet.clone().add_region(BRAZIL).await.unwrap_err();
    assert_eq!(refused.status(), Status::BAD_REQUEST, "there is no room for it");
    regions.settle();
    regions.with_container().await;
    for refused in [
        regions.fleet.clone().add_region("north-europe").await,
        regions.fleet.clone().remove_region(WEST, Duration::ZERO).await,
    ] {
        assert_eq!(refused.unwrap_err().status(), Status::BAD_REQUEST);
    }
    let draining = tokio::spawn({
        let fleet = Arc::clone(&regions.fleet);
        async move { fleet.remove_region(ASIA, Duration::from_secs(3600)).await }
    });
    until(|| async { state_of(&regions, ASIA) == Some(RegionState::Draining) }).await;
    assert!(regions.writer().node.account().regions.contains(&ASIA.to_owned()));
    let refused = regions.fleet.clone().change_writer(NORTH).await.unwrap_err();
    assert_eq!(refused.status(), Status::PRECONDITION_FAILED);
    // An outage does not wait for a region to drain.
    regions.fleet.clone().take_offline(WEST).await.unwrap();
    draining.await.unwrap().unwrap();
    assert_eq!(regions.fleet.topology().writer().name, NORTH);
    assert_eq!(state_of(&regions, ASIA), None);
}

#[tokio::test]
async fn a_region_that_cannot_be_reached_stays_seeding_until_it_is_removed() {
    let regions = Arc::new(Regions::new().await);
    let stores = regions.settle();
    regions.with_container().await;
    regions.fleet.clone().add_region(BRAZIL).await.unwrap();
    regions
        .fleet
        .clone()
        .remove_region(BRAZIL, Duration::ZERO)
        .await
        .unwrap();
    // Between two regions there is a link as soon as one of them comes.
    let adding = tokio::spawn({
        let fleet = Arc::clone(&regions.fleet);
        async move { fleet.add_region(BRAZIL).await }
    });
    until(|| async {
        let cut = regions.fleet.set_link(WEST, BRAZIL, cut()).is_ok();
        cut || adding.is_finished()
    })
    .await;
    if state_of(&regions, BRAZIL) == Some(RegionState::Seeding) {
        let refused = regions.fleet.clone().change_writer(BRAZIL).await.unwrap_err();
        assert_eq!(refused.status(), Status::PRECONDITION_FAILED);
    }
    regions
        .fleet
        .clone()
        .remove_region(BRAZIL, Duration::ZERO)
        .await
        .unwrap();
    // Added just before the link was cut, or interrupted.
    let _ = adding.await.unwrap();
    assert_eq!(state_of(&regions, BRAZIL), None);
    assert!(stores.of(BRAZIL).unwrap().list().unwrap().is_empty());
    regions.fleet.clone().change_writer(NORTH).await.unwrap();
}

#[tokio::test]
async fn operators_see_what_each_region_lacks_of_each_partition() {
    let regions = Regions::new().await;
    regions.with_container().await;
    regions.all_equal().await;
    regions.fleet.set_link(WEST, ASIA, cut()).unwrap();
    fill(&regions.writer(), 0..7).await;
    let infos = regions.fleet.regions();
    let asia = infos.iter().find(|region| region.name == ASIA).unwrap();
    let [partition] = asia.partitions.as_slice() else {
        panic!("one partition: {asia:?}");
    };
    assert_eq!((partition.container.as_str(), partition.lag.transactions), ("c", 7));
    assert_eq!(asia.lag_total, 7);
    let measures = regions.fleet.measures();
    let of_asia = measures.iter().find(|measure| {
        measure.name == "orrery_partition_lag_transactions" && measure.labels.contains(&("region", ASIA.to_owned()))
    });
    assert_eq!(of_asia.unwrap().reading, Reading::Gauge(7));
}

#[tokio::test]
async fn a_wrong_clock_in_one_region_disturbs_neither_order_nor_the_others() {
    let regions = Regions::new().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..5).await;
    const HOUR_MS: i64 = 3_600_000;
    regions.fleet.set_clock_skew(WEST, HOUR_MS).unwrap();
    fill(&regions.writer(), 5..10).await;
    regions.fleet.clone().change_writer(NORTH).await.unwrap();
    // Its clock is right, an hour behind the last write; LSNs go on all the same.
    let session = fill(&regions.writer(), 10..15).await;
    regions.all_equal().await;
    until(|| async { read_in_session(&regions.at(WEST), &session, 14).await == (200, 0) }).await;
    assert_eq!(contents(&regions.at(WEST)).await.len(), 15);
    assert_eq!(regions.fleet.regions()[1].clock_skew_ms, HOUR_MS);
    assert!(regions.fleet.set_clock_skew("Nowhere", 1).is_err());
}

#[tokio::test]
async fn a_read_for_the_hub_only_is_refused_elsewhere() {
    let regions = Regions::new().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..1).await;
    regions.all_equal().await;
    for (name, expected) in [(WEST, (200, 0)), (NORTH, (403, 3))] {
        let operation = orrery_node::api::Operation::Item(orrery_node::api::ItemOperation {
            container: crate::support::container(),
            partition_key: Some(orrery_model::PartitionKey::parse("[\"k0\"]").unwrap()),
            precondition: orrery_model::etag::Precondition::None,
            directive: IndexingDirective::Default,
            verb: ItemVerb::Read {
                item: orrery_node::api::ItemSelector::Id("0".to_owned()),
            },
        });
        let request = Request {
            principal: Principal::Account { read_only: false },
            options: Options {
                hub_only: true,
                ..Options::default()
            },
            operation,
        };
        let answered = match regions.at(name).node.execute(request).await {
            Ok(_) => (200, 0),
            Err(failure) => (failure.error.status().code, failure.error.status().sub),
        };
        assert_eq!(answered, expected, "{name}");
    }
}
