//! How far a unit is behind, as the estimator tells it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use azure_data_cosmos::models::TransactionalBatch;
use orrery_processor::StartFrom;
use orrery_processor::estimator::{Estimator, UnitLag, Unknown};
use orrery_processor::feed::FeedSource as _;
use orrery_processor::lease::{FeedMode, Lease};
use orrery_processor::names::UnitNames;
use orrery_processor::pull::Puller;
use orrery_processor::store::{ContainerLeases, LeaseStore as _};
use serde_json::{Value, json};

use crate::library::{builder, feed, start};
use crate::process::orrery;
use crate::scene::{Scene, is_soak, until};

fn estimator(scene: &Scene) -> Estimator {
    Estimator::new("unit", feed(scene), ContainerLeases::new(scene.leases.clone())).unwrap()
}

/// Starts a unit, and stops it when so many have arrived.
async fn work(scene: &Scene, n_items: usize) {
    let (running, seen) = start(builder(scene)).await.unwrap();
    until("all arrive", || seen.lock().unwrap().len() >= n_items).await;
    running.stop(Duration::from_secs(5)).await;
}

/// How many items there are in the range of every lease.
async fn items_per_lease(scene: &Scene) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (token, lease) in scene.stored().await {
        let (range, mode) = (lease.range.unwrap(), FeedMode::LatestVersion);
        let puller = Puller::start(feed(scene), range, StartFrom::Beginning, mode).await;
        let (mut puller, mut count) = (puller.unwrap(), 0);
        while let Some(page) = puller.next().await.unwrap() {
            count += page.changes.len() as u64;
        }
        counts.insert(token, count);
    }
    counts
}

fn per_lease(lag: &UnitLag) -> BTreeMap<String, u64> {
    let leases = lag.leases.iter();
    leases
        .map(|lease| (lease.token.clone(), lease.transactions.unwrap()))
        .collect()
}

#[tokio::test]
async fn the_estimator_counts_single_writes_one_by_one_and_a_batch_once_per_lease_and_together() {
    let scene = Scene::new(2).await;
    let estimator = estimator(&scene);
    scene.write(10).await;
    work(&scene, 10).await;
    let caught_up = estimator.snapshot().await.unwrap();
    assert_eq!(
        (caught_up.transactions(), caught_up.waiting()),
        (Some(0), Some(Duration::ZERO))
    );
    scene.write(500).await;
    let behind = estimator.snapshot().await.unwrap();
    assert_eq!(behind.transactions(), Some(500));
    let counts = per_lease(&behind);
    assert_eq!(
        counts,
        items_per_lease(&scene).await,
        "each lease has what is in its range"
    );
    assert!(counts.values().all(|count| *count > 0) && counts.len() == 2);
    assert!(behind.waiting().unwrap() < Duration::from_secs(60));
    work(&scene, 500).await;
    let mut batch = TransactionalBatch::new("one key");
    for number in 0..100 {
        let item = json!({"id": number.to_string(), "pk": "one key"});
        batch = batch.create_item(item).unwrap();
    }
    scene.orders.execute_transactional_batch(batch, None).await.unwrap();
    let behind = estimator.snapshot().await.unwrap();
    assert_eq!(behind.transactions(), Some(1), "a hundred items of one transaction");
    let mut counts: Vec<u64> = per_lease(&behind).into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [0, 1]);
}

#[tokio::test]
async fn what_an_estimator_does_not_know_is_never_zero() {
    let scene = Scene::new(1).await;
    let estimator = estimator(&scene);
    let none = estimator.snapshot().await.unwrap();
    assert_eq!((none.is_known(), none.transactions(), none.signal()), (false, None, 1));

    // As .NET makes it, before its first batch.
    let names = UnitNames::new("unit", &feed(&scene).describe().await.unwrap().identity);
    let unread = json!({
        "id": names.lease("-FF"), "version": 1, "LeaseToken": "-FF", "Owner": null, "ContinuationToken": null,
        "FeedRange": {"Range": {"min": "", "max": "FF"}}, "properties": {}, "timestamp": null,
    });
    let store = ContainerLeases::new(scene.leases.clone());
    store.create(&unread).await.unwrap();
    let unread_lag = estimator.snapshot().await.unwrap();
    assert_eq!(unread_lag.leases[0].transactions, Err(Unknown::NoPosition));
    assert_eq!((unread_lag.is_known(), unread_lag.signal()), (false, 1));
    store.delete(&unread, None).await.unwrap();

    scene.write(10).await;
    work(&scene, 10).await;
    assert_eq!(estimator.snapshot().await.unwrap().transactions(), Some(0));
    scene.split(scene.partitions()[0]);
    let after_split = estimator.snapshot().await.unwrap();
    assert_eq!(after_split.leases[0].transactions, Err(Unknown::RangeGone));
    assert_eq!((after_split.is_known(), after_split.signal()), (false, 1));
}

