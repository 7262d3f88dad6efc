//! What a stream costs: to make, and to have while nothing happens.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::servers::Servers;

const IDLE: Duration = Duration::from_secs(10);

pub async fn run() -> Result<()> {
    println!(
        "\nstreams made one after the other, then left alone for {} s",
        IDLE.as_secs()
    );
    println!(
        "{:<4} {:>8} {:>12} {:>12} {:>16} {:>14}",
        "", "streams", "each, ms", "all, s", "idle cores", "memory, MB"
    );
    for (replicas, counts) in [(1, [0, 16, 64, 500]), (3, [0, 16, 64, 500])] {
        for count in counts {
            measure(replicas, count).await?;
        }
    }
    Ok(())
}

async fn measure(replicas: usize, count: usize) -> Result<()> {
    let servers = Servers::start(replicas).await?;
    let begun = Instant::now();
    for idx in 0..count {
        let config = servers.config(&format!("S{idx}"), &format!("s.{idx}.>"));
        servers.jetstream.create_stream(config).await?;
    }
    let took = begun.elapsed();
    let (before, _) = servers.usage()?;
    tokio::time::sleep(IDLE).await;
    let (after, memory) = servers.usage()?;
    println!(
        "R{replicas:<3} {count:>8} {:>12.1} {:>12.1} {:>16.4} {:>14.0}",
        took.as_secs_f64() * 1000.0 / count.max(1) as f64,
        took.as_secs_f64(),
        (after - before).as_secs_f64() / IDLE.as_secs_f64(),
        memory as f64 / 1e6,
    );
    Ok(())
}
