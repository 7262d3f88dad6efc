//! A cluster: what its nodes add to bare messages, what a read on a node costs, and what a second node brings.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use async_nats::HeaderMap;
use async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;
use async_nats::jetstream::context::PublishError;
use async_nats::jetstream::stream::{Config, StorageType};
use async_nats::jetstream::{self, Context, ErrorCode};
use bytes::Bytes;
use orrery_nats_server::Cluster as Servers;
use rustix::process::{Pid, Signal, kill_process};

use super::read::alternate;
use super::{Settings, fill, filled};
use crate::documents::Random;
use crate::load::http1::{Fill, Http1Worker, Target, workers};
use crate::load::{IN_FLIGHT, Worker};
use crate::measure::{Sample, median, median_sample, run};
use crate::process::{Server, text};
use crate::report::Row;
use crate::requests::{creates, eventual_reads, make_container, reads};
use crate::usage;

const PARTITIONS: u64 = 8;
const GOAL_OF_MESSAGES: f64 = 0.6;
const GOAL_OF_EMBEDDED: f64 = 0.9;
const GOAL_OF_ONE_NODE: f64 = 1.7;
const WARM_UP: Duration = Duration::from_secs(1);
/// Of a core, that each node may use where nodes are compared.
const SHARE: f64 = 0.25;
/// How often a node that is held to its share is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// How long logs may take to be spread.
const SPREAD_MAX: Duration = Duration::from_secs(30);

pub async fn rows(settings: &Settings) -> Result<Vec<Row>> {
    let mut rows = vec![against_messages(settings, "").await?];
    if usage::cores() > 1 {
        rows.push(servers_apart(settings).await?);
    }
    rows.push(against_embedded(settings).await?);
    rows.extend(against_one_node(settings).await?);
    Ok(rows)
}

/// Where servers have machines of their own, what a node adds to a message is done while others are stored: here the servers
/// have the first core, and client and node share the second, with and without a node in between.
async fn servers_apart(settings: &Settings) -> Result<Row> {
    let all = format!("0-{}", usage::cores() - 1);
    let own = std::process::id();
    usage::pin(own, "1")?;
    let row = against_messages(settings, ", servers on a core of their own").await;
    usage::pin(own, &all)?;
    row
}

/// Servers, and nodes on them.
struct Cluster {
    servers: Servers,
    jetstream: Context,
    nodes: Vec<Server>,
}

impl Cluster {
    async fn start(directory: &Path, n_servers: usize, n_nodes: usize) -> Result<Cluster> {
        let servers = Servers::start(n_servers, &orrery_nats_server::Settings::default())?;
        let client = async_nats::connect(servers.urls()).await?;
        let mut cluster = Cluster {
            jetstream: jetstream::new(client),
            servers,
            nodes: Vec::new(),
        };
        for n in 0..n_nodes {
            let node = cluster.node(&directory.join(format!("node-{n}")))?;
            cluster.nodes.push(node);
        }
        Ok(cluster)
    }

    fn node(&self, directory: &Path) -> Result<Server> {
        let monitors: Vec<String> = self.servers.servers.iter().map(|server| server.monitor_url()).collect();
        let (urls, monitors) = (self.servers.urls().join(","), monitors.join(","));
        let (replicas, partitions) = (self.servers.servers.len().to_string(), PARTITIONS.to_string());
        Server::node(&[
            "--nats",
            &urls,
            "--monitor",
            &monitors,
            "--replicas",
            &replicas,
            "--partitions",
            &partitions,
            "--data-dir",
            text(directory)?,
        ])
    }

    /// Workers that are spread over the nodes, as a balancer would spread them.
    async fn workers(&self, fill: &Fill, status: u16) -> Result<Vec<Http1Worker>> {
        let mut all = Vec::new();
        for node in &self.nodes {
            let share = IN_FLIGHT / self.nodes.len();
            all.extend(workers(&Target::plain(node.port), share, fill, status).await?);
        }
        Ok(all)
    }

    fn cpu(&self) -> Result<Duration> {
        let mut sum = Duration::ZERO;
        for node in &self.nodes {
            sum += node.cpu()?;
        }
        Ok(sum)
    }

    /// Messages and bytes of all logs so far.
    async fn written(&self) -> Result<(u64, u64)> {
        let mut sum = (0, 0);
        for idx in 0.. {
            let Ok(mut stream) = self.jetstream.get_stream(format!("ORRERY_westus_{idx}")).await else {
                break;
            };
            let state = &stream.info().await?.state;
            sum = (sum.0 + state.messages, sum.1 + state.bytes);
        }
        Ok(sum)
    }

