//! The system log: the one place where what exists is changed.
//!
//! A change is decided on the catalogue and committed while the lock is held, so two creates of one name cannot both
//! succeed. The commit is durable before the catalogue shows it.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use orrery_model::log::{Operation, Transaction};
use orrery_model::{Epoch, Error, Etag, LogId, Lsn, PartitionId, Result, Status, Timestamp};
use orrery_partition::decide::unreadable;
use orrery_partition::keys::{self, KeySpace};
use orrery_partition::project;
use orrery_partition::storage::{Log, Role, Staged, StorageError, Store};
use tokio::sync::{Mutex, MutexGuard, watch};

use crate::catalogue::{Catalogue, Counters, Record};
use crate::clock::Clock;
use crate::events::{self, Events, Summary};

/// Bytes of log taken in at a time.
const ABSORBED_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub struct Control {
    /// Replaced when this region begins or ceases to write.
    log: RwLock<Arc<dyn Log>>,
    catalogue: RwLock<Catalogue>,
    clock: Arc<dyn Clock>,
    writing: Mutex<()>,
    events: Events,
    /// How far into the log the catalogue shows it.
    shown: watch::Sender<Lsn>,
}

impl Control {
    /// Opens the system log in a role and reads the catalogue from its view.
    pub async fn open(store: &dyn Store, role: Role, clock: Arc<dyn Clock>, events: Events) -> Result<Control> {
        let log = store.open(LogId::SYSTEM, role).await.map_err(unreadable)?;
        let (catalogue, shown) = load(&*log)?;
        Ok(Control {
            log: RwLock::new(log),
            catalogue: RwLock::new(catalogue),
            shown: watch::Sender::new(shown),
            clock,
            writing: Mutex::new(()),
            events,
        })
    }

