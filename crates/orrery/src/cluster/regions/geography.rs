//! What a node knows of the account's regions: the topology, what the others told, and what its own region does.
//!
//! Knowledge only. [`super::steward`] brings it up to date and acts on it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use orrery_model::{LogId, Lsn};
use orrery_node::geo::topology::{Region, RegionState, Topology};
use tokio::sync::watch;

use super::records::{RegionRecord, store_of};

/// How long a region that has ceased to take writes holds them until another one has begun.
const HAND_OVER_MAX: Duration = Duration::from_secs(10);
/// A region that was not heard of for longer cannot be reached.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// What the own region does for its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It takes writes, or is about to.
    Writes,
    Reads,
    /// It serves nothing.
    Out,
}

/// What decides on the mode.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    pub is_writer: bool,
    pub state: RegionState,
    pub was: Mode,
    /// Does the region that takes writes do so already?
    pub successor_serves: bool,
    /// How long it is known that another region takes writes.
    pub since_change: Duration,
}

impl Circumstances {
    /// What a region does. One that has ceased to take writes lets them wait until another has begun: clients that are refused
    /// ask for the account, and must find in it who takes them.
    pub fn mode(&self) -> Mode {
        match (self.is_writer, self.state, self.was) {
            (_, RegionState::Offline | RegionState::Seeding | RegionState::Draining | RegionState::Retired, _) => {
                Mode::Out
            }
            (true, RegionState::Online, _) => Mode::Writes,
            (false, RegionState::Online, Mode::Writes)
                if !self.successor_serves && self.since_change < HAND_OVER_MAX =>
            {
                Mode::Writes
            }
            (false, RegionState::Online, _) => Mode::Reads,
        }
    }
}

/// Another region, as it was last heard of.
#[derive(Clone, Debug)]
pub struct Peer {
    pub record: RegionRecord,
    pub heard: Instant,
    /// When it last had everything that the region that writes had told of.
    pub level: Instant,
}

#[derive(Debug)]
pub struct Geography {
    /// The own region, as clients know it.
    pub name: String,
    topology: watch::Sender<Arc<Topology>>,
    mode: watch::Sender<Mode>,
    peers: RwLock<BTreeMap<String, Peer>>,
}

impl Geography {
    pub fn new(name: &str, topology: Topology) -> Geography {
        let geography = Geography {
            name: name.to_owned(),
            topology: watch::Sender::new(Arc::new(topology)),
            mode: watch::Sender::new(Mode::Reads),
            peers: RwLock::default(),
        };
        let own = geography.own();
        let mode = match (own.state, geography.is_writer()) {
            (RegionState::Online, true) => Mode::Writes,
            (RegionState::Online, false) => Mode::Reads,
            _ => Mode::Out,
        };
        geography.set_mode(mode);
        geography
    }

    pub fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.topology.borrow())
    }

    pub fn set_topology(&self, topology: Topology) {
        self.topology.send_replace(Arc::new(topology));
    }

    pub fn mode(&self) -> Mode {
        *self.mode.borrow()
    }

    pub fn set_mode(&self, mode: Mode) {
        self.mode
            .send_if_modified(|current| std::mem::replace(current, mode) != mode);
    }

    /// The own region.
    pub fn own(&self) -> Region {
        let topology = self.topology();
        let own = topology.find(&self.name);
        own.cloned()
            .expect("a node opens only a region that the topology names")
    }

    /// Does the topology name the own region as the one that takes writes?
    pub fn is_writer(&self) -> bool {
        self.topology().writer().id == self.own().id
    }

    /// The other regions that have data.
    pub fn others(&self) -> Vec<Region> {
        let own = self.own().id;
        let topology = self.topology();
        topology.present().filter(|region| region.id != own).cloned().collect()
    }

    pub fn peer(&self, region: &str) -> Option<Peer> {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers.get(&store_of(region)).cloned()
    }

    /// What was heard of a region lately.
    pub fn reachable(&self, region: &str) -> Option<Peer> {
        self.peer(region).filter(|peer| peer.heard.elapsed() < SILENCE_MAX)
    }

    /// Whether a region takes writes in an epoch.
    pub fn serves(&self, region: &str, epoch: u32) -> bool {
        self.peer(region)
            .is_some_and(|peer| peer.record.serving.is_some_and(|serving| serving >= epoch))
    }

    /// A region was heard of, by this node or by one that acts for the own region.
    pub fn heard(&self, record: RegionRecord, ahead: &BTreeMap<LogId, Lsn>) {
        let now = Instant::now();
        let is_level = ahead.iter().all(|(log, lsn)| record.position(*log) >= *lsn);
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        let store = store_of(&record.name);
        let peer = match peers.get(&store) {
            // It has said nothing since.
            Some(before) if before.record.beat == record.beat && before.record.node == record.node => return,
            Some(before) => Peer {
                level: if is_level { now } else { before.level },
                heard: now,
                record,
            },
            None => Peer {
                record,
                heard: now,
                level: now,
            },
        };
        peers.insert(store, peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circumstances() -> Circumstances {
        Circumstances {
            is_writer: false,
            state: RegionState::Online,
            was: Mode::Reads,
            successor_serves: false,
            since_change: Duration::ZERO,
        }
    }

    #[test]
    fn a_region_that_hands_over_lets_writes_wait_until_its_successor_serves() {
        let handing = Circumstances {
            was: Mode::Writes,
            ..circumstances()
        };
        assert_eq!(handing.mode(), Mode::Writes);
        let served = Circumstances {
            successor_serves: true,
            ..handing
        };
        assert_eq!(served.mode(), Mode::Reads);
        let given_up = Circumstances {
            since_change: HAND_OVER_MAX,
            ..handing
        };
        assert_eq!(given_up.mode(), Mode::Reads);
    }

    #[test]
    fn a_region_that_is_not_online_serves_nothing_whatever_it_did() {
        for state in [RegionState::Offline, RegionState::Seeding, RegionState::Draining] {
            let out = Circumstances {
                state,
                was: Mode::Writes,
                ..circumstances()
            };
            assert_eq!(out.mode(), Mode::Out, "{state:?}");
        }
        let writer = Circumstances {
            is_writer: true,
            ..circumstances()
        };
        assert_eq!(writer.mode(), Mode::Writes);
        assert_eq!(circumstances().mode(), Mode::Reads);
    }
}
