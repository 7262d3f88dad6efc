//! The buckets of the other regions, reached through the servers of the own one.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use orrery_model::{Error, Result, Status};
use orrery_node::geo::topology::Topology;
use orrery_storage::nats::Client;
use orrery_storage::nats::mirrors::Origin;
use orrery_storage::nats::roster::{Roster, Written};

use super::records::{REGION, RegionRecord, TOPOLOGY, replaces, store_of};
use crate::cluster::records::{ACCOUNT, AccountRecord};

/// One request to another region. Shorter than a turn of the steward may be late.
const TIMEOUT: Duration = Duration::from_millis(800);

/// What another region knows and tells.
#[derive(Debug)]
pub struct Heard {
    pub topology: Option<Topology>,
    pub record: Option<RegionRecord>,
}

#[derive(Debug)]
pub struct Far {
    client: Client,
    found: Mutex<BTreeMap<String, Roster>>,
}

impl Far {
    pub fn new(client: Client) -> Far {
        Far {
            client,
            found: Mutex::default(),
        }
    }

    fn found(&self) -> MutexGuard<'_, BTreeMap<String, Roster>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn roster(&self, region: &str) -> Result<Roster> {
        let store = store_of(region);
        if let Some(known) = self.found().get(&store) {
            return Ok(known.clone());
        }
        let found = Roster::find(self.client.clone(), &Origin::of(&store), TIMEOUT).await;
        let found = found.map_err(unreachable)?;
        self.found().insert(store, found.clone());
        Ok(found)
    }

    /// Asks a region what it knows.
    pub async fn hear(&self, region: &str) -> Result<Heard> {
        let roster = self.roster(region).await?;
        let topology = roster.get(TOPOLOGY).await.map_err(unreachable)?;
        let record = roster.get(REGION).await.map_err(unreachable)?;
        Ok(Heard {
            topology: topology.and_then(|entry| Topology::from_text(&entry.value).ok()),
            record: record.and_then(|entry| serde_json::from_slice(&entry.value).ok()),
        })
    }

    /// What the nodes of a region say of the account, if any of them was ever started.
    pub async fn account(&self, region: &str) -> Result<Option<AccountRecord>> {
        let found = self.roster(region).await?.get(ACCOUNT).await.map_err(unreachable)?;
        Ok(found.and_then(|entry| serde_json::from_slice(&entry.value).ok()))
    }

    /// Tells a region of a topology, unless it knows that or a later one.
    pub async fn tell(&self, region: &str, topology: &Topology) -> Result<()> {
        let roster = self.roster(region).await?;
        let known = roster.get(TOPOLOGY).await.map_err(unreachable)?;
        let over = known.as_ref().map(|entry| entry.revision);
        let known = known.and_then(|entry| Topology::from_text(&entry.value).ok());
        if known.is_some_and(|known| !replaces(topology, &known)) {
            return Ok(());
        }
        match roster.write(TOPOLOGY, Bytes::from(topology.to_text()), over).await {
            Written::Stored(_) => Ok(()),
            Written::Refused | Written::Unsure => Err(unreachable("it was not told of the regions")),
        }
    }
}

fn unreachable(error: impl std::fmt::Display) -> Error {
    Error::new(
        Status::UNAVAILABLE,
        format!("Another region cannot be reached: {error}."),
    )
}
