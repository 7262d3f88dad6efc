//! Items under every kind of partition key.

use anyhow::{Context as _, Result, ensure};
use azure_data_cosmos::PartitionKey;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::models::{UniqueKey, UniqueKeyPolicy};
use serde_json::{Value, json};

use crate::harness::{Cases, cases};
use crate::scene::{Scene, expect_refusal, without_system_properties};

pub fn cases() -> Cases {
    cases![
        "item-number-key" => [number_key],
        "item-boolean-key" => [boolean_key],
        "item-null-key" => [null_key],
        "item-missing-key" => [missing_key],
        "item-hierarchical-key" => [hierarchical_key],
        "item-key-mismatch-is-400" => [key_mismatch_is_400],
        "item-unique-key-conflict-is-409" => [unique_key_conflict_is_409],
    ]
}

/// Every point operation under this key.
async fn check(container: &ContainerClient, key: PartitionKey, item: Value) -> Result<()> {
    let id = item["id"].as_str().context("the item has an id")?;
    container
        .create_item(key.clone(), id, &item, None)
        .await
        .with_context(|| format!("creating {item}"))?;
    let read: Value = container.read_item(key.clone(), id, None).await?.into_model()?;
    ensure!(
        without_system_properties(read.clone()) == item,
        "wrote {item}, read {read}"
    );
    container
        .replace_item(key.clone(), id, &item, None)
        .await
        .with_context(|| format!("replacing {item}"))?;
    container
        .upsert_item(key.clone(), id, &item, None)
        .await
        .with_context(|| format!("upserting {item}"))?;
    expect_refusal(container.read_item("another key", id, None).await, 404)?;
    container
        .delete_item(key.clone(), id, None)
        .await
        .with_context(|| format!("deleting {item}"))?;
    expect_refusal(container.read_item(key, id, None).await, 404)?;
    Ok(())
}

async fn number_key(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    for number in [0, 1, -7, 1_000_000_007] {
        check(&container, number.into(), json!({"id": "1", "pk": number})).await?;
    }
    check(&container, PartitionKey::try_from(2.5)?, json!({"id": "1", "pk": 2.5})).await
}

async fn boolean_key(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    check(&container, true.into(), json!({"id": "1", "pk": true})).await?;
    check(&container, false.into(), json!({"id": "1", "pk": false})).await
}

async fn null_key(scene: Scene) -> Result<()> {
    check(
        &scene.container().await?,
        PartitionKey::NULL.into(),
        json!({"id": "1", "pk": null}),
    )
    .await
}

async fn missing_key(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    container
        .create_item(PartitionKey::NULL, "2", json!({"id": "2", "pk": null}), None)
        .await?;
    check(
        &container,
        PartitionKey::UNDEFINED.into(),
        json!({"id": "1", "other": 1}),
    )
    .await?;
    // Missing is not the same as null.
    expect_refusal(container.read_item(PartitionKey::UNDEFINED, "2", None).await, 404)?;
    Ok(())
}

async fn hierarchical_key(scene: Scene) -> Result<()> {
    let container = scene
        .container_with(("/tenant", "/user", "/session"), |container| container)
        .await?;
    for session in [1, 2] {
        let item = json!({"id": "1", "tenant": "t", "user": "u", "session": session});
        container.create_item(("t", "u", session), "1", &item, None).await?;
    }
    let read: Value = container.read_item(("t", "u", 2), "1", None).await?.into_model()?;
    ensure!(read["session"] == 2, "{read}");
    container.delete_item(("t", "u", 1), "1", None).await?;
    expect_refusal(container.read_item(("t", "u", 1), "1", None).await, 404)?;
    container.read_item(("t", "u", 2), "1", None).await?;
    Ok(())
}

async fn key_mismatch_is_400(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    expect_refusal(
        container
            .create_item("a", "1", json!({"id": "1", "pk": "b"}), None)
            .await,
        400,
    )?;
    expect_refusal(container.read_item("b", "1", None).await, 404)?;
    Ok(())
}

async fn unique_key_conflict_is_409(scene: Scene) -> Result<()> {
    let policy = UniqueKeyPolicy::default().with_unique_key(UniqueKey::default().with_path("/email"));
    let container = scene
        .container_with("/pk", |container| container.with_unique_key_policy(policy))
        .await?;
    let item = |id: &str, key: &str| json!({"id": id, "pk": key, "email": "a@example.org"});
    container.create_item("a", "1", item("1", "a"), None).await?;
    expect_refusal(container.create_item("a", "2", item("2", "a"), None).await, 409)?;
    expect_refusal(container.upsert_item("a", "2", item("2", "a"), None).await, 409)?;
    container.create_item("b", "2", item("2", "b"), None).await?;
    container.delete_item("a", "1", None).await?;
    container.create_item("a", "2", item("2", "a"), None).await?;
    Ok(())
}
