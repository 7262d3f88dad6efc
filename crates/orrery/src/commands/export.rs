//! `orrery export`: the items of one container of a running server as NDJSON or a JSON array.
//!
//! The container is read range by range, several at a time, and written by one thread, which keeps the position: how long
//! the output is and where each range goes on. Ranges are intervals of effective partition keys, so a split or merge in
//! between does not matter. Every item that is there from the beginning to the end comes out exactly once.

mod output;
mod read;
mod strip;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use http::Method;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use self::output::Output;
use self::read::{PageRead, Reader};
use crate::client::{Answer, Call, Client, RemoteFlags};
use crate::position::PositionFile;
use crate::{progress, runtime};

/// Pages that are read but not written yet.
const PAGES_AHEAD: usize = 4;

#[derive(Args, Debug)]
pub struct ExportFlags {
    /// Name of the database
    #[arg(value_name = "DATABASE")]
    database: String,
    /// Name of the container
    #[arg(value_name = "CONTAINER")]
    container: String,
    /// Write to this file; standard output when left out
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// One item per line, or one array
    #[arg(long, value_name = "FORMAT", default_value = "ndjson")]
    format: Format,
    /// Keep the properties that the server adds: _rid, _self, _etag, _attachments and _ts
    #[arg(long)]
    system_properties: bool,
    /// Keep the position in this file, and go on from it if it exists
    #[arg(long, value_name = "FILE", requires = "output")]
    resume: Option<PathBuf>,
    /// Ranges read at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    concurrency: u16,
    /// Items asked for at once
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    page_size: u16,
    #[command(flatten)]
    remote: RemoteFlags,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Ndjson,
    Json,
}

/// What the first `bytes` of the output hold, and where each range goes on.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    export: String,
    format: Format,
    bytes: u64,
    items: u64,
    ranges: Vec<RangePosition>,
    /// Nothing is left to write.
    complete: bool,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RangePosition {
    min: String,
    max: String,
    continuation: Option<String>,
    done: bool,
}

pub fn run(flags: &ExportFlags) -> Result<()> {
    runtime::run(export(flags))
}

async fn export(flags: &ExportFlags) -> Result<()> {
    let started = Instant::now();
    let client = Client::new(&flags.remote)?;
    let file = PositionFile::new(flags.resume.clone());
    let source = format!("{}/{}", flags.database, flags.container);
    let (ranges, n_items) = inspect(&client, flags).await?;
    let fresh = Position {
        export: source.clone(),
        format: flags.format,
        bytes: 0,
        items: 0,
        ranges,
        complete: false,
    };
    let position = file.load::<Position>()?.unwrap_or(fresh);
    ensure!(
        position.export == source,
        "the position file is of an export of {}",
        position.export
    );
    ensure!(
        position.format == flags.format,
        "the position file is of an export in another format"
    );
    let n_items_before = position.items;
    let bar = progress::of_items(n_items);
    bar.set_position(position.items);
    let output = Output::open(flags.output.as_ref(), !flags.system_properties, position, file)?;
    let result = transfer(&client, flags, output, &bar).await;
    bar.finish_and_clear();
    let n_items = result? - n_items_before;
    eprintln!(
        "exported {n_items} items of {source} in {:.1} s",
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

/// The ranges of the container and about how many items it has.
async fn inspect(client: &Arc<Client>, flags: &ExportFlags) -> Result<(Vec<RangePosition>, Option<u64>)> {
    let mut connection = client.connection();
    let container = ["dbs", &flags.database, "colls", &flags.container];
    let call = Call::resource(Method::GET, &container).header("x-ms-documentdb-populatequotainfo", "True");
    let found = connection
        .call_until_answered(&call)
        .await?
        .success()
        .context("cannot read the container")?;
    let call = Call::children(Method::GET, &container, "pkranges");
    let answer = connection
        .call_until_answered(&call)
        .await?
        .success()
        .context("cannot read the container's ranges")?;
    Ok((ranges(&answer)?, item_count(&found)))
}

fn ranges(answer: &Answer) -> Result<Vec<RangePosition>> {
    let answer = answer.parse()?;
    let ranges = answer["PartitionKeyRanges"]
        .as_array()
        .context("the server gave no ranges")?;
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let range = |range: &serde_json::Value| {
        let (min, max) = text(&range["minInclusive"]).zip(text(&range["maxExclusive"]))?;
        Some(RangePosition {
            min,
            max,
            continuation: None,
            done: false,
        })
    };
    ranges
        .iter()
        .map(range)
        .collect::<Option<_>>()
        .context("the server gave a range without bounds")
}

/// The header is a list like `documentSize=1;documentsCount=2;`.
fn item_count(answer: &Answer) -> Option<u64> {
    let usage = answer.header("x-ms-resource-usage")?;
    usage
        .split(';')
        .find_map(|pair| pair.trim().strip_prefix("documentsCount="))?
        .parse()
        .ok()
}

/// Moves everything, until the end, a failure or a signal; gives the number of items in the output.
async fn transfer(client: &Arc<Client>, flags: &ExportFlags, output: Output, bar: &ProgressBar) -> Result<u64> {
    let (to_writer, pages) = mpsc::channel(PAGES_AHEAD);
    let left: Vec<_> = output.ranges_left();
    let n_readers = usize::from(flags.concurrency).min(left.len());
    let left = Arc::new(Mutex::new(left.into_iter()));
    let mut readers = JoinSet::new();
    for _ in 0..n_readers {
        let reader = Reader::new(client, &flags.database, &flags.container, flags.page_size);
        readers.spawn(reader.run(Arc::clone(&left), to_writer.clone()));
    }
    drop(to_writer);
    let bar = bar.clone();
    let interrupt = runtime::stop_signal()?;
    let mut writing = tokio::task::spawn_blocking(move || write(output, pages, &bar));
    tokio::select! {
        // The writer ends when the readers have: by itself, or because they are told to.
        written = &mut writing => written.context("the writer of the output ended badly")?,
        () = interrupt => {
            readers.shutdown().await;
            let n_items = writing.await.context("the writer of the output ended badly")??;
            bail!("interrupted after {n_items} items")
        }
    }
}

/// Writes pages as they come. The position is saved whatever the end.
fn write(mut output: Output, mut pages: mpsc::Receiver<Result<PageRead>>, bar: &ProgressBar) -> Result<u64> {
    while let Some(page) = pages.blocking_recv() {
        let written = page.and_then(|page| output.write(&page));
        if let Err(error) = written {
            output.save()?;
            return Err(error.context(format!("stopped after {} items", output.n_items())));
        }
        bar.set_position(output.n_items());
    }
    output.finish()
}
