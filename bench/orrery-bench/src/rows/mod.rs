//! What is measured, one file per group of targets, and what the groups share.

mod churn;
mod cluster;
mod containers;
mod create;
mod feed;
mod growth;
mod idle;
mod processor;
mod publishing;
mod query;
mod read;
mod regions;
mod scan;
mod snapshots;
mod stall;
mod start;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::documents::DOCUMENT_BYTES;
use crate::limit::Protocol;
use crate::load::http1::{Answer, Target, workers};
use crate::load::{IN_FLIGHT, Until, drive};
use crate::process::Server;
use crate::report::Row;
use crate::requests::{batches, creates, make_container};

const MEGABYTE: f64 = 1024.0 * 1024.0;
/// Batches of documents sent at once to fill a container.
const BATCHES_IN_FLIGHT: usize = 8;
/// How long a filled server may go on working, and for how long it must not have.
const SETTLE_MAX: Duration = Duration::from_secs(600);
const SETTLE_LOOK: Duration = Duration::from_millis(500);

/// A group of rows that share their servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Group {
    Read,
    Query,
    Scan,
    ReadTls,
    ReadHttp2,
    Create,
    Feed,
    Processor,
    Start,
    Idle,
    Containers,
    Snapshots,
    Growth,
    Stall,
    Churn,
    Regions,
    Publishing,
    Cluster,
}

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of one run.
    pub length: Duration,
    /// Alternating runs.
    pub n_rounds: usize,
    /// Items that point reads choose from; ten times as many in the growth row.
    pub n_items: u64,
    /// Of the data set for start and churn.
    pub megabytes: u64,
    pub stall_length: Duration,
    /// Items in the containers that queries are measured on, ascending.
    pub query_sizes: Vec<u64>,
    /// Notifications that pages of the publishing platform are read among; a tenth as many articles.
    pub n_notifications: u64,
    /// Where data goes.
    pub directory: PathBuf,
    /// Where charts go.
    pub plots: PathBuf,
}

impl Settings {
    /// Documents in the data set.
    fn n_documents(&self) -> u64 {
        self.megabytes * MEGABYTE as u64 / DOCUMENT_BYTES as u64
    }

    fn scratch(&self) -> Result<tempfile::TempDir> {
        Ok(tempfile::tempdir_in(&self.directory)?)
    }
}

/// Rows and, for some groups, a plot.
pub async fn measure(group: Group, settings: &Settings) -> Result<(Vec<Row>, String)> {
    Ok(match group {
        Group::Query => query::rows(settings).await?,
        Group::Scan => (scan::rows(settings).await?, String::new()),
        Group::Read => (read::plain(settings).await?, String::new()),
        Group::ReadTls => (read::other(settings, Protocol::Tls).await?, String::new()),
        Group::ReadHttp2 => (read::other(settings, Protocol::Http2).await?, String::new()),
        Group::Create => (create::rows(settings).await?, String::new()),
        Group::Feed => (feed::rows(settings).await?, String::new()),
        Group::Processor => (processor::rows(settings).await?, String::new()),
        Group::Start => (start::rows(settings).await?, String::new()),
        Group::Idle => (idle::rows(settings).await?, String::new()),
        Group::Containers => (containers::rows(settings).await?, String::new()),
        Group::Snapshots => (snapshots::rows(settings).await?, String::new()),
        Group::Growth => growth::rows(settings).await?,
        Group::Stall => (stall::rows(settings).await?, String::new()),
        Group::Churn => (churn::rows(settings).await?, String::new()),
        Group::Regions => (regions::rows(settings).await?, String::new()),
        Group::Publishing => (publishing::rows(settings).await?, String::new()),
        Group::Cluster => (cluster::rows(settings).await?, String::new()),
    })
}

/// A durable server with the first `n_items` documents.
async fn filled(directory: &Path, n_items: u64) -> Result<Server> {
    let server = Server::durable(directory)?;
    make_container(server.port).await?;
    fill(&server, 0, n_items).await?;
    settle(&server).await?;
    Ok(server)
}

/// Creates `n` documents, numbered from `first` on.
async fn fill(server: &Server, first: u64, n: u64) -> Result<()> {
    let mut workers = workers(&Target::plain(server.port), IN_FLIGHT, &creates(first), 201).await?;
    drive(&mut workers, Until::Requests(n)).await?;
    Ok(())
}

/// Creates the first `n_items` documents in batches.
async fn fill_quickly(server: &Server, n_items: u64) -> Result<()> {
    let (fill, n_batches) = batches(n_items);
    let mut workers = workers(&Target::plain(server.port), BATCHES_IN_FLIGHT, &fill, 200).await?;
    drive(&mut workers, Until::Requests(n_batches)).await?;
    settle(server).await
}

/// Waits until the server has put what it was given in order, so that this work does not count as somebody else's.
async fn settle(server: &Server) -> Result<()> {
    let started = Instant::now();
    while started.elapsed() < SETTLE_MAX {
        let before = server.cpu()?;
        tokio::time::sleep(SETTLE_LOOK).await;
        if server.cpu()?.saturating_sub(before) < SETTLE_LOOK / 20 {
            return Ok(());
        }
    }
    bail!("the server was still at work {SETTLE_MAX:?} after it was filled")
}

/// Keeps an answer for a limit to give.
fn record(answer: &Answer, directory: &Path) -> Result<PathBuf> {
    let path = directory.join("answer");
    std::fs::write(&path, [&answer.head[..], &answer.body[..]].concat())?;
    Ok(path)
}
