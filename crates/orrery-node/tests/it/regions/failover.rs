//! What a failover costs and what becomes of what it cuts off, regions that cannot be reached, and failovers that fail.

use std::time::Instant;

use orrery_model::json::{self, Value};
use orrery_node::api::{
    ChangeFeedRead, FeedMode, FeedStart, FeedTarget, FromHistory, ItemSelector, MetadataVerb, Operation, Outcome, Page,
};
use orrery_node::geo::fleet::Outage;

use super::*;
use crate::support::body_of;

/// The conflicts of the container as a region shows them.
pub async fn conflicts(world: &World) -> Vec<Value> {
    let list = MetadataVerb::List {
        page: Page {
            n_items_max: Some(1000),
            ..Page::default()
        },
    };
    let path = vec![named("db"), named("c")];
    let reply = world.metadata(ResourceKind::Conflict, path, list).await.unwrap();
    let Outcome::Feed(feed) = reply.outcome else {
        panic!("a feed: {reply:?}");
    };
    let entries = feed.entries.iter();
    entries.map(|entry| json::parse_value(entry).unwrap()).collect()
}

pub fn text<'a>(conflict: &'a Value, name: &str) -> &'a str {
    conflict.get(name).and_then(Value::as_str).unwrap()
}

#[tokio::test]
async fn what_a_forced_failover_cut_off_is_in_the_conflict_feed_of_every_region() {
    let regions = Regions::new().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..10).await;
    regions.all_equal().await;
    regions.set_links(&cut());
    let west = regions.writer();
    fill(&west, 10..13).await;
    let verb = ItemVerb::Delete {
        item: ItemSelector::Id("0".to_owned()),
    };
    west.item("k0", verb).await.unwrap();
    let (key, body) = (document(1).0, r#"{"id":"1","pk":"k1","n":-1}"#);
    let verb = ItemVerb::Upsert {
        body: crate::support::item(body),
    };
    west.item(&key, verb).await.unwrap();
    let loss = regions.fleet.clone().take_offline(WEST).await.unwrap();
    assert_eq!(loss.transactions.values().sum::<u64>(), 5);
    assert!(conflicts(&regions.writer()).await.is_empty(), "nobody knows them yet");
    regions.set_links(&LinkSettings::default());
    fill(&regions.writer(), 20..30).await;
    regions.fleet.clone().take_online(WEST).await.unwrap();
    let kept = conflicts(&regions.writer()).await;
    let kinds: Vec<&str> = kept.iter().map(|conflict| text(conflict, "operationType")).collect();
    assert_eq!(kinds, ["create", "create", "create", "delete", "replace"]);
    let lost = json::parse_value(text(&kept[4], "content").as_bytes()).unwrap();
    assert_eq!(lost.get("n").and_then(Value::as_number).unwrap().as_i64(), Some(-1));
    assert!(kept.iter().all(|conflict| text(conflict, "region") == WEST));
    for name in [WEST, ASIA] {
        until(|| async { conflicts(&regions.at(name)).await.len() == 5 }).await;
    }
    regions.all_equal().await;
    let first = named(text(&kept[0], "id"));
    let path = vec![named("db"), named("c")];
    let delete = MetadataVerb::Delete {
        target: first,
        precondition: orrery_model::etag::Precondition::None,
    };
    regions
        .writer()
        .metadata(ResourceKind::Conflict, path, delete)
        .await
        .unwrap();
    assert_eq!(conflicts(&regions.writer()).await.len(), 4);
}

