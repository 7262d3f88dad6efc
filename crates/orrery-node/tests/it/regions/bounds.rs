//! Bounded staleness: what a region that is too far behind answers, and which bounds an account may have.

use orrery_model::IndexingDirective;
use orrery_node::api::{ItemOperation, ItemSelector, MetadataVerb, Operation};
use orrery_node::geo::membership::Sites;
use orrery_node::geo::topology::Region;
use orrery_partition::storage::BoxFuture;

use super::*;

const BOUND: Duration = Duration::from_secs(8);

impl Regions {
    /// With a bound by time, and none by number that matters.
    async fn bounded() -> Regions {
        let mut regions = Regions::with(Consistency::BoundedStaleness).await;
        let parts = [WEST, NORTH, ASIA].iter().zip(&regions.stores);
        let parts = parts.map(|(name, store)| RegionParts {
            name: (*name).to_owned(),
            store: Arc::clone(store),
            clock: Arc::new(ManualClock::at(Timestamp(1_700_000_000_000))),
        });
        let mut settings = settings();
        settings.account.consistency = Consistency::BoundedStaleness;
        settings.account.staleness = tight(1000, BOUND);
        let keeper: Arc<dyn TopologyKeeper> = regions.keeper.clone();
        regions.fleet = Fleet::start(settings, parts.collect(), keeper).await.unwrap();
        regions
    }
}

/// Reads an item at a level, or at the account's.
async fn read_at(world: &World, n: usize, level: Option<Consistency>) -> u16 {
    let key = document(n).0;
    let operation = Operation::Item(ItemOperation {
        container: crate::support::container(),
        partition_key: Some(orrery_model::PartitionKey::parse(&format!("[{key:?}]")).unwrap()),
        precondition: orrery_model::etag::Precondition::None,
        directive: IndexingDirective::Default,
        verb: ItemVerb::Read {
            item: ItemSelector::Id(n.to_string()),
        },
    });
    let options = Options {
        consistency: level,
        ..Options::default()
    };
    let request = Request {
        principal: Principal::Account { read_only: false },
        options,
        operation,
    };
    code(world.node.execute(request).await)
}

#[tokio::test(start_paused = true)]
async fn a_region_answers_no_reads_that_may_lack_more_than_the_bound_until_it_has_caught_up() {
    let regions = Regions::bounded().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..3).await;
    regions.all_equal().await;
    regions.fleet.set_link(WEST, ASIA, cut()).unwrap();
    fill(&regions.writer(), 3..5).await;
    let asia = regions.at(ASIA);
    tokio::time::sleep(BOUND / 2).await;
    assert_eq!(read_at(&asia, 0, None).await, 200);
    assert_eq!(read_at(&asia, 3, None).await, 404, "so much may be missing");
    tokio::time::sleep(BOUND).await;
    for n in [0, 3] {
        assert_eq!(read_at(&asia, n, None).await, 503);
        assert_eq!(read_at(&asia, n, Some(Consistency::BoundedStaleness)).await, 503);
    }
    assert_eq!(
        read_at(&asia, 0, Some(Consistency::Session)).await,
        200,
        "who asks for less gets what there is"
    );
    let feed = asia.query("SELECT * FROM c").await.unwrap_err();
    assert_eq!(feed.error.status(), Status::UNAVAILABLE);
    let listed = MetadataVerb::List {
        page: orrery_node::api::Page::default(),
    };
    let listed = asia.metadata(ResourceKind::Database, vec![], listed).await;
    assert_eq!(code(listed), 503, "nor does it know what exists");
    assert_eq!(read_at(&regions.at(NORTH), 3, None).await, 200);
    assert_eq!(read_at(&regions.writer(), 3, None).await, 200);
    regions.fleet.set_link(WEST, ASIA, LinkSettings::default()).unwrap();
    until(|| async { read_at(&asia, 4, None).await == 200 }).await;
}

#[tokio::test(start_paused = true)]
async fn a_region_that_cannot_ask_does_not_guess() {
    let regions = Regions::bounded().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..1).await;
    regions.all_equal().await;
    // Everything arrives, and nobody can tell the region so.
    regions.fleet.set_link(ASIA, WEST, cut()).unwrap();
    tokio::time::sleep(BOUND * 2).await;
    assert_eq!(read_at(&regions.at(ASIA), 0, None).await, 503);
    regions.fleet.set_link(ASIA, WEST, LinkSettings::default()).unwrap();
    until(|| async { read_at(&regions.at(ASIA), 0, None).await == 200 }).await;
}

#[tokio::test(start_paused = true)]
async fn idle_regions_stay_fresh_and_failovers_keep_them_so() {
    let regions = Regions::bounded().await;
    regions.with_container().await;
    regions.set_links(&LinkSettings {
        latency: Duration::from_millis(100),
        ..LinkSettings::default()
    });
    fill(&regions.writer(), 0..1).await;
    regions.all_equal().await;
    let all_read = async || {
        for name in [WEST, NORTH, ASIA] {
            assert_eq!(read_at(&regions.at(name), 0, None).await, 200, "{name}");
        }
    };
    tokio::time::sleep(BOUND * 10).await;
    all_read().await;
    regions.fleet.clone().change_writer(NORTH).await.unwrap();
    all_read().await;
    tokio::time::sleep(BOUND * 2).await;
    all_read().await;
    regions.writer().node.split("db", "c", 0).await.unwrap();
    until(|| async { regions.at(ASIA).node.partitions(None).unwrap().len() == 2 }).await;
    all_read().await;
    tokio::time::sleep(BOUND * 2).await;
    all_read().await;
}

/// No room for anybody.
#[derive(Debug)]
struct Nowhere;

impl Sites for Nowhere {
    fn prepare<'a>(&'a self, region: &'a Region) -> BoxFuture<'a, orrery_model::Result<RegionParts>> {
        panic!("{} must be refused before it is given room", region.name);
    }

    fn release<'a>(&'a self, _region: &'a Region) -> BoxFuture<'a, orrery_model::Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn a_second_region_is_refused_while_the_bounds_are_those_of_one() {
    let mut settings = settings();
    settings.account.consistency = Consistency::BoundedStaleness;
    settings.account.staleness = Staleness {
        may_be_tight: false,
        ..tight(10, Duration::from_secs(5))
    };
    let parts = |names: &[&str]| -> Vec<RegionParts> {
        let part = |name: &&str| RegionParts {
            name: (*name).to_owned(),
            store: MemoryStore::new(),
            clock: Arc::new(ManualClock::at(Timestamp(1_700_000_000_000))),
        };
        names.iter().map(part).collect()
    };
    let keeper = || Arc::new(InMemory::default());
    let refused = Fleet::start(settings.clone(), parts(&[WEST, NORTH]), keeper()).await;
    assert_eq!(refused.unwrap_err().status().code, 400);
    let fleet = Fleet::start(settings, parts(&[WEST]), keeper()).await.unwrap();
    fleet.settle(Arc::new(Nowhere));
    let refused = fleet.clone().add_region(NORTH).await.unwrap_err();
    assert_eq!(refused.status().code, 400);
    assert!(
        refused.message().contains("100000 transactions"),
        "{}",
        refused.message()
    );
    assert_eq!(fleet.topology().present().count(), 1, "nothing has begun");
}
