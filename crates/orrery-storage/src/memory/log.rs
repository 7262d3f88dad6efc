//! One log in memory: its transactions, its view, and the handles that read and write them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use orrery_model::log::{Operation, Transaction};
use orrery_model::{Epoch, LogId, Lsn, Position};
use orrery_partition::storage::{
    BoxFuture, Hold, Log, LogInfo, Result, Role, Snapshot, Staged, StorageError, ViewWrite,
};

use super::map::{Sequence, VersionedMap};
use super::snapshot::MemorySnapshot;
use crate::fence::{Claim, check_chain};
use crate::head::Head;
use crate::holds::Holds;

/// Keys cleaned per append beyond as many as it writes, so that garbage shrinks while no append is slow.
const COLLECT_BUDGET_MIN: usize = 64;

/// Transactions kept although no hold asks for them, so that a follower that was away for a moment finds them.
const LOG_KEEP_BYTES: u64 = 1 << 20;

/// What all handles and snapshots of a log share.
#[derive(Debug)]
pub(super) struct LogState {
    id: LogId,
    content: RwLock<Content>,
    /// Living snapshots by the sequence they read at. Taken only while `content` is locked.
    readers: Mutex<BTreeMap<Sequence, usize>>,
    head: Head,
    holds: Holds,
}

#[derive(Debug)]
pub(super) struct Content {
    pub(super) map: VersionedMap,
    position: Position,
    sequence: Sequence,
    owner: Epoch,
    /// The log starts after this.
    start: Lsn,
    transactions: VecDeque<Arc<Transaction>>,
    transactions_bytes: u64,
    /// Why nothing may be appended any more: the log was dropped or its store closed.
    ended: Option<StorageError>,
}

impl LogState {
    /// A log whose view stands at `position` after `writes`, with no transactions before it.
    pub(super) fn new(id: LogId, position: Position, writes: Vec<ViewWrite>) -> LogState {
        let mut map = VersionedMap::default();
        writes
            .into_iter()
            .for_each(|(key, value)| map.write(0, key, value, None));
        let content = Content {
            map,
            position,
            sequence: 0,
            owner: Epoch::default(),
            start: position.lsn,
            transactions: VecDeque::new(),
            transactions_bytes: 0,
            ended: None,
        };
        LogState {
            id,
            content: RwLock::new(content),
            readers: Mutex::default(),
            head: Head::new(position),
            holds: Holds::default(),
        }
    }

    pub(super) fn open(self: &Arc<Self>, role: Role) -> Result<Arc<dyn Log>> {
        let mut content = self.write();
        let claim = Claim::new(role, content.owner, content.position)?;
        content.owner = claim.owner(content.owner);
        Ok(Arc::new(MemoryLog {
            state: self.clone(),
            claim,
        }))
    }

    pub(super) fn info(&self) -> LogInfo {
        let content = self.read();
        LogInfo {
            log: self.id,
            position: content.position,
            owner: content.owner,
        }
    }

    /// Refuses every later append with `why`.
    pub(super) fn end(&self, why: StorageError) {
        self.write().ended = Some(why);
    }

