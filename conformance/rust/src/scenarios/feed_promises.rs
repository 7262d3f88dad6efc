//! What the change feed keeps to when transactions, expiry, keys of levels and changing partitions come into it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use azure_data_cosmos::FeedScope;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::ContinuationToken;
use azure_data_cosmos::models::{
    ChangeFeedOperationType, ChangeFeedPolicy, ContainerProperties, TimeToLive, TransactionalBatch,
};
use azure_data_cosmos::options::{ChangeFeedMode, ChangeFeedOptions, ChangeFeedStartFrom, MaxItemCountHint};
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::change_feed::{Changes, after, everything, fill, read, seen, wanted};
use crate::admin::{merge_first_two, split_leftmost};
use crate::harness::{Cases, cases};
use crate::scene::{Scene, connect_apart};

pub fn cases() -> Cases {
    cases![
        "feed-batch-uncut" => [batch_uncut],
        "feed-all-versions-expiry" => [expiry],
        "feed-hierarchical-key" => [hierarchical_key],
        "feed-after-merge" => [after_merge],
        "feed-after-merge-and-split" => [after_merge_and_split],
        "feed-foreign-continuation" => [foreign_continuation],
        "feed-other-mode-continuation" => [other_mode],
    ]
}

fn all_versions() -> ChangeFeedOptions {
    ChangeFeedOptions::default().with_mode(ChangeFeedMode::AllVersionsAndDeletes)
}

fn keeping_versions(properties: ContainerProperties) -> ContainerProperties {
    properties.with_change_feed_policy(ChangeFeedPolicy::default().with_retention_duration(Duration::from_secs(600)))
}

async fn all_from_now(container: &ContainerClient) -> Result<ContinuationToken> {
    let (scope, start) = (FeedScope::full_container(), ChangeFeedStartFrom::Now);
    Ok(read(container, scope, start, all_versions()).await?.1)
}

async fn all_after(container: &ContainerClient, token: ContinuationToken) -> Result<(Changes, ContinuationToken)> {
    let options = all_versions().with_continuation_token(token);
    read(
        container,
        FeedScope::full_container(),
        ChangeFeedStartFrom::Now,
        options,
    )
    .await
}

async fn batch_uncut(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let mut batch = TransactionalBatch::new("a");
    for n in 0..50 {
        batch = batch.create_item(json!({"id": format!("b{n}"), "pk": "a", "n": n}))?;
    }
    container.execute_transactional_batch(batch, None).await?;
    let failing = TransactionalBatch::new("a")
        .create_item(json!({"id": "new", "pk": "a"}))?
        .create_item(json!({"id": "b0", "pk": "a"}))?;
    // Whether the SDK gives a failed batch as an answer or as an error is not the question here.
    let _ = container.execute_transactional_batch(failing, None).await;
    let options = ChangeFeedOptions::default().with_max_item_count(MaxItemCountHint::Limit(10.try_into()?));
    let (scope, start) = (FeedScope::full_container(), ChangeFeedStartFrom::Beginning);
    let feed = container
        .query_change_feed::<Value>(scope, start, Some(options))
        .await?;
    let pages: Vec<_> = feed.take(16).collect().await;
    let pages = pages.into_iter().collect::<Result<Vec<_>, _>>()?;
    let pages: Vec<_> = pages
        .iter()
        .map(|page| page.items())
        .filter(|items| !items.is_empty())
        .collect();
    ensure!(pages.len() == 1, "{} pages", pages.len());
    let order: Vec<_> = pages[0]
        .iter()
        .filter_map(|change| change.current()?["n"].as_u64())
        .collect();
    ensure!(order == (0..50).collect::<Vec<u64>>(), "{order:?}");
    let positions = pages[0]
        .iter()
        .map(|change| change.metadata().and_then(|data| data.lsn()));
    let positions: Vec<_> = positions.collect();
    ensure!(
        positions[0].is_some() && positions.iter().all(|lsn| *lsn == positions[0]),
        "{positions:?}"
    );
    Ok(())
}