    pub fn log(&self) -> Arc<dyn Log> {
        Arc::clone(&self.log.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens the system log anew in another role. Whoever calls this has seen to it that nobody changes anything.
    pub async fn reopen_as(&self, store: &dyn Store, role: Role) -> Result<()> {
        let log = store.open(LogId::SYSTEM, role).await.map_err(unreadable)?;
        let current = load(&*log)?;
        *self.log.write().unwrap_or_else(PoisonError::into_inner) = log;
        self.replace(current);
        Ok(())
    }

    fn replace(&self, (catalogue, shown): (Catalogue, Lsn)) {
        *self.catalogue.write().unwrap_or_else(PoisonError::into_inner) = catalogue;
        self.shown.send_replace(shown);
    }

    /// Shows what has come into the log without this node's doing. Only while it follows.
    pub async fn absorb(&self) -> Result<()> {
        let _guard = self.writing.lock().await;
        let log = self.log();
        while log.head().lsn > *self.shown.borrow() {
            let after = *self.shown.borrow();
            match log.read_log(after, ABSORBED_BYTES).await {
                Ok(transactions) if transactions.first().is_some_and(|first| first.previous == after) => {
                    for transaction in &transactions {
                        self.show(transaction)?;
                    }
                }
                Ok(_) | Err(StorageError::Trimmed { .. }) => self.replace(load(&*log)?),
                Err(error) => return Err(unreadable(error)),
            }
        }
        Ok(())
    }

    /// How far into the log the catalogue shows it.
    pub fn shown(&self) -> Lsn {
        *self.shown.borrow()
    }

    /// Waits until the catalogue shows the log up to `lsn`.
    pub async fn shown_past(&self, lsn: Lsn) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.shown.subscribe().wait_for(|shown| *shown >= lsn).await;
    }

    /// Keeps everybody from changing anything until the guard is dropped.
    pub async fn hold(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().await
    }

    /// The first entry of a new epoch, at `lsn`.
    pub async fn begin_epoch(&self, epoch: Epoch, lsn: Lsn) -> Result<()> {
        let _guard = self.writing.lock().await;
        let record = Record::Counters(self.catalogue().counters);
        let operation = Operation::Record {
            key: Bytes::from(record.key()),
            value: record.value(),
        };
        let log = self.log();
        let transaction = Transaction::at_lsn(log.head(), epoch, lsn, self.clock.now(), vec![operation]);
        self.commit(&*log, transaction).await.map(drop)
    }

    /// Applies transactions that another region decided, in one step.
    pub async fn follow(&self, transactions: Vec<Transaction>) -> std::result::Result<(), StorageError> {
        let _guard = self.writing.lock().await;
        let log = self.log();
        let (expected, staged) = crate::geo::follow::stage(&*log, transactions)?;
        let transactions: Vec<_> = staged.iter().map(|staged| Arc::clone(&staged.transaction)).collect();
        log.append(expected, staged).await?;
        for transaction in transactions {
            self.show(&transaction)
                .map_err(|error| StorageError::Corrupt(error.message().to_owned()))?;
        }
        Ok(())
    }

    /// Makes a transaction durable, then visible.
    async fn commit(&self, log: &dyn Log, transaction: Transaction) -> Result<Lsn> {
        let (transaction, head) = (Arc::new(transaction), log.head());
        let snapshot = log.snapshot().map_err(unreadable)?;
        let writes = project::project(None, &*snapshot, &transaction).map_err(unreadable)?;
        let staged = vec![Staged {
            transaction: Arc::clone(&transaction),
            writes,
        }];
        log.append(head, staged).await.map_err(failed)?;
        self.show(&transaction)?;
        Ok(transaction.lsn)
    }

    fn show(&self, transaction: &Transaction) -> Result<()> {
        let mut catalogue = self.catalogue.write().unwrap_or_else(PoisonError::into_inner);
        for operation in &transaction.operations {
            if let Operation::Record { key, value } = operation {
                catalogue.apply(key, value.as_deref())?;
            }
        }
        self.shown.send_replace(transaction.lsn);
        Ok(())
    }

    pub fn catalogue(&self) -> RwLockReadGuard<'_, Catalogue> {
        self.catalogue.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stored record under a key, for records the catalogue does not keep.
    pub fn stored(&self, key: &str) -> Result<Option<Record>> {
        let snapshot = self.log().snapshot().map_err(unreadable)?;
        let value = snapshot.get(&keys::record(key.as_bytes())).map_err(unreadable)?;
        value
            .map(|value| Record::decode(key.as_bytes(), Some(&value)))
            .transpose()
    }

    /// All stored records whose key starts with `prefix`.
    pub fn stored_below(&self, prefix: &str) -> Result<Vec<(String, Bytes)>> {
        let snapshot = self.log().snapshot().map_err(unreadable)?;
        let from = keys::record(prefix.as_bytes());
        let mut found = Vec::new();
        for entry in snapshot.scan(std::ops::Bound::Included(&from), std::ops::Bound::Unbounded, false) {
            let (key, value) = entry.map_err(unreadable)?;
            if !key.starts_with(&from) {
                break;
            }
            found.push((String::from_utf8_lossy(&key[1..]).into_owned(), value));
        }
        Ok(found)
    }

    /// LSN of the last change.
    pub fn lsn(&self) -> Lsn {
        self.log().head().lsn
    }

    /// Waits until something has changed after `lsn`.
    pub async fn changed_after(&self, lsn: Lsn) {
        self.log().wait_past(lsn).await;
    }

    /// Reopens a store that failed to sync, and reads the catalogue anew: a change whose outcome was unknown may have
    /// happened. Nothing is changed in between, so no number is given twice.
    pub async fn reopen(&self, store: &dyn Store) -> Result<()> {
        let _guard = self.writing.lock().await;
        store.reopen().await.map_err(unreadable)?;
        self.replace(load(&*self.log())?);
        Ok(())
    }

    /// Begins a change; nobody else changes anything until it is dropped.
    pub async fn change(&self) -> Change<'_> {
        let guard = self.writing.lock().await;
        let lsn = self.log().head().lsn.next();
        let counters = self.catalogue().counters;
        Change {
            control: self,
            _guard: guard,
            lsn,
            now: self.clock.now(),
            counters,
            records: Vec::new(),
        }
    }
}