#[tokio::test]
async fn a_region_that_was_out_and_ahead_of_the_heir_gives_up_what_it_has_as_conflicts() {
    let regions = Regions::new().await;
    regions.with_container().await;
    regions.fleet.set_link(WEST, NORTH, cut()).unwrap();
    fill(&regions.writer(), 0..4).await;
    until(|| async { contents(&regions.at(ASIA)).await.len() == 4 }).await;
    regions.fleet.clone().take_offline(ASIA).await.unwrap();
    regions.fleet.clone().take_offline(WEST).await.unwrap();
    assert_eq!(regions.fleet.topology().writer().name, NORTH);
    assert!(contents(&regions.writer()).await.is_empty());
    regions.fleet.set_link(WEST, NORTH, LinkSettings::default()).unwrap();
    regions.fleet.clone().take_online(ASIA).await.unwrap();
    assert_eq!(conflicts(&regions.writer()).await.len(), 4);
    // The same writes are in the old writer as well, and are kept once.
    regions.fleet.clone().take_online(WEST).await.unwrap();
    assert_eq!(conflicts(&regions.writer()).await.len(), 4);
    regions.all_equal().await;
}

#[tokio::test(start_paused = true)]
async fn strong_writes_go_on_without_a_minority_which_answers_no_strong_reads_until_it_is_back() {
    let regions = Regions::with(Consistency::Strong).await;
    regions.with_container().await;
    fill(&regions.writer(), 0..3).await;
    regions.fleet.set_link(WEST, ASIA, cut()).unwrap();
    let (key, body) = document(3);
    assert_eq!(code(regions.writer().create(&key, &body).await), 201);
    assert_eq!(code(regions.at(NORTH).read(&key, "3").await), 200);
    assert_eq!(code(regions.at(ASIA).read(&document(0).0, "0").await), 503);
    let relaxed_to = |consistency| Options {
        consistency: Some(consistency),
        ..Options::default()
    };
    let bounded = read_with(&regions.at(ASIA), relaxed_to(Consistency::BoundedStaleness), 0).await;
    assert_eq!(code(bounded), 503, "nobody knows how old it is");
    assert_eq!(
        code(read_with(&regions.at(ASIA), relaxed_to(Consistency::Eventual), 0).await),
        200
    );
    let left_out = |regions: &Regions| {
        let infos = regions.fleet.regions();
        infos.iter().filter(|region| region.left_out).count()
    };
    assert_eq!(left_out(&regions), 1);
    regions.fleet.set_link(WEST, ASIA, LinkSettings::default()).unwrap();
    until(|| async { code(regions.at(ASIA).read(&key, "3").await) == 200 }).await;
    assert_eq!(left_out(&regions), 0);
}

#[tokio::test(start_paused = true)]
async fn strong_writes_wait_when_more_than_a_minority_is_missing() {
    let regions = Regions::with(Consistency::Strong).await;
    regions.with_container().await;
    for to in [NORTH, ASIA] {
        regions.fleet.set_link(WEST, to, cut()).unwrap();
    }
    let (key, body) = document(0);
    assert_eq!(code(regions.writer().create(&key, &body).await), 408);
}

#[tokio::test(start_paused = true)]
async fn strong_writes_wait_for_a_region_that_was_left_out_once_another_one_goes() {
    let regions = Regions::with(Consistency::Strong).await;
    regions.with_container().await;
    fill(&regions.writer(), 0..3).await;
    regions.fleet.set_link(WEST, ASIA, cut()).unwrap();
    let (key, body) = document(3);
    assert_eq!(code(regions.writer().create(&key, &body).await), 201);
    regions.fleet.clone().take_offline(NORTH).await.unwrap();
    let (key, body) = document(4);
    assert_eq!(
        code(regions.writer().create(&key, &body).await),
        408,
        "nobody else has it"
    );
    // The only other region lacks what was acknowledged.
    let refused = regions.fleet.clone().take_offline(WEST).await.unwrap_err();
    assert_eq!(refused.status(), Status::PRECONDITION_FAILED, "{refused:?}");
    assert_eq!(regions.fleet.topology().writer().name, WEST);
    // It goes on as before, and all is well when the region that was left out has caught up.
    regions.fleet.set_link(WEST, ASIA, LinkSettings::default()).unwrap();
    until(|| async { code(regions.at(ASIA).read(&document(3).0, "3").await) == 200 }).await;
    let (key, body) = document(5);
    assert_eq!(code(regions.writer().create(&key, &body).await), 201);
    regions.fleet.clone().take_offline(WEST).await.unwrap();
    assert_eq!(code(regions.writer().read(&key, "5").await), 200);
}