/// Fills the container through `orrery import`, which is the quickest way in.
fn fill(scene: &Scene, n_items: usize) {
    let arguments = ["import", "shop", "orders", "-", "--endpoint", &scene.server.endpoint];
    let mut import = Command::new(orrery().unwrap())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = std::io::BufWriter::new(import.stdin.take().unwrap());
    for number in 0..n_items {
        writeln!(input, "{{\"id\":\"old{number}\",\"pk\":\"key{number}\"}}").unwrap();
    }
    drop(input);
    assert!(import.wait().unwrap().success());
}

#[tokio::test]
async fn a_unit_that_starts_now_on_a_large_container_has_no_backlog() {
    let n_items = if is_soak() { 1_000_000 } else { 20_000 };
    let scene = Scene::new(4).await;
    fill(&scene, n_items);
    let estimator = estimator(&scene);
    let (running, seen) = start(builder(&scene).start_from(StartFrom::Now)).await.unwrap();
    let at_start = estimator.snapshot().await.unwrap();
    assert_eq!((at_start.is_known(), at_start.transactions()), (true, Some(0)));
    running.stop(Duration::from_secs(5)).await;
    scene.write(8).await;
    let behind = estimator.snapshot().await.unwrap();
    assert_eq!(behind.transactions(), Some(8), "only what came since");
    let (running, seen_later) = start(builder(&scene)).await.unwrap();
    until("only the new ones arrive", || seen_later.lock().unwrap().len() == 8).await;
    assert!(seen.lock().unwrap().is_empty());
    running.stop(Duration::from_secs(5)).await;
}

/// What the .NET estimator makes of a lease: it reads one change after the position, and counts from it to the LSN of the
/// session token.
fn lag_by_dotnet(scene: &Scene, lease: &Lease) -> u64 {
    let (partition, position) = (scene.partitions()[0], lease.continuation.as_ref().unwrap());
    let headers = format!(
        "a-im: Incremental Feed\r\nif-none-match: {}\r\nx-ms-max-item-count: 1\r\n\
         x-ms-documentdb-partitionkeyrangeid: {partition}\r\n",
        position.as_str()
    );
    let about = ("docs", "dbs/shop/colls/orders");
    let (head, body) = scene.request("GET", "/dbs/shop/colls/orders/docs", about, &headers, "");
    if head.starts_with("HTTP/1.1 304") {
        return 0;
    }
    let session = head
        .lines()
        .find_map(|line| line.strip_prefix("x-ms-session-token: "))
        .unwrap();
    let said = session.split_once(':').unwrap().1;
    let global: u64 = said.split('#').nth(1).unwrap_or(said).parse().unwrap();
    let page: Value = serde_json::from_str(&body).unwrap();
    global - (page["Documents"][0]["_lsn"].as_u64().unwrap() - 1)
}

/// KEDA's scaler takes the quotes off a lease's token and reads a number.
fn position_by_keda(lease: &Lease) -> i64 {
    let token = lease.continuation.as_ref().unwrap();
    token.as_str().trim_matches('"').parse().unwrap()
}

#[tokio::test]
async fn estimators_of_others_see_what_waits_and_nothing_when_caught_up() {
    let scene = Scene::new(1).await;
    let (running, seen) = start(builder(&scene)).await.unwrap();
    scene.write(10).await;
    until("all arrive", || seen.lock().unwrap().len() >= 10).await;
    running.stop(Duration::from_secs(5)).await;
    let lease = scene.stored().await.into_values().next().unwrap();
    assert_eq!((lag_by_dotnet(&scene, &lease), position_by_keda(&lease) > 0), (0, true));
    scene.write(30).await;
    assert_eq!(lag_by_dotnet(&scene, &lease), 30);
    assert_eq!(estimator(&scene).snapshot().await.unwrap().transactions(), Some(30));
}
