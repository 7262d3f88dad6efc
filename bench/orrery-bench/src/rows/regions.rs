//! What regions cost: reads and writes of an account with three regions against one with a single region, and how far a
//! distant region lags behind under a steady load.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Settings, fill};
use crate::load::IN_FLIGHT;
use crate::load::http1::{Target, workers};
use crate::measure::{Sample, median, median_sample, run};
use crate::process::{Server, text};
use crate::report::Row;
use crate::requests::{create_once, creates, make_container, read_once, reads};

const REGIONS: &str = "West US,North Europe,Southeast Asia";
/// "No measurable cost", as far as a noisy machine can tell.
const READ_GOAL: f64 = 0.95;
const WRITE_GOAL: f64 = 1.15;
/// Few enough that a create waits for the disk and not for a processor, which all regions share here.
const WRITERS: u32 = 4;
const COST_WRITES_PER_SECOND: u32 = 400;
const LINK_MS: f64 = 100.0;
const WRITES_PER_SECOND: u32 = 1000;
const PACED_WRITERS: u32 = 20;
const LAG_GOAL_APPENDS: f64 = 4.0;
/// Documents of the lag row, beyond those of the others.
const PROBES_FROM: u64 = 1_000_000_000;
/// Numbers of documents that one writer may use.
const DOCUMENTS_PER_WRITER: u64 = 10_000_000;
const PROBE_INTERVAL: Duration = Duration::from_millis(50);

pub async fn rows(settings: &Settings) -> Result<Vec<Row>> {
    let mut rows = cost(settings).await?;
    rows.push(lag(settings).await?);
    Ok(rows)
}

/// One region and three, by turns.
async fn cost(settings: &Settings) -> Result<Vec<Row>> {
    let scratch = settings.scratch()?;
    let one = start(&scratch.path().join("one"), &[], settings).await?;
    let three = start(&scratch.path().join("three"), &["--regions", REGIONS], settings).await?;
    let mut read_samples: [Vec<Sample>; 2] = Default::default();
    let mut write_p50s: [Vec<f64>; 2] = Default::default();
    for (subject, server) in [&one, &three].into_iter().enumerate() {
        let mut readers = workers(&Target::plain(server.port), IN_FLIGHT, &reads(settings.n_items), 200).await?;
        run(&mut readers, Duration::from_secs(1), || server.cpu()).await?;
        read_samples[subject].clear();
    }
    for round in 0..settings.n_rounds as u64 {
        for (subject, server) in [&one, &three].into_iter().enumerate() {
            let target = Target::plain(server.port);
            let mut readers = workers(&target, IN_FLIGHT, &reads(settings.n_items), 200).await?;
            read_samples[subject].push(run(&mut readers, settings.length, || server.cpu()).await?);
            let load = Steady::start(server.port, WRITERS, COST_WRITES_PER_SECOND, u64::from(WRITERS) * round);
            tokio::time::sleep(settings.length).await;
            write_p50s[subject].push(median(load.stop().await?));
        }
    }
    let [read_one, read_three] = read_samples.map(|samples| median_sample(&samples));
    let [write_one, write_three] = write_p50s.map(median);
    Ok(vec![
        Row::at_least(
            "point read with three regions",
            read_three,
            format!("one region: {read_one}"),
            read_three.per_second / read_one.per_second,
            READ_GOAL,
        ),
        Row::at_most(
            &format!("create with three regions, {COST_WRITES_PER_SECOND}/s, p50"),
            format!("{write_three:.2} ms"),
            format!("one region: {write_one:.2} ms"),
            write_three / write_one,
            WRITE_GOAL,
        ),
    ])
}

async fn start(directory: &std::path::Path, extra: &[&str], settings: &Settings) -> Result<Server> {
    let server = Server::orrery(&[&["--data-dir", text(directory)?], extra].concat())?;
    make_container(server.port).await?;
    fill(&server, 0, settings.n_items).await?;
    Ok(server)
}

