//! The library within the test's own process, against a real server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use azure_data_cosmos::models::ContainerProperties;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::StreamExt as _;
use orrery_processor::error::StartError;
use orrery_processor::feed::sdk::SdkFeed;
use orrery_processor::feed::{FeedRead, FeedSource as _, resume};
use orrery_processor::lease::FeedMode;
use orrery_processor::operations::{Operations, ResetError, ResetTo};
use orrery_processor::pull::{Cursor, Puller};
use orrery_processor::range::EpkRange;
use orrery_processor::store::{ContainerLeases, MemoryLeases};
use orrery_processor::{InstanceName, LeaseTiming, Poll, Position, Processor, ProcessorBuilder, Running, StartFrom};
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::scene::{Scene, until};

const TIMING: LeaseTiming = LeaseTiming {
    acquire: Duration::from_millis(500),
    renew: Duration::from_millis(700),
    expiry: Duration::from_millis(2500),
    lock: Duration::from_secs(5),
};

pub type Seen = Arc<Mutex<Vec<(String, Instant)>>>;

pub fn feed(scene: &Scene) -> SdkFeed {
    SdkFeed::new(&scene.client, scene.orders.clone())
}

pub fn builder(scene: &Scene) -> ProcessorBuilder {
    Processor::builder("unit")
        .monitored(&scene.client, scene.orders.clone())
        .lease_container(scene.leases.clone())
        .instance(InstanceName::new("test").unwrap())
        .start_from(StartFrom::Beginning)
        .poll(Poll::every(Duration::from_millis(100)))
        .lease_timing(TIMING)
}

pub async fn start(builder: ProcessorBuilder) -> Result<(Running, Seen), StartError> {
    let seen = Seen::default();
    let noted = Arc::clone(&seen);
    let delegate = move |batch: orrery_processor::RawBatch, _| {
        let ids = batch
            .iter()
            .map(|change| (change.id().unwrap().to_owned(), Instant::now()));
        noted.lock().unwrap().extend(ids);
        std::future::ready(Ok::<_, String>(()))
    };
    Ok((builder.build_raw(delegate).unwrap().start().await?, seen))
}

/// If this fails, the SDK has changed the layout of its resume tokens and `feed/resume.rs` has to follow.
#[tokio::test]
async fn a_resume_token_written_by_hand_is_the_one_the_sdk_writes() {
    use azure_data_cosmos::feed::FeedScope;
    use azure_data_cosmos::options::{ChangeFeedMode, ChangeFeedOptions, ChangeFeedStartFrom};
    let scene = Scene::new(1).await;
    scene.write(3).await;
    let rid = feed(&scene).describe().await.unwrap().identity.container_rid;
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_755_681_302);
    let (latest, all) = (FeedMode::LatestVersion, FeedMode::AllVersionsAndDeletes);
    for (mode, theirs, start, newer_than) in [
        (
            latest,
            ChangeFeedMode::LatestVersion,
            ChangeFeedStartFrom::Beginning,
            None,
        ),
        (
            latest,
            ChangeFeedMode::LatestVersion,
            ChangeFeedStartFrom::PointInTime(time.into()),
            Some(time),
        ),
        (
            all,
            ChangeFeedMode::AllVersionsAndDeletes,
            ChangeFeedStartFrom::Now,
            None,
        ),
    ] {
        let options = ChangeFeedOptions::default().with_mode(theirs);
        let pages = scene
            .orders
            .query_change_feed::<Value>(FeedScope::full_container(), start, Some(options))
            .await;
        let mut pages = pages.unwrap();
        let page = pages.next().await.unwrap().unwrap();
        let theirs = pages.to_continuation_token().unwrap();
        let etag: &str = page.headers().etag().unwrap().as_ref();
        let token = orrery_processor::token::FeedToken::new(etag);
        assert_eq!(
            resume::read(theirs.as_str()).unwrap(),
            [(EpkRange::full(), Some(token.clone()))]
        );
        let ours = resume::write(&rid, &EpkRange::full(), &token, newer_than, mode);
        let read = |token: &str| -> Value {
            let text = URL_SAFE_NO_PAD.decode(token.strip_prefix("c1.").unwrap()).unwrap();
            serde_json::from_slice(&text).unwrap()
        };
        let (mut ours, mut theirs) = (read(&ours), read(theirs.as_str()));
        if mode == all {
            // Ours goes back to what is kept; theirs began now. That is all they may differ in.
            ours["root"]["start_from"] = theirs["root"]["start_from"].clone();
        }
        // One moment can be written in several ways.
        for token in [&mut ours, &mut theirs] {
            if let Some(said) = token["root"]["start_from"].get_mut("value") {
                let moment = OffsetDateTime::parse(said.as_str().unwrap(), &Rfc3339).unwrap();
                *said = Value::from(moment.unix_timestamp());
            }
        }
        assert_eq!(ours, theirs, "{mode:?}");
    }
}

