//! The first processor: prints every order that changes.
//!
//! `orrery emulator --memory` in one terminal; `cargo run -p orrery-processor --example first` in another. It makes the
//! database `shop` with `orders` and `leases` if they are not there, and writes an order of its own to have something to see.

use std::error::Error;
use std::time::Duration;

use azure_data_cosmos::models::ContainerProperties;
use azure_data_cosmos::options::Region;
use azure_data_cosmos::{AccountReference, CosmosClient, RoutingStrategy};
use orrery_processor::{Batch, BatchContext, InstanceName, Poll, Processor, StartFrom};
use serde::{Deserialize, Serialize};

/// The key every emulator knows.
const KEY: &str = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

#[derive(Debug, Deserialize, Serialize)]
struct Order {
    id: String,
    customer: String,
    total: f64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let endpoint = std::env::var("ENDPOINT").unwrap_or_else(|_| "http://localhost:8081/".to_owned());
    let account = AccountReference::with_authentication_key(endpoint.parse()?, KEY.to_owned());
    let client = CosmosClient::builder()
        .build(account, RoutingStrategy::ProximityTo(Region::WEST_US))
        .await?;
    // Existing already is fine.
    let _ = client.create_database("shop", None).await;
    let shop = client.database_client("shop");
    for (name, key) in [("orders", "/customer"), ("leases", "/id")] {
        let _ = shop
            .create_container(ContainerProperties::new(name, key.into()), None)
            .await;
    }
    let orders = shop.container_client("orders", None).await?;

    let processor = Processor::builder("order-printer")
        .monitored(&client, orders.clone())
        .lease_container(shop.container_client("leases", None).await?)
        .instance(InstanceName::auto())
        .start_from(StartFrom::Beginning)
        .poll(Poll::every(Duration::from_secs(1)).with_long_poll(Duration::from_secs(10)))
        .build(|orders: Batch<Order>, context: BatchContext| async move {
            for order in orders.into_iter().filter_map(|change| change.current) {
                println!("{}: {order:?}", context.lease);
            }
            Ok::<_, std::io::Error>(())
        })?;
    let running = processor.start().await?;

    let order = Order {
        id: "1".into(),
        customer: "ada".into(),
        total: 42.0,
    };
    orders.upsert_item("ada", "1", &order, None).await?;
    tokio::signal::ctrl_c().await?;
    running.stop(Duration::from_secs(30)).await;
    Ok(())
}
