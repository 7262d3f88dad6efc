//! Transactional batches.

use anyhow::{Context as _, Result, ensure};
use azure_core::http::Etag;
use azure_data_cosmos::TransactionalBatch;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::models::TransactionalBatchResponse;
use azure_data_cosmos::options::{BatchDeleteOptions, BatchOptions, BatchReplaceOptions, Precondition};
use serde_json::{Value, json};

use crate::harness::{Cases, cases};
use crate::scene::{Scene, content_wanted, etag, expect_refusal};

pub fn cases() -> Cases {
    cases![
        "batch-all-operations" => [all_operations],
        "batch-is-atomic" => [is_atomic],
        "batch-if-match" => [with_if_match],
        "batch-sees-its-own-writes" => [sees_its_own_writes],
        "bulk-many-items" => [skip "The SDK has no bulk mode."],
        "delete-by-partition-key" => [skip "The SDK has no call that deletes a logical partition."],
    ]
}

fn item(id: &str, n: u32) -> Value {
    json!({"id": id, "pk": "a", "n": n})
}

async fn execute(container: &ContainerClient, batch: TransactionalBatch) -> Result<TransactionalBatchResponse> {
    let options = BatchOptions::default().with_operation_options(content_wanted());
    Ok(container
        .execute_transactional_batch(batch, Some(options))
        .await?
        .into_model()?)
}

fn statuses(response: &TransactionalBatchResponse) -> Vec<u16> {
    response.results().iter().map(|result| result.status_code()).collect()
}

/// All but patch, which the SDK's batches do not have.
async fn all_operations(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    for id in ["read", "replaced", "deleted", "upserted"] {
        container.create_item("a", id, item(id, 1), None).await?;
    }
    let batch = TransactionalBatch::new("a")
        .create_item(item("created", 2))?
        .upsert_item(item("upserted", 2), None)?
        .upsert_item(item("fresh", 2), None)?
        .read_item("read", None)
        .replace_item("replaced", item("replaced", 2), None)?
        .delete_item("deleted", None);
    let response = execute(&container, batch).await?;
    ensure!(
        statuses(&response) == [201, 200, 201, 200, 200, 204],
        "{:?}",
        statuses(&response)
    );
    for result in response.results() {
        ensure!(
            result.request_charge().is_some_and(|charge| charge >= 0.0),
            "an operation has no charge"
        );
    }
    let read: Option<Value> = response.results()[3].into_model()?;
    ensure!(
        read.as_ref().is_some_and(|item| item["n"] == 1),
        "the read gave {read:?}"
    );
    ensure!(response.results()[0].etag().is_some(), "the create has no etag");
    for id in ["created", "upserted", "fresh", "replaced"] {
        let read: Value = container.read_item("a", id, None).await?.into_model()?;
        ensure!(read["n"] == 2, "{read}");
    }
    expect_refusal(container.read_item("a", "deleted", None).await, 404)?;
    Ok(())
}

async fn is_atomic(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    container.create_item("a", "taken", item("taken", 1), None).await?;
    let batch = TransactionalBatch::new("a")
        .create_item(item("new", 1))?
        .create_item(item("taken", 2))?
        .upsert_item(item("other", 1), None)?;
    let response = execute(&container, batch).await?;
    ensure!(statuses(&response) == [424, 409, 424], "{:?}", statuses(&response));
    expect_refusal(container.read_item("a", "new", None).await, 404)?;
    expect_refusal(container.read_item("a", "other", None).await, 404)?;
    let taken: Value = container.read_item("a", "taken", None).await?.into_model()?;
    ensure!(taken["n"] == 1, "{taken}");
    Ok(())
}

async fn with_if_match(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let stale = etag(&container.create_item("a", "1", item("1", 1), None).await?)?;
    let current = etag(&container.replace_item("a", "1", item("1", 2), None).await?)?;
    let replace = |etag: &Etag| BatchReplaceOptions::default().with_precondition(Precondition::if_match(etag.clone()));
    let delete = BatchDeleteOptions::default().with_precondition(Precondition::if_match(stale.clone()));
    let batch = TransactionalBatch::new("a").create_item(item("2", 1))?.replace_item(
        "1",
        item("1", 3),
        Some(replace(&stale)),
    )?;
    let response = execute(&container, batch).await?;
    ensure!(statuses(&response) == [424, 412], "{:?}", statuses(&response));
    let batch = TransactionalBatch::new("a")
        .create_item(item("2", 1))?
        .delete_item("1", Some(delete));
    let response = execute(&container, batch).await?;
    ensure!(statuses(&response) == [424, 412], "{:?}", statuses(&response));
    expect_refusal(container.read_item("a", "2", None).await, 404)?;
    let batch = TransactionalBatch::new("a").replace_item("1", item("1", 3), Some(replace(&current)))?;
    let response = execute(&container, batch).await?;
    ensure!(statuses(&response) == [200], "{:?}", statuses(&response));
    Ok(())
}

async fn sees_its_own_writes(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let batch = TransactionalBatch::new("a")
        .create_item(item("1", 1))?
        .read_item("1", None)
        .replace_item("1", item("1", 2), None)?
        .read_item("1", None);
    let response = execute(&container, batch).await?;
    ensure!(statuses(&response) == [201, 200, 200, 200], "{:?}", statuses(&response));
    for (index, n) in [(1, 1), (3, 2)] {
        let read: Value = response.results()[index]
            .into_model()?
            .context("the read has no content")?;
        ensure!(read["n"] == n, "{read}");
    }
    Ok(())
}
