//! What a region lacks is counted and dated the same by whoever writes: one that has just taken over, or has just been started.

use orrery_node::Clock;
use orrery_node::geo::progress::Lag;

use super::*;

/// Regions whose clocks go with the test's time.
async fn start_with(regions: &Regions, clock: &Arc<ManualClock>) -> Arc<Fleet> {
    let parts = [WEST, NORTH, ASIA].iter().zip(&regions.stores);
    let parts = parts.map(|(name, store)| RegionParts {
        name: (*name).to_owned(),
        store: Arc::clone(store),
        clock: Arc::clone(clock) as Arc<dyn Clock>,
    });
    let mut settings = settings();
    settings.account.consistency = Consistency::BoundedStaleness;
    settings.account.staleness = tight(100, Duration::from_secs(60));
    let keeper: Arc<dyn TopologyKeeper> = regions.keeper.clone();
    Fleet::start(settings, parts.collect(), keeper).await.unwrap()
}

async fn pass(clock: &ManualClock, time: Duration) {
    clock.advance_ms(time.as_millis() as u64);
    tokio::time::advance(time).await;
}

/// What ASIA lacks of the only partition.
fn lag_of_asia(fleet: &Fleet) -> Lag {
    let infos = fleet.regions();
    let asia = infos.into_iter().find(|region| region.name == ASIA).unwrap();
    asia.partitions[0].lag
}

#[tokio::test(start_paused = true)]
async fn neither_a_failover_nor_a_restart_makes_a_region_less_behind() {
    let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
    let mut regions = Regions::new().await;
    regions.fleet = start_with(&regions, &clock).await;
    regions.with_container().await;
    regions.all_equal().await;
    for from in [WEST, NORTH] {
        regions.fleet.set_link(from, ASIA, cut()).unwrap();
    }
    fill(&regions.writer(), 0..4).await;
    until(|| async { contents(&regions.at(NORTH)).await.len() == 4 }).await;
    pass(&clock, Duration::from_secs(40)).await;
    assert_eq!(lag_of_asia(&regions.fleet).transactions, 4);

    regions.fleet.clone().take_offline(WEST).await.unwrap();
    assert_eq!(regions.fleet.topology().writer().name, NORTH);
    // Four writes and the beginning of an epoch.
    until(|| async { lag_of_asia(&regions.fleet).transactions == 5 }).await;
    until(|| async { lag_of_asia(&regions.fleet).age.as_secs() >= 40 }).await;
    assert_eq!(code(regions.writer().create("k", r#"{"id":"x","pk":"k"}"#).await), 201);
    pass(&clock, Duration::from_secs(15)).await;

    // In memory nothing but the fleet ends: the stores stay as they are.
    regions.fleet = start_with(&regions, &clock).await;
    regions.fleet.set_link(NORTH, ASIA, cut()).unwrap();
    until(|| async { lag_of_asia(&regions.fleet).transactions == 6 }).await;
    until(|| async { lag_of_asia(&regions.fleet).age.as_secs() >= 55 }).await;
    pass(&clock, Duration::from_secs(10)).await;
    let refused = regions.writer().create("k", r#"{"id":"y","pk":"k"}"#).await;
    assert_eq!(refused.unwrap_err().error.status(), Status::REPLICATION_QUEUE_FULL);
    regions.fleet.set_link(NORTH, ASIA, LinkSettings::default()).unwrap();
    until(|| async { lag_of_asia(&regions.fleet) == Lag::default() }).await;
    assert_eq!(code(regions.writer().create("k", r#"{"id":"y","pk":"k"}"#).await), 201);
}

#[tokio::test(start_paused = true)]
async fn answers_tell_what_every_region_has_and_since_when_the_region_has_its_role() {
    let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
    let mut regions = Regions::new().await;
    regions.fleet = start_with(&regions, &clock).await;
    regions.with_container().await;
    regions.all_equal().await;
    fill(&regions.writer(), 0..1).await;
    let facts = async |name: &str| {
        let reply = regions.at(name).read(&document(0).0, "0").await.unwrap();
        reply.facts.partition.unwrap()
    };
    until(|| async { facts(WEST).await.committed == Some(facts(WEST).await.lsn) }).await;
    let everywhere = facts(WEST).await.lsn;
    until(|| async { facts(ASIA).await.committed == Some(everywhere) }).await;
    regions.fleet.set_link(WEST, ASIA, paused()).unwrap();
    fill(&regions.writer(), 1..3).await;
    until(|| async { facts(NORTH).await.lsn.0 == everywhere.0 + 2 }).await;
    for name in [WEST, NORTH, ASIA] {
        assert_eq!(facts(name).await.committed, Some(everywhere), "{name}");
    }
    regions.fleet.set_link(WEST, ASIA, LinkSettings::default()).unwrap();
    until(|| async { facts(WEST).await.committed == Some(facts(WEST).await.lsn) }).await;

    let before = facts(ASIA).await.since;
    pass(&clock, Duration::from_secs(5)).await;
    regions.fleet.clone().change_writer(NORTH).await.unwrap();
    let changed = Timestamp(before.0 + 5000);
    assert_eq!((facts(NORTH).await.since, facts(WEST).await.since), (changed, changed));
    assert_eq!(facts(ASIA).await.since, before, "it follows as it did");
}
