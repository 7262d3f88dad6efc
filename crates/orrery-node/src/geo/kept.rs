//! The logs of regions that are out, kept from being trimmed while they may hold what no other region has.
//!
//! A store forgets by itself what its view no longer needs, and other accounts that share it push on. What a region alone has
//! must stay in its log until it is durable elsewhere, so its logs are held from where the account goes on without them. Which
//! ones that are follows from the topology and from nothing else, so a restart holds the same.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use orrery_model::{LogId, Lsn};
use orrery_partition::storage::{Hold, Log};

use super::fleet::Fleet;
use super::topology::{Region, RegionId, RegionState};
use crate::node::Node;

/// What is held, by region.
pub type Holds = BTreeMap<RegionId, Vec<Box<dyn Hold>>>;

impl Fleet {
    /// Holds what the topology says must stay, and lets go of the rest.
    pub(super) fn hold_what_is_out(&self) {
        let topology = self.topology();
        let serving: Vec<BTreeMap<LogId, Arc<dyn Log>>> = topology
            .online()
            .filter_map(|region| Some(self.find_node(region.id)?.live_logs()))
            .collect();
        let mut holds = Holds::new();
        for region in topology.present().filter(|region| region.state != RegionState::Online) {
            if let Some(node) = self.find_node(region.id) {
                holds.insert(region.id, held_of(region, &node, &serving));
            }
        }
        // The new ones are there before the old ones go.
        *self.holds.lock().unwrap_or_else(PoisonError::into_inner) = holds;
    }
}

/// Holds everything a region has, while it is decided what of it must stay.
pub(super) fn hold_all_of(node: &Node) -> Vec<Box<dyn Hold>> {
    let logs = node.live_logs().into_values();
    logs.map(|log| log.hold(Lsn::ZERO)).collect()
}

fn held_of(region: &Region, node: &Node, serving: &[BTreeMap<LogId, Arc<dyn Log>>]) -> Vec<Box<dyn Hold>> {
    let is_held = |(log, own): (LogId, Arc<dyn Log>)| {
        let known = region.cut_off.get(&log).copied();
        // One that is out and has been taken over from by nobody may be ahead of whoever takes over next.
        let after = known.or_else(|| match region.state {
            RegionState::Offline => reached_by_all(serving, log),
            _ => None,
        })?;
        (own.head().lsn > after).then(|| own.hold(after))
    };
    let logs = node.live_logs().into_iter();
    logs.filter(|(log, _)| *log != LogId::SYSTEM)
        .filter_map(is_held)
        .collect()
}

/// What every region that serves has of a log; `None` when one of them does not have the log.
fn reached_by_all(serving: &[BTreeMap<LogId, Arc<dyn Log>>], log: LogId) -> Option<Lsn> {
    let reached: Option<Vec<Lsn>> = serving
        .iter()
        .map(|logs| logs.get(&log).map(|log| log.head().lsn))
        .collect();
    reached?.into_iter().min()
}
