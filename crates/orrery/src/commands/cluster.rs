//! `orrery cluster`: the NATS servers a cluster stands on, the streams they keep, and the nodes that are there.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};
use orrery_model::LogId;
use orrery_node::cluster::placement::{Goal, Placement};
use orrery_node::{Clock as _, SystemClock};
use orrery_storage::NatsStore;
use orrery_storage::nats::servers::{self, Reported};
use orrery_storage::nats::streams::StreamReport;
use orrery_storage::nats::{Client, calls};

use super::node::ServersFlags;
use crate::cluster::records::{self, LEASE, NODES, NodeRecord, PLACEMENT};
use crate::cluster::regions;
use crate::cluster::settings::ServersConfig;
use crate::cluster::{connect, roster};
use crate::config::consistency;
use crate::{runtime, table};

/// One request to the servers.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Make the streams of a region on NATS servers that are fit for it
    Init(InitFlags),
    /// The nodes, the owner of every log, and the streams with their leaders
    Status(ServersFlags),
    /// Are the NATS servers fit to keep data?
    Check(ServersFlags),
}

/// Flags of a region that is made.
#[derive(Args, Debug)]
pub struct InitFlags {
    #[command(flatten)]
    servers: ServersFlags,
    /// All regions of the account, in the order in which they take over; the first takes writes. Leave out for a single one
    #[arg(long, value_name = "NAMES")]
    account_regions: Option<String>,
    /// Consistency level that the account is to have [default: Session]
    #[arg(long, value_name = "LEVEL")]
    consistency: Option<String>,
}

impl InitFlags {
    /// The account's regions, when it has several.
    fn regions(&self) -> Vec<String> {
        let names = self.account_regions.iter().flat_map(|names| names.split(','));
        let names = names.map(str::trim).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    }
}

pub fn run(command: &ClusterCommand) -> Result<()> {
    let (flags, others) = match command {
        ClusterCommand::Init(flags) => (&flags.servers, vec![("consistency", flags.consistency.clone())]),
        ClusterCommand::Status(flags) | ClusterCommand::Check(flags) => (flags, Vec::new()),
    };
    let raw = flags.gather(others)?;
    let config = ServersConfig::new(&raw)?;
    runtime::run(async {
        match command {
            ClusterCommand::Init(flags) if flags.account_regions.is_some() => {
                init_region(&config, raw.text("regions"), &flags.regions(), raw.text("consistency")).await
            }
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

async fn init_region(config: &ServersConfig, region: &str, regions: &[String], level: &str) -> Result<()> {
    consistency(level)?;
    let client = connect(config).await?;
    let topology = regions::init::init(&client, &config.store, region, regions).await?;
    let streams = NatsStore::streams(client, &config.store).await?;
    let writer = &topology.writer().name;
    println!(
        "{} streams are ready for {}; {writer} takes writes",
        streams.len(),
        config.store.name
    );
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
        Some((lease, holder)) if lease.serving => println!("{holder} coordinates, in term {}", lease.term),
        Some((lease, holder)) => println!("{holder} takes over, in term {}", lease.term),
        None => println!("nobody coordinates"),
    }
    println!();
    let now_ms = i128::from(SystemClock::default().now().0);
    let placement = roster.get(PLACEMENT).await?;
    let placement = placement.and_then(|entry| records::placement_from_bytes(&entry.value));
    let placement = placement.unwrap_or_default();
    let n_owned = |node: &str| placement.logs.values().filter(|spot| spot.owner == node).count();
    let (mut rows, mut known) = (Vec::new(), Vec::new());
    for entry in roster.below(NODES).await? {
        let Ok(node) = serde_json::from_slice::<NodeRecord>(&entry.value) else {
            continue;
        };
        let age_s = (now_ms - entry.at_ms).max(0) as f64 / 1000.0;
        rows.push(vec![
            node.id.clone(),
            node.role.clone(),
            n_owned(&node.id).to_string(),
            node.endpoint.clone(),
            node.pid.to_string(),
            node.version.clone(),
            format!("{age_s:.1} s ago"),
        ]);
        known.push(node);
    }
    let head = ["node", "role", "owns", "endpoint", "pid", "version", "heard of"];
    print(&head, rows.into_iter());
    println!();
    let coordinator = lease.as_ref().and_then(|lease| lease.holder.clone());
    logs(&placement, coordinator.as_deref(), &known);
    Ok(())
}

/// Where every log is, and how far the other nodes' copies of it are behind, as of when each was last heard of.
fn logs(placement: &Placement, coordinator: Option<&str>, nodes: &[NodeRecord]) {
    let all: BTreeSet<u64> = nodes.iter().flat_map(|node| node.logs.keys().copied()).collect();
    let rows = all.into_iter().map(|log| {
        let spot = placement.logs.get(&LogId(log));
        let owner = spot.map(|spot| spot.owner.as_str()).or(coordinator);
        let lsn_of = |id: &str| nodes.iter().find(|node| node.id == id)?.logs.get(&log).copied();
        let lsn = owner.and_then(lsn_of);
        let others = nodes.iter().filter(|node| Some(node.id.as_str()) != owner);
        let behind = others.filter_map(|node| Some(lsn?.saturating_sub(lsn_of(&node.id)?)));
        let state = match spot.map(|spot| &spot.to) {
            None => "at home".to_owned(),
            Some(None) => String::new(),
            Some(Some(Goal::Home)) => "goes home".to_owned(),
            Some(Some(Goal::Node(next))) => format!("goes to {next}"),
        };
        let dash = || "-".to_owned();
        vec![
            if log == LogId::SYSTEM.0 {
                "system".to_owned()
            } else {
                log.to_string()
            },
            owner.map_or_else(dash, str::to_owned),
            spot.and_then(|spot| spot.standby.clone()).unwrap_or_else(dash),
            lsn.map_or_else(dash, |lsn| lsn.to_string()),
            behind.max().map_or_else(dash, |behind| behind.to_string()),
            state,
        ]
    });
    print(&["log", "owner", "standby", "lsn", "behind", ""], rows);
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
