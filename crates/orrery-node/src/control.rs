//! The system log: the one place where what exists is changed.
//!
//! A change is decided on the catalogue and committed while the lock is held, so two creates of one name cannot both
//! succeed. The commit is durable before the catalogue shows it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use orrery_model::log::{Operation, Transaction};
use orrery_model::{Epoch, Error, Etag, LogId, Lsn, PartitionId, Result, Status, Timestamp};
use orrery_partition::decide::unreadable;
use orrery_partition::keys::{self, KeySpace};
use orrery_partition::project;
use orrery_partition::storage::{Log, Role, Staged, StorageError, Store};
use tokio::sync::{Mutex, MutexGuard};

use crate::catalogue::{Catalogue, Counters, Record};
use crate::clock::Clock;
use crate::events::{self, Events, Summary};
use crate::geo::duty::{Duty, LogDuty, confirmed, write_forbidden};
use crate::geo::jumps::jumps_of;
use crate::geo::roles::EpochStart;
use crate::watched::Watched;

/// Bytes of log taken in at a time.
const ABSORBED_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub struct Control {
    /// Replaced when this region begins or ceases to write.
    log: RwLock<Arc<dyn Log>>,
    /// Whether the log was opened to be written.
    is_owner: AtomicBool,
    catalogue: RwLock<Catalogue>,
    clock: Arc<dyn Clock>,
    writing: Mutex<()>,
    events: Events,
    /// How far into the log the catalogue shows it.
    shown: Arc<Watched<Lsn>>,
    /// The highest log number that was given to a change, whether it was committed or not.
    logs_given: AtomicU64,
    /// What this region owes the others for what it writes into the log.
    duty: LogDuty,
    /// While it follows: up to where it has been told that every region has the log.
    learned: Watched<Lsn>,
}

impl Control {
    /// Opens the system log in a role and reads the catalogue from its view.
    pub async fn open(
        store: &dyn Store,
        role: Role,
        clock: Arc<dyn Clock>,
        events: Events,
        duty: LogDuty,
    ) -> Result<Control> {
        let log = store.open(LogId::SYSTEM, role).await.map_err(unreadable)?;
        let (catalogue, shown) = load(&*log)?;
        let control = Control {
            log: RwLock::new(log),
            is_owner: AtomicBool::new(role != Role::Follow),
            catalogue: RwLock::new(catalogue),
            shown: Arc::new(Watched::new(shown)),
            clock,
            writing: Mutex::new(()),
            events,
            logs_given: AtomicU64::new(0),
            duty,
            learned: Watched::default(),
        };
        control.begin_progress().await;
        Ok(control)
    }

    pub fn duty(&self) -> &LogDuty {
        &self.duty
    }

    /// Where the others' progress is counted from, once the log is this region's to write.
    async fn begin_progress(&self) {
        if self.is_owner.load(Ordering::Acquire) {
            let log = self.log();
            self.duty.progress.begin(log.head().lsn, jumps_of(&*log).await);
        }
    }

    /// This region has been told that every region has the log up to `lsn`.
    pub fn learn_committed(&self, lsn: Lsn) {
        self.learned.modify(|known| *known = (*known).max(lsn));
    }

    /// Waits until every region that serves has the log up to `lsn`, as whoever shows what it says under strong consistency must.
    pub async fn wait_committed(&self, lsn: Lsn) -> Result<()> {
        confirmed(async {
            match self.is_owner.load(Ordering::Acquire) {
                true => self.duty.committed_now(lsn).await,
                false => {
                    self.learned.wait_for(|known| *known >= lsn).await;
                    true
                }
            }
        })
        .await
    }

    /// Whether the log is this node's to write.
    pub fn is_owner(&self) -> bool {
        self.is_owner.load(Ordering::Acquire)
    }

