//! The streams of a store from outside: made before the first node starts, and described for operators.

use orrery_partition::storage::Result;

use super::NatsStore;
use super::bus::Bus;
use super::settings::NatsSettings;

/// One stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamReport {
    pub name: String,
    /// The server that takes messages; `None` while there is none.
    pub leader: Option<String>,
    /// Servers that hold a copy beside the leader, and by how many messages each is behind.
    pub replicas: Vec<ReplicaReport>,
    pub n_messages: u64,
    pub n_bytes: u64,
    pub n_logs: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaReport {
    pub server: String,
    pub is_current: bool,
    pub is_offline: bool,
    pub n_behind: u64,
}

impl NatsStore {
    /// Makes the streams of a store, and the place for its snapshots, where there are none.
    pub async fn init(client: async_nats::Client, settings: &NatsSettings) -> Result<()> {
        settings.check()?;
        let bus = Bus::open(client, settings).await?;
        bus.saved(settings.replicas).await.map(drop)
    }

    /// Describes the streams of a store that exists.
    pub async fn streams(client: async_nats::Client, settings: &NatsSettings) -> Result<Vec<StreamReport>> {
        settings.check()?;
        let bus = Bus::find(client, settings).await?;
        let mut reports = Vec::new();
        for idx in 0..bus.n_streams() {
            reports.push(bus.describe(idx).await?);
        }
        Ok(reports)
    }
}