#[tokio::test(start_paused = true)]
async fn strong_writes_are_lost_only_by_who_says_so() {
    let regions = Regions::with(Consistency::Strong).await;
    regions.with_container().await;
    fill(&regions.writer(), 0..3).await;
    regions.fleet.set_link(WEST, ASIA, cut()).unwrap();
    fill(&regions.writer(), 3..5).await;
    regions.fleet.clone().take_offline(NORTH).await.unwrap();
    regions.fleet.clone().take_offline(WEST).await.unwrap_err();
    let loss = regions.fleet.clone().give_up(WEST).await.unwrap();
    assert!(loss.transactions.values().sum::<u64>() >= 2, "{loss:?}");
    assert_eq!(contents(&regions.writer()).await.len(), 3);
}

#[tokio::test]
async fn what_was_lost_and_what_is_made_next_have_different_ids() {
    let regions = Regions::new().await;
    regions.with_container().await;
    regions.all_equal().await;
    regions.set_links(&cut());
    let rid_of = async |world: &World, name: &str| {
        let made = world.create_container(name, "").await.unwrap();
        body_of(made).get("_rid").and_then(Value::as_str).unwrap().to_owned()
    };
    let lost = rid_of(&regions.writer(), "secret").await;
    regions.fleet.clone().take_offline(WEST).await.unwrap();
    let made = rid_of(&regions.writer(), "payroll").await;
    assert_ne!(lost, made);
    let database = async |world: &World| {
        world.create_database("later").await;
        rid_of(world, "again").await
    };
    assert_ne!(database(&regions.writer()).await, lost);
}

#[tokio::test(start_paused = true)]
async fn another_region_takes_over_by_itself_when_that_is_wished_and_a_majority_is_left() {
    let regions = Regions::new().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..3).await;
    regions.all_equal().await;
    regions.fleet.set_outage(WEST, Some(Outage::Unavailable)).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(regions.fleet.topology().writer().name, WEST, "nobody wished it");
    regions.fleet.set_managed_failover(Some(Duration::from_secs(5)));
    until(|| async { regions.fleet.topology().writer().name == NORTH }).await;
    fill(&regions.writer(), 3..6).await;
    // Two regions are left: neither can tell which of them is cut off.
    regions.fleet.set_outage(NORTH, Some(Outage::Hanging)).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(regions.fleet.topology().writer().name, NORTH);
}

#[tokio::test]
async fn a_planned_change_is_refused_to_a_region_that_does_not_serve_or_is_not_in_touch() {
    let regions = Regions::new().await;
    regions.with_container().await;
    for outage in [Outage::Unavailable, Outage::Hanging, Outage::Refusing] {
        regions.fleet.set_outage(NORTH, Some(outage)).unwrap();
        let refused = regions.fleet.clone().change_writer(NORTH).await.unwrap_err();
        assert_eq!(refused.status(), Status::PRECONDITION_FAILED, "{outage:?}");
    }
    let slow = Outage::Slow(Duration::from_millis(1));
    regions.fleet.set_outage(NORTH, Some(slow)).unwrap();
    for (from, to) in [(WEST, NORTH), (NORTH, WEST)] {
        regions.fleet.set_link(from, to, cut()).unwrap();
        let refused = regions.fleet.clone().change_writer(NORTH).await.unwrap_err();
        assert_eq!(refused.status(), Status::PRECONDITION_FAILED, "from {from} to {to}");
        regions.fleet.set_link(from, to, LinkSettings::default()).unwrap();
    }
    // Away from one that nobody reaches it goes, and that is what it is for.
    regions.fleet.set_outage(WEST, Some(Outage::Hanging)).unwrap();
    regions.fleet.clone().change_writer(NORTH).await.unwrap();
    assert_eq!(regions.fleet.topology().writer().name, NORTH);
}