    pub fn log(&self) -> Arc<dyn Log> {
        Arc::clone(&self.log.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens the system log anew in another role. Whoever calls this has seen to it that nobody changes anything.
    pub async fn reopen_as(&self, store: &dyn Store, role: Role) -> Result<()> {
        let log = store.open(LogId::SYSTEM, role).await.map_err(unreadable)?;
        let current = load(&*log)?;
        *self.log.write().unwrap_or_else(PoisonError::into_inner) = log;
        self.is_owner.store(role != Role::Follow, Ordering::Release);
        self.replace(current);
        self.begin_progress().await;
        Ok(())
    }

    fn replace(&self, (catalogue, shown): (Catalogue, Lsn)) {
        *self.catalogue.write().unwrap_or_else(PoisonError::into_inner) = catalogue;
        self.shown.set(shown);
    }

    /// Shows what has come into the log without this node's doing, and tells whether there was anything. Only while it follows.
    pub async fn absorb(&self) -> Result<bool> {
        let _guard = self.writing.lock().await;
        let shown = self.shown();
        self.catch_up().await?;
        Ok(self.shown() != shown)
    }

    /// Brings the catalogue up to its log, for whoever keeps others from changing it.
    async fn catch_up(&self) -> Result<()> {
        let log = self.log();
        while log.head().lsn > *self.shown.read() {
            let after = *self.shown.read();
            match log.read_log(after, ABSORBED_BYTES).await {
                Ok(transactions) if transactions.first().is_some_and(|first| first.previous == after) => {
                    for transaction in &transactions {
                        self.show(transaction)?;
                    }
                }
                Ok(_) | Err(StorageError::Trimmed { .. }) => {
                    let loaded = load(&*log)?;
                    if loaded.1 <= after {
                        return Err(Error::new(
                            Status::UNAVAILABLE,
                            "The catalogue's view is behind its log.",
                        ));
                    }
                    self.replace(loaded);
                }
                Err(error) => return Err(unreadable(error)),
            }
        }
        Ok(())
    }

    /// How far into the log the catalogue shows it.
    pub fn shown(&self) -> Lsn {
        *self.shown.read()
    }

    /// The same to wait for: it changes whenever the catalogue does, also when that is read anew at the same place.
    pub fn watch(&self) -> &Arc<Watched<Lsn>> {
        &self.shown
    }

    /// Waits until the catalogue shows the log up to `lsn`.
    pub async fn shown_past(&self, lsn: Lsn) {
        self.shown.wait_for(|shown| *shown >= lsn).await;
    }

    /// Keeps everybody from changing anything until the guard is dropped.
    pub async fn hold(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().await
    }

    /// The first entry of a new epoch. One that begins above everything known also skips the numbers that may have been given out
    /// unknown to this region, or what was lost and what is made next would have the same ids.
    pub async fn begin_epoch(&self, epoch: Epoch, start: EpochStart) -> Result<()> {
        let _guard = self.writing.lock().await;
        let counters = self.catalogue().counters;
        let record = Record::Counters(match start {
            EpochStart::Next => counters,
            EpochStart::Above => counters.beyond_unknown(),
        });
        let lsn = start.lsn(self.log().head(), epoch);
        let operation = Operation::Record {
            key: Bytes::from(record.key()),
            value: record.value(),
        };
        let log = self.log();
        let transaction = Transaction::at_lsn(log.head(), epoch, lsn, self.clock.now(), vec![operation]);
        self.commit(&*log, transaction).await?;
        self.begin_progress().await;
        Ok(())
    }

    /// Applies transactions that another region decided, in one step.
    pub async fn follow(&self, transactions: Vec<Transaction>) -> std::result::Result<(), StorageError> {
        let _guard = self.writing.lock().await;
        let corrupt = |error: Error| StorageError::Corrupt(error.message().to_owned());
        // What a step before that was cut off has brought after all.
        self.catch_up().await.map_err(corrupt)?;
        let log = self.log();
        let (expected, staged) = crate::geo::follow::stage(&*log, transactions)?;
        if staged.is_empty() {
            return Ok(());
        }
        let transactions: Vec<_> = staged.iter().map(|staged| Arc::clone(&staged.transaction)).collect();
        log.append(expected, staged).await?;
        for transaction in transactions {
            self.show(&transaction).map_err(corrupt)?;
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
        self.shown.set(transaction.lsn);
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

    /// Begins a change; nobody else changes anything until it is dropped. A change before it whose outcome was not known may
    /// have happened: it is shown first, so that no number is given twice.
    pub async fn change(&self) -> Change<'_> {
        let guard = self.writing.lock().await;
        if let Err(error) = self.catch_up().await {
            tracing::warn!(%error, "the catalogue cannot be brought up to its log");
        }
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

    /// A log number never used before, for a change that is committed before anybody opens the log. Whatever is opened
    /// earlier has its number from [`Change::reserve_logs`].
    ///
    /// A change that failed may have left logs behind, with content, so its numbers are not given again either. That need not
    /// outlive the process: a node that starts drops whatever no record names.
    pub fn next_log(&mut self) -> LogId {
        let given = &self.control.logs_given;
        self.counters.logs = self.counters.logs.max(given.load(Ordering::Relaxed)) + 1;
        given.store(self.counters.logs, Ordering::Relaxed);
        LogId(self.counters.logs)
    }

    /// Log numbers never used before, for logs that are opened before the change is committed.
    ///
    /// In a cluster another node may have begun to coordinate while this one waited or stood still, and would give the same
    /// numbers to logs of its own. So they are made durable first: that proves who coordinates, and nobody who coordinates
    /// later gives them again.
    pub async fn reserve_logs(&mut self, n_logs: usize, duty: &Duty) -> Result<Vec<LogId>> {
        self.check_owner()?;
        duty.check_writes()?;
        let logs = (0..n_logs).map(|_| self.next_log()).collect();
        if duty.clustered && n_logs > 0 {
            self.append(&[Record::Counters(self.counters)]).await?;
            self.lsn = self.control.lsn().next();
        }
        Ok(logs)
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
        self.check_owner()?;
        self.records.push(Record::Counters(self.counters));
        let before = Summary::of(&self.records, &self.control.catalogue());
        let lsn = self.append(&self.records).await?;
        let happenings = events::of_change(&self.records, &before, &self.control.catalogue());
        happenings
            .into_iter()
            .for_each(|happening| self.control.events.tell(happening));
        Ok(lsn)
    }

    /// The log may have been given up while the change waited for its turn.
    fn check_owner(&self) -> Result<()> {
        match self.control.is_owner.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(write_forbidden()),
        }
    }

    async fn append(&self, records: &[Record]) -> Result<Lsn> {
        let operations = records.iter().map(|record| Operation::Record {
            key: Bytes::from(record.key()),
            value: record.value(),
        });
        let log = self.control.log();
        if log.head().lsn != self.control.shown() {
            let behind = "What an earlier change has done is not known yet.";
            return Err(Error::new(Status::UNAVAILABLE, behind).with_retry_after_ms(1_000));
        }
        let transaction = Transaction::following(log.head(), self.now, operations.collect());
        let lsn = self.control.commit(&*log, transaction).await?;
        self.control.duty.progress.appended(lsn);
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

#[cfg(test)]
mod tests {
    use orrery_storage::MemoryStore;

    use super::*;
    use crate::clock::ManualClock;
    use crate::geo::duty::Promise;

    #[tokio::test]
    async fn a_change_that_happened_although_nobody_was_told_is_not_overlooked_by_the_next_one() {
        let store = MemoryStore::new();
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp(1)));
        let events = Events::new(Arc::clone(&clock));
        let duty = Arc::new(Duty::new(true, Promise::Local)).of(LogId::SYSTEM);
        let control = Control::open(&*store, Role::Own { epoch: Epoch(1) }, clock, events, duty)
            .await
            .unwrap();
        // Appended without being shown, as by a commit whose answer was lost.
        let counters = Record::Counters(Counters {
            logs: 7,
            ..Counters::default()
        });
        let operation = Operation::Record {
            key: Bytes::from(counters.key()),
            value: counters.value(),
        };
        let log = control.log();
        let transaction = Transaction::following(log.head(), Timestamp(1), vec![operation]);
        let writes = project::project(None, &*log.snapshot().unwrap(), &transaction).unwrap();
        let transaction = Arc::new(transaction);
        log.append(log.head(), vec![Staged { transaction, writes }])
            .await
            .unwrap();
        assert!(control.shown() < log.head().lsn);

        let mut change = control.change().await;
        assert_eq!(change.next_log(), LogId(8));
        change.commit().await.unwrap();
        assert_eq!(control.shown(), log.head().lsn);
    }
}
