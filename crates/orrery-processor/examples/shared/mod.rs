//! What every example needs: a client, and containers to play with.

#![allow(dead_code, reason = "each example is a program of its own and uses a part of this")]

use std::error::Error;

use azure_data_cosmos::clients::DatabaseClient;
use azure_data_cosmos::models::ContainerProperties;
use azure_data_cosmos::options::Region;
use azure_data_cosmos::{AccountReference, CosmosClient, RoutingStrategy};

/// The key every emulator knows.
const KEY: &str = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// A client of the emulator on this machine, or of the one that `ENDPOINT` names.
pub async fn connect() -> Result<CosmosClient, Box<dyn Error>> {
    let endpoint = std::env::var("ENDPOINT").unwrap_or_else(|_| "http://localhost:8081/".to_owned());
    client(&endpoint, KEY, Region::WEST_US).await
}

pub async fn client(endpoint: &str, key: &str, region: Region) -> Result<CosmosClient, Box<dyn Error>> {
    let account = AccountReference::with_authentication_key(endpoint.parse()?, key.to_owned());
    let client = CosmosClient::builder().build(account, RoutingStrategy::ProximityTo(region));
    Ok(client.await?)
}

/// A database with containers, each with its partition key. What exists already stays.
pub async fn database(client: &CosmosClient, name: &str, containers: &[(&str, &str)]) -> DatabaseClient {
    let database = client.database_client(name);
    // Whoever comes first makes them; a container that cannot be made is missed when it is used.
    let _ = client.create_database(name, None).await;
    for (container, key) in containers {
        let properties = ContainerProperties::new((*container).to_owned(), (*key).into());
        let _ = database.create_container(properties, None).await;
    }
    database
}

/// The same, with nothing left from before.
pub async fn fresh_database(client: &CosmosClient, name: &str, containers: &[(&str, &str)]) -> DatabaseClient {
    let _ = client.database_client(name).delete(None).await;
    database(client, name, containers).await
}
