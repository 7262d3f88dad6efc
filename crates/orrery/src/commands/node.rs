//! `orrery node`: one node of a cluster, served until the process is told to stop. When the cluster has a coordinator and this node
//! takes requests, one line of JSON on stdout says where.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;

use super::serve::{allow_many_files, ready_line};
use crate::cluster::ClusterNode;
use crate::cluster::settings::ClusterConfig;
use crate::config::Raw;
use crate::logging;
use crate::runtime::stop_signal;

/// Flags that say which servers keep the data, and of which region.
#[derive(Args, Clone, Debug, Default)]
pub struct ServersFlags {
    /// Settings file; orrery.toml in the working directory is read when it exists
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// NATS servers
    #[arg(long, value_name = "URL,…")]
    nats: Option<String>,
    /// Monitoring ports of all NATS servers; needed outside of development
    #[arg(long, value_name = "HOST:PORT,…")]
    monitor: Option<String>,
    /// Region that is served [default: West US]
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// NATS servers that hold a copy of everything, fixed at the first start [default: 3]
    #[arg(long, value_name = "1|3|5")]
    replicas: Option<String>,
    /// For development: servers need not sync what they acknowledge
    #[arg(long)]
    dev: bool,
}

impl ServersFlags {
    fn given(&self) -> Vec<(&'static str, Option<String>)> {
        vec![
            ("nats", self.nats.clone()),
            ("monitor", self.monitor.clone()),
            ("regions", self.region.clone()),
            ("replicas", self.replicas.clone()),
            ("profile", self.dev.then(|| "dev".to_owned())),
        ]
    }

    /// Settings from everywhere, with these flags and others.
    pub fn gather(&self, others: Vec<(&'static str, Option<String>)>) -> Result<Raw> {
        let given = self.given().into_iter().chain(others);
        let given = given.filter_map(|(name, value)| Some((name, value?))).collect();
        Raw::layered(self.config.clone(), None, std::env::vars(), given)
    }
}

/// Flags of a node. Each has the name of a setting.
#[derive(Args, Clone, Debug, Default)]
pub struct NodeFlags {
    #[command(flatten)]
    servers: ServersFlags,
    /// Name of the account [default: orrery]
    #[arg(long, value_name = "ID")]
    account: Option<String>,
    /// Primary key of a new account [default: the well-known development key]
    #[arg(long, value_name = "BASE64")]
    key: Option<String>,
    /// Default consistency level [default: Session]
    #[arg(long, value_name = "LEVEL")]
    consistency: Option<String>,
    /// BoundedStaleness: transactions of a partition that a region may lack [default: the service's minimum]
    #[arg(long, value_name = "N")]
    max_staleness_prefix: Option<String>,
    /// BoundedStaleness: seconds for which a region may lack a transaction [default: the service's minimum]
    #[arg(long, value_name = "SECONDS")]
    max_staleness_interval_s: Option<String>,
    /// Allow bounds of BoundedStaleness below the service's minima
    #[arg(long)]
    dev_allow_tight_bounds: bool,
    /// Where this node keeps its copy [default: ./orrery-data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Address to listen on [default: loopback, IPv4 and IPv6]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Port to listen on; 0 takes any free one [default: 8081]
    #[arg(long, value_name = "N")]
    port: Option<String>,
    /// URL that clients are told to use
    #[arg(long, value_name = "URL")]
    advertise: Option<String>,
    /// Certificate chain and key to use instead of the local authority's
    #[arg(long, value_name = "CHAIN.pem,KEY.pem")]
    tls: Option<String>,
    /// Speak plain HTTP beyond loopback
    #[arg(long)]
    allow_plain_http: bool,
    /// Physical partitions of a new container [default: 1]
    #[arg(long, value_name = "N")]
    partitions: Option<String>,
    /// Memory for hot items and blocks of data files, in MiB [default: 384]
    #[arg(long, value_name = "MIB")]
    cache_mb: Option<String>,
    /// How often a node renews its leases [default: 2000]
    #[arg(long, value_name = "MS")]
    lease_renew_ms: Option<String>,
    /// How long a lease holds that is not renewed [default: 10000]
    #[arg(long, value_name = "MS")]
    lease_expiry_ms: Option<String>,
}

impl NodeFlags {
    fn given(&self) -> Vec<(&'static str, Option<String>)> {
        vec![
            ("account", self.account.clone()),
            ("key", self.key.clone()),
            ("consistency", self.consistency.clone()),
            ("max-staleness-prefix", self.max_staleness_prefix.clone()),
            ("max-staleness-interval-s", self.max_staleness_interval_s.clone()),
            (
                "dev-allow-tight-bounds",
                self.dev_allow_tight_bounds.then(|| "true".to_owned()),
            ),
            ("data-dir", self.data_dir.clone()),
            ("listen", self.listen.clone()),
            ("port", self.port.clone()),
            ("advertise", self.advertise.clone()),
            ("tls", self.tls.clone()),
            ("allow-plain-http", self.allow_plain_http.then(|| "true".to_owned())),
            ("partitions", self.partitions.clone()),
            ("cache-mb", self.cache_mb.clone()),
            ("lease-renew-ms", self.lease_renew_ms.clone()),
            ("lease-expiry-ms", self.lease_expiry_ms.clone()),
        ]
    }
}

pub fn run(flags: &NodeFlags) -> Result<()> {
    logging::start();
    let config = ClusterConfig::new(&flags.servers.gather(flags.given())?)?;
    allow_many_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(&config))
}

async fn serve(config: &ClusterConfig) -> Result<()> {
    let mut node = ClusterNode::open(config).await?;
    // Also while it waits for a coordinator.
    let stop = stop_signal()?;
    tokio::pin!(stop);
    tokio::select! {
        // Both are safe to drop: a node that is told to stop before it is ready has nothing to tell.
        () = node.ready() => {
            node.serve();
            println!("{}", ready_line(vec![node.endpoints()]));
            stop.await;
        }
        () = &mut stop => {}
    }
    node.stop().await
}
