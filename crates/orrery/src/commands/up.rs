//! `orrery up`: the publishing platform. One account per region, all regions in this process, a service for each, and the
//! web application in front of them.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::commands::serve::allow_many_files;
use crate::config::{Raw, ServerConfig};
use crate::logging;
use crate::platform::{self, UpSettings};
use crate::topology::{Plan, regions_wanted};

/// What the accounts' names begin with.
const ACCOUNTS: &str = "contentpubdatabase";

#[derive(Args, Debug)]
pub struct UpFlags {
    /// Names of regions, or how many of the well-known ones
    #[arg(long, value_name = "N|A,B,C", default_value = "3")]
    regions: String,
    /// Settings file with [[accounts]], one per region, and [[links]], instead of --regions
    #[arg(long, value_name = "FILE", conflicts_with = "regions")]
    config: Option<PathBuf>,
    /// Where everything is kept [default: ./orrery-data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Keep nothing: all data is in memory
    #[arg(long)]
    memory: bool,
    /// Address to listen on [default: loopback, IPv4 and IPv6]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Port of the first region's service; 0 takes any free ones, for accounts too
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,
    /// Links without delay, instead of as slow as distance makes them
    #[arg(long)]
    fast_links: bool,
    /// Somebody should look when changes have waited for an account this long [default: 900000]
    #[arg(long, value_name = "MS")]
    outage_alert_after_ms: Option<u64>,
    /// Fail an account over when changes have waited for it this long, instead of letting them wait
    #[arg(long, value_name = "MS")]
    outage_failover_after_ms: Option<u64>,
    /// Load authors, articles, subscribers and reviews first
    #[arg(long)]
    demo: bool,
    /// Let made-up users publish, subscribe and review this often per second
    #[arg(long, value_name = "RATE", default_value_t = 0.0)]
    traffic: f64,
}

impl UpFlags {
    fn given(&self) -> Vec<(&'static str, String)> {
        let all = [
            ("data-dir", self.data_dir.clone()),
            ("memory", self.memory.then(|| "true".to_owned())),
            ("listen", self.listen.clone()),
            // Free ports for one are free ports for all.
            ("port", (self.port == 0).then(|| "0".to_owned())),
            (
                "outage-alert-after-ms",
                self.outage_alert_after_ms.map(|ms| ms.to_string()),
            ),
            (
                "outage-failover-after-ms",
                self.outage_failover_after_ms.map(|ms| ms.to_string()),
            ),
        ];
        let given = all.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given.collect()
    }

    fn config(&self) -> Result<ServerConfig> {
        let plan = match &self.config {
            Some(_) => None,
            None => {
                let plan = Plan::new(&regions_wanted(&self.regions)?, ACCOUNTS)?;
                Some(plan.to_server_settings(!self.fast_links))
            }
        };
        let raw = Raw::layered(self.config.clone(), plan.as_deref(), std::env::vars(), self.given())?;
        ServerConfig::new(&raw)
    }
}

pub fn run(flags: &UpFlags) -> Result<()> {
    logging::start();
    let config = flags.config()?;
    allow_many_files();
    let settings = UpSettings {
        port: flags.port,
        demo: flags.demo,
        traffic: flags.traffic.clamp(0.0, 1000.0),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(platform::run(&config, &settings))
}
