//! Time to live.

use std::time::Duration;

use anyhow::{Result, ensure};
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::models::TimeToLive;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::harness::{Cases, cases};
use crate::scene::Scene;

const DEADLINE: Duration = Duration::from_secs(15);

pub fn cases() -> Cases {
    cases![
        "item-ttl-expires" => [expires],
        "item-ttl-never" => [never],
        "item-not-indexed" => [skip "The SDK has no option that says how an item is indexed."],
    ]
}

async fn expires(scene: Scene) -> Result<()> {
    let container = scene
        .container_with("/pk", |container| container.with_default_ttl(TimeToLive::NoDefault))
        .await?;
    container
        .create_item("a", "stays", json!({"id": "stays", "pk": "a"}), None)
        .await?;
    container
        .create_item("a", "goes", json!({"id": "goes", "pk": "a", "ttl": 1}), None)
        .await?;
    wait_until_gone(&container, "goes").await?;
    container.read_item("a", "stays", None).await?;
    // The name is free again.
    container
        .create_item("a", "goes", json!({"id": "goes", "pk": "a"}), None)
        .await?;
    Ok(())
}

async fn never(scene: Scene) -> Result<()> {
    let container = scene
        .container_with("/pk", |container| container.with_default_ttl(1))
        .await?;
    container
        .create_item("a", "stays", json!({"id": "stays", "pk": "a", "ttl": -1}), None)
        .await?;
    container
        .create_item("a", "goes", json!({"id": "goes", "pk": "a"}), None)
        .await?;
    wait_until_gone(&container, "goes").await?;
    container.read_item("a", "stays", None).await?;
    Ok(())
}

async fn wait_until_gone(container: &ContainerClient, id: &str) -> Result<()> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match container.read_item("a", id, None).await {
            Err(error) if error.status().is_not_found() => return Ok(()),
            Err(error) => return Err(error.into()),
            Ok(_) => ensure!(Instant::now() < deadline, "{id} is still there after {DEADLINE:?}"),
        }
        sleep(Duration::from_millis(100)).await;
    }
}
