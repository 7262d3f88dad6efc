//! Several regions of one account over in-memory stores and simulated links.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use orrery_model::{IndexingDirective, SessionToken, Status, Timestamp};
use orrery_node::api::{Consistency, ItemVerb, Options, Principal, ResourceKind};
use orrery_node::geo::bounds::{Bounds, Staleness};
use orrery_node::geo::fleet::{Fleet, InMemory, RegionParts, TopologyKeeper};
use orrery_node::geo::link::LinkSettings;
use orrery_node::{Failure, ManualClock, NodeSettings, Reply, Request};
use orrery_partition::storage::Store;
use orrery_storage::MemoryStore;

use crate::support::{World, code, create, named, settings};

const WEST: &str = "West US";
const NORTH: &str = "North Europe";
const ASIA: &str = "Southeast Asia";

mod bounds;
mod catalogue;
mod charges;
mod controls;
mod cut;
mod cut_off_steps;
mod death;
mod failover;
mod lag;
mod membership;
mod returns;
mod taking_over;

/// Three regions, their stores, and what survives a restart.
struct Regions {
    fleet: Arc<Fleet>,
    stores: Vec<Arc<dyn Store>>,
    keeper: Arc<InMemory>,
    consistency: Consistency,
}

impl Regions {
    async fn new() -> Regions {
        Regions::with(Consistency::Session).await
    }

    async fn with(consistency: Consistency) -> Regions {
        Regions::of(consistency, 1).await
    }

    /// New containers have this many partitions.
    async fn of(consistency: Consistency, partitions: u32) -> Regions {
        Regions::on(memory(), consistency, partitions).await
    }

    async fn on(stores: Vec<Arc<dyn Store>>, consistency: Consistency, partitions: u32) -> Regions {
        let keeper = Arc::new(InMemory::default());
        let fleet = start_of(&stores, &keeper, consistency, partitions).await;
        Regions {
            fleet,
            stores,
            keeper,
            consistency,
        }
    }

    fn at(&self, name: &str) -> World {
        let region = self.fleet.topology().named(name).unwrap().id;
        World {
            node: self.fleet.node(region),
            clock: Arc::new(ManualClock::at(Timestamp(0))),
            store: Arc::clone(&self.stores[region.0 as usize]),
        }
    }

    fn writer(&self) -> World {
        self.at(&self.fleet.topology().writer().name.clone())
    }

    /// A container that every region knows.
    async fn with_container(&self) {
        self.writer().with_container("").await;
        for name in [WEST, NORTH, ASIA] {
            until(|| async { code(self.at(name).read("k", "none").await) == 404 && known(&self.at(name)).await }).await;
        }
    }

    fn set_links(&self, settings: &LinkSettings) {
        for (from, to) in [
            (WEST, NORTH),
            (WEST, ASIA),
            (NORTH, WEST),
            (NORTH, ASIA),
            (ASIA, WEST),
            (ASIA, NORTH),
        ] {
            self.fleet.set_link(from, to, settings.clone()).unwrap();
        }
    }

    async fn all_equal(&self) {
        let wanted = contents(&self.writer()).await;
        for region in self.fleet.topology().online() {
            until(|| async { contents(&self.at(&region.name)).await == wanted }).await;
        }
    }
}

fn memory() -> Vec<Arc<dyn Store>> {
    (0..3).map(|_| MemoryStore::new() as Arc<dyn Store>).collect()
}

async fn start(stores: &[Arc<dyn Store>], keeper: &Arc<InMemory>, consistency: Consistency) -> Arc<Fleet> {
    start_of(stores, keeper, consistency, 1).await
}

async fn start_of(
    stores: &[Arc<dyn Store>],
    keeper: &Arc<InMemory>,
    consistency: Consistency,
    partitions: u32,
) -> Arc<Fleet> {
    let mut settings = settings();
    settings.account.consistency = consistency;
    settings.partitions = partitions;
    start_with(settings, stores, keeper.clone()).await
}

async fn start_with(
    mut settings: NodeSettings,
    stores: &[Arc<dyn Store>],
    keeper: Arc<dyn TopologyKeeper>,
) -> Arc<Fleet> {
    settings.account.staleness = tight(5, Duration::from_secs(300));
    let parts = [WEST, NORTH, ASIA].iter().zip(stores).map(|(name, store)| RegionParts {
        name: (*name).to_owned(),
        store: Arc::clone(store),
        clock: Arc::new(ManualClock::at(Timestamp(1_700_000_000_000))),
    });
    Fleet::start(settings, parts.collect(), keeper).await.unwrap()
}