#[tokio::test]
async fn a_session_that_waits_for_what_a_forced_failover_loses_is_told_that_it_is_superseded() {
    let regions = Regions::new().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..1).await;
    regions.all_equal().await;
    regions.set_links(&cut());
    let seen = fill(&regions.writer(), 1..2).await;
    let north = regions.at(NORTH);
    let options = Options {
        session: Some(seen.clone()),
        ..Options::default()
    };
    let (read, lost) = tokio::join!(read_with(&north, options, 0), regions.fleet.clone().take_offline(WEST));
    lost.unwrap();
    let shown = read.unwrap().facts.partition.unwrap();
    let shown = shown.session().get(shown.partition).unwrap();
    let seen = seen.get(orrery_model::PartitionId(0)).unwrap();
    assert!(shown.version > seen.version, "{shown:?} says less than {seen:?}");
}

#[tokio::test]
async fn a_change_of_the_write_region_that_fails_leaves_everything_as_it_was() {
    let regions = Regions::new().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..5).await;
    regions.all_equal().await;
    // Its disk goes away at the last moment.
    regions.stores[1].close().await.unwrap();
    regions.fleet.clone().change_writer(NORTH).await.unwrap_err();
    assert_eq!(regions.fleet.topology().writer().name, WEST);
    assert_eq!(regions.keeper.load().unwrap().unwrap().writer().name, WEST);
    fill(&regions.writer(), 5..10).await;
    until(|| async { contents(&regions.at(ASIA)).await.len() == 10 }).await;
    regions.fleet.clone().change_writer(ASIA).await.unwrap();
    fill(&regions.writer(), 10..12).await;
}