    pub(super) fn size_bytes(&self) -> u64 {
        let content = self.read();
        content.map.size_bytes() + content.transactions_bytes
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Content> {
        self.content.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Content> {
        self.content.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn readers(&self) -> MutexGuard<'_, BTreeMap<Sequence, usize>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn release(&self, sequence: Sequence) {
        let mut readers = self.readers();
        if let Some(count) = readers.get_mut(&sequence) {
            *count -= 1;
            if *count == 0 {
                readers.remove(&sequence);
            }
        }
    }

    fn snapshot(self: &Arc<Self>) -> MemorySnapshot {
        // The read lock keeps appends away until the snapshot is known to them.
        let content = self.read();
        *self.readers().entry(content.sequence).or_default() += 1;
        MemorySnapshot::new(self.clone(), content.sequence, content.position)
    }

    fn append(&self, claim: &Claim, expected: Position, staged: Vec<Staged>) -> Result<()> {
        check_chain(expected, &staged)?;
        let mut content = self.write();
        if let Some(why) = &content.ended {
            return Err(why.clone());
        }
        claim.check(content.owner, content.position)?;
        if content.position != expected {
            return Err(StorageError::Fenced {
                actual: content.position,
            });
        }
        let (oldest, newest) = {
            let readers = self.readers();
            let first = readers.first_key_value().map(|(sequence, _)| *sequence);
            (first, readers.last_key_value().map(|(sequence, _)| *sequence))
        };
        let n_writes = content.apply(staged, newest);
        content.map.collect(oldest, n_writes + COLLECT_BUDGET_MIN);
        let limit = self.holds.limit(content.position.lsn);
        while content.transactions_bytes > LOG_KEEP_BYTES && content.forget_first(limit) {}
        self.head.set(content.position);
        Ok(())
    }

    fn read_log(&self, after: Lsn, limit_bytes: usize) -> Result<Vec<Transaction>> {
        let content = self.read();
        if after < content.start {
            return Err(StorageError::Trimmed { start: content.start });
        }
        let first = content
            .transactions
            .partition_point(|transaction| transaction.lsn <= after);
        let mut room_bytes = limit_bytes as u64;
        let mut found = Vec::new();
        for transaction in content.transactions.range(first..) {
            found.push(Transaction::clone(transaction));
            match room_bytes.checked_sub(size_bytes(transaction)) {
                Some(left) if left > 0 => room_bytes = left,
                _ => break,
            }
        }
        Ok(found)
    }

    fn trim(&self, below: Lsn) -> Lsn {
        let mut content = self.write();
        let limit = self.holds.limit(below);
        while content.forget_first(limit) {}
        content.start
    }
}

impl Content {
    /// Takes the transactions and their view in; answers how many keys changed.
    fn apply(&mut self, staged: Vec<Staged>, newest_reader: Option<Sequence>) -> usize {
        self.sequence += 1;
        let mut n_writes = 0;
        for Staged { transaction, writes } in staged {
            n_writes += writes.len();
            for (key, value) in writes {
                self.map.write(self.sequence, key, value, newest_reader);
            }
            self.position = transaction.position();
            self.transactions_bytes += size_bytes(&transaction);
            self.transactions.push_back(transaction);
        }
        n_writes
    }

    /// Forgets the oldest transaction when it is not after `limit`; answers whether it did.
    fn forget_first(&mut self, limit: Lsn) -> bool {
        if self.transactions.front().is_none_or(|first| first.lsn > limit) {
            return false;
        }
        if let Some(forgotten) = self.transactions.pop_front() {
            self.transactions_bytes -= size_bytes(&forgotten);
            self.start = forgotten.lsn;
        }
        true
    }
}

/// About what a transaction occupies.
fn size_bytes(transaction: &Transaction) -> u64 {
    let bytes: usize = transaction
        .operations
        .iter()
        .map(|operation| match operation {
            Operation::Put(put) => 128 + put.id.len() + put.body.len(),
            Operation::Record { key, value } => 64 + key.len() + value.as_ref().map_or(0, |value| value.len()),
            Operation::Defined { definition, .. } => 64 + definition.len(),
            _ => 128,
        })
        .sum();
    64 + bytes as u64
}

/// A log in the role it was opened in.
#[derive(Debug)]
struct MemoryLog {
    state: Arc<LogState>,
    claim: Claim,
}

impl Log for MemoryLog {
    fn id(&self) -> LogId {
        self.state.id
    }

    fn head(&self) -> Position {
        self.state.head.get()
    }

    fn append(&self, expected: Position, staged: Vec<Staged>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.state.append(&self.claim, expected, staged) })
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        Ok(Arc::new(self.state.snapshot()))
    }

    fn read_log(&self, after: Lsn, limit_bytes: usize) -> BoxFuture<'_, Result<Vec<Transaction>>> {
        Box::pin(async move { self.state.read_log(after, limit_bytes) })
    }

    fn wait_past(&self, after: Lsn) -> BoxFuture<'_, Position> {
        Box::pin(self.state.head.wait_past(after))
    }

    fn hold(&self, after: Lsn) -> Box<dyn Hold> {
        // Trimming looks at the holds under the same lock, so none is overlooked.
        let _content = self.state.write();
        self.state.holds.add(after)
    }

    fn trim(&self, below: Lsn) -> BoxFuture<'_, Result<Lsn>> {
        Box::pin(async move { Ok(self.state.trim(below)) })
    }

    fn barrier(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let content = self.state.read();
            match &content.ended {
                Some(why) => Err(why.clone()),
                None => self.claim.check(content.owner, content.position),
            }
        })
    }
}
