//! What the nodes of a cluster tell each other, as JSON in the shared bucket: who coordinates, whose tenures run, which logs
//! are where, who is there, what the account is.

use std::collections::BTreeMap;

use bytes::Bytes;
use orrery_model::{LogId, Lsn};
use orrery_node::api::Consistency;
use orrery_node::cluster::lease::Lease;
use orrery_node::cluster::placement::{Goal, Placement, Spot};
use serde::{Deserialize, Serialize};

use crate::config::AccountConfig;

/// Key of the coordinator's lease.
pub const LEASE: &str = "lease";
/// Key of what says where every log is.
pub const PLACEMENT: &str = "placement";
/// Key of what all nodes must agree on.
pub const ACCOUNT: &str = "account";
/// Under which every node has a key.
pub const NODES: &str = "node";
/// Under which every node holds a lease of its own.
pub const TENURES: &str = "tenure";
/// Where a log goes that goes home. No node has such a name.
const HOME: &str = "home";

pub fn tenure_key(node: &str) -> String {
    format!("{TENURES}.{node}")
}

#[derive(Serialize, Deserialize)]
struct StoredLease {
    holder: Option<String>,
    term: u64,
    serving: bool,
}

pub fn lease_to_bytes(lease: &Lease) -> Bytes {
    let Lease { holder, term, serving } = lease.clone();
    to_bytes(&StoredLease { holder, term, serving })
}

/// `None` when it is not a lease.
pub fn lease_from_bytes(bytes: &[u8]) -> Option<Lease> {
    let StoredLease { holder, term, serving } = serde_json::from_slice(bytes).ok()?;
    Some(Lease { holder, term, serving })
}

#[derive(Serialize, Deserialize)]
struct StoredPlacement {
    term: u64,
    known: u64,
    members: BTreeMap<String, u64>,
    logs: BTreeMap<u64, StoredSpot>,
}

#[derive(Serialize, Deserialize)]
struct StoredSpot {
    owner: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    standby: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    to: Option<String>,
}

pub fn placement_to_bytes(placement: &Placement) -> Bytes {
    let spot = |(log, spot): (&LogId, &Spot)| {
        let to = spot.to.as_ref().map(|to| match to {
            Goal::Home => HOME.to_owned(),
            Goal::Node(node) => node.clone(),
        });
        let (owner, standby) = (spot.owner.clone(), spot.standby.clone());
        (log.0, StoredSpot { owner, standby, to })
    };
    to_bytes(&StoredPlacement {
        term: placement.term,
        known: placement.known.0,
        members: placement.members.clone(),
        logs: placement.logs.iter().map(spot).collect(),
    })
}

/// `None` when it says nothing about where logs are.
pub fn placement_from_bytes(bytes: &[u8]) -> Option<Placement> {
    let stored: StoredPlacement = serde_json::from_slice(bytes).ok()?;
    let spot = |(log, StoredSpot { owner, standby, to })| {
        let to = to.map(|to| match to == HOME {
            true => Goal::Home,
            false => Goal::Node(to),
        });
        (LogId(log), Spot { owner, standby, to })
    };
    Some(Placement {
        term: stored.term,
        known: Lsn(stored.known),
        members: stored.members,
        logs: stored.logs.into_iter().map(spot).collect(),
    })
}

/// What every node of a cluster says of the account it serves. They must say the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountRecord {
    pub id: String,
    pub region: String,
    pub consistency: String,
    /// Of bounded staleness: transactions and seconds that a region may lack.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bounds: Option<(u64, u64)>,
}

impl AccountRecord {
    pub fn of(account: &AccountConfig) -> AccountRecord {
        let bounds = account.staleness.bounds();
        let is_bounded = account.consistency == Consistency::BoundedStaleness;
        AccountRecord {
            id: account.id.clone(),
            region: account.regions[0].clone(),
            consistency: format!("{:?}", account.consistency),
            bounds: is_bounded.then_some((bounds.transactions, bounds.age.as_secs())),
        }
    }

    /// What clients are promised, for people.
    pub fn promise(&self) -> String {
        let bounds = self.bounds.map_or_else(String::new, |(transactions, seconds)| {
            format!(" of {transactions} transactions and {seconds} s")
        });
        format!("{} consistency{bounds}", self.consistency)
    }

    /// Whether they are promised the same in another region.
    pub fn promises_as(&self, other: &AccountRecord) -> bool {
        (&self.id, &self.consistency, &self.bounds) == (&other.id, &other.consistency, &other.bounds)
    }
}

/// What a node tells about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    pub id: String,
    pub endpoint: String,
    pub pid: u32,
    pub version: String,
    /// `coordinates`, `opens`, `serves` or `leaves`.
    pub role: String,
    /// Where its copies of all logs stand.
    pub logs: BTreeMap<u64, u64>,
}

impl NodeRecord {
    pub fn key(&self) -> String {
        format!("{NODES}.{}", self.id)
    }
}

pub fn to_bytes(record: &impl Serialize) -> Bytes {
    serde_json::to_vec(record)
        .expect("plain records have a JSON form")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_read_as_it_was_written_and_anything_else_is_none() {
        let lease = Lease {
            holder: Some("a".into()),
            term: 7,
            serving: true,
        };
        assert_eq!(lease_from_bytes(&lease_to_bytes(&lease)), Some(lease));
        assert_eq!(lease_from_bytes(b"{}"), None);
    }

    #[test]
    fn a_placement_is_read_as_it_was_written_and_anything_else_is_none() {
        let spot = |standby: Option<&str>, to| Spot {
            owner: "a".into(),
            standby: standby.map(str::to_owned),
            to,
        };
        let placement = Placement {
            term: 3,
            known: Lsn(9),
            members: BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]),
            logs: BTreeMap::from([
                (LogId(4), spot(None, None)),
                (LogId(5), spot(Some("b"), Some(Goal::Node("b".into())))),
                (LogId(6), spot(Some("b"), Some(Goal::Home))),
            ]),
        };
        assert_eq!(placement_from_bytes(&placement_to_bytes(&placement)), Some(placement));
        assert_eq!(placement_from_bytes(b"[]"), None);
    }
}
