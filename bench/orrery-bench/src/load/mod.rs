//! The load generator: workers that each have one request in flight, until time or work runs out.
//!
//! Every subject is driven by the same loop; only what a step is differs. Requests are made and signed before the clock
//! starts wherever they can be, so that the client costs as little as possible of the machine it shares.

pub mod http1;
pub mod http2;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;

use crate::documents::Random;

/// Requests in flight in every row that does not say otherwise.
pub const IN_FLIGHT: usize = 64;

/// One request after another.
pub trait Worker: Send + 'static {
    fn step(&mut self, random: &mut Random) -> impl Future<Output = Result<()>> + Send;
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    Elapsed(Duration),
    Requests(u64),
}

/// What a run showed.
#[derive(Debug)]
pub struct Load {
    pub n_requests: u64,
    pub elapsed: Duration,
    /// Ascending.
    latencies_us: Vec<u32>,
}

impl Load {
    pub fn per_second(&self) -> f64 {
        self.n_requests as f64 / self.elapsed.as_secs_f64()
    }

    /// The latency that this share of requests did not exceed.
    pub fn latency_ms(&self, share: f64) -> f64 {
        let last = self.latencies_us.len().saturating_sub(1);
        let at = (last as f64 * share).round() as usize;
        f64::from(self.latencies_us.get(at).copied().unwrap_or(0)) / 1e3
    }
}

/// Runs all workers at once. They are handed back, connections and all, for the next run.
pub async fn drive<W: Worker>(workers: &mut Vec<W>, until: Until) -> Result<Load> {
    let (seconds, requests) = match until {
        Until::Elapsed(duration) => (duration, u64::MAX),
        Until::Requests(n) => (Duration::from_secs(3600), n),
    };
    let left = Arc::new(AtomicU64::new(requests));
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for (number, worker) in std::mem::take(workers).into_iter().enumerate() {
        let random = Random::new(number as u64 * 7919);
        tasks.spawn(work(worker, random, started + seconds, Arc::clone(&left)));
    }
    let mut latencies_us = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        let (worker, latencies) = ended.context("a worker panicked")??;
        workers.push(worker);
        latencies_us.extend(latencies);
    }
    let elapsed = started.elapsed();
    latencies_us.sort_unstable();
    Ok(Load {
        n_requests: latencies_us.len() as u64,
        elapsed,
        latencies_us,
    })
}

async fn work<W: Worker>(
    mut worker: W,
    mut random: Random,
    end: Instant,
    left: Arc<AtomicU64>,
) -> Result<(W, Vec<u32>)> {
    let mut latencies = Vec::with_capacity(16 * 1024);
    let mut now = Instant::now();
    while now < end
        && left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    {
        worker.step(&mut random).await?;
        let after = Instant::now();
        latencies.push((after - now).as_micros() as u32);
        now = after;
    }
    Ok((worker, latencies))
}
