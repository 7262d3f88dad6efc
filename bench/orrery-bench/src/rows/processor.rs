//! The change feed processor with a delegate that does nothing, against a reader that only follows the feed with the same
//! SDK. Both read everything there is from the beginning; the processor also saves its position after every batch.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use azure_data_cosmos::clients::{ContainerClient, CosmosClient};
use azure_data_cosmos::feed::FeedScope;
use azure_data_cosmos::options::{ChangeFeedOptions, ChangeFeedStartFrom, MaxItemCountHint, Region};
use azure_data_cosmos::{AccountReference, RoutingStrategy};
use futures::StreamExt as _;
use orrery_processor::{BatchContext, InstanceName, Poll, Processor, RawBatch, StartFrom};
use serde_json::Value;
use tokio::sync::Notify;

use super::{Settings, fill_quickly};
use crate::measure::median;
use crate::process::Server;
use crate::report::Row;
use crate::requests::{create_once, make_container, make_container_named};
use crate::sign::DEVELOPMENT_KEY;

const GOAL_OF_READER: f64 = 0.7;
const PAGE_ITEMS: u32 = 1_000;
const N_ITEMS: u64 = 50_000;
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const LONG_POLL: Duration = Duration::from_secs(10);
const SETTLE: Duration = Duration::from_millis(500);
const LATENCY_GOAL_MS: f64 = 10.0;
/// Never reached: one write is under way at a time.
const CALLS_MAX: usize = 1_000;
const N_LATENCIES: u64 = 100;
const LEASES: &str = "leases";
/// A run that takes longer has lost something.
const TIME_MAX: Duration = Duration::from_secs(120);

pub async fn rows(settings: &Settings) -> Result<Vec<Row>> {
    let scratch = settings.scratch()?;
    let server = Server::durable(&scratch.path().join("data"))?;
    make_container(server.port).await?;
    make_container_named(server.port, LEASES, "/id").await?;
    fill_quickly(&server, N_ITEMS).await?;
    let endpoint = format!("http://localhost:{}/", server.port);
    let account = AccountReference::with_authentication_key(endpoint.parse()?, DEVELOPMENT_KEY.to_owned());
    let client = CosmosClient::builder()
        .build(account, RoutingStrategy::ProximityTo(Region::WEST_US))
        .await?;
    let database = client.database_client("bench");
    let (items, leases) = (
        database.container_client("items", None).await?,
        database.container_client(LEASES, None).await?,
    );
    let (mut processed, mut read) = (Vec::new(), Vec::new());
    for round in 0..=settings.n_rounds {
        // Another name is another unit, which begins at the beginning.
        let name = format!("round-{round}");
        let of_processor = process(&client, &items, &leases, &name).await?;
        let of_reader = read_all(&items).await?;
        // The first round warms up.
        if round > 0 {
            processed.push(of_processor);
            read.push(of_reader);
        }
    }
    let (processed, read) = (median(processed), median(read));
    let latency = async |name: &str, poll: Poll, first: u64| {
        let source = (&client, &items, &leases);
        write_to_delegate(source, server.port, name, poll, first).await
    };
    let pausing = Poll::every(POLL_INTERVAL);
    let polled_ms = latency("polls", pausing, N_ITEMS).await?;
    let waited_ms = latency("waits", pausing.with_long_poll(LONG_POLL), 2 * N_ITEMS).await?;
    Ok(vec![
        Row::at_least(
            "processor with an empty delegate",
            format!("{processed:.0} items/s"),
            format!("bare reader, same SDK: {read:.0} items/s"),
            processed / read,
            GOAL_OF_READER,
        ),
        Row::below(
            "write to delegate, polled every 100 ms: longest",
            polled_ms.1,
            "ms",
            POLL_INTERVAL.as_secs_f64() * 1e3 + LATENCY_GOAL_MS,
        ),
        Row::below("write to delegate, long poll: p50", waited_ms.0, "ms", LATENCY_GOAL_MS),
    ])
}