#[tokio::test]
async fn a_read_of_a_split_range_says_that_it_is_gone() {
    let scene = Scene::new(1).await;
    scene.write(20).await;
    let (feed, full) = (feed(&scene), EpkRange::full());
    let read = |from| FeedRead {
        items_max: Some(5),
        ..FeedRead::new(&full, from, FeedMode::LatestVersion)
    };
    let page = feed.read(read(&Position::From(StartFrom::Beginning))).await.unwrap();
    assert_eq!((page.changes.len(), page.head_lsn.is_some()), (5, true));
    let first = scene.partitions()[0];
    scene.split(first);
    let gone = feed.read(read(&Position::After(page.token))).await;
    assert!(
        matches!(gone, Err(orrery_processor::error::FeedError::Gone)),
        "{gone:?}"
    );
    assert_eq!(feed.partitions().await.unwrap().len(), 2);
}

#[tokio::test]
async fn lease_containers_are_accepted_by_their_key() {
    let scene = Scene::new(1).await;
    scene.write(5).await;
    let database = scene.client.database_client("shop");
    for (name, key, is_fine) in [("by-key", "/partitionKey", true), ("by-other", "/pk", false)] {
        database
            .create_container(ContainerProperties::new(name, key.into()), None)
            .await
            .unwrap();
        let leases = database.container_client(name, None).await.unwrap();
        match start(builder(&scene).lease_container(leases)).await {
            Ok((running, seen)) => {
                assert!(is_fine);
                until("items arrive", || seen.lock().unwrap().len() == 5).await;
                running.stop(Duration::from_secs(5)).await;
            }
            Err(error) => assert!(!is_fine && matches!(error, StartError::LeaseKeyPath(_)), "{error}"),
        }
    }
}

#[tokio::test]
async fn a_unit_starts_at_a_time() {
    let scene = Scene::new(1).await;
    scene.write_one("before".into()).await;
    // The service counts in whole seconds, and a start is exclusive.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    let time = SystemTime::UNIX_EPOCH + SystemTime::UNIX_EPOCH.elapsed().unwrap() - Duration::from_secs(1);
    tokio::time::sleep(Duration::from_millis(1000)).await;
    scene.write_one("after".into()).await;
    let (running, seen) = start(builder(&scene).start_from(StartFrom::Time(time))).await.unwrap();
    until("the later item arrives", || !seen.lock().unwrap().is_empty()).await;
    let ids: Vec<String> = seen.lock().unwrap().iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(ids, ["after"]);
    running.stop(Duration::from_secs(5)).await;
}

/// A partition that was merged from two: the right one had few changes, the last five of them after the time that comes back;
/// the left one many, all before it.
async fn merged_with_new_items_before_old_ones(scene: &Scene) -> SystemTime {
    scene.write(40).await;
    let [left, right] = scene.partitions()[..] else {
        panic!("two partitions");
    };
    let ranges = feed(scene).partitions().await.unwrap();
    let mut ids = Vec::new();
    for partition in ranges {
        let (start, mode) = (StartFrom::Beginning, FeedMode::LatestVersion);
        let mut puller = Puller::start(feed(scene), partition.range, start, mode).await.unwrap();
        let mut found: Vec<String> = Vec::new();
        while let Some(page) = puller.next().await.unwrap() {
            found.extend(page.changes.iter().map(|change| change.id().unwrap().to_owned()));
        }
        ids.push(found);
    }
    for _ in 0..5 {
        for id in &ids[0] {
            scene.write_one(id.clone()).await;
        }
    }
    // The service counts in whole seconds, and a start is exclusive.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    let time = SystemTime::UNIX_EPOCH + SystemTime::UNIX_EPOCH.elapsed().unwrap() - Duration::from_secs(1);
    tokio::time::sleep(Duration::from_millis(1000)).await;
    for id in ids[1].iter().take(5) {
        scene.write_one(id.clone()).await;
    }
    scene.merge(left, right);
    time
}

