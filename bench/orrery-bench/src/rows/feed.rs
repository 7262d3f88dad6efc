//! The change feed: catching up with everything there is, against iterating a bare store, and how soon a reader that waits
//! learns of a write.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{Settings, fill, filled, record};
use crate::load::http1::{Connection, Target};
use crate::measure::{Sample, median, median_sample};
use crate::process::{Server, text};
use crate::report::Row;
use crate::requests::{Signer, changes, create_once};

const GOAL_OF_LIMIT: f64 = 0.5;
const LATENCY_GOAL_MS: f64 = 10.0;
const N_LATENCIES: u64 = 200;
const WAIT_MS: u32 = 10_000;

pub async fn rows(settings: &Settings) -> Result<Vec<Row>> {
    let scratch = settings.scratch()?;
    let server = filled(&scratch.path().join("data"), settings.n_items).await?;
    let answer = record(&create_once(server.port, settings.n_items).await?, scratch.path())?;
    let store = scratch.path().join("limit");
    std::fs::create_dir(&store)?;
    let limit = Server::limit(&["--answer", text(&answer)?, "--store", text(&store)?])?;
    fill(&limit, 0, settings.n_items).await?;
    let mut samples: [Vec<Sample>; 2] = Default::default();
    for round in 0..=settings.n_rounds {
        let ours = run(&server, "\"0\"", settings).await?;
        let bare = run(&limit, "\"k\"", settings).await?;
        // The first round warms up.
        if round > 0 {
            samples[0].push(ours);
            samples[1].push(bare);
        }
    }
    let [ours, bare] = samples.map(|samples| median_sample(&samples));
    let latency_ms = write_to_reader(&server, settings.n_items + 1).await?;
    Ok(vec![
        Row::at_least(
            "change feed catch-up, pages of 1,000",
            format!("{:.0} items/s, {:.2} µs CPU", ours.per_second, ours.cpu_us),
            format!("limit: {:.0} items/s, {:.2} µs CPU", bare.per_second, bare.cpu_us),
            ours.per_second / bare.per_second,
            GOAL_OF_LIMIT,
        ),
        Row::below("write to reader that waits, p50", latency_ms, "ms", LATENCY_GOAL_MS),
    ])
}

/// Catches up from the beginning again and again; a sample counts documents.
async fn run(server: &Server, start: &str, settings: &Settings) -> Result<Sample> {
    let (before, started) = (server.cpu()?, Instant::now());
    let mut n_documents = 0;
    while started.elapsed() < settings.length {
        n_documents += catch_up(server, start).await?;
    }
    let used = server.cpu()?.saturating_sub(before);
    Ok(Sample {
        per_second: n_documents as f64 / started.elapsed().as_secs_f64(),
        cpu_us: used.as_secs_f64() * 1e6 / n_documents.max(1) as f64,
        p50_ms: 0.0,
    })
}

async fn catch_up(server: &Server, start: &str) -> Result<u64> {
    let mut connection = Connection::open(&Target::plain(server.port)).await?;
    let (signer, mut token, mut n_documents) = (Signer::now(), start.to_owned(), 0);
    loop {
        let page = connection.call(&changes(&signer, &token, 0)).await?;
        if page.status == 304 {
            return Ok(n_documents);
        }
        ensure!(page.status == 200, "status {}", page.status);
        n_documents += page.header("x-ms-item-count").context("a count")?.parse::<u64>()?;
        token = page.header("etag").context("a token")?.to_owned();
    }
}

/// Half of all writes reach a waiting reader within this many milliseconds of being sent.
async fn write_to_reader(server: &Server, first: u64) -> Result<f64> {
    let signer = Signer::now();
    let mut reader = Connection::open(&Target::plain(server.port)).await?;
    let mut token = reader.call(&changes(&signer, "*", 0)).await?;
    let mut latencies = Vec::new();
    for number in first..first + N_LATENCIES {
        let request = changes(&signer, token.header("etag").context("a token")?, WAIT_MS);
        let waiting = async {
            let page = reader.call(&request).await?;
            Ok::<_, anyhow::Error>((page, Instant::now()))
        };
        let writing = async {
            // Long enough for the reader to be waiting, so that its wait is what is measured.
            tokio::time::sleep(Duration::from_millis(2)).await;
            let sent = Instant::now();
            create_once(server.port, number).await?;
            Ok::<_, anyhow::Error>(sent)
        };
        let (read, sent) = tokio::join!(waiting, writing);
        let ((page, learned), sent) = (read?, sent?);
        ensure!(page.status == 200, "status {}", page.status);
        latencies.push(learned.saturating_duration_since(sent).as_secs_f64() * 1e3);
        token = page;
    }
    Ok(median(latencies))
}
