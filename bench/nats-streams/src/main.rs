//! Measures how the logs of partitions should lie in JetStream: one stream each, or many packed into a stream under subjects of
//! their own. See `docs/adr/007-logs-packed-into-streams.md`.
//!
//! Every part starts servers of its own, alone (R1) or three in a cluster (R3), which sync before they acknowledge.
//!
//! `cargo run --release -p bench-nats-streams [-- create|append|promote|recover|store|takeover]`

use anyhow::Result;

mod append;
mod create;
mod promote;
mod recover;
mod servers;
mod store;
mod takeover;

#[tokio::main]
async fn main() -> Result<()> {
    let only = std::env::args().nth(1);
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    if wanted("create") {
        create::run().await?;
    }
    if wanted("append") {
        append::run().await?;
    }
    if wanted("promote") {
        promote::run().await?;
    }
    if wanted("recover") {
        recover::run().await?;
    }
    if wanted("store") {
        store::run().await?;
    }
    if wanted("takeover") {
        takeover::run().await?;
    }
    Ok(())
}
