//! The change feed, pulled. The SDK's stream never ends: a reader is caught up when every range in turn had nothing.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use azure_core::time::OffsetDateTime;
use azure_data_cosmos::FeedScope;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::ContinuationToken;
use azure_data_cosmos::models::{ChangeFeedItem, ChangeFeedOperationType, ChangeFeedPolicy};
use azure_data_cosmos::options::{ChangeFeedMode, ChangeFeedOptions, ChangeFeedStartFrom};
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::admin::split_first_partition;
use crate::harness::{Cases, cases};
use crate::scene::Scene;

/// More than the ranges of any container here.
const EMPTY_PAGES: usize = 8;

pub fn cases() -> Cases {
    cases![
        "feed-latest-versions" => [latest_versions],
        "feed-resume" => [resume],
        "feed-from-now" => [from_now],
        "feed-from-time" => [from_time],
        "feed-logical-key" => [logical_key],
        "feed-ranges-cover-everything" => [ranges_cover_everything],
        "feed-after-split" => [after_split],
        "feed-all-versions" => [all_versions],
    ]
}

pub type Changes = Vec<ChangeFeedItem<Value>>;

/// What is there now, and the token to go on with.
pub async fn read(
    container: &ContainerClient,
    scope: FeedScope,
    start: ChangeFeedStartFrom,
    options: ChangeFeedOptions,
) -> Result<(Changes, ContinuationToken)> {
    let mut pages = container
        .query_change_feed::<Value>(scope, start, Some(options))
        .await?;
    let (mut found, mut n_empty) = (Vec::new(), 0);
    while n_empty < EMPTY_PAGES {
        let page = pages.next().await.context("the feed never ends")??;
        n_empty = if page.items().is_empty() { n_empty + 1 } else { 0 };
        found.extend(page.into_items());
    }
    let token = pages.to_continuation_token()?;
    Ok((found, token))
}

pub async fn everything(
    container: &ContainerClient,
    start: ChangeFeedStartFrom,
) -> Result<(Changes, ContinuationToken)> {
    read(
        container,
        FeedScope::full_container(),
        start,
        ChangeFeedOptions::default(),
    )
    .await
}

pub async fn after(container: &ContainerClient, token: ContinuationToken) -> Result<(Changes, ContinuationToken)> {
    let options = ChangeFeedOptions::default().with_continuation_token(token);
    let start = ChangeFeedStartFrom::Beginning;
    read(container, FeedScope::full_container(), start, options).await
}

pub async fn fill(container: &ContainerClient, numbers: impl IntoIterator<Item = u32>, n: u32) -> Result<()> {
    for number in numbers {
        let key = format!("key {number}");
        let item = json!({"id": number.to_string(), "pk": key, "n": n});
        container.upsert_item(key, &number.to_string(), item, None).await?;
    }
    Ok(())
}

pub fn seen(changes: &[ChangeFeedItem<Value>]) -> Vec<(String, u64)> {
    let one = |change: &ChangeFeedItem<Value>| {
        let item = change.current()?;
        Some((item["id"].as_str()?.to_owned(), item["n"].as_u64()?))
    };
    let mut seen: Vec<_> = changes.iter().filter_map(one).collect();
    seen.sort();
    seen
}

pub fn wanted(numbers: impl IntoIterator<Item = u32>, n: u64) -> Vec<(String, u64)> {
    let mut wanted: Vec<_> = numbers.into_iter().map(|number| (number.to_string(), n)).collect();
    wanted.sort();
    wanted
}

async fn latest_versions(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    fill(&container, 0..30, 1).await?;
    fill(&container, 0..10, 2).await?;
    container.delete_item("key 29".to_owned(), "29", None).await?;
    let (changes, _) = everything(&container, ChangeFeedStartFrom::Beginning).await?;
    let mut expected = wanted(0..10, 2);
    expected.extend(wanted(10..29, 1));
    expected.sort();
    ensure!(seen(&changes) == expected, "{:?}", seen(&changes));
    ensure!(
        changes
            .iter()
            .all(|change| change.metadata().is_some_and(|data| data.lsn().is_some()))
    );
    Ok(())
}

async fn resume(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    fill(&container, 0..20, 1).await?;
    let (changes, token) = everything(&container, ChangeFeedStartFrom::Beginning).await?;
    ensure!(seen(&changes) == wanted(0..20, 1), "{:?}", seen(&changes));
    fill(&container, 15..25, 2).await?;
    let (changes, token) = after(&container, token).await?;
    ensure!(seen(&changes) == wanted(15..25, 2), "{:?}", seen(&changes));
    let (changes, _) = after(&container, token).await?;
    ensure!(changes.is_empty(), "{:?}", seen(&changes));
    Ok(())
}

