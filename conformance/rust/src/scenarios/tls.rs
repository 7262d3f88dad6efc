//! The same operations over TLS, with a certificate of the local authority.

use std::num::NonZeroU32;

use anyhow::{Result, ensure};
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::models::{PatchInstructions, PatchOperation};
use azure_data_cosmos::options::{ChangeFeedStartFrom, MaxItemCountHint, QueryOptions};
use azure_data_cosmos::{FeedScope, TransactionalBatch};
use futures::TryStreamExt as _;
use serde_json::{Value, json};

use super::{change_feed, patch};
use crate::harness::{Cases, cases};
use crate::scene::{Scene, connect, expect_refusal, expect_success, without_system_properties};

pub fn cases() -> Cases {
    cases![
        "https-with-local-authority" => [https_with_local_authority],
        "tls-all-basic-operations" => [all_basic_operations],
    ]
}

/// A new container by a client that speaks TLS.
async fn secure_container(scene: &Scene) -> Result<ContainerClient> {
    scene.container().await?;
    let endpoint = scene.environment.endpoint.replace("http://", "https://");
    let secure = connect(&endpoint, &scene.environment.key).await?;
    let database = secure.database_client(&scene.name);
    Ok(database.container_client(&scene.name, None).await?)
}

async fn https_with_local_authority(scene: Scene) -> Result<()> {
    let container = secure_container(&scene).await?;
    let written = json!({"id": "1", "pk": "a", "over": "TLS"});
    container.create_item("a", "1", &written, None).await?;
    let read: Value = container.read_item("a", "1", None).await?.into_model()?;
    ensure!(
        without_system_properties(read.clone()) == written,
        "not the item: {read}"
    );
    Ok(())
}

fn item(id: &str, n: u64) -> Value {
    json!({"id": id, "pk": "a", "n": n})
}

async fn all_basic_operations(scene: Scene) -> Result<()> {
    let container = secure_container(&scene).await?;
    write(&container).await?;
    let size = NonZeroU32::MIN.saturating_add(1);
    let options = QueryOptions::default().with_max_item_count(MaxItemCountHint::Limit(size));
    let query = "SELECT VALUE c.n FROM c";
    let rows = container
        .query_items::<u64>(query, FeedScope::full_container(), Some(options))
        .await?;
    let pages: Vec<_> = rows.into_pages().try_collect().await?;
    let pages: Vec<Vec<u64>> = pages.into_iter().map(|page| page.into_items()).collect();
    ensure!(
        pages.len() >= 3 && pages.iter().all(|page| page.len() <= 2),
        "the pages are {pages:?}"
    );
    let mut rows = pages.concat();
    rows.sort();
    ensure!(rows == [3, 4, 5, 6, 7, 11], "the query gave {rows:?}");
    let (changes, _) = change_feed::everything(&container, ChangeFeedStartFrom::Beginning).await?;
    let seen: Vec<u64> = change_feed::seen(&changes).into_iter().map(|(_, n)| n).collect();
    ensure!(seen == [11, 3, 4, 5, 6, 7], "the feed, sorted by id, gave {seen:?}");
    Ok(())
}

/// Every kind of write once.
async fn write(container: &ContainerClient) -> Result<()> {
    expect_success(&container.create_item("a", "1", item("1", 1), None).await?, 201)?;
    expect_success(&container.upsert_item("a", "2", item("2", 2), None).await?, 201)?;
    expect_success(&container.replace_item("a", "1", item("1", 10), None).await?, 200)?;
    let more = PatchInstructions::new().with_operation(PatchOperation::increment("/n", 1));
    let patched = container.patch_item("a", "1", more, patch::on_the_server()).await?;
    expect_success(&patched, 200)?;
    let mut batch = TransactionalBatch::new("a");
    for n in 3..8 {
        batch = batch.create_item(item(&n.to_string(), n))?;
    }
    let created = container.execute_transactional_batch(batch, None).await?.into_model()?;
    let statuses: Vec<u16> = created.results().iter().map(|result| result.status_code()).collect();
    ensure!(statuses == [201; 5], "the batch answered {statuses:?}");
    expect_success(&container.delete_item("a", "2", None).await?, 204)?;
    expect_refusal(container.read_item("a", "2", None).await, 404)?;
    Ok(())
}
