//! What a log holds: transactions of one or more operations, each naming its predecessor.
//!
//! The byte form is described in `docs/formats/log-record.md`; a change of one is a change of both.

use bytes::Bytes;

use crate::container::directive::IndexingDirective;
use crate::epk::{Epk, EpkRange};
use crate::etag::Etag;
use crate::id::{ChainHash, Epoch, Lsn, PartitionId, Position, Timestamp};

mod codec;

pub use codec::DecodeError;

/// One entry of a log: operations that happen together or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    pub epoch: Epoch,
    pub lsn: Lsn,
    /// The position of the predecessor, whose hash this one continues.
    pub previous: Lsn,
    pub previous_hash: ChainHash,
    /// Hash of everything in this transaction, chained to `previous_hash`.
    pub hash: ChainHash,
    pub at: Timestamp,
    pub operations: Vec<Operation>,
}

impl Transaction {
    /// The transaction that follows `previous` in the same epoch.
    pub fn following(previous: Position, at: Timestamp, operations: Vec<Operation>) -> Transaction {
        Transaction::at_lsn(previous, previous.epoch, previous.lsn.next(), at, operations)
    }

    /// A transaction that follows `previous` with a chosen epoch and LSN: new epochs and opened partitions start higher.
    pub fn at_lsn(
        previous: Position,
        epoch: Epoch,
        lsn: Lsn,
        at: Timestamp,
        operations: Vec<Operation>,
    ) -> Transaction {
        let mut transaction = Transaction {
            epoch,
            lsn,
            previous: previous.lsn,
            previous_hash: previous.hash,
            hash: ChainHash::ZERO,
            at,
            operations,
        };
        transaction.hash = previous.hash.chain(&transaction.encode_content());
        transaction
    }

    /// Where a log stands after this transaction.
    pub fn position(&self) -> Position {
        Position {
            epoch: self.epoch,
            lsn: self.lsn,
            hash: self.hash,
        }
    }

    /// May this transaction stand right after `previous`, and is it what its hash says?
    pub fn follows(&self, previous: Position) -> bool {
        self.previous == previous.lsn
            && self.previous_hash == previous.hash
            && self.epoch >= previous.epoch
            && self.lsn > previous.lsn
            && self.hash == previous.hash.chain(&self.encode_content())
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// An item now has this version.
    Put(PutItem),
    /// An item is gone.
    Delete(DeleteItem),
    /// An item gives up its id; the put that follows in the same transaction says which one it has from here on.
    Renamed(RenamedItem),
    /// A record of the system log: databases, containers, users, offers, partitions. `None` removes it.
    Record { key: Bytes, value: Option<Bytes> },
    /// The container's definition from here on, as stored JSON.
    Defined { version: u64, definition: Bytes },
    /// A new epoch begins after a forced failover or a restore.
    EpochStarted { previous: Lsn },
    /// This partition begins, as one of a new container's or as the child of a split or merge.
    Opened(Opened),
    /// This partition ends; its children go on.
    Sealed { children: Vec<PartitionId> },
    /// Versions up to `through` are no longer kept: they have left the container's window.
    HistoryTrimmed { through: Lsn },
    /// One step of applying a changed indexing policy, with so many items at most.
    Reindexed { n_items_max: u32 },
}

#[derive(Clone, Debug, PartialEq)]
pub struct PutItem {
    pub epk: Epk,
    pub id: String,
    /// Number of the item in its container; the item's `_rid` is the container's followed by it.
    pub number: u64,
    pub etag: Etag,
    /// The item's own time to live in seconds: -1 never, `None` as the container says.
    pub ttl: Option<i32>,
    pub directive: IndexingDirective,
    /// Canonical JSON with the system properties at its end.
    pub body: Bytes,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DeleteItem {
    pub epk: Epk,
    pub id: String,
    pub number: u64,
    /// Removed because its time to live ran out.
    pub expired: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RenamedItem {
    pub epk: Epk,
    /// The id it had.
    pub from: String,
    pub number: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    pub partition: PartitionId,
    pub range: EpkRange,
    /// The sealed partitions this one continues, with the position of each seal.
    pub parents: Vec<(PartitionId, Position)>,
    /// Version of session tokens from here on: the parents' greatest, one more after a merge.
    pub session_version: u64,
    pub definition_version: u64,
    /// The container's definition as stored JSON.
    pub definition: Bytes,
}

#[cfg(test)]
mod tests;
