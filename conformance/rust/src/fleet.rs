//! The account of three regions: its clients, its administration, and who answered what.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use azure_data_cosmos::FeedScope;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::models::ContainerProperties;
use futures::TryStreamExt as _;
use serde_json::{Value, json};

use crate::admin;
use crate::scene::{Scene, connect_preferring};

/// Takes writes; [`NEXT`] is next in line.
pub const WRITER: &str = "West US";
pub const NEXT: &str = "North Europe";
pub const LAST: &str = "Southeast Asia";
pub const REGIONS: [&str; 3] = [WRITER, NEXT, LAST];
/// Not one of them, for those who add one.
pub const ADDED: &str = "Japan East";

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub struct Fleet {
    scene: Scene,
}

impl Fleet {
    /// The fleet with a new container in it, which every region has.
    pub async fn open(mut scene: Scene) -> Result<Fleet> {
        let (endpoint, key) = (&scene.environment.regions_endpoint, &scene.environment.key);
        scene.client = connect_preferring(endpoint, key, &[]).await?;
        let database = scene.database().await?;
        database
            .create_container(ContainerProperties::new(scene.name.clone(), "/pk".into()), None)
            .await?;
        let fleet = Fleet { scene };
        fleet.wait_level().await?;
        Ok(fleet)
    }

    /// The databases go away through the client that made them.
    pub async fn close(&self) {
        self.scene.clean_up().await;
    }

    /// The container as a new client sees it that prefers this region, then the others in their order.
    pub async fn seen_from(&self, region: &'static str) -> Result<ContainerClient> {
        let mut preferred = vec![region];
        preferred.extend(REGIONS.iter().filter(|other| **other != region));
        let environment = &self.scene.environment;
        let client = connect_preferring(&environment.regions_endpoint, &environment.key, &preferred).await?;
        let database = client.database_client(&self.scene.name);
        Ok(database.container_client(&self.scene.name, None).await?)
    }

    pub async fn manage(&self, verb: &str, path: &str, form: Option<Value>) -> Result<Value> {
        self.manage_with(verb, path, "", form).await
    }

    async fn manage_with(&self, verb: &str, path: &str, query: &str, form: Option<Value>) -> Result<Value> {
        let environment = &self.scene.environment;
        let path = format!("_orrery/v1/{}", path.replace(' ', "%20"));
        admin::call(
            &environment.regions_endpoint,
            &environment.key,
            verb,
            &path,
            query,
            form,
        )
        .await
    }

    pub async fn fail_over(&self, region: &str) -> Result<()> {
        self.manage("POST", "failover", Some(json!({"region": region}))).await?;
        Ok(())
    }

    /// Removes a region unless it is gone already.
    pub async fn forget(&self, region: &str) -> Result<()> {
        let answer = self.manage("GET", "regions", None).await?;
        let known = answer["regions"].as_array().context("no list of regions")?;
        if known.iter().any(|known| known["name"] == region) {
            self.manage("DELETE", &format!("regions/{region}"), None).await?;
        }
        Ok(())
    }

    /// Removes a region, and works while it tells its clients to go elsewhere.
    pub async fn while_removed(&self, region: &str, work: impl Future<Output = Result<()>>) -> Result<()> {
        let path = format!("regions/{region}");
        let removal = self.manage_with("DELETE", &path, "?drainMs=2000", None);
        let meanwhile = async {
            eventually("draining", || async {
                let answer = self.manage("GET", "regions", None).await?;
                let known = answer["regions"].as_array().context("no list of regions")?;
                Ok(known
                    .iter()
                    .any(|known| known["name"] == region && known["state"] == "draining"))
            })
            .await?;
            work.await
        };
        let (removed, worked) = futures::join!(removal, meanwhile);
        removed?;
        worked
    }

    /// Until every region that is online has everything.
    pub async fn wait_level(&self) -> Result<()> {
        eventually("replication", || async {
            let answer = self.manage("GET", "regions", None).await?;
            let regions = answer["regions"].as_array().context("no list of regions")?;
            Ok(regions.iter().all(|region| region["lagTransactionsTotal"] == 0))
        })
        .await
    }

    /// Lets the way from the write region to another behave like this from now on.
    pub async fn set_link(&self, to: &str, mut settings: Value) -> Result<()> {
        settings["from"] = json!(WRITER);
        settings["to"] = json!(to);
        self.manage("PUT", "links", Some(settings)).await?;
        Ok(())
    }

    /// How many requests a region has answered with success, by its own count.
    pub async fn answered(&self, operation: &str, region: &str) -> Result<u64> {
        let endpoint = &self.scene.environment.region_endpoints[region];
        let text = admin::HTTP
            .get(format!("{endpoint}metrics"))
            .send()
            .await?
            .text()
            .await?;
        let counter = format!("orrery_requests_total{{operation=\"{operation}\",status=\"2");
        text.lines()
            .filter(|line| line.starts_with(&counter))
            .map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse::<u64>()?))
            .sum()
    }

    pub async fn count(&self, operation: &str, regions: &[&'static str]) -> Result<Tally> {
        let mut counts = Vec::new();
        for region in regions {
            counts.push((*region, self.answered(operation, region).await?));
        }
        Ok(Tally {
            operation: operation.to_owned(),
            counts,
        })
    }

    /// Since the tally one region must have answered so many times, the others never.
    pub async fn expect_only(&self, before: Tally, region: &str, count: u64) -> Result<()> {
        for (other, earlier) in &before.counts {
            let found = self.answered(&before.operation, other).await? - earlier;
            let expected = if *other == region { count } else { 0 };
            ensure!(
                found == expected,
                "{other} answered {found} times instead of {expected}"
            );
        }
        Ok(())
    }

    /// The ids of all items as a region has them, sorted.
    pub async fn ids_seen_from(&self, region: &'static str) -> Result<Vec<String>> {
        let container = self.seen_from(region).await?;
        let found = container
            .query_items::<String>("SELECT VALUE c.id FROM c", FeedScope::full_container(), None)
            .await?;
        let mut ids: Vec<String> = found.try_collect().await?;
        ids.sort();
        Ok(ids)
    }
}

/// How often regions had answered at one moment.
pub struct Tally {
    operation: String,
    counts: Vec<(&'static str, u64)>,
}

/// Waits for a condition that comes true by itself.
pub async fn eventually<F: Future<Output = Result<bool>>>(what: &str, mut holds: impl FnMut() -> F) -> Result<()> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds().await? {
        if tokio::time::Instant::now() > deadline {
            bail!("{what} did not happen within {PATIENCE:?}");
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Creates an item for each name, with a key of its own.
pub async fn fill(container: &ContainerClient, names: &[String]) -> Result<()> {
    for name in names {
        let key = format!("key {name}");
        let item = json!({"id": name, "pk": key});
        container
            .create_item(key, name, item, None)
            .await
            .with_context(|| format!("creating {name}"))?;
    }
    Ok(())
}

pub async fn read_back(container: &ContainerClient, name: &str) -> Result<()> {
    let read = container.read_item(format!("key {name}"), name, None).await;
    let read: Value = read.with_context(|| format!("reading {name}"))?.into_model()?;
    ensure!(read["id"] == name, "{read}");
    Ok(())
}
