//! Databases.

use anyhow::{Result, ensure};
use azure_data_cosmos::Query;
use futures::TryStreamExt as _;

use crate::harness::{Cases, cases};
use crate::scene::{Scene, expect_refusal};

pub fn cases() -> Cases {
    cases![
        "database-create-read-delete" => [create_read_delete],
        "database-create-twice-is-409" => [create_twice_is_409],
        "database-missing-is-404" => [missing_is_404],
        "database-create-if-not-exists" => [skip "The SDK has no create-if-not-exists."],
        "database-list" => [list],
        "database-query-by-id" => [query_by_id],
        "database-shared-throughput" => [skip "The SDK creates databases without throughput only."],
        "database-name-invalid-is-400" => [name_invalid_is_400],
    ]
}

async fn create_read_delete(scene: Scene) -> Result<()> {
    scene.remember_database(&scene.name);
    let created = scene.client.create_database(&scene.name, None).await?;
    ensure!(
        u16::from(created.status().status_code()) == 201,
        "created with {:?}",
        created.status()
    );
    let created = created.into_model()?;
    let database = scene.client.database_client(&scene.name);
    let read = database.read(None).await?.into_model()?;
    ensure!(read.id.as_ref() == Some(&scene.name), "another id: {:?}", read.id);
    ensure!(read.system_properties.resource_id.is_some(), "no _rid");
    ensure!(
        read.system_properties == created.system_properties,
        "the system properties changed"
    );
    let deleted = database.delete(None).await?;
    ensure!(
        u16::from(deleted.status().status_code()) == 204,
        "deleted with {:?}",
        deleted.status()
    );
    expect_refusal(database.read(None).await, 404)?;
    Ok(())
}

async fn create_twice_is_409(scene: Scene) -> Result<()> {
    scene.database().await?;
    expect_refusal(scene.client.create_database(&scene.name, None).await, 409)?;
    Ok(())
}

async fn missing_is_404(scene: Scene) -> Result<()> {
    let database = scene.client.database_client(&scene.name);
    expect_refusal(database.read(None).await, 404)?;
    expect_refusal(database.delete(None).await, 404)?;
    Ok(())
}

async fn list(scene: Scene) -> Result<()> {
    let names = ["a", "b", "c"].map(|suffix| format!("{}-{suffix}", scene.name));
    for name in &names {
        scene.remember_database(name);
        scene.client.create_database(name, None).await?;
    }
    let listed = query(&scene, Query::from("SELECT * FROM c")).await?;
    for name in &names {
        let n_found = listed.iter().filter(|listed| *listed == name).count();
        ensure!(n_found == 1, "{name} was listed {n_found} times");
    }
    Ok(())
}

async fn query_by_id(scene: Scene) -> Result<()> {
    scene.database().await?;
    let by_id = |id: &str| Query::from("SELECT * FROM c WHERE c.id = @id").with_parameter("@id", id);
    let found = query(&scene, by_id(&scene.name)?).await?;
    ensure!(found == [scene.name.clone()], "found {found:?}");
    let found = query(&scene, by_id("no-such-database")?).await?;
    ensure!(found.is_empty(), "found {found:?}");
    Ok(())
}

async fn query(scene: &Scene, query: Query) -> Result<Vec<String>> {
    let databases = scene.client.query_databases(query, None).await?;
    Ok(databases
        .map_ok(|database| database.id.unwrap_or_default())
        .try_collect()
        .await?)
}

async fn name_invalid_is_400(scene: Scene) -> Result<()> {
    expect_refusal(scene.client.create_database("with/slash", None).await, 400)?;
    Ok(())
}
