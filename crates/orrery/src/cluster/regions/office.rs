//! What it takes to act for a region: its streams, its bucket, the way to the others, and the node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use orrery_model::{Epoch, Error, LogId, Lsn, Result, Status};
use orrery_node::cluster::quorum::{self, Reader};
use orrery_node::geo::topology::{Region, RegionId, RegionState, Topology};
use orrery_storage::NatsStore;
use orrery_storage::nats::calls::Caller;
use orrery_storage::nats::mirrors::Mirrors;
use orrery_storage::nats::roster::{Roster, Written};
use orrery_storage::nats::watchdog::Watchdog;

use super::far::Far;
use super::geography::Geography;
use super::records::{REGION, RegionRecord, TOPOLOGY};
use crate::cluster::questions::Questions;
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
    /// To the other nodes of the region.
    pub questions: Questions,
    /// Of this node.
    pub id: String,
    pub endpoint: String,
    /// Held while the regions change, so that one change happens at a time.
    pub changing: tokio::sync::Mutex<()>,
    /// The epoch of the region whose mirrors the streams are; zero while they are none.
    pub following: AtomicU32,
    pub watchdog: Mutex<Watchdog>,
    /// The last epoch in which this region gave up by itself to take writes.
    pub abdicated: Mutex<Epoch>,
}

impl Office {
    /// Where this node's copies of all logs stand.
    pub fn positions(&self) -> BTreeMap<LogId, Lsn> {
        let positions = self.station.node.positions().into_iter();
        positions.map(|(log, position)| (log, position.lsn)).collect()
    }

    /// Says which regions count for what the account promises: those that serve reads, and under strong consistency neither lag nor
    /// need not.
    pub fn count_regions(&self, topology: &Topology) {
        let readers = match self.geography.is_writer() && self.station.node.heeds_regions() {
            true if self.station.node.promises_everywhere() => self.counted(topology),
            true => topology.online().skip(1).map(|region| region.id).collect(),
            false => BTreeSet::new(),
        };
        self.station.node.count_regions(readers);
    }

    fn counted(&self, topology: &Topology) -> BTreeSet<RegionId> {
        let (node, before) = (&self.station.node, self.station.node.counted_regions());
        let is_coming = |region: &Region| {
            let peer = self.geography.peer(&region.name);
            let follows = peer.is_some_and(|peer| peer.record.following == Some(topology.epoch.0));
            region.state == RegionState::Seeding && follows
        };
        let reader = |region: &Region| Reader {
            region: region.id,
            age: node.age_lacked_by(region.id),
            // After a start nobody was left out, and nobody is known to have anything.
            is_out: !before.is_empty() && !before.contains(&region.id),
            is_online: region.state == RegionState::Online,
        };
        let others = topology.regions.iter().skip(1);
        let readers = others.filter(|region| region.state == RegionState::Online || is_coming(region));
        let readers: Vec<Reader> = readers.map(reader).collect();
        let counted = quorum::counted(&readers, topology.regions.len());
        for reader in readers.iter().filter(|reader| reader.is_online) {
            let is_out = !counted.contains(&reader.region);
            if is_out != reader.is_out {
                tracing::info!(
                    region = reader.region.0,
                    is_out,
                    "whether strong writes wait for a region has changed"
                );
            }
        }
        counted
    }

    /// Whether strong writes wait for a region no more.
    pub fn leaves_out(&self, region: &Region) -> bool {
        let node = &self.station.node;
        let is_reader = self.geography.is_writer() && region.id != self.geography.own().id;
        let is_online = region.state == RegionState::Online;
        node.promises_everywhere() && is_reader && is_online && !node.counted_regions().contains(&region.id)
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
