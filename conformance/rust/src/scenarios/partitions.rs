//! A container whose partitions split while clients know the old ones.

use anyhow::{Context as _, Result, ensure};
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::options::{ItemReadOptions, ReadFeedRangesOptions, SessionToken};
use serde_json::{Value, json};

use crate::admin::split_first_partition;
use crate::harness::{Cases, cases};
use crate::scene::Scene;

const N_ITEMS: u32 = 100;

pub fn cases() -> Cases {
    cases![
        "split-keeps-items" => [keeps_items],
        "split-old-session-token" => [old_session_token],
    ]
}

/// Writes items of many keys; gives the session token of each.
async fn fill(container: &ContainerClient) -> Result<Vec<SessionToken>> {
    let mut tokens = Vec::new();
    for n in 0..N_ITEMS {
        let id = n.to_string();
        let created = container
            .create_item(id.clone(), &id, json!({"id": id, "pk": id, "n": n}), None)
            .await?;
        tokens.push(
            created
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
    let elsewhere = scene.another_client().await?;
    let elsewhere = elsewhere
        .database_client(&scene.name)
        .container_client(&scene.name, None)
        .await?;
    for (n, token) in tokens.into_iter().enumerate() {
        let id = n.to_string();
        for container in [&container, &elsewhere] {
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