/// Bounds that a test reaches.
fn tight(transactions: u64, age: Duration) -> Staleness {
    Staleness {
        chosen: Some(Bounds { transactions, age }),
        may_be_tight: true,
    }
}

/// Does the region know the container?
async fn known(world: &World) -> bool {
    world
        .node
        .partitions(Some(("db", "c")))
        .is_ok_and(|partitions| !partitions.is_empty())
}

async fn contents(world: &World) -> Vec<String> {
    let mut all: Vec<String> = world.all(1000).await.iter().map(|item| item.to_text()).collect();
    all.sort();
    all
}

/// Waits for a condition; panics if it does not come true.
async fn until<F: Future<Output = bool>>(condition: impl Fn() -> F) {
    let waited = tokio::time::timeout(Duration::from_secs(20), async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.expect("the condition comes true in time");
}

fn document(n: usize) -> (String, String) {
    let key = format!("k{}", n % 7);
    let body = format!(r#"{{"id":"{n}","pk":"{key}","n":{n}}}"#);
    (key, body)
}

async fn fill(world: &World, numbers: std::ops::Range<usize>) -> SessionToken {
    let mut session = SessionToken::default();
    for n in numbers {
        let (key, body) = document(n);
        let reply = world.create(&key, &body).await.unwrap();
        session.merge(&reply.facts.partition.unwrap().session());
    }
    session
}

async fn read_in_session(world: &World, session: &SessionToken, n: usize) -> (u16, u32) {
    let options = Options {
        session: Some(session.clone()),
        ..Options::default()
    };
    match read_with(world, options, n).await {
        Ok(_) => (200, 0),
        Err(failure) => (failure.error.status().code, failure.error.status().sub),
    }
}

async fn read_with(world: &World, options: Options, n: usize) -> Result<Reply, Failure> {
    let (key, _) = document(n);
    let operation = orrery_node::api::Operation::Item(orrery_node::api::ItemOperation {
        container: crate::support::container(),
        partition_key: Some(orrery_model::PartitionKey::parse(&format!("[{key:?}]")).unwrap()),
        precondition: orrery_model::etag::Precondition::None,
        directive: IndexingDirective::Default,
        verb: ItemVerb::Read {
            item: orrery_node::api::ItemSelector::Id(n.to_string()),
        },
    });
    let request = Request {
        principal: Principal::Account { read_only: false },
        options,
        operation,
    };
    world.node.execute(request).await
}

fn paused() -> LinkSettings {
    LinkSettings {
        paused: true,
        ..LinkSettings::default()
    }
}

fn cut() -> LinkSettings {
    LinkSettings {
        cut: true,
        ..LinkSettings::default()
    }
}

#[tokio::test]
async fn what_is_written_in_one_region_is_read_in_all() {
    let regions = Regions::new().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..100).await;
    regions.all_equal().await;
    let north = regions.at(NORTH);
    let (key, body) = document(100);
    let refused = north.create(&key, &body).await.unwrap_err();
    assert_eq!(refused.error.status(), Status::WRITE_FORBIDDEN);
    let refused = north
        .metadata(ResourceKind::Database, vec![], create(r#"{"id":"other"}"#))
        .await
        .unwrap_err();
    assert_eq!(refused.error.status(), Status::WRITE_FORBIDDEN);
}

#[tokio::test]
async fn a_session_is_never_shown_less_than_it_has_seen() {
    let regions = Regions::new().await;
    regions.with_container().await;
    regions.set_links(&paused());
    let session = fill(&regions.writer(), 0..5).await;
    assert_eq!(read_in_session(&regions.at(WEST), &session, 4).await, (200, 0));
    assert_eq!(read_in_session(&regions.at(ASIA), &session, 4).await, (404, 1002));
    regions.set_links(&LinkSettings::default());
    until(|| async { read_in_session(&regions.at(ASIA), &session, 4).await == (200, 0) }).await;
}

#[tokio::test]
async fn a_planned_change_of_the_write_region_loses_nothing_under_load() {
    let regions = Arc::new(Regions::new().await);
    regions.with_container().await;
    let load = tokio::spawn({
        let regions = Arc::clone(&regions);
        async move {
            let mut acknowledged = Vec::new();
            for n in 0..2_000 {
                let (key, body) = document(n);
                // As an SDK does: refused here, it asks who writes now and goes there.
                loop {
                    match regions.writer().create(&key, &body).await {
                        Ok(_) => break acknowledged.push(n),
                        Err(failure) => assert_eq!(failure.error.status(), Status::WRITE_FORBIDDEN),
                    }
                }
                tokio::task::yield_now().await;
            }
            acknowledged
        }
    });
    for target in [NORTH, ASIA, WEST, NORTH] {
        tokio::time::sleep(Duration::from_millis(30)).await;
        regions.fleet.clone().change_writer(target).await.unwrap();
        assert_eq!(regions.fleet.topology().writer().name, target);
        assert_eq!(regions.fleet.writer().account().regions[0], target);
    }
    let acknowledged = load.await.unwrap();
    assert_eq!(contents(&regions.writer()).await.len(), acknowledged.len());
    regions.all_equal().await;
}

#[tokio::test]
async fn a_forced_failover_reports_what_it_loses_and_the_lost_region_comes_back_equal() {
    let regions = Regions::new().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..50).await;
    regions.all_equal().await;
    regions.set_links(&cut());
    let lost_session = fill(&regions.writer(), 50..60).await;
    let before = lost_session.get(orrery_model::PartitionId(0)).unwrap();
    let loss = regions.fleet.clone().take_offline(WEST).await.unwrap();
    assert_eq!(loss.transactions.values().sum::<u64>(), 10);
    assert_eq!(regions.fleet.topology().writer().name, NORTH);
    regions.set_links(&LinkSettings::default());
    // The token of a write that was lost is superseded, and LSNs never restart lower.
    assert_eq!(read_in_session(&regions.at(NORTH), &lost_session, 1).await, (200, 0));
    let session = fill(&regions.writer(), 60..70).await;
    let after = session.get(orrery_model::PartitionId(0)).unwrap();
    assert!(after.lsn > before.lsn && after.version > before.version);
    regions.fleet.clone().take_online(WEST).await.unwrap();
    regions.all_equal().await;
    assert_eq!(contents(&regions.at(WEST)).await.len(), 60);
    let refused = regions
        .at(WEST)
        .create("k", r#"{"id":"x","pk":"k"}"#)
        .await
        .unwrap_err();
    assert_eq!(refused.error.status(), Status::WRITE_FORBIDDEN);
}

#[tokio::test(start_paused = true)]
async fn a_region_that_cannot_catch_up_stays_offline() {
    let regions = Regions::new().await;
    regions.with_container().await;
    regions.fleet.clone().take_offline(ASIA).await.unwrap();
    fill(&regions.writer(), 0..10).await;
    regions.set_links(&cut());
    let refused = regions.fleet.clone().take_online(ASIA).await.unwrap_err();
    assert_eq!(refused.status(), Status::PRECONDITION_FAILED);
    assert!(regions.fleet.topology().online().all(|region| region.name != ASIA));
    regions.set_links(&LinkSettings::default());
    regions.fleet.clone().take_online(ASIA).await.unwrap();
    assert_eq!(contents(&regions.at(ASIA)).await.len(), 10);
}

#[tokio::test]
async fn the_heir_takes_over_what_another_reader_has_before_it_writes() {
    let regions = Regions::new().await;
    regions.with_container().await;
    regions.fleet.set_link(WEST, NORTH, cut()).unwrap();
    fill(&regions.writer(), 0..20).await;
    until(|| async { contents(&regions.at(ASIA)).await.len() == 20 }).await;
    assert_eq!(contents(&regions.at(NORTH)).await.len(), 0);
    let loss = regions.fleet.clone().take_offline(WEST).await.unwrap();
    assert_eq!(regions.fleet.topology().writer().name, NORTH);
    assert!(loss.transactions.is_empty());
    assert_eq!(contents(&regions.at(NORTH)).await.len(), 20);
    regions.all_equal().await;
}

#[tokio::test]
async fn under_strong_consistency_an_acknowledged_write_is_in_every_region() {
    let regions = Arc::new(Regions::with(Consistency::Strong).await);
    regions.with_container().await;
    for n in 0..20 {
        let (key, body) = document(n);
        regions.writer().create(&key, &body).await.unwrap();
        for name in [WEST, NORTH, ASIA] {
            assert_eq!(code(regions.at(name).read(&key, &n.to_string()).await), 200);
        }
    }
    regions.fleet.set_link(WEST, ASIA, paused()).unwrap();
    let waiting = tokio::spawn({
        let regions = Arc::clone(&regions);
        async move {
            let (key, body) = document(20);
            code(regions.writer().create(&key, &body).await)
        }
    });
    // Visible in one region, and not shown before it is in all of them.
    until(|| async { regions.fleet.regions().iter().any(|region| region.lag.transactions > 0) }).await;
    assert!(!waiting.is_finished());
    regions.fleet.set_link(WEST, ASIA, LinkSettings::default()).unwrap();
    assert_eq!(waiting.await.unwrap(), 201);
}

#[tokio::test]
async fn bounded_staleness_refuses_writes_rather_than_exceed_the_bound() {
    let regions = Regions::with(Consistency::BoundedStaleness).await;
    regions.with_container().await;
    regions.all_equal().await;
    regions.fleet.set_link(WEST, ASIA, cut()).unwrap();
    let mut n_accepted = 0;
    let refused = loop {
        let (key, body) = document(n_accepted);
        match regions.writer().create(&key, &body).await {
            Ok(_) => n_accepted += 1,
            Err(failure) => break failure.error.status(),
        }
    };
    assert_eq!(refused, Status::REPLICATION_QUEUE_FULL);
    assert!(n_accepted <= 5, "{n_accepted} writes were accepted");
    regions.fleet.set_link(WEST, ASIA, LinkSettings::default()).unwrap();
    until(|| async { code(regions.writer().create("k", r#"{"id":"again","pk":"k"}"#).await) != 429 }).await;
}

#[tokio::test]
async fn splits_merges_and_deleted_containers_reach_every_region() {
    let regions = Regions::new().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..40).await;
    regions.writer().node.split("db", "c", 0).await.unwrap();
    fill(&regions.writer(), 40..60).await;
    for name in [NORTH, ASIA] {
        until(|| async { regions.at(name).node.partitions(None).unwrap().len() == 2 }).await;
    }
    regions.all_equal().await;
    regions.writer().node.merge("db", "c", (1, 2)).await.unwrap();
    fill(&regions.writer(), 60..70).await;
    regions.all_equal().await;
    let verb = orrery_node::api::MetadataVerb::Delete {
        target: named("c"),
        precondition: orrery_model::etag::Precondition::None,
    };
    regions
        .writer()
        .metadata(ResourceKind::Container, vec![named("db")], verb)
        .await
        .unwrap();
    for name in [NORTH, ASIA] {
        until(|| async { regions.at(name).node.partitions(None).unwrap().is_empty() }).await;
    }
}

#[tokio::test]
async fn after_a_restart_the_regions_have_the_roles_they_had() {
    let regions = Regions::new().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..30).await;
    regions.fleet.clone().change_writer(ASIA).await.unwrap();
    fill(&regions.writer(), 30..40).await;
    regions.all_equal().await;
    // In memory nothing but the fleet ends: the stores stay as they are.
    let Regions {
        fleet,
        stores,
        keeper,
        consistency,
    } = regions;
    drop(fleet);
    let fleet = start(&stores, &keeper, consistency).await;
    let regions = Regions {
        fleet,
        stores,
        keeper,
        consistency,
    };
    assert_eq!(regions.fleet.topology().writer().name, ASIA);
    assert_eq!(regions.writer().node.account().regions[0], ASIA);
    fill(&regions.writer(), 40..50).await;
    regions.all_equal().await;
    assert_eq!(contents(&regions.at(WEST)).await.len(), 50);
}

#[tokio::test]
async fn slow_and_lossy_links_delay_and_lose_nothing() {
    let regions = Regions::new().await;
    regions.with_container().await;
    regions.set_links(&LinkSettings {
        latency: Duration::from_millis(20),
        jitter: Duration::from_millis(10),
        loss: 0.2,
        ..LinkSettings::default()
    });
    fill(&regions.writer(), 0..300).await;
    regions.all_equal().await;
}
