//! Failovers when more goes wrong than the region that is lost: disks that hang or fail, and changes that are under way.

use std::sync::atomic::{AtomicBool, Ordering};

use orrery_model::{Error, Result};
use orrery_node::api::ItemSelector;
use orrery_node::geo::fleet::Outage;
use orrery_node::geo::topology::Topology;

use super::*;
use crate::failing::{Cut, FailingStore};

/// Keeps a topology, or refuses to.
#[derive(Debug, Default)]
struct FailingKeeper {
    inner: InMemory,
    fails: AtomicBool,
}

impl TopologyKeeper for FailingKeeper {
    fn load(&self) -> Result<Option<Topology>> {
        self.inner.load()
    }

    fn save(&self, topology: &Topology) -> Result<()> {
        match self.fails.load(Ordering::SeqCst) {
            true => Err(Error::new(Status::UNAVAILABLE, "no space left")),
            false => self.inner.save(topology),
        }
    }
}

/// Three regions, the one at `index` on a store that can fail.
async fn on_failing(index: usize, partitions: u32) -> (Regions, Arc<FailingStore>) {
    let mut stores = memory();
    let failing = FailingStore::new(Arc::clone(&stores[index]));
    stores[index] = failing.clone();
    (Regions::on(stores, Consistency::Session, partitions).await, failing)
}

