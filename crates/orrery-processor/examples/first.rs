//! The first processor: prints every order that changes, until ctrl-c. `orrery emulator --memory` in one terminal;
//! `cargo run -p orrery-processor --example first` in another. It writes an order of its own, to have something to see.
mod shared;

use std::{error::Error, io, time::Duration};

use orrery_processor::{Batch, BatchContext, InstanceName, Processor, StartFrom};
use serde_json::json;

#[derive(Debug, serde::Deserialize)]
#[allow(dead_code, reason = "printing is all that is done with it")]
struct Order {
    customer: String,
    total: f64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = shared::connect().await?;
    let shop = shared::database(&client, "shop", &[("orders", "/customer"), ("leases", "/id")]).await;
    let orders = shop.container_client("orders", None).await?;
    let processor = Processor::builder("order-printer") // the same name on every host of the unit
        .monitored(&client, orders.clone()) // whose changes
        .lease_container(shop.container_client("leases", None).await?) // who reads what, and how far it got
        .instance(InstanceName::auto()) // this host; another name on every host
        .start_from(StartFrom::Beginning) // matters only the first time
        .build(|orders: Batch<Order>, context: BatchContext| async move {
            for order in orders.into_iter().filter_map(|change| change.current) {
                println!("{}: {order:?}", context.lease);
            }
            Ok::<_, io::Error>(()) // only now the position is saved
        })?;
    let running = processor.start().await?;
    let order = json!({"id": "1", "customer": "ada", "total": 42.0});
    orders.upsert_item("ada", "1", &order, None).await?;
    tokio::signal::ctrl_c().await?;
    running.stop(Duration::from_secs(30)).await;
    Ok(())
}
