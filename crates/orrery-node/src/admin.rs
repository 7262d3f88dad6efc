//! What administration sees: physical partitions and saved snapshots, as plain facts.

use std::sync::Arc;

use orrery_model::{EpkRange, LogId, Lsn, PartitionId, Result};
use orrery_partition::decide::unreadable;
use orrery_partition::state::PartitionState;

use crate::api::{ContainerRef, Selector};
use crate::catalogue::{ContainerEntry, RangeEntry};
use crate::node::Node;
pub use crate::reshard::phases::Phase;
use crate::reshard::{self, Divide};

/// A physical partition as it is now.
#[derive(Clone, Debug)]
pub struct PartitionInfo {
    pub database: String,
    pub container: String,
    pub partition: PartitionId,
    pub range: EpkRange,
    pub parents: Vec<PartitionId>,
    pub log: LogId,
    pub lsn: Lsn,
    pub n_items: u64,
    pub size_bytes: u64,
}

/// A saved state of the account.
#[derive(Clone, Debug)]
pub struct SnapshotInfo {
    pub name: String,
    /// Seconds since 1970.
    pub saved_at: u64,
    pub n_items: u64,
}

impl Node {
    /// Every physical partition that serves, of all containers or of one.
    pub fn partitions(&self, container: Option<(&str, &str)>) -> Result<Vec<PartitionInfo>> {
        let containers: Vec<Arc<ContainerEntry>> = match container {
            Some((database, container)) => vec![self.named(database, container)?],
            None => {
                let mut all: Vec<_> = self.control.catalogue().containers().cloned().collect();
                all.sort_by(|a, b| (&a.facts.database_name, &a.name).cmp(&(&b.facts.database_name, &b.name)));
                all
            }
        };
        let mut found = Vec::new();
        for container in containers {
            for range in &container.ranges {
                found.push(self.partition_info(&container, range)?);
            }
        }
        Ok(found)
    }

    /// Splits a partition in two; answers the children once they serve.
    pub async fn split(
        self: &Arc<Node>,
        database: &str,
        container: &str,
        partition: u32,
    ) -> Result<Vec<PartitionInfo>> {
        self.reshard(database, container, vec![PartitionId(partition)], Divide::InTwo)
            .await
    }

    /// Merges two neighbours; answers the child once it serves.
    pub async fn merge(
        self: &Arc<Node>,
        database: &str,
        container: &str,
        partitions: (u32, u32),
    ) -> Result<Vec<PartitionInfo>> {
        let parents = vec![PartitionId(partitions.0), PartitionId(partitions.1)];
        self.reshard(database, container, parents, Divide::IntoOne).await
    }

    /// Begins to split a partition, or to merge two, and waits for [`Node::advance`] at every phase.
    pub async fn begin_by_hand(self: &Arc<Node>, database: &str, container: &str, parents: &[u32]) -> Result<Phase> {
        let entry = self.named(database, container)?;
        let divide = match parents.len() {
            1 => Divide::InTwo,
            _ => Divide::IntoOne,
        };
        let parents = parents.iter().map(|parent| PartitionId(*parent)).collect();
        reshard::run_by_hand(self, &entry.rid, parents, divide).await
    }

    /// Leads a split or merge to its next phase, which it has come to when this returns.
    pub async fn advance(&self, database: &str, container: &str, parent: u32) -> Result<Phase> {
        let entry = self.named(database, container)?;
        self.by_hand.advance(&entry.rid, PartitionId(parent)).await
    }

    async fn reshard(
        self: &Arc<Node>,
        database: &str,
        container: &str,
        parents: Vec<PartitionId>,
        divide: Divide,
    ) -> Result<Vec<PartitionInfo>> {
        let entry = self.named(database, container)?;
        let children = reshard::run(self, &entry.rid, parents, divide).await?;
        let entry = self.named(database, container)?;
        let live = children.into_iter().filter_map(|child| entry.range(child));
        live.map(|range| self.partition_info(&entry, range)).collect()
    }

    pub(crate) fn named(&self, database: &str, container: &str) -> Result<Arc<ContainerEntry>> {
        let container = ContainerRef {
            database: Selector::Name(database.to_owned()),
            container: Selector::Name(container.to_owned()),
        };
        self.control.catalogue().resolve(&container)
    }

    fn partition_info(&self, container: &ContainerEntry, range: &RangeEntry) -> Result<PartitionInfo> {
        let partition = self.partition(range)?;
        let state = PartitionState::load(&*partition.snapshot()?).map_err(unreadable)?;
        Ok(PartitionInfo {
            database: container.facts.database_name.clone(),
            container: container.name.clone(),
            partition: range.partition,
            range: range.range.clone(),
            parents: range.parents.clone(),
            log: range.log,
            lsn: partition.log.head().lsn,
            n_items: state.as_ref().map_or(0, |state| state.n_items),
            size_bytes: state.as_ref().map_or(0, |state| state.size_bytes),
        })
    }
}
