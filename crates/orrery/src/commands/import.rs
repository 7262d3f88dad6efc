//! `orrery import`: items from NDJSON or a JSON array into one container of a running server.
//!
//! Three stages, each bounded: a thread cuts the input into items, workers write them, and this task counts what is done.
//! The position it keeps is the end of the last item before which everything is written; items after it may be written
//! already, and writing those again changes nothing. The order of writes is not that of the input.

mod finished;
mod write;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use http::Method;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use self::finished::Finished;
use self::write::{Failed, Item, Writer, Written};
use crate::client::{Call, Client, RemoteFlags};
use crate::json_items::JsonItems;
use crate::position::{PositionFile, SAVE_INTERVAL};
use crate::{progress, runtime};

#[derive(Args, Debug)]
pub struct ImportFlags {
    /// Name of the database
    #[arg(value_name = "DATABASE")]
    database: String,
    /// Name of the container
    #[arg(value_name = "CONTAINER")]
    container: String,
    /// NDJSON or a JSON array of items; standard input when left out
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Keep the position in this file, and go on from it if it exists
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// What to do with an item that is there already
    #[arg(long, value_name = "WHAT", default_value = "replace")]
    if_exists: IfExists,
    /// Items written at the same time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,
    /// Create the database and the container if they are missing
    #[arg(long, requires = "partition_key")]
    create: bool,
    /// Partition key path of a container that is created; up to three for a hierarchical key
    #[arg(long, value_name = "PATH", requires = "create")]
    partition_key: Vec<String>,
    #[command(flatten)]
    remote: RemoteFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IfExists {
    /// Write over it
    Replace,
    /// Leave it as it is
    Skip,
    /// Stop
    Fail,
}

/// Everything before `bytes` is written.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Position {
    import: String,
    bytes: u64,
    items: u64,
}

pub fn run(flags: &ImportFlags) -> Result<()> {
    runtime::run(import(flags))
}

async fn import(flags: &ImportFlags) -> Result<()> {
    let started = Instant::now();
    let client = Client::new(&flags.remote)?;
    let mut file = PositionFile::new(flags.resume.clone());
    let target = format!("{}/{}", flags.database, flags.container);
    let mut position = file.load::<Position>()?.unwrap_or(Position {
        import: target.clone(),
        bytes: 0,
        items: 0,
    });
    ensure!(
        position.import == target,
        "the position file is of an import into {}",
        position.import
    );
    if flags.create {
        create_missing(&client, flags).await?;
    }
    let n_items_before = position.items;
    let (input, size) = open_input(flags.file.as_ref())?;
    let bar = progress::of_bytes(size);
    let result = transfer(&client, flags, input, &mut position, &mut file, &bar).await;
    bar.finish_and_clear();
    file.save(&position)?;
    let n_items = position.items - n_items_before;
    result.with_context(|| {
        format!(
            "{} items are in {target}, up to byte {} of the input",
            position.items, position.bytes
        )
    })?;
    eprintln!(
        "imported {n_items} items into {target} in {:.1} s",
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

type Input = Box<dyn BufRead + Send>;

/// The input and, for a plain file, its size.
fn open_input(path: Option<&PathBuf>) -> Result<(Input, Option<u64>)> {
    let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
        return Ok((Box::new(BufReader::new(std::io::stdin())), None));
    };
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let metadata = file.metadata()?;
    let size = metadata.is_file().then_some(metadata.len());
    Ok((Box::new(BufReader::with_capacity(1 << 16, file)), size))
}

async fn create_missing(client: &Arc<Client>, flags: &ImportFlags) -> Result<()> {
    let mut connection = client.connection();
    let paths = &flags.partition_key;
    let kind = if paths.len() == 1 { "Hash" } else { "MultiHash" };
    let container = json!({ "id": flags.container, "partitionKey": { "paths": paths, "kind": kind, "version": 2 } });
    let steps = [
        Call::children(Method::POST, &[], "dbs").json(json!({ "id": flags.database }).to_string()),
        Call::children(Method::POST, &["dbs", &flags.database], "colls").json(container.to_string()),
    ];
    for (call, what) in steps.iter().zip(["database", "container"]) {
        let answer = connection.call_until_answered(call).await?;
        if answer.status.as_u16() != 409 {
            answer.success().with_context(|| format!("cannot create the {what}"))?;
        }
    }
    Ok(())
}

/// Moves everything, until the end, a failure or a signal. `position` is where it got to, whatever the result.
async fn transfer(
    client: &Arc<Client>,
    flags: &ImportFlags,
    input: Input,
    position: &mut Position,
    file: &mut PositionFile,
    bar: &ProgressBar,
) -> Result<()> {
    let (to_workers, items) = mpsc::channel(usize::from(flags.concurrency));
    let (_workers, mut results) = start_workers(client, flags, items);
    let start = position.bytes;
    let reading = tokio::task::spawn_blocking(move || cut(input, start, &to_workers));
    let mut finished = Finished::new(start);
    let mut interrupt = std::pin::pin!(runtime::stop_signal()?);
    let mut save = tokio::time::interval(SAVE_INTERVAL);
    loop {
        // All are cancel safe: a result stays in the channel, a tick with the interval, a signal with the process.
        let result = tokio::select! {
            result = results.recv() => result,
            _ = save.tick() => {
                file.save(position)?;
                continue;
            }
            () = &mut interrupt => bail!("interrupted"),
        };
        match result {
            None => break,
            Some(Ok(Written { sequence, end })) => finished.add(sequence, end),
            Some(Err(Failed { end, error })) => {
                return Err(error.context(format!("the item that ends at byte {end} was not written")));
            }
        }
        let (n_items, bytes) = finished.advance();
        (position.items, position.bytes) = (position.items + n_items, bytes);
        bar.set_position(bytes);
        bar.set_message(format!("{} items", position.items));
    }
    reading.await.context("the reader of the input ended badly")?
}

type Results = mpsc::Receiver<Result<Written, Failed>>;

/// Workers end when there are no more items, or when the set is dropped.
fn start_workers(client: &Arc<Client>, flags: &ImportFlags, items: mpsc::Receiver<Item>) -> (JoinSet<()>, Results) {
    let (to_us, results) = mpsc::channel(usize::from(flags.concurrency));
    let items = Arc::new(Mutex::new(items));
    let mut workers = JoinSet::new();
    for _ in 0..flags.concurrency {
        let writer = Writer::new(client, &flags.database, &flags.container, flags.if_exists);
        workers.spawn(writer.run(Arc::clone(&items), to_us.clone()));
    }
    (workers, results)
}

/// Cuts the input into items, until the end or until nobody wants more.
fn cut(input: Input, start: u64, to_workers: &mpsc::Sender<Item>) -> Result<()> {
    let mut items = JsonItems::new(input);
    items.skip_to(start).context("cannot go on from the position file")?;
    for (sequence, found) in items.enumerate() {
        let found = found.context("cannot read the input")?;
        if to_workers
            .blocking_send(Item {
                sequence: sequence as u64,
                text: found.text,
                end: found.end,
            })
            .is_err()
        {
            break;
        }
    }
    Ok(())
}
