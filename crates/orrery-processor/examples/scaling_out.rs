//! Scaling out: start this program as often as you like; the instances share the work, also while they come and go.
//!
//! `orrery emulator --memory --partitions 4` in one terminal; `cargo run -p orrery-processor --example scaling_out` in as many
//! others as you like. Each prints which leases it has and what it handles; stop one with ctrl-c and the others take over.
//! `orrery processor status counter scaling-example events` shows the whole unit.

mod shared;

use std::error::Error;
use std::time::Duration;

use orrery_processor::{
    BatchContext, Concurrency, Event, InstanceName, LeaseTiming, Poll, Processor, RawBatch, StartFrom,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = shared::connect().await?;
    let containers = [("events", "/key"), ("leases", "/id")];
    let database = shared::database(&client, "scaling-example", &containers).await;

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
