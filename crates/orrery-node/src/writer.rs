//! The single writer of a physical partition: takes everything waiting as one batch, decides each command on the effects
//! of those before it, appends once, and only then answers.
//!
//! One append is in flight. If it fails, everything decided on it fails with it, also the refusals: a 409 because of an
//! item that was never written would be a lie.

use std::collections::HashMap;
use std::sync::Arc;

use orrery_model::log::{Operation, Transaction};
use orrery_model::{Error, LogId, Lsn, PartitionId, Position, Result, Status, Timestamp};
use orrery_partition::IndexedDefinition;
use orrery_partition::command::{Command, Decision};
use orrery_partition::decide::{self, Context, unreadable};
use orrery_partition::draft::Identity;
use orrery_partition::keys::{self, EpkForm};
use orrery_partition::overlay::Overlay;
use orrery_partition::project;
use orrery_partition::storage::{Log, Staged, StorageError, ViewWrite};
use orrery_partition::stored::StoredItem;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::DropGuard;

use crate::cache::{CacheKey, HotCache};
use crate::caches::Caches;
use crate::clock::Clock;
use crate::geo::duty::{EVERYWHERE_WAIT, LogDuty, Term, unconfirmed, unvouched, write_forbidden};
use crate::partition::{Answer, Held, Job};
use crate::purge;
use crate::quota::Quota;
use crate::tasks::Tasks;

/// Commands that may wait; more make their senders wait.
pub const INBOX: usize = 1024;
/// Commands and bytes decided before one append.
const BATCH_COMMANDS_MAX: usize = 512;
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub struct Writer {
    pub partition: PartitionId,
    pub identity: Identity,
    pub log: Arc<dyn Log>,
    pub duty: LogDuty,
    pub tasks: Tasks,
    pub definition: IndexedDefinition,
    pub cache: Arc<Caches>,
    pub clock: Arc<dyn Clock>,
    /// Told when something was written that ends soon.
    pub expiring: Arc<Notify>,
    /// Time never runs backwards in a log.
    pub last_at: Timestamp,
    pub quota: Arc<Quota>,
}

type Reply = oneshot::Sender<Result<Answer>>;

/// A command that was decided and waits for the append.
struct Decided {
    reply: Reply,
    result: Result<Decision>,
    position: Position,
    /// Is it a client's? What the server does for itself owes the other regions nothing: they get it in order.
    is_clients: bool,
}

impl Writer {
    /// Runs until every sender is gone; dropping `_ended` tells that it has ended.
    pub async fn run(mut self, mut inbox: mpsc::Receiver<Job>, _ended: DropGuard) {
        let mut waiting = Vec::with_capacity(BATCH_COMMANDS_MAX);
        while inbox.recv_many(&mut waiting, BATCH_COMMANDS_MAX).await > 0 {
            let mut jobs = waiting.drain(..).peekable();
            while let Some(job) = jobs.next() {
                match job {
                    Job::Command { command, reply } => {
                        let mut batch = vec![(command, reply)];
                        while let Some(Job::Command { command, reply }) =
                            jobs.next_if(|job| matches!(job, Job::Command { .. }))
                        {
                            batch.push((command, reply));
                        }
                        self.batch(batch).await;
                    }
                    Job::Hold { reply } => self.held(reply).await,
                }
            }
        }
    }

    /// Serves whoever holds the partition until they let go.
    async fn held(&mut self, reply: oneshot::Sender<Held>) {
        let (sender, mut commands) = mpsc::channel(1);
        if reply.send(Held::new(sender)).is_err() {
            return;
        }
        while let Some((command, reply)) = commands.recv().await {
            self.batch(vec![(command, reply)]).await;
        }
    }

    async fn batch(&mut self, commands: Vec<(Command, Reply)>) {
        let mut rest = commands.into_iter().peekable();
        while rest.peek().is_some() {
            let term = self.duty.term();
            let Ok(room) = self.duty.room() else {
                for (_, reply) in rest {
                    let refusal = self.duty.room().err().unwrap_or_else(unavailable);
                    let _ = reply.send(Err(refusal));
                }
                return;
            };
            let (decided, staged) = match self.decide_all(&mut rest, room) {
                Ok(done) => done,
                Err(error) => {
                    tracing::error!(log = %self.log.id(), %error, "a partition's view cannot be read");
                    rest.by_ref()
                        .for_each(|(_, reply)| drop(reply.send(Err(unavailable()))));
                    return;
                }
            };
            self.commit(decided, staged, term).await;
        }
    }