/// Milliseconds from sending a write to the call of the delegate: of half of all writes, and of all.
async fn write_to_delegate(
    (client, items, leases): (&CosmosClient, &ContainerClient, &ContainerClient),
    port: u16,
    name: &str,
    poll: Poll,
    first: u64,
) -> Result<(f64, f64)> {
    let (called, mut calls) = tokio::sync::mpsc::channel(CALLS_MAX);
    let processor = Processor::builder(name)
        .monitored(client, items.clone())
        .lease_container(leases.clone())
        .instance(InstanceName::auto())
        .start_from(StartFrom::Now)
        .poll(poll)
        .build_raw(move |batch: RawBatch, _: BatchContext| {
            // Nobody listens any more once all were counted.
            let _ = called.try_send((batch.len(), Instant::now()));
            async { Ok::<_, std::io::Error>(()) }
        })?;
    let running = processor.start().await?;
    let mut number = first;
    // What is written before the processor has begun is not seen.
    loop {
        create_once(port, number).await?;
        number += 1;
        if tokio::time::timeout(SETTLE, calls.recv()).await.is_ok() {
            break;
        }
    }
    while tokio::time::timeout(SETTLE, calls.recv()).await.is_ok() {}
    let mut latencies = Vec::new();
    for number in number..number + N_LATENCIES {
        let sent = Instant::now();
        create_once(port, number).await?;
        let call = tokio::time::timeout(TIME_MAX, calls.recv()).await;
        let (n_items, at) = call.context("a write was not seen")?.context("the processor ended")?;
        ensure!(n_items == 1, "{n_items} items at once");
        latencies.push(at.saturating_duration_since(sent).as_secs_f64() * 1e3);
        // Writes come at all moments between two polls.
        tokio::time::sleep(Duration::from_millis(number * 37 % 100)).await;
    }
    running.stop(Duration::from_secs(10)).await;
    let longest = latencies.iter().copied().fold(0.0, f64::max);
    Ok((median(latencies), longest))
}

/// When the first and the last items came, and how many came after the first ones.
#[derive(Default)]
struct Progress {
    began: Option<Instant>,
    n_items: u64,
    n_after_first: u64,
}

impl Progress {
    fn add(&mut self, n: usize) {
        match self.began {
            None => self.began = Some(Instant::now()),
            Some(_) => self.n_after_first += n as u64,
        }
        self.n_items += n as u64;
    }

    fn per_second(&self) -> f64 {
        let elapsed = self.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
        self.n_after_first as f64 / elapsed
    }
}

/// Items per second that reach the delegate.
async fn process(client: &CosmosClient, items: &ContainerClient, leases: &ContainerClient, name: &str) -> Result<f64> {
    let (progress, is_done) = (Arc::new(Mutex::new(Progress::default())), Arc::new(Notify::new()));
    let (seen, done) = (Arc::clone(&progress), Arc::clone(&is_done));
    let processor = Processor::builder(name)
        .monitored(client, items.clone())
        .lease_container(leases.clone())
        .instance(InstanceName::auto())
        .start_from(StartFrom::Beginning)
        .max_items(PAGE_ITEMS)
        .build_raw(move |batch: RawBatch, _: BatchContext| {
            let mut progress = seen.lock().unwrap_or_else(PoisonError::into_inner);
            progress.add(batch.len());
            if progress.n_items >= N_ITEMS {
                done.notify_one();
            }
            async { Ok::<_, std::io::Error>(()) }
        })?;
    let running = processor.start().await?;
    let ended = tokio::time::timeout(TIME_MAX, is_done.notified()).await;
    let per_second = progress.lock().unwrap_or_else(PoisonError::into_inner).per_second();
    running.stop(Duration::from_secs(10)).await;
    ended.context("the processor did not see everything")?;
    Ok(per_second)
}

/// Items per second that a loop over the SDK's pages sees.
async fn read_all(items: &ContainerClient) -> Result<f64> {
    let limit = NonZeroU32::new(PAGE_ITEMS).ok_or_else(|| anyhow!("a page has items"))?;
    let options = ChangeFeedOptions::default().with_max_item_count(MaxItemCountHint::Limit(limit));
    let pages = items.query_change_feed::<Value>(
        FeedScope::full_container(),
        ChangeFeedStartFrom::Beginning,
        Some(options),
    );
    let mut pages = pages.await?;
    let mut progress = Progress::default();
    while progress.n_items < N_ITEMS {
        let page = pages.next().await.context("the feed ended early")??;
        progress.add(page.into_items().len());
    }
    Ok(progress.per_second())
}