#[tokio::test]
async fn a_failover_that_cannot_be_kept_leaves_the_account_as_it_was() {
    let (stores, keeper) = (memory(), Arc::new(FailingKeeper::default()));
    let regions = Regions {
        fleet: start_with(settings(), &stores, keeper.clone()).await,
        stores,
        keeper: Arc::default(),
        consistency: Consistency::Session,
    };
    regions.with_container().await;
    fill(&regions.writer(), 0..5).await;
    keeper.fails.store(true, Ordering::SeqCst);
    regions.fleet.clone().take_offline(WEST).await.unwrap_err();
    assert_eq!(regions.fleet.topology().writer().name, WEST);
    fill(&regions.writer(), 5..10).await;
    regions.all_equal().await;
    keeper.fails.store(false, Ordering::SeqCst);
    regions.fleet.clone().take_offline(WEST).await.unwrap();
    assert_eq!(contents(&regions.writer()).await.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_region_whose_disk_hangs_is_taken_over_from_and_the_loss_is_unknown() {
    let (regions, west) = on_failing(0, 1).await;
    regions.with_container().await;
    fill(&regions.writer(), 0..5).await;
    regions.all_equal().await;
    regions.set_links(&cut());
    fill(&regions.writer(), 5..8).await;
    west.hang_reads();
    let loss = regions.fleet.clone().take_offline(WEST).await.unwrap();
    assert_eq!((loss.n_transactions(), loss.uncounted.len()), (0, 1), "{loss:?}");
    let place = loss.places.values().next().unwrap();
    assert_eq!((place.database.as_str(), place.container.as_str()), ("db", "c"));
    // What it alone has is on record all the same.
    let topology = regions.fleet.topology();
    assert_eq!(topology.named(WEST).unwrap().cut_off.len(), 1);
    fill(&regions.writer(), 10..12).await;
}

#[tokio::test]
async fn a_loss_says_which_partitions_it_is_of() {
    let regions = Regions::of(Consistency::Session, 4).await;
    regions.with_container().await;
    regions.all_equal().await;
    regions.set_links(&cut());
    fill(&regions.writer(), 0..20).await;
    let loss = regions.fleet.clone().take_offline(WEST).await.unwrap();
    assert_eq!(loss.n_transactions(), 20);
    assert_eq!(loss.places.len(), loss.transactions.len());
    assert!(loss.places.len() > 1, "{loss:?}");
    let places: std::collections::BTreeSet<u32> = loss.places.values().map(|place| place.partition.0).collect();
    assert_eq!(places.len(), loss.places.len());
}

#[tokio::test]
async fn partitions_that_an_heir_cannot_open_take_writes_as_soon_as_it_can() {
    const PARTITIONS: u32 = 8;
    let (regions, north) = on_failing(1, PARTITIONS).await;
    regions.with_container().await;
    fill(&regions.writer(), 0..40).await;
    regions.all_equal().await;
    // Enough for the system log and some of the partitions, twice.
    north.fail_after(8, Cut::Before);
    let loss = regions.fleet.clone().take_offline(WEST).await.unwrap();
    assert!(
        loss.n_unopened > 0 && loss.n_unopened < u64::from(PARTITIONS),
        "{loss:?}"
    );
    assert_eq!(regions.fleet.topology().writer().name, NORTH);
    north.fail_after(i64::MAX, Cut::Before);
    for n in 100..140 {
        let (key, body) = document(n);
        until(|| async { matches!(code(regions.writer().create(&key, &body).await), 201 | 409) }).await;
    }
    until(|| async { contents(&regions.at(ASIA)).await.len() == 80 }).await;
}

#[tokio::test(start_paused = true)]
async fn a_failover_does_not_wait_for_a_planned_change_that_waits() {
    let regions = Regions::new().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..5).await;
    regions.all_equal().await;
    regions.fleet.set_link(WEST, ASIA, paused()).unwrap();
    fill(&regions.writer(), 5..6).await;
    let planned = tokio::spawn({
        let fleet = regions.fleet.clone();
        async move { fleet.change_writer(ASIA).await }
    });
    // It holds writes until the region has caught up.
    until(|| async { regions.fleet.prioritize(&[NORTH.to_owned(), ASIA.to_owned()]).is_err() }).await;
    let started = tokio::time::Instant::now();
    regions.fleet.clone().take_offline(WEST).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    let refused = planned.await.unwrap().unwrap_err();
    assert_eq!(refused.status(), Status::PRECONDITION_FAILED);
    assert_eq!(regions.fleet.topology().writer().name, NORTH);
    fill(&regions.writer(), 6..8).await;
}

#[tokio::test(start_paused = true)]
async fn a_planned_change_gives_up_when_writes_do_not_come_to_rest() {
    let regions = Regions::with(Consistency::Strong).await;
    regions.with_container().await;
    for to in [NORTH, ASIA] {
        regions.fleet.set_link(WEST, to, cut()).unwrap();
    }
    // A write that waits for regions that do not hear of it.
    let writing = tokio::spawn({
        let world = regions.writer();
        async move { code(world.create("k0", r#"{"id":"0","pk":"k0"}"#).await) }
    });
    until(|| async { regions.fleet.regions().iter().any(|region| region.lag.transactions > 0) }).await;
    let started = tokio::time::Instant::now();
    regions.fleet.clone().change_writer(NORTH).await.unwrap_err();
    assert!(started.elapsed() <= Duration::from_secs(4), "{:?}", started.elapsed());
    assert_eq!(writing.await.unwrap(), 408);
}

#[tokio::test(start_paused = true)]
async fn nobody_takes_over_by_itself_without_a_majority_that_is_up() {
    let regions = Regions::new().await;
    regions.with_container().await;
    regions.fleet.set_managed_failover(Some(Duration::from_secs(5)));
    // Two are gone: the third cannot tell whether it is not the one that is cut off.
    for gone in [WEST, ASIA] {
        regions.fleet.set_outage(gone, Some(Outage::Unavailable)).unwrap();
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(regions.fleet.topology().writer().name, WEST);
    // Both are up, and do not reach each other.
    regions.fleet.set_outage(ASIA, None).unwrap();
    regions.fleet.set_link(NORTH, ASIA, cut()).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(regions.fleet.topology().writer().name, WEST);
    regions.fleet.set_link(NORTH, ASIA, LinkSettings::default()).unwrap();
    until(|| async { regions.fleet.topology().writer().name == NORTH }).await;
}

#[tokio::test(start_paused = true)]
async fn a_region_that_cannot_write_any_more_is_taken_over_from_by_one_that_can() {
    let (regions, west) = on_failing(0, 1).await;
    regions.with_container().await;
    fill(&regions.writer(), 0..3).await;
    regions.all_equal().await;
    regions.fleet.set_managed_failover(Some(Duration::from_secs(5)));
    drop(west.cut_off());
    until(|| async { regions.fleet.topology().writer().name == NORTH }).await;
    fill(&regions.writer(), 3..6).await;
}

#[tokio::test]
async fn who_is_down_is_passed_over_when_the_write_region_is_taken_out() {
    let regions = Regions::new().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..3).await;
    regions.all_equal().await;
    regions.fleet.set_outage(NORTH, Some(Outage::Hanging)).unwrap();
    assert_eq!(regions.fleet.regions()[1].outage, Some(Outage::Hanging));
    regions.fleet.clone().take_offline(WEST).await.unwrap();
    assert_eq!(regions.fleet.topology().writer().name, ASIA);
    let read = ItemVerb::Read {
        item: ItemSelector::Id("0".to_owned()),
    };
    assert_eq!(code(regions.writer().item("k0", read).await), 200);
}

#[tokio::test]
async fn the_order_of_failover_can_be_changed() {
    let regions = Regions::new().await;
    regions.with_container().await;
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    regions.fleet.prioritize(&names(&[WEST, ASIA, NORTH])).unwrap();
    assert_eq!(regions.writer().node.account().regions, [WEST, ASIA, NORTH]);
    for wrong in [&[NORTH, WEST, ASIA][..], &[ASIA], &[]] {
        let refused = regions.fleet.prioritize(&names(wrong)).unwrap_err();
        assert_eq!(refused.status(), Status::BAD_REQUEST, "{wrong:?}");
    }
    regions.fleet.clone().take_offline(WEST).await.unwrap();
    assert_eq!(regions.fleet.topology().writer().name, ASIA);
}
