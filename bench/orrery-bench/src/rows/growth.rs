//! Does an operation cost more when there are ten times as many items?

use anyhow::Result;

use super::read::alternate;
use super::{Settings, filled};
use crate::load::IN_FLIGHT;
use crate::load::http1::{Target, workers};
use crate::measure::Sample;
use crate::process::Server;
use crate::report::{Row, plot};
use crate::requests::{creates, reads};

const FACTOR: u64 = 10;
const GOAL: f64 = 1.3;

pub async fn rows(settings: &Settings) -> Result<(Vec<Row>, String)> {
    let scratch = settings.scratch()?;
    let (n_small, n_large) = (settings.n_items, settings.n_items * FACTOR);
    let small = filled(&scratch.path().join("small"), n_small).await?;
    let large = filled(&scratch.path().join("large"), n_large).await?;
    let read_workers = async |server: &Server, n| workers(&Target::plain(server.port), IN_FLIGHT, &reads(n), 200).await;
    let reads = alternate(
        settings,
        (&small, read_workers(&small, n_small).await?),
        (&large, read_workers(&large, n_large).await?),
    );
    let (few_reads, many_reads) = reads.await?;
    let create_workers =
        async |server: &Server, n| workers(&Target::plain(server.port), IN_FLIGHT, &creates(n), 201).await;
    let creates = alternate(
        settings,
        (&small, create_workers(&small, n_small).await?),
        (&large, create_workers(&large, n_large).await?),
    );
    let (few_creates, many_creates) = creates.await?;
    let bars = [
        (format!("read,   {n_small} items"), few_reads.cpu_us),
        (format!("read,   {n_large} items"), many_reads.cpu_us),
        (format!("create, {n_small} items"), few_creates.cpu_us),
        (format!("create, {n_large} items"), many_creates.cpu_us),
    ];
    let rows = vec![
        row("growth: point read among 10 × the items", many_reads, few_reads),
        row("growth: create among 10 × the items", many_creates, few_creates),
    ];
    Ok((rows, plot("server CPU per operation as items grow", "µs", &bars)))
}

fn row(what: &str, many: Sample, few: Sample) -> Row {
    Row::at_most(what, many, format!("1 ×: {few}"), many.cpu_us / few.cpu_us, GOAL)
}
