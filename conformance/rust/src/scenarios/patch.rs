//! Partial updates. The SDK would carry out some of them itself, by reading and replacing; here the server does.

use anyhow::{Result, ensure};
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::models::{PatchInstructions, PatchOperation};
use azure_data_cosmos::options::{PatchItemOptions, PatchStrategy};
use serde_json::{Value, json};

use crate::harness::{Cases, cases};
use crate::scene::{Scene, expect_refusal, without_system_properties};

const NO_CONDITION: &str = "The SDK's patches have no condition.";

pub fn cases() -> Cases {
    cases![
        "patch-set-add-replace-remove" => [set_add_replace_remove],
        "patch-increment" => [increment],
        "patch-array-insert-append" => [array_insert_append],
        "patch-move" => [move_value],
        "patch-condition-holds" => [skip NO_CONDITION],
        "patch-condition-fails-is-412" => [skip NO_CONDITION],
        "patch-missing-path-is-400" => [missing_path_is_400],
        "patch-missing-item-is-404" => [missing_item_is_404],
    ]
}

pub(super) fn on_the_server() -> Option<PatchItemOptions> {
    Some(PatchItemOptions::default().with_strategy(PatchStrategy::ServerSide))
}

/// Creates the item, patches it, and compares both the answer and what is stored.
async fn check<const N: usize>(
    scene: &Scene,
    before: Value,
    operations: [PatchOperation; N],
    after: Value,
) -> Result<()> {
    let container = scene.container().await?;
    container.create_item("a", "1", &before, None).await?;
    let patch = PatchInstructions::from(Vec::from(operations));
    let patched: Value = container
        .patch_item("a", "1", patch, on_the_server())
        .await?
        .into_model()?;
    ensure!(
        without_system_properties(patched.clone()) == after,
        "patched into {patched}"
    );
    stored(&container, &after).await
}

async fn stored(container: &ContainerClient, expected: &Value) -> Result<()> {
    let read: Value = container.read_item("a", "1", None).await?.into_model()?;
    ensure!(without_system_properties(read.clone()) == *expected, "stored {read}");
    Ok(())
}

async fn set_add_replace_remove(scene: Scene) -> Result<()> {
    let before = json!({"id": "1", "pk": "a", "old": 1, "name": "x", "inner": {"gone": true, "kept": [1]}});
    let operations = [
        PatchOperation::set("/new", json!({"deep": [1, 2]})),
        PatchOperation::set("/old", json!("overwritten")),
        PatchOperation::add("/inner/added", json!(null)),
        PatchOperation::replace("/name", json!("y")),
        PatchOperation::remove("/inner/gone"),
    ];
    let after = json!({
        "id": "1", "pk": "a", "old": "overwritten", "name": "y", "inner": {"kept": [1], "added": null},
        "new": {"deep": [1, 2]},
    });
    check(&scene, before, operations, after).await
}

async fn increment(scene: Scene) -> Result<()> {
    let before = json!({"id": "1", "pk": "a", "count": 40, "share": 0.5});
    let operations = [
        PatchOperation::increment("/count", 2),
        PatchOperation::increment("/share", 0.25),
        PatchOperation::increment("/fresh", 7),
    ];
    check(
        &scene,
        before,
        operations,
        json!({"id": "1", "pk": "a", "count": 42, "share": 0.75, "fresh": 7}),
    )
    .await
}

async fn array_insert_append(scene: Scene) -> Result<()> {
    let before = json!({"id": "1", "pk": "a", "tags": ["one", "three"]});
    let operations = [
        PatchOperation::add("/tags/1", json!("two")),
        PatchOperation::add("/tags/-", json!("four")),
    ];
    check(
        &scene,
        before,
        operations,
        json!({"id": "1", "pk": "a", "tags": ["one", "two", "three", "four"]}),
    )
    .await
}

async fn move_value(scene: Scene) -> Result<()> {
    let before = json!({"id": "1", "pk": "a", "from": {"value": [1, 2]}, "to": {}});
    let operations = [PatchOperation::move_value("/from/value", "/to/value")];
    check(
        &scene,
        before,
        operations,
        json!({"id": "1", "pk": "a", "from": {}, "to": {"value": [1, 2]}}),
    )
    .await
}

async fn missing_path_is_400(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let item = json!({"id": "1", "pk": "a"});
    container.create_item("a", "1", &item, None).await?;
    let patch = PatchInstructions::new().with_operation(PatchOperation::remove("/no/such/path"));
    expect_refusal(container.patch_item("a", "1", patch, on_the_server()).await, 400)?;
    stored(&container, &item).await
}

async fn missing_item_is_404(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let patch = PatchInstructions::new().with_operation(PatchOperation::set("/n", json!(1)));
    expect_refusal(container.patch_item("a", "1", patch, on_the_server()).await, 404)?;
    Ok(())
}
