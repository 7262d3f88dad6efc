//! A container whose partitions split and merge while clients know the old ones.

use std::num::NonZeroU32;

use anyhow::{Context as _, Result, ensure};
use azure_data_cosmos::FeedScope;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::QueryPageIterator;
use azure_data_cosmos::options::{
    ItemReadOptions, MaxItemCountHint, QueryOptions, ReadFeedRangesOptions, SessionToken,
};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use crate::admin::{merge_first_two, partitions, split_first_partition, split_leftmost};
use crate::harness::{Cases, cases};
use crate::scene::Scene;

const N_ITEMS: u32 = 100;

pub fn cases() -> Cases {
    cases![
        "split-keeps-items" => [keeps_items],
        "split-old-session-token" => [old_session_token],
        "merge-under-paging" => [merge_under_paging],
    ]
}

/// Writes items of many keys; gives the session token of each.
async fn fill(container: &ContainerClient) -> Result<Vec<SessionToken>> {
    let mut tokens = Vec::new();
    for n in 0..N_ITEMS {
        let id = n.to_string();
        let written = container
            .upsert_item(id.clone(), &id, json!({"id": id, "pk": id, "n": n}), None)
            .await?;
        tokens.push(
            written
                .headers()
                .session_token()
                .cloned()
                .context("a write without a session token")?,
        );
    }
    Ok(tokens)
}

async fn split(scene: &Scene) -> Result<()> {
    split_first_partition(
        &scene.environment.endpoint,
        &scene.environment.key,
        &scene.name,
        &scene.name,
    )
    .await
}

async fn keeps_items(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let n_before = container.read_feed_ranges(None).await?.len();
    fill(&container).await?;
    split(&scene).await?;
    for n in 0..N_ITEMS {
        let id = n.to_string();
        let read: Value = container
            .read_item(id.clone(), &id, None)
            .await
            .with_context(|| format!("reading {id}"))?
            .into_model()?;
        ensure!(read["n"] == n, "{read}");
        let changed = json!({"id": id, "pk": id, "n": n + 1000});
        container
            .replace_item(id.clone(), &id, changed, None)
            .await
            .with_context(|| format!("replacing {id}"))?;
        container
            .create_item(id.clone(), "new", json!({"id": "new", "pk": id}), None)
            .await?;
        let read: Value = container.read_item(id.clone(), &id, None).await?.into_model()?;
        ensure!(read["n"] == n + 1000, "{read}");
    }
    let fresh = ReadFeedRangesOptions::default().with_force_refresh(true);
    let n_after = container.read_feed_ranges(Some(fresh)).await?.len();
    ensure!(n_after == n_before + 1, "{n_before} ranges became {n_after}");
    Ok(())
}

async fn old_session_token(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let tokens = fill(&container).await?;
    split(&scene).await?;
    read_with(&scene, &container, tokens).await
}

/// Reads every item with the session token of an earlier write, by a client that saw it and by one that did not.
async fn read_with(scene: &Scene, container: &ContainerClient, tokens: Vec<SessionToken>) -> Result<()> {
    let elsewhere = scene.another_client().await?;
    let elsewhere = elsewhere
        .database_client(&scene.name)
        .container_client(&scene.name, None)
        .await?;
    for (n, token) in tokens.into_iter().enumerate() {
        let id = n.to_string();
        for container in [container, &elsewhere] {
            let options = ItemReadOptions::default().with_session_token(token.clone());
            let read = container.read_item(id.clone(), &id, Some(options)).await;
            let read: Value = read
                .with_context(|| format!("reading {id} with {}", token.as_str()))?
                .into_model()?;
            ensure!(read["n"] == n, "{read}");
        }
    }
    Ok(())
}

async fn n_partitions(scene: &Scene) -> Result<usize> {
    let environment = &scene.environment;
    let numbers = partitions(&environment.endpoint, &environment.key, &scene.name, &scene.name).await?;
    Ok(numbers.len())
}

async fn pages(container: &ContainerClient) -> Result<QueryPageIterator<u32>> {
    let size = NonZeroU32::new(4).context("a page has rows")?;
    let options = QueryOptions::default().with_max_item_count(MaxItemCountHint::Limit(size));
    let rows = container
        .query_items("SELECT VALUE c.n FROM c", FeedScope::full_container(), Some(options))
        .await?;
    Ok(rows.into_pages())
}

async fn merge_under_paging(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let before_split = fill(&container).await?;
    let environment = &scene.environment;
    let (endpoint, key) = (&environment.endpoint, &environment.key);
    let n_before = n_partitions(&scene).await?;
    split_leftmost(endpoint, key, &scene.name, &scene.name).await?;
    let n_split = n_partitions(&scene).await?;
    ensure!(n_split == n_before + 1, "{n_before} partitions became {n_split}");
    let before_merge = fill(&container).await?;

    let mut pages = pages(&container).await?;
    let mut found = pages.next().await.context("there is no page")??.into_items();
    ensure!(
        (1..=4).contains(&found.len()),
        "the first page has {} rows",
        found.len()
    );
    merge_first_two(endpoint, key, &scene.name, &scene.name).await?;
    let n_merged = n_partitions(&scene).await?;
    ensure!(n_merged == n_before, "{n_split} partitions became {n_merged}");
    let rest: Vec<_> = pages.try_collect().await?;
    found.extend(rest.into_iter().flat_map(|page| page.into_items()));
    found.sort();
    ensure!(found == (0..N_ITEMS).collect::<Vec<_>>(), "the query gave {found:?}");
    read_with(&scene, &container, before_split).await?;
    read_with(&scene, &container, before_merge).await
}
