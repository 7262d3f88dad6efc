//! What a scenario plays in: the server's addresses and keys, a client, and databases that are its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail, ensure};
use azure_core::http::Etag;
use azure_data_cosmos::clients::{ContainerClient, DatabaseClient};
use azure_data_cosmos::models::{ContainerProperties, ItemResponse, PartitionKeyDefinition};
use azure_data_cosmos::options::{
    ContentResponseOnWrite, ItemWriteOptions, OperationOptions, OperationOptionsBuilder, Precondition, Region,
};
use azure_data_cosmos::{
    AccountReference, CosmosClient, CosmosClientBuilder, CosmosError, CosmosRuntime, RoutingStrategy,
};
use serde_json::Value;

/// What the runner gives.
#[derive(Clone)]
pub struct Environment {
    pub endpoint: String,
    pub key: String,
    pub read_only_key: String,
    /// Of the account with three regions.
    pub regions_endpoint: String,
    /// The same account's regions by name.
    pub region_endpoints: BTreeMap<String, String>,
    pub results: PathBuf,
    /// Makes names unique on a server that has seen other runs.
    pub run: u32,
}

impl Environment {
    pub fn read() -> Result<Environment> {
        let get = |name: &str| std::env::var(name).with_context(|| format!("{name} is not set"));
        Ok(Environment {
            endpoint: get("ORRERY_ENDPOINT")?,
            key: get("ORRERY_KEY")?,
            read_only_key: get("ORRERY_READ_ONLY_KEY")?,
            regions_endpoint: get("ORRERY_REGIONS_ENDPOINT")?,
            region_endpoints: serde_json::from_str(&get("ORRERY_REGIONS")?)?,
            results: get("ORRERY_RESULTS")?.into(),
            run: std::process::id(),
        })
    }
}

#[derive(Clone)]
pub struct Scene {
    pub environment: Environment,
    /// Name for databases and containers.
    pub name: String,
    pub client: CosmosClient,
    databases: Arc<Mutex<Vec<String>>>,
}

impl Scene {
    pub async fn open(environment: Environment, scenario: &str) -> Result<Scene> {
        let client = connect(&environment.endpoint, &environment.key).await?;
        let name = format!("{scenario}-{}", environment.run);
        Ok(Scene {
            environment,
            name,
            client,
            databases: Arc::default(),
        })
    }

    /// A client of its own, which has seen nothing yet.
    pub async fn another_client(&self) -> Result<CosmosClient> {
        connect(&self.environment.endpoint, &self.environment.key).await
    }

    /// Creates the scenario's database.
    pub async fn database(&self) -> Result<DatabaseClient> {
        self.client
            .create_database(&self.name, None)
            .await
            .context("the scenario's database")?;
        self.remember_database(&self.name);
        Ok(self.client.database_client(&self.name))
    }

    pub fn remember_database(&self, name: &str) {
        self.databases
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(name.to_owned());
    }

    /// A new container whose partition key is `/pk`, in a new database.
    pub async fn container(&self) -> Result<ContainerClient> {
        self.container_with("/pk", |properties| properties).await
    }

    pub async fn container_with(
        &self,
        key: impl Into<PartitionKeyDefinition>,
        adapt: impl FnOnce(ContainerProperties) -> ContainerProperties,
    ) -> Result<ContainerClient> {
        let database = self.database().await?;
        let properties = adapt(ContainerProperties::new(self.name.clone(), key.into()));
        database
            .create_container(properties, None)
            .await
            .context("the scenario's container")?;
        Ok(database.container_client(&self.name, None).await?)
    }

    pub async fn clean_up(&self) {
        let names = std::mem::take(&mut *self.databases.lock().unwrap_or_else(PoisonError::into_inner));
        for name in names {
            // A scenario may have deleted it itself.
            let _ = self.client.database_client(&name).delete(None).await;
        }
    }
}

pub async fn connect(endpoint: &str, key: &str) -> Result<CosmosClient> {
    let near = RoutingStrategy::ProximityTo(Region::WEST_US);
    build(CosmosClient::builder(), endpoint, key, near).await
}

/// For a key that others do not use: within one runtime of the SDK a container stays tied to the key it was first found
/// with, whichever client asks for it later.
pub async fn connect_apart(endpoint: &str, key: &str) -> Result<CosmosClient> {
    let runtime = CosmosRuntime::builder().build().await?;
    let near = RoutingStrategy::ProximityTo(Region::WEST_US);
    build(CosmosClient::builder().with_runtime(runtime), endpoint, key, near).await
}

/// A client with a runtime of its own that prefers regions in this order.
pub async fn connect_preferring(endpoint: &str, key: &str, regions: &[&'static str]) -> Result<CosmosClient> {
    let runtime = CosmosRuntime::builder().build().await?;
    let regions = regions.iter().map(|name| Region::new(*name)).collect();
    let preferred = RoutingStrategy::PreferredRegions(regions);
    build(CosmosClient::builder().with_runtime(runtime), endpoint, key, preferred).await
}

async fn build(
    builder: CosmosClientBuilder,
    endpoint: &str,
    key: &str,
    routing: RoutingStrategy,
) -> Result<CosmosClient> {
    let account = AccountReference::with_authentication_key(endpoint.parse()?, key.to_owned());
    Ok(builder.build(account, routing).await?)
}

/// Options that ask for the item in the answer of a write.
pub fn with_content() -> ItemWriteOptions {
    ItemWriteOptions::default().with_operation_options(content_wanted())
}

pub fn content_wanted() -> OperationOptions {
    OperationOptionsBuilder::new()
        .with_content_response_on_write(ContentResponseOnWrite::Enabled)
        .build()
}

pub fn if_match(etag: &Etag) -> ItemWriteOptions {
    ItemWriteOptions::default().with_precondition(Precondition::if_match(etag.clone()))
}

pub fn etag(response: &ItemResponse) -> Result<Etag> {
    response.headers().etag().cloned().context("the answer has no etag")
}

pub fn expect_success(response: &ItemResponse, status: u16) -> Result<()> {
    let found = u16::from(response.status().status_code());
    ensure!(found == status, "the answer is {found} instead of {status}");
    Ok(())
}

/// The call must be refused with this status, and by the server, not by the SDK.
pub fn expect_refusal<T>(result: Result<T, CosmosError>, status: u16) -> Result<CosmosError> {
    match result {
        Ok(_) => bail!("the call succeeded instead of being refused with {status}"),
        Err(error) => {
            let found = u16::from(error.status().status_code());
            ensure!(found == status, "refused with {found} instead of {status}: {error}");
            ensure!(
                error.is_from_wire(),
                "the SDK refused without asking the server: {error}"
            );
            Ok(error)
        }
    }
}

/// The item as the caller wrote it: without the server's properties.
pub fn without_system_properties(mut item: Value) -> Value {
    if let Some(object) = item.as_object_mut() {
        object.retain(|name, _| !name.starts_with('_'));
    }
    item
}
