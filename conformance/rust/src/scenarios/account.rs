//! Keys and transport.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::harness::{Cases, cases};
use crate::scene::{Scene, connect, connect_apart, expect_refusal, without_system_properties};

pub fn cases() -> Cases {
    cases![
        "account-read" => [skip "The SDK reads the account itself and has no call that shows it."],
        "wrong-key-is-401" => [wrong_key_is_401],
        "read-only-key-reads" => [read_only_key_reads],
        "read-only-key-cannot-write" => [read_only_key_cannot_write],
        "https-with-local-authority" => [https_with_local_authority],
    ]
}

async fn wrong_key_is_401(scene: Scene) -> Result<()> {
    let other = "d3Jvbmcta2V5LXdyb25nLWtleS13cm9uZy1rZXktd3Jvbmcta2V5LXdyb25nLWtleS13cm9uZy1rZXktd3Jvbg==";
    match connect_apart(&scene.environment.endpoint, other).await {
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

async fn read_only_key_reads(scene: Scene) -> Result<()> {
    scene
        .container()
        .await?
        .create_item("a", "1", json!({"id": "1", "pk": "a"}), None)
        .await?;
    let reader = connect_apart(&scene.environment.endpoint, &scene.environment.read_only_key).await?;
    let container = reader
        .database_client(&scene.name)
        .container_client(&scene.name, None)
        .await?;
    let item: Value = container.read_item("a", "1", None).await?.into_model()?;
    ensure!(item["id"] == "1", "not the item: {item}");
    Ok(())
}

async fn read_only_key_cannot_write(scene: Scene) -> Result<()> {
    scene.container().await?;
    let reader = connect_apart(&scene.environment.endpoint, &scene.environment.read_only_key).await?;
    let container = reader
        .database_client(&scene.name)
        .container_client(&scene.name, None)
        .await?;
    expect_refusal(
        container
            .create_item("a", "1", json!({"id": "1", "pk": "a"}), None)
            .await,
        403,
    )?;
    expect_refusal(container.delete_item("a", "1", None).await, 403)?;
    Ok(())
}

async fn https_with_local_authority(scene: Scene) -> Result<()> {
    scene.container().await?;
    let endpoint = scene.environment.endpoint.replace("http://", "https://");
    let secure = connect(&endpoint, &scene.environment.key).await?;
    let container = secure
        .database_client(&scene.name)
        .container_client(&scene.name, None)
        .await?;
    let written = json!({"id": "1", "pk": "a", "over": "TLS"});
    container.create_item("a", "1", &written, None).await?;
    let read: Value = container.read_item("a", "1", None).await?.into_model()?;
    ensure!(
        without_system_properties(read.clone()) == written,
        "not the item: {read}"
    );
    Ok(())
}
