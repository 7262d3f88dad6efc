//! What the regions of an account tell each other, as JSON in the buckets of their clusters.

use std::collections::BTreeMap;

use orrery_model::{LogId, Lsn};
use orrery_node::geo::topology::Topology;
use serde::{Deserialize, Serialize};

use crate::host::region_name;

/// Key of the topology, in every region's bucket.
pub const TOPOLOGY: &str = "topology";
/// Key of what a region tells about itself, in its own bucket.
pub const REGION: &str = "region";
/// Under which a region keeps what it last heard of the others, so that all its nodes know.
pub const PEERS: &str = "peer";
/// Key of whom a region follows, in its own bucket.
pub const ALLEGIANCE: &str = "allegiance";
/// Key of how often a region has begun another history. Copies of nodes are of one of them.
pub const GENERATION: &str = "generation";

/// What a region tells about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegionRecord {
    /// As clients know it.
    pub name: String,
    /// Where clients reach it.
    pub endpoint: String,
    /// The node that acts for it.
    pub node: String,
    /// Rises every time it tells something: one that stays the same comes from a region that has fallen silent.
    pub beat: u64,
    /// Number of the topology it knows.
    pub topology: u64,
    /// The epoch in which it takes writes, once it does.
    pub serving: Option<u32>,
    /// The epoch of the region it follows, once its streams are that region's mirrors.
    pub following: Option<u32>,
    /// LSNs that the node has reached, by log.
    pub positions: BTreeMap<u64, u64>,
}

impl RegionRecord {
    pub fn position(&self, log: LogId) -> Lsn {
        Lsn(self.positions.get(&log.0).copied().unwrap_or(0))
    }
}

/// The key under which another region's record is kept.
pub fn peer_key(store: &str) -> String {
    format!("{PEERS}.{store}")
}

/// The name of the store, and of the JetStream domain, of a region.
pub fn store_of(region: &str) -> String {
    region_name(region)
}

/// Whether a topology replaces another: a later epoch was decided by whoever took over, and within one epoch only one region
/// decides.
pub fn replaces(new: &Topology, old: &Topology) -> bool {
    (new.epoch, new.number) > (old.epoch, old.number)
}

/// A version of an item that was cut off, on its way to the region that takes writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CutOffRecord {
    pub log: u64,
    pub lsn: u64,
    pub index: usize,
    pub number: u64,
    /// Hexadecimal.
    pub epk: String,
    pub id: String,
    pub body: Option<String>,
}

/// Versions to be kept as conflicts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeepRequest {
    pub region: String,
    pub container: String,
    pub versions: Vec<CutOffRecord>,
}

/// What became of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KeepAnswer {
    Kept(usize),
    Refused(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_epoch_replaces_a_topology_whatever_its_number() {
        let names = ["A".to_owned(), "B".to_owned()];
        let first = Topology::new(&names).unwrap();
        let mut forced = first.with_writer(first.regions[1].id).unwrap();
        let mut old = first.clone();
        old.number = forced.number + 5;
        assert!(replaces(&forced, &old) && !replaces(&old, &forced));
        assert!(!replaces(&first, &first));
        forced.number += 1;
        assert!(replaces(&forced, &first));
    }
}
