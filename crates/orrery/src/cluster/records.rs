//! What the nodes of a cluster tell each other, as JSON in the shared bucket: who owns, who is there, what the account is.

use bytes::Bytes;
use orrery_node::cluster::lease::Lease;
use serde::{Deserialize, Serialize};

/// Key of the owner's lease.
pub const LEASE: &str = "lease";
/// Key of what all nodes must agree on.
pub const ACCOUNT: &str = "account";
/// Under which every node has a key.
pub const NODES: &str = "node";

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

/// What every node of a cluster says of the account it serves. They must say the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountRecord {
    pub id: String,
    pub region: String,
    pub consistency: String,
}

/// What a node tells about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    pub id: String,
    pub endpoint: String,
    pub pid: u32,
    pub version: String,
    /// `owns`, `follows`, `opens` or `leaves`.
    pub role: String,
    /// Sum of the LSNs its copies of all logs have reached: equal on nodes that are equally far, as long as no epoch changes.
    pub lsn: u64,
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
}
