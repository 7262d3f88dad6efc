//! Throughput and the ranges a container is cut into.

use anyhow::{Context as _, Result, ensure};
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::models::{ContainerProperties, ThroughputProperties};
use azure_data_cosmos::options::CreateContainerOptions;

use crate::harness::{Cases, cases};
use crate::scene::Scene;

pub fn cases() -> Cases {
    const NO_MIGRATION: &str =
        "The SDK does not send the header that asks for the other mode and wants no such header from its user.";
    cases![
        "container-manual-throughput" => [manual],
        "container-autoscale-throughput" => [autoscale],
        "throughput-manual-to-autoscale" => [skip NO_MIGRATION],
        "throughput-autoscale-to-manual" => [skip NO_MIGRATION],
        "container-feed-ranges" => [feed_ranges],
    ]
}

async fn manual(scene: Scene) -> Result<()> {
    let container = create(&scene, ThroughputProperties::manual(500)).await?;
    ensure!(read(&container).await?.throughput() == Some(500), "not as created");
    let replaced = container
        .begin_replace_throughput(ThroughputProperties::manual(700), None)
        .await?
        .await?;
    ensure!(
        replaced.into_model()?.throughput() == Some(700),
        "the answer shows something else"
    );
    ensure!(read(&container).await?.throughput() == Some(700), "not as replaced");
    Ok(())
}

async fn autoscale(scene: Scene) -> Result<()> {
    let container = create(&scene, ThroughputProperties::autoscale(4000, None)).await?;
    ensure!(
        read(&container).await?.autoscale_maximum() == Some(4000),
        "not as created"
    );
    container
        .begin_replace_throughput(ThroughputProperties::autoscale(6000, None), None)
        .await?
        .await?;
    ensure!(
        read(&container).await?.autoscale_maximum() == Some(6000),
        "not as replaced"
    );
    Ok(())
}

async fn create(scene: &Scene, throughput: ThroughputProperties) -> Result<ContainerClient> {
    let database = scene.database().await?;
    let properties = ContainerProperties::new(scene.name.clone(), "/pk".into());
    let options = CreateContainerOptions::default().with_throughput(throughput);
    database.create_container(properties, Some(options)).await?;
    Ok(database.container_client(&scene.name, None).await?)
}

async fn read(container: &ContainerClient) -> Result<ThroughputProperties> {
    container
        .read_throughput(None)
        .await?
        .context("the container has no throughput of its own")
}

async fn feed_ranges(scene: Scene) -> Result<()> {
    let container = scene.container().await?;
    let mut ranges = container.read_feed_ranges(None).await?;
    ensure!(ranges.len() > 1, "the container has one range only");
    ranges.sort_by_key(|range| range.min_inclusive().to_string());
    let first = ranges.first().context("no ranges")?.min_inclusive().to_string();
    let last = ranges.last().context("no ranges")?.max_exclusive().to_string();
    ensure!(
        first.is_empty() && last == "FF",
        "the ranges go from '{first}' to '{last}'"
    );
    for pair in ranges.windows(2) {
        let (end, start) = (pair[0].max_exclusive().to_string(), pair[1].min_inclusive().to_string());
        ensure!(end == start, "a gap or an overlap between '{end}' and '{start}'");
    }
    let of_key = container.feed_range_from_partition_key("some key", None).await?;
    let n_owners = ranges
        .iter()
        .filter(|range| of_key.iter().all(|key| key.is_subset_of(range)))
        .count();
    ensure!(of_key.len() == 1 && n_owners == 1, "a key belongs to {n_owners} ranges");
    Ok(())
}
