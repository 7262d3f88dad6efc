//! How far a unit is behind, as the estimator tells it.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use orrery_processor::StartFrom;
use orrery_processor::estimator::{Estimator, Unknown};
use orrery_processor::lease::Lease;
use orrery_processor::store::ContainerLeases;
use serde_json::Value;

use crate::library::{builder, feed, start};
use crate::process::orrery;
use crate::scene::{Scene, is_soak, until};

fn estimator(scene: &Scene) -> Estimator {
    Estimator::new("unit", feed(scene), ContainerLeases::new(scene.leases.clone())).unwrap()
}

#[tokio::test]
async fn the_estimator_counts_what_waits_and_says_what_it_does_not_know() {
    let scene = Scene::new(1).await;
    let estimator = estimator(&scene);
    let none = estimator.snapshot().await.unwrap();
    assert_eq!((none.is_known(), none.transactions(), none.signal()), (false, None, 1));
    let (running, seen) = start(builder(&scene)).await.unwrap();
    scene.write(10).await;
    until("all arrive", || seen.lock().unwrap().len() >= 10).await;
    running.stop(Duration::from_secs(5)).await;
    let caught_up = estimator.snapshot().await.unwrap();
    assert_eq!(
        (caught_up.transactions(), caught_up.waiting()),
        (Some(0), Some(Duration::ZERO))
    );
    scene.write(50).await;
    let behind = estimator.snapshot().await.unwrap();
    assert_eq!(behind.transactions(), Some(50));
    assert!(behind.waiting().unwrap() < Duration::from_secs(30));
    let first = scene.partitions()[0];
    scene.split(first);
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
