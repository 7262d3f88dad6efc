//! Containers and their policies.

use anyhow::{Context as _, Result, ensure};
use azure_data_cosmos::Query;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::clients::DatabaseClient;
use azure_data_cosmos::models::{
    CompositeIndex, CompositeIndexOrder, CompositeIndexProperty, ContainerProperties, IndexingMode, IndexingPolicy,
    PartitionKeyKind, PropertyPath, SpatialIndex, SpatialType, TimeToLive, UniqueKey, UniqueKeyPolicy,
};
use futures::TryStreamExt as _;

use crate::harness::{Cases, cases};
use crate::scene::{Scene, expect_refusal};

pub fn cases() -> Cases {
    cases![
        "container-create-read-delete" => [create_read_delete],
        "container-create-twice-is-409" => [create_twice_is_409],
        "container-missing-is-404" => [missing_is_404],
        "container-odd-name" => [odd_name],
        "container-list-and-query" => [list_and_query],
        "container-default-indexing-policy" => [default_indexing_policy],
        "container-custom-indexing-policy" => [custom_indexing_policy],
        "container-replace-indexing-policy" => [replace_indexing_policy],
        "container-replace-ttl" => [replace_ttl],
        "container-partition-key-cannot-change" => [partition_key_cannot_change],
        "container-hierarchical-key" => [hierarchical_key],
        "container-unique-keys-shown" => [unique_keys_shown],
    ]
}

async fn create_read_delete(scene: Scene) -> Result<()> {
    let database = scene.database().await?;
    let created = database
        .create_container(ContainerProperties::new(scene.name.clone(), "/pk".into()), None)
        .await?;
    ensure!(
        u16::from(created.status().status_code()) == 201,
        "created with {:?}",
        created.status()
    );
    let created = created.into_model()?;
    let container = database.container_client(&scene.name, None).await?;
    let read = properties(&container).await?;
    ensure!(read == created, "read {read:?}, created {created:?}");
    ensure!(
        read.id == scene.name && read.partition_key.paths() == ["/pk"],
        "not what was created: {read:?}"
    );
    ensure!(read.system_properties.resource_id.is_some(), "no _rid");
    let deleted = container.delete(None).await?;
    ensure!(
        u16::from(deleted.status().status_code()) == 204,
        "deleted with {:?}",
        deleted.status()
    );
    expect_refusal(container.read(None).await, 404)?;
    Ok(())
}

async fn create_twice_is_409(scene: Scene) -> Result<()> {
    scene.container().await?;
    let again = ContainerProperties::new(scene.name.clone(), "/pk".into());
    expect_refusal(
        scene
            .client
            .database_client(&scene.name)
            .create_container(again, None)
            .await,
        409,
    )?;
    Ok(())
}

async fn missing_is_404(scene: Scene) -> Result<()> {
    let database = scene.database().await?;
    expect_refusal(database.container_client("no-such-container", None).await, 404)?;
    let container = {
        let there = ContainerProperties::new("short-lived", "/pk".into());
        database.create_container(there, None).await?;
        database.container_client("short-lived", None).await?
    };
    container.delete(None).await?;
    expect_refusal(container.delete(None).await, 404)?;
    Ok(())
}

async fn odd_name(scene: Scene) -> Result<()> {
    const NAME: &str = "100% größe";
    let database = scene.database().await?;
    database
        .create_container(ContainerProperties::new(NAME, "/pk".into()), None)
        .await?;
    let container = database.container_client(NAME, None).await?;
    container
        .upsert_item("a", "1", &serde_json::json!({"id": "1", "pk": "a", "n": 1}), None)
        .await?;
    let read: serde_json::Value = container.read_item("a", "1", None).await?.into_model()?;
    ensure!(read["n"] == 1, "read {read}");
    let shown = properties(&container).await?;
    ensure!(shown.id == NAME, "the container is called {}", shown.id);
    Ok(())
}

async fn list_and_query(scene: Scene) -> Result<()> {
    let database = scene.database().await?;
    for name in ["one", "three", "two"] {
        database
            .create_container(ContainerProperties::new(name, "/pk".into()), None)
            .await?;
    }
    let mut all = query(&database, Query::from("SELECT * FROM c")).await?;
    all.sort();
    ensure!(all == ["one", "three", "two"], "listed {all:?}");
    let by_id = Query::from("SELECT * FROM c WHERE c.id = @id").with_parameter("@id", "two")?;
    let found = query(&database, by_id).await?;
    ensure!(found == ["two"], "found {found:?}");
    Ok(())
}

async fn query(database: &DatabaseClient, query: Query) -> Result<Vec<String>> {
    let containers = database.query_containers(query, None).await?;
    Ok(containers
        .map_ok(|container| container.id.into_owned())
        .try_collect()
        .await?)
}

