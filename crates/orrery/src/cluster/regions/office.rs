//! What it takes to act for a region: its streams, its bucket, the way to the others, and the node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use orrery_model::{Error, LogId, Lsn, Result, Status};
use orrery_node::geo::topology::Topology;
use orrery_storage::NatsStore;
use orrery_storage::nats::calls::Caller;
use orrery_storage::nats::mirrors::Mirrors;
use orrery_storage::nats::roster::{Roster, Written};
use orrery_storage::nats::watchdog::Watchdog;

use super::far::Far;
use super::geography::Geography;
use super::records::{REGION, RegionRecord, TOPOLOGY};
use crate::cluster::station::Station;

/// A mirror that is behind and does not move for so long is made anew.
pub const STALL_MAX: Duration = Duration::from_secs(30);
/// Times a topology whose outcome is not known is looked for.
const LOOKS: usize = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub struct Office {
    pub geography: Arc<Geography>,
    pub station: Arc<Station>,
    pub store: Arc<NatsStore>,
    pub mirrors: Mirrors,
    pub roster: Roster,
    pub far: Far,
    pub caller: Caller,
    /// Of this node.
    pub id: String,
    pub endpoint: String,
    /// Held while the regions change, so that one change happens at a time.
    pub changing: tokio::sync::Mutex<()>,
    /// The epoch of the region whose mirrors the streams are; zero while they are none.
    pub following: AtomicU32,
    pub watchdog: Mutex<Watchdog>,
}

impl Office {
    /// Where this node's copies of all logs stand.
    pub fn positions(&self) -> BTreeMap<LogId, Lsn> {
        let positions = self.station.node.positions().into_iter();
        positions.map(|(log, position)| (log, position.lsn)).collect()
    }

    /// Says which regions count for what the account promises: those that serve reads.
    pub fn count_regions(&self, topology: &Topology) {
        let readers = match self.geography.is_writer() && self.station.node.heeds_regions() {
            true => topology.online().skip(1).map(|region| region.id).collect(),
            false => BTreeSet::new(),
        };
        self.station.node.count_regions(readers);
    }

    pub fn set_following(&self, epoch: u32) {
        self.following.store(epoch, Ordering::Release);
    }

    /// What the region tells the others.
    pub fn record(&self) -> RegionRecord {
        let positions = self.positions().into_iter();
        let following = self.following.load(Ordering::Acquire);
        RegionRecord {
            name: self.geography.name.clone(),
            endpoint: self.endpoint.clone(),
            node: self.id.clone(),
            beat: 0,
            topology: self.geography.topology().number,
            serving: self.station.serving_epoch().map(|epoch| epoch.0),
            following: (following > 0).then_some(following),
            positions: positions.map(|(log, lsn)| (log.0, lsn.0)).collect(),
        }
    }

    /// The node that acts for the own region, as the region tells the others.
    pub async fn steward_of_own(&self) -> Result<String> {
        let found = self.roster.get(REGION).await.map_err(unknown)?;
        let record = found.and_then(|entry| serde_json::from_slice::<RegionRecord>(&entry.value).ok());
        record
            .map(|record| record.node)
            .ok_or_else(|| unknown("nobody acts for the region"))
    }

    /// Makes a topology the one that counts in this region, in the place of the one that is known.
    pub async fn decide(&self, next: Topology) -> Result<()> {
        let entry = self.roster.get(TOPOLOGY).await.map_err(unknown)?;
        let entry = entry.ok_or_else(|| refused("The regions of the account are not known."))?;
        if Topology::from_text(&entry.value)? != *self.geography.topology() {
            return Err(refused("The regions were changed meanwhile; try again."));
        }
        let text = Bytes::from(next.to_text());
        match self.roster.write(TOPOLOGY, text.clone(), Some(entry.revision)).await {
            Written::Stored(_) => {}
            Written::Refused => return Err(refused("The regions were changed meanwhile; try again.")),
            Written::Unsure => self.find_decided(&text).await?,
        }
        self.geography.set_topology(next);
        self.count_regions(&self.geography.topology());
        Ok(())
    }

    /// Learns whether a topology was written.
    async fn find_decided(&self, text: &Bytes) -> Result<()> {
        for _ in 0..LOOKS {
            match self.roster.get(TOPOLOGY).await {
                Ok(Some(entry)) if entry.value == *text => return Ok(()),
                Ok(_) => break,
                Err(_) => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
        let doubt = "Whether the regions were changed is not known; look at them before trying again.";
        Err(Error::new(Status::REQUEST_TIMEOUT, doubt))
    }

    /// Tells the other regions of the topology, as far as they can be reached. Whoever is not told asks.
    pub async fn publish(&self) {
        let topology = self.geography.topology();
        let others = self.geography.others();
        let told = others.iter().map(|region| self.far.tell(&region.name, &topology));
        for (region, told) in others.iter().zip(futures::future::join_all(told).await) {
            if let Err(error) = told {
                tracing::debug!(region = region.name, %error, "a region was not told of the regions");
            }
        }
    }

    /// Which mirrors have stalled.
    pub fn stalled(&self, own: &[u64], origin: Option<&[u64]>) -> Vec<usize> {
        let now = self.station.now();
        let mut watchdog = self.watchdog.lock().unwrap_or_else(PoisonError::into_inner);
        let is_stalled = |(idx, own): (usize, &u64)| {
            let origin = origin.and_then(|origin| origin.get(idx)).copied();
            watchdog.has_stalled(idx, *own, origin, now).then_some(idx)
        };
        own.iter().enumerate().filter_map(is_stalled).collect()
    }
}

/// A change of regions that cannot be made now.
pub fn refused(message: &str) -> Error {
    Error::new(Status::PRECONDITION_FAILED, message)
}

/// The own servers do not answer.
pub fn unknown(error: impl std::fmt::Display) -> Error {
    Error::new(
        Status::UNAVAILABLE,
        format!("The regions cannot be looked at now: {error}."),
    )
    .with_retry_after_ms(1000)
}
