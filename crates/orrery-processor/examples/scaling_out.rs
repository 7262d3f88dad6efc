//! Scaling out: start this program as often as you like; the instances share the work, also while they come and go.
//!
//! `orrery emulator --memory --partitions 4` in one terminal; `cargo run -p orrery-processor --example scaling_out` in as many
//! others as you like. Each prints which leases it has and what it handles; stop one with ctrl-c and the others take over.
//! `orrery processor status counter scaling-example events` shows the whole unit.

use std::error::Error;
use std::time::Duration;

use azure_data_cosmos::models::ContainerProperties;
use azure_data_cosmos::options::Region;
use azure_data_cosmos::{AccountReference, CosmosClient, RoutingStrategy};
use orrery_processor::{
    BatchContext, Concurrency, Event, InstanceName, LeaseTiming, Poll, Processor, RawBatch, StartFrom,
};

/// The key every emulator knows.
const KEY: &str = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let endpoint = std::env::var("ENDPOINT").unwrap_or_else(|_| "http://localhost:8081/".to_owned());
    let account = AccountReference::with_authentication_key(endpoint.parse()?, KEY.to_owned());
    let routing = RoutingStrategy::ProximityTo(Region::WEST_US);
    let client = CosmosClient::builder().build(account, routing).await?;
    // Whichever instance comes first makes them; for the others it is fine that they exist.
    let _ = client.create_database("scaling-example", None).await;
    let database = client.database_client("scaling-example");
    for (name, key) in [("events", "/key"), ("leases", "/id")] {
        let properties = ContainerProperties::new(name, key.into());
        let _ = database.create_container(properties, None).await;
    }

    let processor = Processor::builder("counter")
        .monitored(&client, database.container_client("events", None).await?)
        .lease_container(database.container_client("leases", None).await?)
        // Unique for every process; a stable name of your own lets a restarted one go on at once.
        .instance(InstanceName::auto())
        .start_from(StartFrom::Beginning)
        .poll(Poll::every(Duration::from_millis(500)))
        // Two leases per partition, so that eight instances have work on four partitions.
        .leases_per_partition(2)
        // Within a lease up to four calls at a time, each key in order.
        .concurrency(Concurrency::ByPartitionKey(4))
        // Quicker than the default, so that there is something to see.
        .lease_timing(LeaseTiming {
            acquire: Duration::from_secs(1),
            renew: Duration::from_secs(2),
            expiry: Duration::from_secs(8),
            lock: Duration::from_secs(10),
        })
        .on_event(|event| match event {
            Event::LeaseAcquired { lease, why, .. } => println!("acquired {lease}: {why:?}"),
            Event::LeaseReleased { lease, why } => println!("released {lease}: {why:?}"),
            _ => {}
        })
        .build_raw(|batch: RawBatch, context: BatchContext| async move {
            println!("handled {} of {}", batch.len(), context.lease);
            Ok::<_, std::io::Error>(())
        })?;
    let running = processor.start().await?;
    println!("started");
    tokio::signal::ctrl_c().await?;
    let stopped = running.stop(Duration::from_secs(10)).await;
    println!("stopped, {} leases left behind", stopped.not_released.len());
    Ok(())
}