async fn from_now(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    fill(&container, 0..10, 1).await?;
    let (changes, token) = everything(&container, ChangeFeedStartFrom::Now).await?;
    ensure!(changes.is_empty(), "{:?}", seen(&changes));
    fill(&container, 0..5, 2).await?;
    let (changes, _) = after(&container, token).await?;
    ensure!(seen(&changes) == wanted(0..5, 2), "{:?}", seen(&changes));
    Ok(())
}

async fn from_time(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    fill(&container, 0..5, 1).await?;
    let stamp = async |number: u32| -> Result<i64> {
        let read = container
            .read_item(format!("key {number}"), &number.to_string(), None)
            .await?;
        let item: Value = read.into_model()?;
        item["_ts"].as_i64().context("an item without a time")
    };
    let last = stamp(4).await?;
    loop {
        fill(&container, [9], 2).await?;
        if stamp(9).await? > last {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let start = ChangeFeedStartFrom::PointInTime(OffsetDateTime::from_unix_timestamp(last)?);
    let (changes, _) = everything(&container, start).await?;
    ensure!(seen(&changes) == wanted([9], 2), "{:?}", seen(&changes));
    Ok(())
}

async fn logical_key(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    for n in 0..6 {
        for key in ["a", "b"] {
            let id = n.to_string();
            container
                .create_item(key, &id, json!({"id": id, "pk": key, "n": n}), None)
                .await?;
        }
    }
    let scope = FeedScope::partition("a");
    let options = ChangeFeedOptions::default();
    let (changes, _) = read(&container, scope, ChangeFeedStartFrom::Beginning, options).await?;
    let order: Vec<_> = changes
        .iter()
        .filter_map(|change| change.current())
        .map(|item| (item["pk"].clone(), item["n"].clone()))
        .collect();
    let expected: Vec<_> = (0..6).map(|n| (json!("a"), json!(n))).collect();
    ensure!(order == expected, "{order:?}");
    Ok(())
}

async fn ranges_cover_everything(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    fill(&container, 0..30, 1).await?;
    let ranges = container.read_feed_ranges(None).await?;
    ensure!(ranges.len() == 4, "{} ranges", ranges.len());
    let mut changes = Vec::new();
    for range in ranges {
        let options = ChangeFeedOptions::default();
        changes.extend(
            read(
                &container,
                FeedScope::range(range),
                ChangeFeedStartFrom::Beginning,
                options,
            )
            .await?
            .0,
        );
    }
    ensure!(seen(&changes) == wanted(0..30, 1), "{:?}", seen(&changes));
    Ok(())
}

async fn after_split(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    fill(&container, 0..30, 1).await?;
    let (changes, token) = everything(&container, ChangeFeedStartFrom::Beginning).await?;
    ensure!(changes.len() == 30, "{}", changes.len());
    let environment = &scene.environment;
    split_first_partition(&environment.endpoint, &environment.key, &scene.name, &scene.name).await?;
    fill(&container, 0..30, 2).await?;
    let (changes, token) = after(&container, token).await?;
    ensure!(seen(&changes) == wanted(0..30, 2), "{:?}", seen(&changes));
    fill(&container, 0..3, 3).await?;
    let (changes, _) = after(&container, token).await?;
    ensure!(seen(&changes) == wanted(0..3, 3), "{:?}", seen(&changes));
    Ok(())
}

async fn all_versions(scene: Scene) -> Result<()> {
    let policy = ChangeFeedPolicy::default().with_retention_duration(Duration::from_secs(600));
    let container = scene
        .container_with("/pk", |properties| properties.with_change_feed_policy(policy))
        .await?;
    let options = || ChangeFeedOptions::default().with_mode(ChangeFeedMode::AllVersionsAndDeletes);
    let scope = FeedScope::full_container;
    let (changes, token) = read(&container, scope(), ChangeFeedStartFrom::Now, options()).await?;
    ensure!(changes.is_empty());
    for n in 0..3 {
        container
            .upsert_item("a", "1", json!({"id": "1", "pk": "a", "n": n}), None)
            .await?;
    }
    container.delete_item("a", "1", None).await?;
    let resumed = options().with_continuation_token(token);
    let (changes, _) = read(&container, scope(), ChangeFeedStartFrom::Now, resumed).await?;
    let kinds: Vec<_> = changes.iter().map(|change| change.operation_type()).collect();
    let replace = Some(ChangeFeedOperationType::Replace);
    let expected = [
        Some(ChangeFeedOperationType::Create),
        replace,
        replace,
        Some(ChangeFeedOperationType::Delete),
    ];
    ensure!(kinds == expected, "{kinds:?}");
    let gone = changes[3].metadata().context("a delete without metadata")?;
    ensure!(
        gone.id() == Some("1") && gone.partition_key() == Some(&json!({"pk": "a"})),
        "{gone:?}"
    );
    let last = changes[2].metadata().and_then(|data| data.lsn());
    ensure!(gone.previous_image_lsn() == last && last.is_some(), "{gone:?}");
    ensure!(
        changes[3].previous().is_some_and(|item| item["n"] == 2),
        "the item that was deleted"
    );
    Ok(())
}
