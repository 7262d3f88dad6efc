//! The account and its keys.

use anyhow::{Result, ensure};
use azure_data_cosmos::clients::ContainerClient;
use serde_json::{Value, json};

use crate::admin;
use crate::harness::{Cases, cases};
use crate::scene::{Scene, connect_apart, expect_refusal};

pub fn cases() -> Cases {
    cases![
        "account-read" => [skip "The SDK reads the account itself and has no call that shows it."],
        "wrong-key-is-401" => [wrong_key_is_401],
        "read-only-key-reads" => [read_only_key_reads],
        "read-only-key-cannot-write" => [read_only_key_cannot_write],
    ]
}

/// Each makes the secondary key of the other worthless.
pub fn rotations() -> Cases {
    cases![
        "key-secondary-reads-and-writes" => [secondary_key_reads_and_writes],
        "key-rotation-refuses-the-old-key" => [rotation_refuses_the_old_key],
    ]
}

async fn wrong_key_is_401(scene: Scene) -> Result<()> {
    let other = "d3Jvbmcta2V5LXdyb25nLWtleS13cm9uZy1rZXktd3Jvbmcta2V5LXdyb25nLWtleS13cm9uZy1rZXktd3Jvbg==";
    expect_stranger(&scene, other).await
}

/// Nobody has this key.
async fn expect_stranger(scene: &Scene, key: &str) -> Result<()> {
    match connect_apart(&scene.environment.endpoint, key).await {
        Ok(client) => expect_refusal(client.create_database(&scene.name, None).await, 401).map(drop),
        // Building a client reads the account, which is where it is refused.
        Err(error) => {
            let status = error
                .downcast_ref::<azure_data_cosmos::CosmosError>()
                .map(|error| error.status());
            ensure!(
                status.is_some_and(|status| u16::from(status.status_code()) == 401),
                "refused otherwise: {error:#}"
            );
            Ok(())
        }
    }
}

/// The scenario's container by a client that holds this key.
async fn seen_with(scene: &Scene, key: &str) -> Result<ContainerClient> {
    let client = connect_apart(&scene.environment.endpoint, key).await?;
    let database = client.database_client(&scene.name);
    Ok(database.container_client(&scene.name, None).await?)
}

async fn read_only_key_reads(scene: Scene) -> Result<()> {
    scene
        .container()
        .await?
        .create_item("a", "1", json!({"id": "1", "pk": "a"}), None)
        .await?;
    let container = seen_with(&scene, &scene.environment.read_only_key).await?;
    let item: Value = container.read_item("a", "1", None).await?.into_model()?;
    ensure!(item["id"] == "1", "not the item: {item}");
    Ok(())
}

async fn read_only_key_cannot_write(scene: Scene) -> Result<()> {
    scene.container().await?;
    let container = seen_with(&scene, &scene.environment.read_only_key).await?;
    expect_refusal(
        container
            .create_item("a", "1", json!({"id": "1", "pk": "a"}), None)
            .await,
        403,
    )?;
    expect_refusal(container.delete_item("a", "1", None).await, 403)?;
    Ok(())
}

async fn rotate(scene: &Scene) -> Result<String> {
    admin::rotate_secondary_key(&scene.environment.endpoint, &scene.environment.key).await
}

async fn secondary_key_reads_and_writes(scene: Scene) -> Result<()> {
    let primary = scene.container().await?;
    let secondary = seen_with(&scene, &rotate(&scene).await?).await?;
    secondary
        .create_item("a", "1", json!({"id": "1", "pk": "a", "n": 7}), None)
        .await?;
    for container in [&secondary, &primary] {
        let item: Value = container.read_item("a", "1", None).await?.into_model()?;
        ensure!(item["n"] == 7, "not the item: {item}");
    }
    secondary.delete_item("a", "1", None).await?;
    expect_refusal(primary.read_item("a", "1", None).await, 404)?;
    Ok(())
}

async fn rotation_refuses_the_old_key(scene: Scene) -> Result<()> {
    let primary = scene.container().await?;
    primary
        .create_item("a", "1", json!({"id": "1", "pk": "a", "n": 7}), None)
        .await?;
    let old_key = rotate(&scene).await?;
    let old = seen_with(&scene, &old_key).await?;
    old.read_item("a", "1", None).await?;
    let new = rotate(&scene).await?;
    expect_refusal(old.read_item("a", "1", None).await, 401)?;
    expect_stranger(&scene, &old_key).await?;
    for container in [seen_with(&scene, &new).await?, primary] {
        let item: Value = container.read_item("a", "1", None).await?.into_model()?;
        ensure!(item["n"] == 7, "not the item: {item}");
    }
    Ok(())
}