async fn default_indexing_policy(scene: Scene) -> Result<()> {
    let policy = indexing_policy(&scene.container().await?).await?;
    ensure!(
        policy.automatic && policy.indexing_mode == Some(IndexingMode::Consistent),
        "{policy:?}"
    );
    ensure!(policy.included_paths == [PropertyPath::from("/*")], "{policy:?}");
    ensure!(
        policy.excluded_paths == [PropertyPath::from("/\"_etag\"/?")],
        "{policy:?}"
    );
    Ok(())
}

fn custom_policy() -> IndexingPolicy {
    let mut policy = IndexingPolicy::default()
        .with_indexing_mode(IndexingMode::Consistent)
        .with_included_path("/name/?")
        .with_included_path("/tags/[]/?")
        .with_excluded_path("/*")
        .with_spatial_index(
            SpatialIndex::new("/place/*")
                .with_type(SpatialType::Point)
                .with_type(SpatialType::Polygon),
        )
        .with_composite_index(
            CompositeIndex::default()
                .with_property(CompositeIndexProperty::new("/name", CompositeIndexOrder::Ascending))
                .with_property(CompositeIndexProperty::new("/age", CompositeIndexOrder::Descending)),
        );
    policy.automatic = true;
    policy
}

fn check_custom_policy(shown: &IndexingPolicy) -> Result<()> {
    let sent = custom_policy();
    ensure!(
        shown.automatic && shown.indexing_mode == sent.indexing_mode,
        "{shown:?}"
    );
    ensure!(shown.included_paths == sent.included_paths, "{shown:?}");
    // The hosted service adds the path of the etag to whatever is excluded.
    ensure!(shown.excluded_paths.contains(&PropertyPath::from("/*")), "{shown:?}");
    ensure!(shown.composite_indexes == sent.composite_indexes, "{shown:?}");
    let [spatial] = shown.spatial_indexes.as_slice() else {
        anyhow::bail!("{shown:?}")
    };
    ensure!(spatial.path == "/place/*", "{shown:?}");
    ensure!(
        spatial.types.contains(&SpatialType::Point) && spatial.types.contains(&SpatialType::Polygon),
        "{shown:?}"
    );
    Ok(())
}

async fn custom_indexing_policy(scene: Scene) -> Result<()> {
    let container = scene
        .container_with("/pk", |container| container.with_indexing_policy(custom_policy()))
        .await?;
    check_custom_policy(&indexing_policy(&container).await?)
}

async fn replace_indexing_policy(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let changed = properties(&container).await?.with_indexing_policy(custom_policy());
    let replaced = container.replace(changed, None).await?.into_model()?;
    check_custom_policy(&replaced.indexing_policy.context("the answer has no indexing policy")?)?;
    check_custom_policy(&indexing_policy(&container).await?)
}

async fn replace_ttl(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let before = properties(&container).await?;
    ensure!(before.default_ttl == TimeToLive::Forever, "{before:?}");
    container.replace(before.with_default_ttl(3600), None).await?;
    let after = properties(&container).await?;
    ensure!(after.default_ttl == TimeToLive::Seconds(3600), "{after:?}");
    Ok(())
}

async fn partition_key_cannot_change(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let mut changed = properties(&container).await?;
    changed.partition_key = "/other".into();
    expect_refusal(container.replace(changed, None).await, 400)?;
    ensure!(
        properties(&container).await?.partition_key.paths() == ["/pk"],
        "the key changed"
    );
    Ok(())
}

async fn hierarchical_key(scene: Scene) -> Result<()> {
    let container = scene
        .container_with(("/tenant", "/user", "/session"), |container| container)
        .await?;
    let key = properties(&container).await?.partition_key;
    ensure!(key.kind() == PartitionKeyKind::MultiHash, "{key:?}");
    ensure!(key.paths() == ["/tenant", "/user", "/session"], "{key:?}");
    Ok(())
}

async fn unique_keys_shown(scene: Scene) -> Result<()> {
    let policy = UniqueKeyPolicy::default()
        .with_unique_key(UniqueKey::default().with_path("/email"))
        .with_unique_key(UniqueKey::default().with_path("/first").with_path("/name/last"));
    let sent = policy.clone();
    let container = scene
        .container_with("/pk", |container| container.with_unique_key_policy(sent))
        .await?;
    let shown = properties(&container).await?.unique_key_policy;
    ensure!(shown.as_ref() == Some(&policy), "{shown:?}");
    Ok(())
}

async fn properties(container: &ContainerClient) -> Result<ContainerProperties> {
    Ok(container.read(None).await?.into_model()?)
}

async fn indexing_policy(container: &ContainerClient) -> Result<IndexingPolicy> {
    properties(container)
        .await?
        .indexing_policy
        .context("no indexing policy is shown")
}
