//! What it costs to read one partition's log, alone in a stream or packed with others.

use std::time::Instant;

use anyhow::{Context as _, Result};
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::stream::Stream;
use bytes::Bytes;
use futures::StreamExt as _;

use crate::append::append;
use crate::servers::Servers;

const MESSAGES: usize = 500;
const GROUP_BYTES: usize = 64 << 10;

pub async fn run() -> Result<()> {
    println!("\none partition's {MESSAGES} messages of 64 KB read from the start; R3");
    println!(
        "{:<26} {:>16} {:>18} {:>20} {:>12}",
        "partitions in the stream", "consumer, MB/s", "direct get, MB/s", "through leader, MB/s", "purge, ms"
    );
    for n_partitions in [1, 16] {
        measure(n_partitions).await?;
    }
    Ok(())
}

async fn measure(n_partitions: usize) -> Result<()> {
    let servers = Servers::start(3).await?;
    let mut config = servers.config("S0", "s.0.>");
    config.allow_direct = true;
    let stream = servers.jetstream.create_stream(config).await?;
    let fill = (0..n_partitions).map(|partition| {
        let jetstream = servers.jetstream.clone();
        async move {
            let group = Bytes::from(vec![7; GROUP_BYTES]);
            let mut last = 0;
            for _ in 0..MESSAGES {
                last = append(&jetstream, &format!("s.0.{partition}"), last, group.clone()).await?;
            }
            anyhow::Ok(())
        }
    });
    for filled in futures::future::join_all(fill).await {
        filled?;
    }
    let rates = [
        consume(&stream).await?,
        get_direct(&stream).await?,
        get_from_leader(&stream).await?,
    ];
    let begun = Instant::now();
    stream.purge().filter("s.0.0").await?;
    let [consumer, direct, leader] = rates;
    println!(
        "{n_partitions:<26} {consumer:>16.1} {direct:>18.1} {leader:>20.1} {:>12.1}",
        begun.elapsed().as_secs_f64() * 1000.0
    );
    Ok(())
}

fn rate(begun: Instant) -> f64 {
    (MESSAGES * GROUP_BYTES) as f64 / 1e6 / begun.elapsed().as_secs_f64()
}

async fn consume(stream: &Stream) -> Result<f64> {
    let begun = Instant::now();
    let config = pull::OrderedConfig {
        filter_subject: "s.0.0".into(),
        deliver_policy: DeliverPolicy::All,
        ..pull::OrderedConfig::default()
    };
    let mut messages = stream.create_consumer(config).await?.messages().await?;
    for _ in 0..MESSAGES {
        messages.next().await.context("the stream ended")??;
    }
    Ok(rate(begun))
}

async fn get_direct(stream: &Stream) -> Result<f64> {
    let begun = Instant::now();
    let mut from = 1;
    for _ in 0..MESSAGES {
        from = stream.direct_get_next_for_subject("s.0.0", Some(from)).await?.sequence + 1;
    }
    Ok(rate(begun))
}

async fn get_from_leader(stream: &Stream) -> Result<f64> {
    let begun = Instant::now();
    let mut from = 1;
    for _ in 0..MESSAGES {
        from = stream.get_first_raw_message_by_subject("s.0.0", from).await?.sequence + 1;
    }
    Ok(rate(begun))
}
