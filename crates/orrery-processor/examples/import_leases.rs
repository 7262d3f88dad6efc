//! From the .NET processor to this one: leases that it left, old ones of partition ids among them, are taken over where they
//! stand.
//!
//! `orrery emulator --memory --partitions 2` in one terminal; `cargo run -p orrery-processor --example import_leases` in another.
//! It plays both parts: it writes the documents a .NET host would have left, shows that a unit of the same name goes on with
//! them as they are, and imports them into a unit of another name.

mod shared;

use std::error::Error;
use std::time::Duration;

use azure_data_cosmos::clients::{ContainerClient, CosmosClient};
use orrery_processor::feed::sdk::SdkFeed;
use orrery_processor::feed::{FeedSource as _, token_now};
use orrery_processor::lease::{FeedMode, Lease};
use orrery_processor::names::UnitNames;
use orrery_processor::operations::Operations;
use orrery_processor::store::{ContainerLeases, LeaseStore as _};
use orrery_processor::{BatchContext, InstanceName, Poll, Processor, RawBatch};
use serde_json::{Value, json};

const EXPIRY: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = shared::connect().await?;
    let containers = [("orders", "/customer"), ("leases", "/id")];
    let database = shared::fresh_database(&client, "import-example", &containers).await;
    let orders = database.container_client("orders", None).await?;
    let leases = ContainerLeases::new(database.container_client("leases", None).await?);

    write(&orders, 0..20).await?;
    left_by_dotnet(&client, &orders, &leases).await?;
    write(&orders, 20..25).await?;

    // The same name: the leases are taken as they are.
    run(&client, &orders, &leases, "billing").await?;
    // Another name: the positions are copied. Leases of partition ids become leases of ranges.
    let left = leases.list("billing").await?.documents;
    let left: Vec<Value> = left
        .into_iter()
        .filter(|document| document.get("LeaseToken").is_some())
        .collect();
    let unit = Operations::open(
        "shipping",
        SdkFeed::new(&client, orders.clone()),
        leases.clone(),
        EXPIRY,
    )
    .await?;
    println!("imported {} of {}", unit.import(&left).await?, left.len());
    write(&orders, 25..28).await?;
    run(&client, &orders, &leases, "shipping").await?;
    Ok(())
}

async fn write(orders: &ContainerClient, numbers: std::ops::Range<u32>) -> Result<(), Box<dyn Error>> {
    for number in numbers {
        let (id, customer) = (number.to_string(), format!("customer {number}"));
        let order = json!({"id": id, "customer": customer});
        orders.upsert_item(customer, &id, &order, None).await?;
    }
    Ok(())
}

/// What an old .NET host leaves: the mark of an initialised unit, and a lease per partition id that does not say its range.
async fn left_by_dotnet(
    client: &CosmosClient,
    orders: &ContainerClient,
    leases: &ContainerLeases,
) -> Result<(), Box<dyn Error>> {
    let feed = SdkFeed::new(client, orders.clone());
    let names = UnitNames::new("billing", &feed.describe().await?.identity);
    leases.create(&json!({"id": names.info()})).await?;
    for id in 0..2 {
        let id = id.to_string();
        let range = feed
            .partition_of(&id)
            .await?
            .ok_or("the emulator was started with two partitions")?;
        let now = token_now(&feed, &range, FeedMode::LatestVersion).await?;
        let lease = json!({
            "id": names.lease(&id), "LeaseToken": id, "Owner": null, "ContinuationToken": now.as_str(),
            "properties": {}, "timestamp": "2026-08-20T09:15:02.1234567Z",
        });
        leases.create(&lease).await?;
    }
    Ok(())
}

/// Handles what waits, and shows what the leases have become.
async fn run(
    client: &CosmosClient,
    orders: &ContainerClient,
    leases: &ContainerLeases,
    name: &str,
) -> Result<(), Box<dyn Error>> {
    let unit = name.to_owned();
    let processor = Processor::builder(name)
        .monitored(client, orders.clone())
        .leases(leases.clone())
        .instance(InstanceName::auto())
        .poll(Poll::every(Duration::from_millis(200)))
        .build_raw(move |batch: RawBatch, _: BatchContext| {
            let unit = unit.clone();
            async move {
                for change in batch.iter() {
                    println!("{unit}: order {}", change.id().unwrap_or("?"));
                }
                Ok::<_, std::io::Error>(())
            }
        })?;
    processor.run_until_caught_up(Duration::from_secs(30)).await?;
    for document in leases.list(name).await?.documents {
        if let Ok(lease) = Lease::from_document(&document) {
            let range = lease.range.map_or_else(|| "?".to_owned(), |range| range.to_string());
            println!(
                "{name}: lease {} of version {} covers {range}",
                lease.token, lease.version
            );
        }
    }
    Ok(())
}
