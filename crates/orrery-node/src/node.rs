//! The node: one front door for every operation of an account in this region.

use std::sync::Arc;

use orrery_model::{Error, Status};

use crate::account::{Account, AccountKeys};
use crate::admin::{PartitionInfo, SnapshotInfo};
use crate::api::{Failure, Reply, Request};

/// One region of one account.
#[derive(Debug)]
pub struct Node {
    account: Account,
    keys: Arc<AccountKeys>,
}

impl Node {
    /// Executes one operation. A dropped future never cancels a write that has reached its partition.
    pub async fn execute(&self, request: Request) -> Result<Reply, Failure> {
        let _ = request;
        Err(Error::new(Status::NOT_IMPLEMENTED, "under construction").into())
    }

    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The keys in force now.
    pub fn keys(&self) -> Arc<AccountKeys> {
        Arc::clone(&self.keys)
    }

    /// Every physical partition that is serving, of all containers or of one (`db/container` names).
    pub async fn partitions(&self, container: Option<(&str, &str)>) -> Result<Vec<PartitionInfo>, Error> {
        let _ = container;
        Ok(Vec::new())
    }

    /// Splits a partition in two; answers the children once they serve.
    pub async fn split(&self, database: &str, container: &str, partition: u32) -> Result<Vec<PartitionInfo>, Error> {
        let _ = (database, container, partition);
        Ok(Vec::new())
    }

    /// Merges two neighbours; answers the child once it serves.
    pub async fn merge(&self, database: &str, container: &str, partitions: (u32, u32)) -> Result<PartitionInfo, Error> {
        let _ = (database, container, partitions);
        Err(Error::new(Status::NOT_IMPLEMENTED, "under construction"))
    }

    /// Saves the whole account under a name.
    pub async fn save_snapshot(&self, name: &str) -> Result<SnapshotInfo, Error> {
        let _ = name;
        Err(Error::new(Status::NOT_IMPLEMENTED, "under construction"))
    }

    /// Brings the account back to what it was when the snapshot was saved.
    pub async fn restore_snapshot(&self, name: &str) -> Result<SnapshotInfo, Error> {
        let _ = name;
        Err(Error::new(Status::NOT_IMPLEMENTED, "under construction"))
    }

    pub async fn snapshots(&self) -> Result<Vec<SnapshotInfo>, Error> {
        Ok(Vec::new())
    }

    pub async fn drop_snapshot(&self, name: &str) -> Result<(), Error> {
        let _ = name;
        Ok(())
    }

    /// Empties the account: no databases, no snapshots lost.
    pub async fn reset(&self) -> Result<(), Error> {
        Ok(())
    }
}