#[tokio::test]
async fn a_strong_change_feed_shows_nothing_that_is_not_in_every_region() {
    let regions = Arc::new(Regions::with(Consistency::Strong).await);
    regions.with_container().await;
    regions.fleet.set_link(WEST, ASIA, paused()).unwrap();
    let writing = tokio::spawn({
        let regions = Arc::clone(&regions);
        async move { code(regions.writer().create("k0", r#"{"id":"0","pk":"k0"}"#).await) }
    });
    // It is in the log of the region that writes, and in the one that is close.
    until(|| async { regions.fleet.regions().iter().any(|region| region.lag.transactions > 0) }).await;
    let reading = tokio::spawn({
        let regions = Arc::clone(&regions);
        async move { n_changes(&regions.at(WEST)).await }
    });
    tokio::task::yield_now().await;
    assert!(!reading.is_finished() && !writing.is_finished());
    regions.fleet.set_link(WEST, ASIA, LinkSettings::default()).unwrap();
    assert_eq!(writing.await.unwrap(), 201);
    assert_eq!(reading.await.unwrap(), 1);
}

#[tokio::test]
async fn a_reader_of_committed_changes_sees_nothing_that_a_lost_region_could_take_along() {
    let regions = Arc::new(Regions::new().await);
    regions.with_container().await;
    regions.all_equal().await;
    regions.fleet.set_link(WEST, ASIA, paused()).unwrap();
    fill(&regions.writer(), 0..1).await;
    until(|| async { n_changes(&regions.at(NORTH)).await == 1 }).await;
    // Whoever reads now and goes on elsewhere must not have passed over anything.
    let committed = |wait_ms| ChangeFeedRead {
        committed_only: true,
        wait_ms,
        ..from_the_beginning()
    };
    for region in [WEST, NORTH] {
        assert_eq!(
            n_read(&regions.at(region), committed(0)).await,
            0,
            "{region}: one region lacks it"
        );
    }
    let waiting = [WEST, NORTH].map(|region| {
        let (world, read) = (regions.at(region), committed(30_000));
        tokio::spawn(async move { n_read(&world, read).await })
    });
    fill(&regions.writer(), 1..2).await;
    tokio::task::yield_now().await;
    assert!(waiting.iter().all(|reader| !reader.is_finished()));
    regions.fleet.set_link(WEST, ASIA, LinkSettings::default()).unwrap();
    for reader in waiting {
        assert!(reader.await.unwrap() > 0, "told as soon as all have it");
    }
    until(|| async { n_read(&regions.at(ASIA), committed(0)).await == 2 }).await;
}

async fn n_changes(world: &World) -> usize {
    n_read(world, from_the_beginning()).await
}

fn from_the_beginning() -> ChangeFeedRead {
    ChangeFeedRead {
        container: crate::support::container(),
        target: FeedTarget::default(),
        mode: FeedMode::LatestVersions,
        start: FeedStart::Beginning,
        newer_than: None,
        n_items_max: None,
        filter: None,
        wait_ms: 0,
        from_history: FromHistory::No,
        facts_only: false,
        committed_only: false,
        lasting_tag: true,
    }
}

async fn n_read(world: &World, read: ChangeFeedRead) -> usize {
    match world.execute(Operation::ChangeFeed(read)).await.unwrap().outcome {
        Outcome::Changes(page) => page.changes.len(),
        _ => 0,
    }
}

/// What a token says of the container's only partition.
fn seen(session: &SessionToken) -> (i64, u64) {
    let seen = session.get(orrery_model::PartitionId(0)).unwrap();
    (seen.version, seen.lsn.0)
}

#[tokio::test]
async fn restores_that_only_a_lost_region_knew_share_no_lsns_with_the_failover_after_them() {
    let regions = Regions::new().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..5).await;
    regions.writer().node.save_snapshot("saved").await.unwrap();
    regions.all_equal().await;
    regions.set_links(&cut());
    for _ in 0..3 {
        regions.writer().node.restore_snapshot("saved").await.unwrap();
    }
    let lost = fill(&regions.writer(), 5..20).await;
    regions.fleet.clone().take_offline(WEST).await.unwrap();
    let kept = fill(&regions.writer(), 5..6).await;
    assert!(seen(&kept) > seen(&lost), "{kept} after {lost}");
    // Whoever holds the token of a lost write reads on.
    assert_eq!(read_in_session(&regions.writer(), &lost, 4).await, (200, 0));
    regions.set_links(&LinkSettings::default());
    regions.fleet.clone().take_online(WEST).await.unwrap();
    regions.all_equal().await;
}

#[tokio::test]
async fn after_restores_the_write_region_can_still_change() {
    let regions = Regions::new().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..5).await;
    regions.writer().node.save_snapshot("saved").await.unwrap();
    for _ in 0..3 {
        regions.writer().node.restore_snapshot("saved").await.unwrap();
    }
    let before = fill(&regions.writer(), 5..10).await;
    regions.all_equal().await;
    regions.fleet.clone().change_writer(NORTH).await.unwrap();
    let after = fill(&regions.writer(), 10..15).await;
    assert!(seen(&after) > seen(&before), "{after} after {before}");
    regions.fleet.clone().take_offline(NORTH).await.unwrap();
    assert!(seen(&fill(&regions.writer(), 15..16).await) > seen(&after));
    regions.fleet.clone().take_online(NORTH).await.unwrap();
    regions.all_equal().await;
}

/// All partitions in a soak, a part of them otherwise.
fn n_partitions() -> u32 {
    if std::env::var_os("ORRERY_SOAK").is_some() {
        500
    } else {
        100
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_partitions_change_their_write_region_in_a_second_and_fail_over_in_ten() {
    let regions = Regions::of(Consistency::Session, n_partitions()).await;
    regions.with_container().await;
    fill(&regions.writer(), 0..200).await;
    regions.all_equal().await;
    let started = Instant::now();
    regions.fleet.clone().change_writer(NORTH).await.unwrap();
    let planned = started.elapsed();
    fill(&regions.writer(), 200..210).await;
    regions.all_equal().await;
    let started = Instant::now();
    regions.fleet.clone().take_offline(NORTH).await.unwrap();
    let forced = started.elapsed();
    fill(&regions.writer(), 210..220).await;
    println!("{} partitions: planned {planned:?}, forced {forced:?}", n_partitions());
    assert!(planned < Duration::from_secs(1), "{planned:?}");
    assert!(forced < Duration::from_secs(10), "{forced:?}");
}