    /// Decides commands until the batch is full or has as many transactions as there is room for.
    fn decide_all(
        &mut self,
        commands: &mut impl Iterator<Item = (Command, Reply)>,
        room: usize,
    ) -> Result<(Vec<Decided>, Vec<Staged>)> {
        let snapshot = self.log.snapshot().map_err(unreadable)?;
        let mut overlay = Overlay::new(&*snapshot);
        let mut position = snapshot.position();
        let (mut decided, mut staged, mut bytes) = (Vec::new(), Vec::new(), 0);
        let now = self.clock.now().max(self.last_at);
        self.last_at = now;
        let full = self.quota.full();
        while bytes < BATCH_BYTES_MAX && staged.len() < room {
            let Some((command, reply)) = commands.next() else { break };
            let context = Context {
                now,
                lsn: position.lsn.next(),
                partition: self.partition,
                identity: &self.identity,
                definition: &self.definition,
                full: &full,
            };
            let is_clients = matches!(
                command,
                Command::Item(_) | Command::Batch(_) | Command::DeleteKey { .. }
            );
            let mut result = decide::decide(&overlay, &command, &context);
            if let Ok(decision) = &mut result
                && !decision.operations.is_empty()
            {
                let operations = std::mem::take(&mut decision.operations);
                let transaction = Arc::new(Transaction::following(position, now, operations));
                let writes = project::project(Some(&self.definition), &overlay, &transaction).map_err(unreadable)?;
                bytes += writes.iter().map(n_bytes).sum::<usize>();
                overlay.apply(writes.iter().cloned());
                position = transaction.position();
                self.follow_definition(&transaction)?;
                staged.push(Staged { transaction, writes });
            }
            decided.push(Decided {
                reply,
                result,
                position,
                is_clients,
            });
        }
        Ok((decided, staged))
    }

    /// Later commands of the batch are decided by a definition that an earlier one changed.
    fn follow_definition(&mut self, transaction: &Transaction) -> Result<()> {
        for operation in &transaction.operations {
            if let Operation::Defined { definition, .. } = operation {
                self.definition = IndexedDefinition::from_stored(definition)?;
            }
        }
        Ok(())
    }

    async fn commit(&mut self, decided: Vec<Decided>, staged: Vec<Staged>, term: Term) {
        let ends_soon = purge::has_short_lived(&self.definition, &staged);
        let n_bytes = staged.iter().flat_map(|staged| &staged.writes).map(n_bytes).sum();
        let appended = if staged.is_empty() {
            Ok(())
        } else {
            self.append(staged).await
        };
        match appended {
            Ok(()) => {
                if ends_soon {
                    self.expiring.notify_one();
                }
                let form = EpkForm::of(self.definition.partition_key());
                self.quota.wrote(n_bytes, &self.log, form, &self.tasks);
                self.acknowledge(decided, term);
            }
            Err(error) => {
                tracing::warn!(log = %self.log.id(), %error, "an append failed");
                let is_anothers = matches!(error, StorageError::Fenced { actual } if actual.lsn > Lsn::ZERO);
                if matches!(error, StorageError::Fenced { .. }) {
                    self.duty.cease();
                    self.duty.tell_fenced();
                }
                self.return_to_stored_definition();
                let failed = || match is_anothers && self.duty.is_clustered() {
                    true => write_forbidden(),
                    false => append_error(&error),
                };
                decided
                    .into_iter()
                    .for_each(|decided| drop(decided.reply.send(Err(failed()))));
            }
        }
    }

    /// Answers what is durable here, under strong consistency once every region has it. What was begun before another region
    /// took over may be cut off by it.
    fn acknowledge(&self, decided: Vec<Decided>, term: Term) {
        self.duty.progress.appended(self.log.head().lsn);
        let waits = |decided: &Decided| self.duty.is_strong() && decided.is_clients;
        let (decided, at_once): (Vec<Decided>, Vec<Decided>) = decided.into_iter().partition(waits);
        match self.duty.term() == term {
            true => at_once.into_iter().for_each(answer),
            false => at_once.into_iter().for_each(answer_unknown),
        }
        let Some(last) = decided.iter().map(|decided| decided.position.lsn).max() else {
            return;
        };
        let duty = self.duty.clone();
        self.tasks.spawn(async move {
            match tokio::time::timeout(EVERYWHERE_WAIT, duty.committed_in(term, last)).await {
                Ok(true) => decided.into_iter().for_each(answer),
                // It is durable here and may yet be everywhere.
                _ => decided.into_iter().for_each(answer_unvouched),
            }
        });
    }

    /// After an append that failed: what a definition change in it said does not hold.
    fn return_to_stored_definition(&mut self) {
        let stored = self
            .log
            .snapshot()
            .and_then(|snapshot| snapshot.get(&keys::definition()));
        if let Ok(Some(stored)) = stored
            && let Ok(definition) = IndexedDefinition::from_stored(&stored)
        {
            self.definition = definition;
        }
    }

