//! Small typed numbers: where a log stands, which log it is, when something happened.

use std::fmt;

/// Number of a transaction in one physical partition's log. Rises by one, except where a new epoch or a split starts
/// higher; always below 2^53 so that every client can hold it in a double.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Before the first transaction.
    pub const ZERO: Lsn = Lsn(0);
    /// First LSN that is out of range.
    pub const LIMIT: Lsn = Lsn(1 << 53);

    /// The LSN after this one.
    pub fn next(self) -> Lsn {
        Lsn(self.0 + 1)
    }

    /// Where a new epoch starts: the next multiple of 2^32 above this LSN.
    pub fn next_epoch_start(self) -> Lsn {
        Lsn(((self.0 >> 32) + 1) << 32)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Term of ownership of a log. A higher epoch fences every lower one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    /// An LSN for the first transaction of this epoch that no failover into an earlier one has reached.
    pub fn start_above(self) -> Lsn {
        Lsn(u64::from(self.0) << 32)
    }
}

/// Hash of a transaction chained to its predecessor's hash, so that a gap or a fork cannot go unnoticed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ChainHash(pub [u8; 16]);

impl ChainHash {
    /// The hash before the first transaction.
    pub const ZERO: ChainHash = ChainHash([0; 16]);

    /// Hash of `payload` following this hash.
    pub fn chain(self, payload: &[u8]) -> ChainHash {
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        hasher.update(&self.0);
        hasher.update(payload);
        ChainHash(hasher.digest128().to_le_bytes())
    }
}

impl fmt::Debug for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Where a log stands: the epoch, LSN and chain hash of its last transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    pub epoch: Epoch,
    pub lsn: Lsn,
    pub hash: ChainHash,
}

/// Identity of one log inside a store. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub u64);

impl LogId {
    /// The log of databases, containers, users, offers and partitions.
    pub const SYSTEM: LogId = LogId(0);
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a physical partition inside its container, the `id` of a partition key range. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u32);

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Milliseconds since 1970, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Whole seconds, as `_ts` shows them.
    pub fn seconds(self) -> u64 {
        self.0 / 1000
    }
}