/// How long a write takes from its acknowledgement until a region behind a slow link shows it.
async fn lag(settings: &Settings) -> Result<Row> {
    let scratch = settings.scratch()?;
    let config = scratch.path().join("orrery.toml");
    std::fs::write(&config, three_regions_with_links())?;
    let data = scratch.path().join("data");
    let server = Server::orrery(&["--config", text(&config)?, "--data-dir", text(&data)?])?;
    let reader = *server.region_ports.get(1).context("the second region has a port")?;
    make_container(server.port).await?;
    let load = Steady::start(server.port, PACED_WRITERS, WRITES_PER_SECOND, 0);
    let mut lags_ms = Vec::new();
    let (started, mut probe) = (Instant::now(), PROBES_FROM);
    while started.elapsed() < settings.length * settings.n_rounds as u32 {
        create_once(server.port, probe).await?;
        let acknowledged = Instant::now();
        while read_once(reader, probe).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        lags_ms.push(acknowledged.elapsed().as_secs_f64() * 1e3);
        probe += 1;
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
    let (lag_ms, append_ms) = (p99(lags_ms), p99(load.stop().await?));
    let allowed_ms = LINK_MS + LAG_GOAL_APPENDS * append_ms;
    Ok(Row::at_most(
        "lag p99 of a region 100 ms away, 1,000 writes/s",
        format!("{lag_ms:.1} ms"),
        format!("link {LINK_MS} ms + 4 × create p99 {append_ms:.1} ms"),
        lag_ms / allowed_ms,
        1.0,
    ))
}

fn three_regions_with_links() -> String {
    let names: Vec<&str> = REGIONS.split(',').collect();
    let mut text = format!("[[accounts]]\nid = \"orrery\"\nregions = {names:?}\n");
    for (at, from) in names.iter().enumerate() {
        for to in &names[at + 1..] {
            text.push_str(&format!(
                "[[links]]\nfrom = {from:?}\nto = {to:?}\nlatency-ms = {LINK_MS:.0}\n"
            ));
        }
    }
    text
}

/// Creates at a steady rate, however long each takes.
struct Steady {
    end: watch::Sender<bool>,
    writing: JoinSet<Result<Vec<f64>>>,
}

impl Steady {
    /// Writers from number `first` on, each with documents of its own.
    fn start(port: u16, n_writers: u32, per_second: u32, first: u64) -> Steady {
        let (end, ended) = watch::channel(false);
        let interval = Duration::from_secs(1) * n_writers / per_second;
        let mut writing = JoinSet::new();
        for writer in first..first + u64::from(n_writers) {
            writing.spawn(write_steadily(port, writer, interval, ended.clone()));
        }
        Steady { end, writing }
    }

    /// Ends the load; answers how long each create took, in milliseconds.
    async fn stop(mut self) -> Result<Vec<f64>> {
        self.end.send_replace(true);
        let mut latencies_ms = Vec::new();
        while let Some(done) = self.writing.join_next().await {
            latencies_ms.extend(done.context("a writer panicked")??);
        }
        Ok(latencies_ms)
    }
}

async fn write_steadily(port: u16, writer: u64, interval: Duration, ended: watch::Receiver<bool>) -> Result<Vec<f64>> {
    let fill = creates((writer + 1) * DOCUMENTS_PER_WRITER);
    let mut workers = workers(&Target::plain(port), 1, &fill, 201).await?;
    let mut ticks = tokio::time::interval(interval);
    let mut latencies_ms = Vec::new();
    while !*ended.borrow() {
        ticks.tick().await;
        let load = crate::load::drive(&mut workers, crate::load::Until::Requests(1)).await?;
        latencies_ms.push(load.latency_ms(1.0));
    }
    Ok(latencies_ms)
}

fn p99(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = values.len().saturating_sub(1) * 99 / 100;
    values.get(at).copied().unwrap_or(f64::NAN)
}