    /// Waits until every node owns its share.
    async fn spread(&self) -> Result<()> {
        let bucket = self.jetstream.get_key_value("ORRERY_westus_cluster").await?;
        let begun = Instant::now();
        loop {
            let record = bucket.get("placement").await?.unwrap_or_default();
            let placement: serde_json::Value = serde_json::from_slice(&record).unwrap_or_default();
            let logs = placement["logs"].as_object().cloned().unwrap_or_default();
            let owners: std::collections::BTreeSet<String> =
                logs.values().map(|spot| spot["owner"].to_string()).collect();
            let is_moving = logs.values().any(|spot| !spot["to"].is_null());
            if logs.len() as u64 == PARTITIONS && owners.len() == self.nodes.len() && !is_moving {
                return Ok(());
            }
            anyhow::ensure!(begun.elapsed() < SPREAD_MAX, "logs were not spread: {placement}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Creates through a node on three servers, against messages of the same size in the same number of logs.
async fn against_messages(settings: &Settings, conditions: &str) -> Result<Row> {
    let scratch = settings.scratch()?;
    let cluster = Cluster::start(scratch.path(), 3, 1).await?;
    if !conditions.is_empty() {
        let servers = cluster.servers.servers.iter().filter_map(|server| server.pid());
        servers.into_iter().try_for_each(|server| usage::pin(server, "0"))?;
    }
    make_container(cluster.nodes[0].port).await?;
    cluster.spread().await?;
    let mut ours = cluster.workers(&creates(0), 201).await?;
    let mut bare = Vec::new();
    for log in 0..PARTITIONS {
        let stream = Config {
            name: format!("BARE{log}"),
            subjects: vec![format!("bare.{log}")],
            storage: StorageType::File,
            num_replicas: 3,
            ..Config::default()
        };
        cluster.jetstream.create_stream(stream).await?;
        bare.push(Bare {
            jetstream: cluster.jetstream.clone(),
            subject: format!("bare.{log}"),
            last: 0,
            group: Bytes::new(),
        });
    }
    let (mut samples, mut limits, mut groups) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=settings.n_rounds {
        let length = if round == 0 { WARM_UP } else { settings.length };
        let before = cluster.written().await?;
        let sample = run(&mut ours, length, || cluster.cpu()).await?;
        let after = cluster.written().await?;
        let n_messages = (after.0 - before.0).max(1) as f64;
        let group_bytes = (after.1 - before.1) as f64 / n_messages;
        let per_group = sample.per_second * length.as_secs_f64() / n_messages;
        bare.iter_mut()
            .for_each(|log| log.group = Bytes::from(vec![7; group_bytes as usize]));
        let limit = run(&mut bare, length, || Ok(Duration::ZERO)).await?;
        if round > 0 {
            samples.push(sample);
            limits.push(limit.per_second * per_group);
            groups.push(group_bytes / 1024.0);
        }
    }
    let (ours, limit) = (median_sample(&samples), median(limits));
    Ok(Row::at_least(
        &format!("durable create in a cluster, three replicas{conditions}"),
        ours,
        format!("bare messages of {:.0} KB: {limit:.0}/s", median(groups)),
        ours.per_second / limit,
        GOAL_OF_MESSAGES,
    ))
}

/// One log without anything around it.
struct Bare {
    jetstream: Context,
    subject: String,
    last: u64,
    group: Bytes,
}

impl Worker for Bare {
    /// One message that follows the last. A leader acknowledges a message a moment before it takes the next of the same subject.
    async fn step(&mut self, _random: &mut Random) -> Result<()> {
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, self.last.to_string());
        loop {
            let (subject, group) = (self.subject.clone(), self.group.clone());
            let sent = self
                .jetstream
                .publish_with_headers(subject, headers.clone(), group)
                .await?;
            match sent.await {
                Ok(stored) => {
                    self.last = stored.sequence;
                    return Ok(());
                }
                Err(error) if is_too_soon(&error) => tokio::time::sleep(Duration::from_millis(1)).await,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn is_too_soon(error: &PublishError) -> bool {
    let answer = std::error::Error::source(error).and_then(|source| source.downcast_ref::<jetstream::Error>());
    answer.is_some_and(|answer| answer.error_code() == ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT)
}

/// Point reads on a node, against the emulator.
async fn against_embedded(settings: &Settings) -> Result<Row> {
    let scratch = settings.scratch()?;
    let cluster = Cluster::start(&scratch.path().join("cluster"), 1, 1).await?;
    let node = &cluster.nodes[0];
    make_container(node.port).await?;
    fill(node, 0, settings.n_items).await?;
    super::settle(node).await?;
    let embedded = filled(&scratch.path().join("embedded"), settings.n_items).await?;
    let requests = reads(settings.n_items);
    let ours = workers(&Target::plain(node.port), IN_FLIGHT, &requests, 200).await?;
    let theirs = workers(&Target::plain(embedded.port), IN_FLIGHT, &requests, 200).await?;
    let (ours, theirs) = alternate(settings, (node, ours), (&embedded, theirs)).await?;
    Ok(Row::at_least(
        "point read on a node of a cluster",
        ours,
        format!("emulator: {theirs}"),
        ours.per_second / theirs.per_second,
        GOAL_OF_EMBEDDED,
    ))
}

/// Two nodes against one, each held to a quarter of a core, clients of all nodes alike.
async fn against_one_node(settings: &Settings) -> Result<Vec<Row>> {
    let scratch = settings.scratch()?;
    let mut clusters = Vec::new();
    for n_nodes in [1, 2] {
        let cluster = Cluster::start(&scratch.path().join(n_nodes.to_string()), 1, n_nodes).await?;
        make_container(cluster.nodes[0].port).await?;
        cluster.spread().await?;
        fill(&cluster.nodes[0], 0, settings.n_items).await?;
        clusters.push(cluster);
    }
    let mut rows = Vec::new();
    let loads: [(&str, Fill, u16); 3] = [
        (
            "point reads by two nodes, eventual",
            eventual_reads(settings.n_items),
            200,
        ),
        (
            "point reads by two nodes, session without a token",
            reads(settings.n_items),
            200,
        ),
        ("durable creates by two nodes", creates(settings.n_items), 201),
    ];
    for (what, requests, status) in loads {
        let (one, two) = compare(settings, &clusters, &requests, status).await?;
        rows.push(Row::at_least(
            what,
            two,
            format!("one node: {one}"),
            two.per_second / one.per_second,
            GOAL_OF_ONE_NODE,
        ));
    }
    Ok(rows)
}

async fn compare(settings: &Settings, clusters: &[Cluster], requests: &Fill, status: u16) -> Result<(Sample, Sample)> {
    let mut of_each: [Vec<Sample>; 2] = Default::default();
    let mut all = Vec::new();
    for cluster in clusters {
        all.push(cluster.workers(requests, status).await?);
    }
    for round in 0..=settings.n_rounds {
        let length = if round == 0 { WARM_UP } else { settings.length };
        for ((cluster, workers), samples) in clusters.iter().zip(&mut all).zip(&mut of_each) {
            let _held: Vec<HeldBack> = cluster.nodes.iter().map(HeldBack::new).collect::<Result<_>>()?;
            let sample = run(workers, length, || cluster.cpu()).await?;
            if round > 0 {
                samples.push(sample);
            }
        }
    }
    let [one, two] = of_each.map(|samples| median_sample(&samples));
    Ok((one, two))
}

/// Keeps a process to its share of a core, by stopping it whenever it has used more, until it is dropped.
struct HeldBack {
    pid: Pid,
    ended: Arc<AtomicBool>,
    watching: Option<std::thread::JoinHandle<()>>,
}

impl HeldBack {
    fn new(server: &Server) -> Result<HeldBack> {
        let id = server.pid();
        let pid = Pid::from_raw(i32::try_from(id)?).context("a child has an id")?;
        let ended = Arc::new(AtomicBool::new(false));
        let (stop, before) = (Arc::clone(&ended), usage::cpu_fine(id)?);
        let watching = std::thread::spawn(move || {
            let begun = Instant::now();
            let mut is_stopped = false;
            while !stop.load(Ordering::Acquire) {
                let used = usage::cpu_fine(id).unwrap_or(before).saturating_sub(before);
                let is_over = used > begun.elapsed().mul_f64(SHARE);
                if is_over != is_stopped {
                    let signal = if is_over { Signal::STOP } else { Signal::CONT };
                    // It may have ended; then there is nothing to hold back.
                    let _ = kill_process(pid, signal);
                    is_stopped = is_over;
                }
                std::thread::sleep(LOOK);
            }
        });
        Ok(HeldBack {
            pid,
            ended,
            watching: Some(watching),
        })
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(watching) = self.watching.take() {
            let _ = watching.join();
        }
        let _ = kill_process(self.pid, Signal::CONT);
    }
}