#[tokio::test]
async fn a_unit_and_a_reader_that_start_at_a_time_are_given_nothing_older_where_partitions_were_merged() {
    let scene = Scene::new(2).await;
    let time = merged_with_new_items_before_old_ones(&scene).await;
    let host = builder(&scene).start_from(StartFrom::Time(time)).max_items(5);
    let (running, seen) = start(host).await.unwrap();
    let mode = FeedMode::LatestVersion;
    let started = Puller::start(feed(&scene), EpkRange::full(), StartFrom::Time(time), mode).await;
    let mut puller = started.unwrap().with_max_items(5);
    let mut pulled = puller.next().await.unwrap().unwrap().changes.len();
    // Also by one that comes back with what it has kept.
    let kept = Cursor::parse(&puller.cursor().to_text()).unwrap();
    let mut puller = Puller::resume(feed(&scene), kept, mode)
        .await
        .unwrap()
        .with_max_items(5);
    while let Some(page) = puller.next().await.unwrap() {
        pulled += page.changes.len();
    }
    assert_eq!(pulled, 5);
    scene.write_one("last".into()).await;
    let ids = || {
        seen.lock()
            .unwrap()
            .iter()
            .map(|(id, _)| id.clone())
            .collect::<Vec<_>>()
    };
    until("the last item arrives", || ids().contains(&"last".to_owned())).await;
    assert_eq!(ids().len(), 6, "{:?}", ids());
    running.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_unit_is_reset_when_stopped_or_when_its_hosts_are_robbed() {
    let scene = Scene::new(2).await;
    scene.write(10).await;
    let (running, seen) = start(builder(&scene)).await.unwrap();
    until("all arrive", || seen.lock().unwrap().len() == 10).await;
    let store = ContainerLeases::new(scene.leases.clone());
    let operations = Operations::open("unit", feed(&scene), store, TIMING.expiry)
        .await
        .unwrap();
    let beginning = ResetTo::Start(StartFrom::Beginning);
    let refused = operations.reset(&beginning, false).await.unwrap_err();
    assert!(matches!(refused, ResetError::Running(owners) if owners == ["test"]));
    assert_eq!(operations.reset(&beginning, true).await.unwrap(), 2);
    until("everything comes again", || seen.lock().unwrap().len() == 20).await;
    running.stop(Duration::from_secs(5)).await;
    assert_eq!(operations.reset(&ResetTo::Now, false).await.unwrap(), 2);
    let (running, seen) = start(builder(&scene)).await.unwrap();
    scene.write_one("new".into()).await;
    until("only the new one arrives", || !seen.lock().unwrap().is_empty()).await;
    assert_eq!(seen.lock().unwrap().len(), 1);
    running.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn with_a_long_poll_a_change_arrives_at_once() {
    let scene = Scene::new(1).await;
    let poll = Poll::every(Duration::from_secs(20)).with_long_poll(Duration::from_secs(10));
    let host = builder(&scene).leases(MemoryLeases::new()).poll(poll);
    let (running, seen) = start(host).await.unwrap();
    // The first read is empty and the server holds it.
    until("the reader waits at the server", || {
        running.health().values().any(|lease| lease.epoch == 1)
    })
    .await;
    for number in 0..5 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let written = Instant::now();
        scene.write_one(format!("item{number}")).await;
        until("the item arrives", || seen.lock().unwrap().len() > number).await;
        let took = seen.lock().unwrap()[number].1.duration_since(written);
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
    running.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_checkpoint_is_one_write_of_the_lease() {
    let scene = Scene::new(1).await;
    scene.write(50).await;
    // No renewal comes between.
    let timing = LeaseTiming {
        renew: Duration::from_secs(100),
        expiry: Duration::from_secs(300),
        ..TIMING
    };
    let host = builder(&scene).max_items(5).lease_timing(timing);
    let (running, seen) = start(host).await.unwrap();
    until("all arrive", || seen.lock().unwrap().len() == 50).await;
    running.stop(Duration::from_secs(5)).await;
    // Ten checkpoints, one acquisition and one release; what the last, empty read reached may be saved with one more.
    let n_replaces = scene.requests("replace_item");
    assert!((12..=13).contains(&n_replaces), "{n_replaces}");
}

#[tokio::test]
async fn a_reader_of_any_sdk_goes_on_here_at_the_very_next_change() {
    let scene = Scene::new(2).await;
    scene.write(20).await;
    let (whole, mode) = (EpkRange::full(), FeedMode::LatestVersion);
    let mut puller = Puller::start(feed(&scene), whole, StartFrom::Beginning, mode)
        .await
        .unwrap();
    while puller.next().await.unwrap().is_some() {}
    let rid = puller.cursor().container_rid().to_owned();
    let places: Vec<(EpkRange, String)> = puller
        .cursor()
        .ranges()
        .map(|(range, position)| match position {
            Position::After(token) | Position::AfterSince(token, _) => {
                (range.clone(), token.as_str().trim_matches('"').to_owned())
            }
            Position::From(_) => panic!("every range has been read"),
        })
        .collect();
    scene.write_one("next".into()).await;
    let golden = include_str!("../golden/continuation_tokens.json");
    let golden: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_str(golden).unwrap();
    for (sdk, recorded) in &golden["whole"] {
        let text = retold(recorded, &rid, &places);
        let cursor = Cursor::import(&text, mode).unwrap();
        let mut puller = Puller::resume(feed(&scene), cursor, mode).await.unwrap();
        let mut ids = Vec::new();
        while let Some(page) = puller.next().await.unwrap() {
            ids.extend(page.changes.iter().map(|change| change.id().unwrap().to_owned()));
        }
        assert_eq!(ids, ["next"], "{sdk}");
    }
}

/// A token as it was recorded, telling of this container and these positions instead.
fn retold(recorded: &str, rid: &str, places: &[(EpkRange, String)]) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
    let (mark, inner) = match recorded.strip_prefix("c1.") {
        Some(inner) => ("c1.", inner),
        None => ("", recorded),
    };
    let is_plain = recorded.starts_with('{');
    let text = if is_plain {
        recorded.to_owned()
    } else {
        String::from_utf8(STANDARD_NO_PAD.decode(inner.trim_end_matches('=')).unwrap()).unwrap()
    };
    // Java's container was hashed the old way, with another bound and other positions.
    let (left, right) = if text.contains("05C1E0") { (5, 3) } else { (6, 2) };
    let token = |lsn: &dyn std::fmt::Display| format!("\\\"{lsn}\\\"");
    let text = text
        .replace("PG7zYrxu82I=", rid)
        .replace("05C1E0", places[0].0.end())
        .replace("1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", places[0].0.end())
        .replace(&token(&left), "LEFT")
        .replace(&token(&right), &token(&places[1].1))
        .replace("LEFT", &token(&places[0].1));
    if is_plain {
        return text;
    }
    format!("{mark}{}", URL_SAFE_NO_PAD.encode(text))
}

#[tokio::test]
async fn a_unit_starts_where_a_reader_stands_and_a_reader_where_a_unit_stands() {
    let scene = Scene::new(2).await;
    scene.write(20).await;
    let mode = FeedMode::LatestVersion;
    let beginning = StartFrom::Beginning;
    let mut puller = Puller::start(feed(&scene), EpkRange::full(), beginning, mode)
        .await
        .unwrap();
    while puller.next().await.unwrap().is_some() {}
    let store = ContainerLeases::new(scene.leases.clone());
    let operations = Operations::open("unit", feed(&scene), store, TIMING.expiry)
        .await
        .unwrap();
    assert_eq!(operations.start_at(puller.cursor()).await.unwrap(), 2);
    scene.write_one("for the unit".into()).await;
    let (running, seen) = start(builder(&scene)).await.unwrap();
    until("it arrives", || !seen.lock().unwrap().is_empty()).await;
    running.stop(Duration::from_secs(5)).await;
    assert_eq!(seen.lock().unwrap().len(), 1);
    let cursor = operations.cursor().await.unwrap();
    scene.write_one("for the reader".into()).await;
    let mut puller = Puller::resume(feed(&scene), cursor, mode).await.unwrap();
    let page = puller.next().await.unwrap().unwrap();
    assert_eq!(page.changes[0].id(), Some("for the reader"));
    assert!(puller.next().await.unwrap().is_none());
}