/// The catalogue that the log's view describes, and the LSN of that view.
fn load(log: &dyn Log) -> Result<(Catalogue, Lsn)> {
    let snapshot = log.snapshot().map_err(unreadable)?;
    let (from, to) = keys::bounds(KeySpace::Record);
    let mut catalogue = Catalogue::default();
    let mut records = Vec::new();
    for entry in snapshot.scan(std::ops::Bound::Included(&from), std::ops::Bound::Excluded(&to), false) {
        let (key, value) = entry.map_err(unreadable)?;
        records.push((key.slice(1..), value));
    }
    // Containers need their database, and partitions their container: shorter ids and resources come first.
    records.sort_by_key(|(key, _)| (!key.starts_with(b"resource/"), key.len()));
    for (key, value) in records {
        catalogue.apply(&key, Some(&value))?;
    }
    Ok((catalogue, snapshot.position().lsn))
}

/// A change in the making: records to be committed as one transaction.
#[derive(Debug)]
pub struct Change<'a> {
    control: &'a Control,
    _guard: MutexGuard<'a, ()>,
    /// The LSN the change will have.
    pub lsn: Lsn,
    pub now: Timestamp,
    /// Numbers given out so far; committed with the change.
    pub counters: Counters,
    records: Vec<Record>,
}

impl Change<'_> {
    pub fn put(&mut self, record: Record) {
        self.records.push(record);
    }

    /// The tag of a resource this change writes.
    pub fn etag(&self, salt: &[u8]) -> Etag {
        let mut own = [0; 4];
        let tail = &salt[salt.len().saturating_sub(4)..];
        own[..tail.len()].copy_from_slice(tail);
        Etag::of(own, PartitionId(0), self.lsn, self.records.len())
    }

    /// The next number of the order of creation.
    pub fn next_sequence(&mut self) -> u64 {
        self.counters.sequence += 1;
        self.counters.sequence
    }

    /// A log number never used before.
    pub fn next_log(&mut self) -> LogId {
        self.counters.logs += 1;
        LogId(self.counters.logs)
    }

    /// What the records put so far say by themselves, without anything that was there before.
    pub fn preview(&self) -> Result<Catalogue> {
        let mut catalogue = Catalogue::default();
        for record in &self.records {
            catalogue.apply(record.key().as_bytes(), record.value().as_deref())?;
        }
        Ok(catalogue)
    }

    /// Makes the change durable, then visible.
    pub async fn commit(mut self) -> Result<Lsn> {
        self.records.push(Record::Counters(self.counters));
        let operations = self.records.iter().map(|record| Operation::Record {
            key: Bytes::from(record.key()),
            value: record.value(),
        });
        let before = Summary::of(&self.records, &self.control.catalogue());
        let log = self.control.log();
        let transaction = Transaction::following(log.head(), self.now, operations.collect());
        let lsn = self.control.commit(&*log, transaction).await?;
        let happenings = events::of_change(&self.records, &before, &self.control.catalogue());
        happenings
            .into_iter()
            .for_each(|happening| self.control.events.tell(happening));
        Ok(lsn)
    }
}

fn failed(error: StorageError) -> Error {
    match error {
        StorageError::Unknown(_) => Error::new(Status::REQUEST_TIMEOUT, "The outcome of the change is not known."),
        StorageError::Full => Error::new(
            Status::UNAVAILABLE,
            "The store has no space left; writes are refused, reads go on.",
        ),
        other => Error::new(Status::UNAVAILABLE, "The catalogue cannot be changed now.").with_source(other),
    }
}
