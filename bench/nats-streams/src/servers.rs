//! The servers a part is measured on, and what they use.

use std::time::Duration;

use anyhow::{Context as _, Result};
use async_nats::jetstream::stream::{Config, StorageType};
use async_nats::jetstream::{self, Context};
use orrery_nats_server::{Cluster, Settings};

/// The kernel's clock ticks per second on every Linux we run on.
const TICKS_PER_SECOND: u64 = 100;

pub struct Servers {
    pub jetstream: Context,
    pub replicas: usize,
    cluster: Cluster,
}

impl Servers {
    pub async fn start(replicas: usize) -> Result<Servers> {
        let cluster = Cluster::start(replicas, &Settings::default())?;
        let client = async_nats::connect(cluster.urls()).await?;
        let jetstream = jetstream::context::ContextBuilder::new()
            .timeout(Duration::from_secs(30))
            .build(client);
        Ok(Servers {
            jetstream,
            replicas,
            cluster,
        })
    }

    /// A stream as a store makes them.
    pub fn config(&self, name: &str, subject: &str) -> Config {
        Config {
            name: name.to_owned(),
            subjects: vec![subject.to_owned()],
            storage: StorageType::File,
            num_replicas: self.replicas,
            ..Config::default()
        }
    }

    /// Processor time and memory of all servers so far.
    pub fn usage(&self) -> Result<(Duration, u64)> {
        let mut total = (Duration::ZERO, 0);
        for pid in self.cluster.servers.iter().filter_map(|server| server.pid()) {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
            let fields: Vec<&str> = stat
                .rsplit(')')
                .next()
                .context("no fields")?
                .split_whitespace()
                .collect();
            let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
            total.0 += Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND);
            total.1 += fields[21].parse::<u64>()? * 4096;
        }
        Ok(total)
    }
}
