//! How fast logs grow: many partitions side by side, and many writers of one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use async_nats::HeaderMap;
use async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
use async_nats::jetstream::context::PublishError;
use async_nats::jetstream::{self, Context, ErrorCode};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::servers::Servers;

const PARTITIONS: usize = 64;
const WRITERS: usize = 64;
const GROUP_BYTES: usize = 64 << 10;
const TRANSACTION_BYTES: usize = 1 << 10;
const RUN: Duration = Duration::from_secs(6);
const ROUNDS: usize = 3;

pub async fn run() -> Result<()> {
    println!("\n{PARTITIONS} partitions, each with one group of 64 KB in flight; medians of {ROUNDS} rounds");
    println!(
        "{:<4} {:>8} {:>12} {:>10} {:>10} {:>10} {:>14}",
        "", "streams", "groups/s", "MB/s", "p50, ms", "p99, ms", "server cores"
    );
    for replicas in [1, 3] {
        for n_streams in [1, 4, 16, 64] {
            median(replicas, |servers| side_by_side(servers, n_streams)).await?;
        }
    }
    println!("\n{WRITERS} writers of one partition, transactions of 1 KB, everything waiting is one group");
    println!(
        "{:<4} {:>8} {:>12} {:>10} {:>10} {:>10} {:>14}",
        "", "streams", "transact./s", "MB/s", "p50, ms", "p99, ms", "server cores"
    );
    for replicas in [1, 3] {
        median(replicas, one_partition).await?;
    }
    Ok(())
}

/// What one run showed.
pub struct Run {
    n_streams: usize,
    per_second: f64,
    pub mb_per_second: f64,
    p50: f64,
    p99: f64,
    cores: f64,
}

async fn median<F: Future<Output = Result<Run>>>(replicas: usize, measure: impl Fn(Arc<Servers>) -> F) -> Result<()> {
    let mut runs = Vec::new();
    for _ in 0..ROUNDS {
        let servers = Arc::new(Servers::start(replicas).await?);
        runs.push(measure(servers).await?);
    }
    runs.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
    let run = &runs[ROUNDS / 2];
    println!(
        "R{replicas:<3} {:>8} {:>12.0} {:>10.1} {:>10.2} {:>10.2} {:>14.2}",
        run.n_streams, run.per_second, run.mb_per_second, run.p50, run.p99, run.cores
    );
    Ok(())
}

fn summarise(n_streams: usize, item_bytes: usize, mut latencies: Vec<Duration>, cpu: Duration, took: Duration) -> Run {
    latencies.sort();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
    let per_second = latencies.len() as f64 / took.as_secs_f64();
    Run {
        n_streams,
        per_second,
        mb_per_second: per_second * item_bytes as f64 / 1e6,
        p50: at(0.5),
        p99: at(0.99),
        cores: cpu.as_secs_f64() / took.as_secs_f64(),
    }
}

pub async fn side_by_side(servers: Arc<Servers>, n_streams: usize) -> Result<Run> {
    for idx in 0..n_streams {
        let config = servers.config(&format!("S{idx}"), &format!("s.{idx}.>"));
        servers.jetstream.create_stream(config).await?;
    }
    let (before, _) = servers.usage()?;
    let begun = Instant::now();
    let mut partitions = JoinSet::new();
    for partition in 0..PARTITIONS {
        let jetstream = servers.jetstream.clone();
        let subject = format!("s.{}.{partition}", partition % n_streams);
        partitions.spawn(async move {
            let group = Bytes::from(vec![7; GROUP_BYTES]);
            let (mut last, mut latencies) = (0, Vec::new());
            while begun.elapsed() < RUN {
                let sent = Instant::now();
                last = append(&jetstream, &subject, last, group.clone()).await?;
                latencies.push(sent.elapsed());
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(partition) = partitions.join_next().await {
        latencies.extend(partition??);
    }
    let (took, (after, _)) = (begun.elapsed(), servers.usage()?);
    Ok(summarise(n_streams, GROUP_BYTES, latencies, after - before, took))
}

async fn one_partition(servers: Arc<Servers>) -> Result<Run> {
    servers.jetstream.create_stream(servers.config("S0", "s.0.>")).await?;
    let (before, _) = servers.usage()?;
    let begun = Instant::now();
    let (sender, mut inbox) = mpsc::channel::<oneshot::Sender<()>>(WRITERS);
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let sender = sender.clone();
        writers.spawn(async move {
            let mut latencies = Vec::new();
            while begun.elapsed() < RUN {
                let sent = Instant::now();
                let (answer, answered) = oneshot::channel();
                sender.send(answer).await?;
                answered.await?;
                latencies.push(sent.elapsed());
            }
            anyhow::Ok(latencies)
        });
    }
    drop(sender);
    let (mut last, mut waiting) = (0, Vec::new());
    while inbox.recv_many(&mut waiting, WRITERS).await > 0 {
        let group = Bytes::from(vec![7; TRANSACTION_BYTES * waiting.len()]);
        last = append(&servers.jetstream, "s.0.0", last, group).await?;
        for answer in waiting.drain(..) {
            // A writer that has ended no longer waits.
            let _ = answer.send(());
        }
    }
    let mut latencies = Vec::new();
    while let Some(writer) = writers.join_next().await {
        latencies.extend(writer??);
    }
    let (took, (after, _)) = (begun.elapsed(), servers.usage()?);
    Ok(summarise(1, TRANSACTION_BYTES, latencies, after - before, took))
}

/// One message that must follow `last`. A leader acknowledges a message a moment before it takes the next of the same subject, so
/// one that comes too soon is sent again.
pub async fn append(jetstream: &Context, subject: &str, last: u64, group: Bytes) -> Result<u64> {
    let mut headers = HeaderMap::new();
    headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, last.to_string());
    loop {
        let sent = jetstream
            .publish_with_headers(subject.to_owned(), headers.clone(), group.clone())
            .await?;
        match sent.await {
            Ok(stored) => return Ok(stored.sequence),
            Err(error) if is_too_soon(&error) => tokio::time::sleep(Duration::from_millis(1)).await,
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_too_soon(error: &PublishError) -> bool {
    let answer = std::error::Error::source(error).and_then(|source| source.downcast_ref::<jetstream::Error>());
    answer.is_some_and(|answer| answer.error_code() == ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT)
}
