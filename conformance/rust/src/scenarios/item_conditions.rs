//! Etags and session tokens.

use anyhow::{Context as _, Result, ensure};
use azure_data_cosmos::options::{ItemReadOptions, Precondition};
use serde_json::{Value, json};

use crate::harness::{Cases, cases};
use crate::scene::{Scene, etag, expect_refusal, expect_success, if_match};

pub fn cases() -> Cases {
    cases![
        "item-etag-if-match" => [etag_if_match],
        "item-stale-etag-is-412" => [stale_etag_is_412],
        "item-delete-stale-etag-is-412" => [delete_stale_etag_is_412],
        "item-read-not-modified" => [read_not_modified],
        "item-session-token" => [session_token],
    ]
}

async fn etag_if_match(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let first = etag(
        &container
            .create_item("a", "1", json!({"id": "1", "pk": "a"}), None)
            .await?,
    )?;
    let replacing = container
        .replace_item("a", "1", json!({"id": "1", "pk": "a", "n": 2}), Some(if_match(&first)))
        .await?;
    expect_success(&replacing, 200)?;
    let second = etag(&replacing)?;
    ensure!(second != first, "the etag stayed");
    let deleted = container.delete_item("a", "1", Some(if_match(&second))).await?;
    expect_success(&deleted, 204)
}

async fn stale_etag_is_412(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let item = |n: u32| json!({"id": "1", "pk": "a", "n": n});
    let stale = etag(&container.create_item("a", "1", item(1), None).await?)?;
    container.replace_item("a", "1", item(2), None).await?;
    expect_refusal(
        container.replace_item("a", "1", item(3), Some(if_match(&stale))).await,
        412,
    )?;
    expect_refusal(
        container.upsert_item("a", "1", item(3), Some(if_match(&stale))).await,
        412,
    )?;
    let read: Value = container.read_item("a", "1", None).await?.into_model()?;
    ensure!(read["n"] == 2, "the refused write changed the item: {read}");
    Ok(())
}

async fn delete_stale_etag_is_412(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let stale = etag(
        &container
            .create_item("a", "1", json!({"id": "1", "pk": "a"}), None)
            .await?,
    )?;
    container
        .replace_item("a", "1", json!({"id": "1", "pk": "a", "n": 2}), None)
        .await?;
    expect_refusal(container.delete_item("a", "1", Some(if_match(&stale))).await, 412)?;
    container.read_item("a", "1", None).await?;
    Ok(())
}

async fn read_not_modified(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let first = etag(
        &container
            .create_item("a", "1", json!({"id": "1", "pk": "a"}), None)
            .await?,
    )?;
    let unless = || Some(ItemReadOptions::default().with_precondition(Precondition::if_none_match(first.clone())));
    let status = match container.read_item("a", "1", unless()).await {
        Ok(answer) => answer.status(),
        Err(error) => error.status(),
    };
    ensure!(u16::from(status.status_code()) == 304, "the answer is {status:?}");
    container
        .replace_item("a", "1", json!({"id": "1", "pk": "a", "n": 2}), None)
        .await?;
    expect_success(&container.read_item("a", "1", unless()).await?, 200)
}

async fn session_token(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let created = container
        .create_item("a", "1", json!({"id": "1", "pk": "a"}), None)
        .await?;
    let token = created
        .headers()
        .session_token()
        .cloned()
        .context("the write gave no session token")?;
    let elsewhere = scene.another_client().await?;
    let elsewhere = elsewhere
        .database_client(&scene.name)
        .container_client(&scene.name, None)
        .await?;
    let with_token = ItemReadOptions::default().with_session_token(token);
    let read = elsewhere.read_item("a", "1", Some(with_token)).await?;
    ensure!(
        read.headers().session_token().is_some(),
        "the read gave no session token"
    );
    let read: Value = read.into_model()?;
    ensure!(read["id"] == "1", "{read}");
    Ok(())
}