async fn expiry(scene: Scene) -> Result<()> {
    let container = scene
        .container_with("/pk", |properties| {
            keeping_versions(properties).with_default_ttl(TimeToLive::NoDefault)
        })
        .await?;
    let mut token = all_from_now(&container).await?;
    container
        .create_item("a", "1", json!({"id": "1", "pk": "a", "ttl": 1}), None)
        .await?;
    let (mut changes, began) = (Vec::new(), Instant::now());
    while changes.len() < 2 {
        ensure!(began.elapsed() < Duration::from_secs(30), "{} changes", changes.len());
        let (more, next) = all_after(&container, token).await?;
        changes.extend(more);
        token = next;
    }
    let kinds: Vec<_> = changes.iter().map(|change| change.operation_type()).collect();
    let expected = [
        Some(ChangeFeedOperationType::Create),
        Some(ChangeFeedOperationType::Delete),
    ];
    ensure!(kinds == expected, "{kinds:?}");
    let expired = |place: usize| changes[place].metadata().and_then(|data| data.time_to_live_expired());
    ensure!(expired(1) == Some(true) && expired(0) != Some(true), "{changes:?}");
    ensure!(changes[1].metadata().and_then(|data| data.id()) == Some("1"));
    let (left, _) = everything(&container, ChangeFeedStartFrom::Beginning).await?;
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

async fn hierarchical_key(scene: Scene) -> Result<()> {
    let container = scene
        .container_with(("/tenant", "/user", "/session"), keeping_versions)
        .await?;
    let token = all_from_now(&container).await?;
    for n in 0..20 {
        let (tenant, user) = (format!("t{n}"), format!("u{}", n % 3));
        let item = json!({"id": "1", "tenant": tenant, "user": user, "session": n});
        container.create_item((tenant, user, n), "1", &item, None).await?;
    }
    container.delete_item(("t7", "u1", 7), "1", None).await?;
    let (changes, _) = all_after(&container, token).await?;
    let deleted = changes
        .iter()
        .filter(|one| one.operation_type() == Some(ChangeFeedOperationType::Delete));
    let keys: Vec<_> = deleted.filter_map(|one| one.metadata()?.partition_key()).collect();
    ensure!(
        keys == [&json!({"tenant": "t7", "user": "u1", "session": 7})],
        "{keys:?}"
    );
    let sessions = |changes: &Changes| -> Vec<u64> {
        let found = changes
            .iter()
            .filter_map(|change| change.current()?["session"].as_u64());
        found.collect()
    };
    let (beginning, mut found) = (ChangeFeedStartFrom::Beginning, Vec::new());
    for range in container.read_feed_ranges(None).await? {
        let options = ChangeFeedOptions::default();
        let (part, _) = read(&container, FeedScope::range(range), beginning.clone(), options).await?;
        found.extend(sessions(&part));
    }
    found.sort_unstable();
    ensure!(found == (0..20).filter(|n| *n != 7).collect::<Vec<u64>>(), "{found:?}");
    let (scope, options) = (FeedScope::partition(("t5", "u2", 5)), ChangeFeedOptions::default());
    let (own, _) = read(&container, scope, beginning, options).await?;
    ensure!(sessions(&own) == [5], "{own:?}");
    Ok(())
}

/// A continuation from before the partitions change goes on after it.
async fn goes_on(scene: &Scene, reshape: impl AsyncFnOnce(&str, &str, &str) -> Result<()>) -> Result<()> {
    let container = scene.container().await?;
    fill(&container, 0..30, 1).await?;
    let (changes, token) = everything(&container, ChangeFeedStartFrom::Beginning).await?;
    ensure!(changes.len() == 30, "{}", changes.len());
    fill(&container, 0..10, 2).await?;
    let environment = &scene.environment;
    reshape(&environment.endpoint, &environment.key, &scene.name).await?;
    fill(&container, 20..30, 2).await?;
    let (changes, token) = after(&container, token).await?;
    ensure!(
        seen(&changes) == wanted((0..10).chain(20..30), 2),
        "{:?}",
        seen(&changes)
    );
    fill(&container, 0..30, 3).await?;
    let (changes, _) = after(&container, token).await?;
    ensure!(seen(&changes) == wanted(0..30, 3), "{:?}", seen(&changes));
    Ok(())
}

async fn after_merge(scene: Scene) -> Result<()> {
    goes_on(&scene, async |endpoint, key, name| {
        merge_first_two(endpoint, key, name, name).await
    })
    .await
}

async fn after_merge_and_split(scene: Scene) -> Result<()> {
    goes_on(&scene, async |endpoint, key, name| {
        // Three of four quarters become one, whose middle was no bound before.
        merge_first_two(endpoint, key, name, name).await?;
        merge_first_two(endpoint, key, name, name).await?;
        split_leftmost(endpoint, key, name, name).await
    })
    .await
}

async fn foreign_continuation(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    fill(&container, 0..5, 1).await?;
    let token = async || Ok::<_, anyhow::Error>(everything(&container, ChangeFeedStartFrom::Beginning).await?.1);
    let (first, second) = (token().await?, token().await?);
    let database = scene.client.database_client(&scene.name);
    let properties = |name: &str| ContainerProperties::new(name.to_owned(), "/pk".into());
    database.create_container(properties("other"), None).await?;
    let other = database.container_client("other", None).await?;
    fill(&other, 0..5, 1).await?;
    if let Ok((changes, _)) = after(&other, first).await {
        bail!("another container took it: {:?}", seen(&changes));
    }
    container.delete(None).await?;
    database.create_container(properties(&scene.name), None).await?;
    let apart = connect_apart(&scene.environment.endpoint, &scene.environment.key).await?;
    let again = apart
        .database_client(&scene.name)
        .container_client(&scene.name, None)
        .await?;
    fill(&again, 0..5, 1).await.context("the container made again")?;
    if let Ok((changes, _)) = after(&again, second).await {
        bail!("the container made again took it: {:?}", seen(&changes));
    }
    Ok(())
}

async fn other_mode(scene: Scene) -> Result<()> {
    let container = scene.container_with("/pk", keeping_versions).await?;
    fill(&container, 0..5, 1).await?;
    let (_, token) = everything(&container, ChangeFeedStartFrom::Beginning).await?;
    fill(&container, 0..5, 2).await?;
    if let Ok((changes, _)) = all_after(&container, token).await {
        bail!("it was taken: {} changes", changes.len());
    }
    Ok(())
}
