//! What administration sees: physical partitions and saved snapshots, as plain facts.

use orrery_model::{EpkRange, Lsn, PartitionId};

/// A physical partition as it is now.
#[derive(Clone, Debug)]
pub struct PartitionInfo {
    pub database: String,
    pub container: String,
    pub partition: PartitionId,
    pub range: EpkRange,
    pub parents: Vec<PartitionId>,
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
