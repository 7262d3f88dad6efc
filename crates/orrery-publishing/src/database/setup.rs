//! Making what the platform needs in every account: a database, the one container of documents, and one for its roles.

use azure_data_cosmos::models::{ContainerProperties, IndexingPolicy, TimeToLive};
use azure_data_cosmos::{CosmosError, clients::DatabaseClient};

use super::ContentPublishDatabase;
use crate::error::{CallKind, PublishError};

impl ContentPublishDatabase {
    /// Makes what is missing in the own account. Other regions make theirs; what exists is left as it is.
    pub async fn prepare(&self) -> Result<(), PublishError> {
        let account = self.local();
        let settings = account.settings();
        let client = account.client().await?;
        let refused =
            |error: CosmosError| account.error(CallKind::Unreachable, "could not be set up", Some(error.into()));
        fine_if_there(client.create_database(&settings.database, None).await).map_err(refused)?;
        let database = client.database_client(settings.database.clone());
        create(&database, content(settings.content.clone()))
            .await
            .map_err(refused)?;
        create(&database, coordination(settings.coordination.clone()))
            .await
            .map_err(refused)?;
        Ok(())
    }
}

async fn create(database: &DatabaseClient, properties: ContainerProperties) -> Result<(), CosmosError> {
    fine_if_there(database.create_container(properties, None).await)
}

fn fine_if_there<T>(created: Result<T, CosmosError>) -> Result<(), CosmosError> {
    match created {
        Err(error) if !error.status().is_conflict() => Err(error),
        _ => Ok(()),
    }
}

/// What lists, audiences, counts and the outbox filter and order by. Everything else would only make writes dearer.
const SEARCHED: [&str; 10] = [
    "/PartitionKey/?",
    "/Type/?",
    "/SortKey/?",
    "/UserId/?",
    "/State/?",
    "/Author/?",
    "/Category/?",
    "/Tags/[]/?",
    "/CreatedAt/?",
    "/Rating/?",
];

fn content(name: String) -> ContainerProperties {
    let mut everything_else = IndexingPolicy::default().with_excluded_path("/*");
    // What the SDK says otherwise is that only items whose writes ask for it are indexed.
    everything_else.automatic = true;
    let index = SEARCHED
        .into_iter()
        .fold(everything_else, IndexingPolicy::with_included_path);
    ContainerProperties::new(name, "/PartitionKey".into())
        .with_indexing_policy(index)
        .with_default_ttl(TimeToLive::NoDefault)
}

fn coordination(name: String) -> ContainerProperties {
    ContainerProperties::new(name, "/id".into()).with_default_ttl(TimeToLive::NoDefault)
}
