//! `orrery cluster`: the NATS servers a cluster stands on, the streams they keep, and the nodes that are there.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Subcommand;
use orrery_node::{Clock as _, SystemClock};
use orrery_storage::NatsStore;
use orrery_storage::nats::servers::{self, Reported};
use orrery_storage::nats::streams::StreamReport;
use orrery_storage::nats::{Client, calls};

use super::node::ServersFlags;
use crate::cluster::records::{self, LEASE, NODES, NodeRecord};
use crate::cluster::settings::ServersConfig;
use crate::cluster::{connect, roster};
use crate::{runtime, table};

/// One request to the servers.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Make the streams of a region on NATS servers that are fit for it
    Init(ServersFlags),
    /// The nodes, the owner, and the streams with their leaders
    Status(ServersFlags),
    /// Are the NATS servers fit to keep data?
    Check(ServersFlags),
}

pub fn run(command: &ClusterCommand) -> Result<()> {
    let (ClusterCommand::Init(flags) | ClusterCommand::Status(flags) | ClusterCommand::Check(flags)) = command;
    let config = ServersConfig::new(&flags.gather(Vec::new())?)?;
    runtime::run(async {
        match command {
            ClusterCommand::Init(_) => init(&config).await,
            ClusterCommand::Status(_) => status(&config).await,
            ClusterCommand::Check(_) => check(&config).await,
        }
    })
}

async fn init(config: &ServersConfig) -> Result<()> {
    let client = connect(config).await?;
    NatsStore::init(client.clone(), &config.store).await?;
    roster(&client, &config.store, TIMEOUT).await?;
    let streams = NatsStore::streams(client, &config.store).await?;
    println!("{} streams are ready for {}", streams.len(), config.store.name);
    Ok(())
}

async fn check(config: &ServersConfig) -> Result<()> {
    let client = calls::connect(&config.urls).await?;
    let examined = servers::examine(&client, &config.monitors, config.trust).await;
    let unfit = examined.iter().filter(|(_, _, problem)| problem.is_some()).count();
    let head = ["server", "version", "jetstream", "max payload", "syncs", "verdict"];
    let rows = examined
        .iter()
        .map(|(name, server, problem)| server_row(name, server.as_ref(), problem.as_deref()));
    print(&head, rows);
    ensure!(unfit == 0, "{unfit} of {} servers are not fit", examined.len());
    Ok(())
}

fn server_row(name: &str, server: Option<&Reported>, problem: Option<&str>) -> Vec<String> {
    let unknown = || "?".to_owned();
    let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
    vec![
        name.to_owned(),
        server.map_or_else(unknown, |server| server.version.clone()),
        server.map_or_else(unknown, |server| yes(server.jetstream)),
        server.map_or_else(unknown, |server| server.max_payload_bytes.to_string()),
        server
            .and_then(|server| server.sync_always)
            .map_or_else(unknown, |sync| if sync { "always" } else { "sometimes" }.to_owned()),
        problem.unwrap_or("fit").to_owned(),
    ]
}

async fn status(config: &ServersConfig) -> Result<()> {
    let client = calls::connect(&config.urls).await?;
    nodes(&client, config).await?;
    println!();
    let streams = NatsStore::streams(client, &config.store).await?;
    let head = ["stream", "leader", "replicas", "logs", "messages", "bytes"];
    print(&head, streams.iter().map(stream_row));
    Ok(())
}

async fn nodes(client: &Client, config: &ServersConfig) -> Result<()> {
    let roster = roster(client, &config.store, TIMEOUT).await?;
    let lease = roster.get(LEASE).await?;
    let lease = lease.and_then(|entry| records::lease_from_bytes(&entry.value));
    match lease.as_ref().and_then(|lease| Some((lease, lease.holder.as_ref()?))) {
        Some((lease, holder)) if lease.serving => println!("{holder} owns the data, in term {}", lease.term),
        Some((lease, holder)) => println!("{holder} takes over, in term {}", lease.term),
        None => println!("nobody owns the data"),
    }
    println!();
    let now_ms = i128::from(SystemClock::default().now().0);
    let mut rows = Vec::new();
    for entry in roster.below(NODES).await? {
        let Ok(node) = serde_json::from_slice::<NodeRecord>(&entry.value) else {
            continue;
        };
        let age_s = (now_ms - entry.at_ms).max(0) as f64 / 1000.0;
        rows.push(vec![
            node.id,
            node.role,
            node.endpoint,
            node.pid.to_string(),
            node.version,
            node.lsn.to_string(),
            format!("{age_s:.1} s ago"),
        ]);
    }
    let head = ["node", "role", "endpoint", "pid", "version", "transactions", "heard of"];
    print(&head, rows.into_iter());
    Ok(())
}

fn stream_row(stream: &StreamReport) -> Vec<String> {
    let replica = |replica: &orrery_storage::nats::streams::ReplicaReport| {
        let state = match (replica.is_offline, replica.is_current, replica.n_behind) {
            (true, ..) => " (offline)".to_owned(),
            (_, true, 0) => String::new(),
            (_, _, behind) => format!(" ({behind} behind)"),
        };
        format!("{}{state}", replica.server)
    };
    let replicas: Vec<String> = stream.replicas.iter().map(replica).collect();
    vec![
        stream.name.clone(),
        stream.leader.clone().unwrap_or_else(|| "-".to_owned()),
        if replicas.is_empty() {
            "-".to_owned()
        } else {
            replicas.join(", ")
        },
        stream.n_logs.to_string(),
        stream.n_messages.to_string(),
        stream.n_bytes.to_string(),
    ]
}

fn print(head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let head = head.iter().map(|column| (*column).to_owned()).collect();
    table::print_rows(std::iter::once(head).chain(rows).collect());
}