    async fn append(&self, staged: Vec<Staged>) -> Result<(), StorageError> {
        let expected = staged.first().map(|first| Position {
            epoch: self.log.head().epoch,
            lsn: first.transaction.previous,
            hash: first.transaction.previous_hash,
        });
        let last = staged.last().map(|last| last.transaction.lsn);
        append_cached(&*self.log, &self.cache, expected.unwrap_or_default(), staged).await?;
        last.into_iter().for_each(|lsn| self.duty.wrote(lsn));
        Ok(())
    }
}

fn n_bytes((key, value): &ViewWrite) -> usize {
    key.len() + value.as_ref().map_or(0, bytes::Bytes::len)
}

/// Appends, and keeps the caches in step: readers see neither an item that is not durable nor an older one after.
pub async fn append_cached(
    log: &dyn Log,
    cache: &Caches,
    expected: Position,
    staged: Vec<Staged>,
) -> Result<(), StorageError> {
    let transactions: Vec<_> = staged.iter().map(|staged| Arc::clone(&staged.transaction)).collect();
    let lsn = staged.last().map(|last| last.transaction.lsn);
    let barred = Barred::new(&cache.items, changed_items(log.id(), &transactions), lsn);
    log.append(expected, staged).await?;
    barred.show();
    cache.recent.push(log.id(), transactions);
    Ok(())
}

/// The items that an append changes, kept out of the cache until its outcome is known, or nobody waits for that any more.
struct Barred<'a> {
    cache: &'a HotCache,
    changed: HashMap<CacheKey<'a>, Option<StoredItem>>,
    /// Up to which it changes them.
    lsn: Option<Lsn>,
}

impl<'a> Barred<'a> {
    fn new(cache: &'a HotCache, changed: HashMap<CacheKey<'a>, Option<StoredItem>>, lsn: Option<Lsn>) -> Barred<'a> {
        changed.keys().for_each(|key| cache.bar(*key));
        Barred { cache, changed, lsn }
    }

    /// The append has happened: readers may have the new versions.
    fn show(mut self) {
        for (key, item) in std::mem::take(&mut self.changed) {
            self.cache.release(key, self.lsn, item.map(Arc::new));
        }
    }
}

impl Drop for Barred<'_> {
    /// The outcome is unknown, or there is none yet: were the write there after all, an older fill must not hide it.
    fn drop(&mut self) {
        for (key, _) in std::mem::take(&mut self.changed) {
            self.cache.release(key, self.lsn, None);
        }
    }
}

/// The items that transactions change, with their last version.
fn changed_items(log: LogId, transactions: &[Arc<Transaction>]) -> HashMap<CacheKey<'_>, Option<StoredItem>> {
    let mut changed = HashMap::new();
    for transaction in transactions {
        for (index, operation) in transaction.operations.iter().enumerate() {
            let (epk, id, number, item) = match operation {
                Operation::Put(put) => {
                    let item = StoredItem::of(put, transaction, index);
                    (&put.epk, &put.id, put.number, Some(item))
                }
                Operation::Delete(delete) => (&delete.epk, &delete.id, delete.number, None),
                Operation::Renamed(renamed) => (&renamed.epk, &renamed.from, renamed.number, None),
                _ => continue,
            };
            let epk = epk.as_bytes();
            changed.insert(CacheKey::Id { log, epk, id }, item);
            // Whoever looks for it by its number reads it first.
            changed.insert(CacheKey::Number { log, number }, None);
        }
    }
    changed
}

fn answer(decided: Decided) {
    let answer = decided.result.map(|decision| Answer {
        results: decision.results,
        lsn: decided.position.lsn,
        more: decision.more,
    });
    // A client that went away no longer cares.
    let _ = decided.reply.send(answer);
}

/// Answers what this region cannot vouch for; a refusal stays one.
fn answer_unknown(decided: Decided) {
    let _ = decided.reply.send(decided.result.and_then(|_| Err(unconfirmed())));
}

/// The same under strong consistency.
fn answer_unvouched(decided: Decided) {
    let _ = decided.reply.send(Err(unvouched(decided.result)));
}

/// Unknown is not failure: what may have happened is never answered as "surely not".
fn append_error(error: &StorageError) -> Error {
    match error {
        StorageError::Unknown(_) => Error::new(Status::REQUEST_TIMEOUT, "The outcome of the write is not known."),
        StorageError::Full => Error::new(
            Status::UNAVAILABLE,
            "The store has no space left; writes are refused, reads go on.",
        ),
        StorageError::Fenced { .. } => Error::new(Status::PARTITION_GONE, "The partition is owned elsewhere."),
        _ => unavailable(),
    }
}

fn unavailable() -> Error {
    Error::new(Status::UNAVAILABLE, "The partition cannot take writes now.").with_retry_after_ms(1000)
}
