//! What this process knows of one log in the stream, and how it learns what others have added.
//!
//! Invariant: the local copy of a log is a part of what the stream holds from its beginning, or from a saved snapshot, and
//! ends with the message named by [`Known::last`]. Only whoever holds the lock on [`Known`] adds to either.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use orrery_model::log::Transaction;
use orrery_model::{LogId, Position};
use orrery_partition::overlay::Overlay;
use orrery_partition::storage::{Log as _, Project, Result, Role, Staged, StorageError, Store as _};
use tokio::sync::Mutex;

use super::Shared;
use super::lane::Lane;
use super::message::{Change, Message, Owner, Standing, StreamSequence, encode};
use super::publish::Outcome;
use crate::embedded::EmbeddedLog;

/// Bytes of messages that are taken into the copy at once.
const TAKEN_IN_BYTES_MAX: usize = 4 << 20;

/// One log.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) id: LogId,
    pub(super) lane: Lane,
    pub(super) known: Mutex<Known>,
    /// Whether a snapshot is being saved.
    pub(super) is_saving: AtomicBool,
    /// The last message that this process added. When it arrives by itself there is nothing to do about it.
    added: AtomicU64,
}

/// The end of the log as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Whether `last` was the end when we last looked or wrote. An append of unknown outcome makes it uncertain.
    pub(super) is_certain: bool,
    /// The last message that was taken in. Zero before the first.
    pub(super) last: StreamSequence,
    /// `None` while the log does not exist.
    pub(super) standing: Option<Standing>,
    /// Bytes of log since the last snapshot was saved, as far as this process knows.
    pub(super) unsaved_bytes: u64,
}

impl Tail {
    pub(super) fn new(lane: Lane) -> Tail {
        Tail {
            id: lane.log,
            lane,
            known: Mutex::default(),
            is_saving: AtomicBool::new(false),
            added: AtomicU64::new(0),
        }
    }

    /// Whether a message is from before one that this process added. Asked without waiting for an append that is under way.
    pub(super) fn is_past(&self, sequence: StreamSequence) -> bool {
        sequence <= self.added.load(Ordering::Acquire)
    }

    /// Knows nothing any more: the stream tells another history.
    pub(super) fn forget(&self, known: &mut Known) {
        self.added.store(0, Ordering::Release);
        *known = Known::default();
    }

    /// Adds a message where the log is known to end, and remembers it.
    pub(super) async fn add(&self, known: &mut Known, standing: Standing, change: Option<Change>) -> Outcome {
        let payload = encode(self.id, known.last, standing, change.as_ref());
        let n_bytes = payload.len() as u64;
        let outcome = match change {
            // Nothing from before a beginning or an end is needed.
            Some(Change::Begun { .. } | Change::Dropped) => self.lane.replace(known.last, payload).await,
            _ => self.lane.append(known.last, standing.position.lsn, payload).await,
        };
        match &outcome {
            Outcome::Stored(sequence) => {
                known.last = *sequence;
                self.added.store(*sequence, Ordering::Release);
                known.standing = (change != Some(Change::Dropped)).then_some(standing);
                known.unsaved_bytes += n_bytes;
            }
            Outcome::Conflict | Outcome::Unknown(_) => known.is_certain = false,
            Outcome::Refused(_) => {}
        }
        outcome
    }

    /// Takes in whatever the stream has beyond what is known.
    pub(super) async fn catch_up(&self, shared: &Shared, known: &mut Known) -> Result<()> {
        known.is_certain = false;
        match self.lane.last().await? {
            None => self.check_never_was(shared)?,
            Some(end) if end.change == Some(Change::Dropped) => {
                shared.local.drop_log(self.id).await?;
                known.standing = None;
                known.last = end.sequence;
            }
            Some(end) => self.follow(shared, known, &end).await?,
        }
        known.is_certain = true;
        Ok(())
    }

    /// Takes in messages that came by themselves, at once if they are the next ones.
    pub(super) async fn arrived(&self, shared: &Shared, known: &mut Known, messages: &[Message]) -> Result<()> {
        let Some(last) = messages.last() else { return Ok(()) };
        let local = shared.local.follow_log(self.id).filter(|_| goes_on(known, messages));
        let Some(local) = local else {
            return self.catch_up(shared, known).await;
        };
        known.is_certain = false;
        take_in(&local, shared.project.as_ref(), messages).await?;
        adopt_owner(shared, self.id, last.standing).await?;
        known.last = last.sequence;
        known.standing = Some(last.standing);
        known.is_certain = true;
        Ok(())
    }

    /// A log that this node has must be in the stream. If it is not, the servers have lost it, and no empty one takes its
    /// place.
    fn check_never_was(&self, shared: &Shared) -> Result<()> {
        match shared.local.info(self.id) {
            None => Ok(()),
            Some(_) if shared.is_mirrored() => Err(behind(self.id)),
            Some(info) => Err(StorageError::Corrupt(format!(
                "the servers have no messages of log {}, of which this node holds {} transactions",
                self.id, info.position.lsn
            ))),
        }
    }

    /// Brings the local copy up to `end`, the last message of a log that exists.
    async fn follow(&self, shared: &Shared, known: &mut Known, end: &Message) -> Result<()> {
        if shared.is_mirrored() && end.sequence < known.last {
            return Err(behind(self.id));
        }
        if known
            .standing
            .is_some_and(|standing| standing.life != end.standing.life)
        {
            // It was dropped and made anew.
            shared.local.drop_log(self.id).await?;
            *known = Known::default();
        }
        let mut last = match shared.local.info(self.id) {
            None => shared.rebuild(&self.lane, end).await?,
            Some(_) if known.standing.is_some() => known.last,
            Some(info) => match locate(shared, &self.lane, info.position, end).await? {
                Some(last) => last,
                None => {
                    // The stream was trimmed behind a snapshot while this node was away.
                    shared.local.drop_log(self.id).await?;
                    shared.rebuild(&self.lane, end).await?
                }
            },
        };
        let local = shared.local.open_log(self.id, Role::Follow).await?;
        let mut reading = self.lane.read(last, end.sequence);
        while let Some(message) = reading.next().await? {
            if message.previous != last {
                return Err(gap(self.id, &message));
            }
            last = message.sequence;
            take_in(&local, shared.project.as_ref(), std::slice::from_ref(&message)).await?;
        }
        if local.head() != end.standing.position {
            return Err(diverged(self.id, local.head(), end.standing.position));
        }
        adopt_owner(shared, self.id, end.standing).await?;
        known.last = end.sequence;
        known.standing = Some(end.standing);
        Ok(())
    }
}

/// Whether messages continue what is known, each the one before it, and change nothing but what the log holds and who owns it.
fn goes_on(known: &Known, messages: &[Message]) -> bool {
    let Some(standing) = known.standing.filter(|_| known.is_certain) else {
        return false;
    };
    let mut last = known.last;
    messages.iter().all(|message| {
        let is_next = std::mem::replace(&mut last, message.sequence) == message.previous;
        let is_plain = matches!(message.change, None | Some(Change::Transactions(_)));
        is_next && is_plain && message.standing.life == standing.life
    })
}

/// Applies messages to the local copy: many small ones cost it little more than one.
async fn take_in(local: &EmbeddedLog, project: &dyn Project, messages: &[Message]) -> Result<()> {
    let mut rest = messages;
    while !rest.is_empty() {
        let mut n_bytes = 0;
        let fits = |message: &&Message| {
            let is_first = n_bytes == 0;
            n_bytes += message.body().len();
            is_first || n_bytes <= TAKEN_IN_BYTES_MAX
        };
        let n_taken = rest.iter().take_while(fits).count();
        let (taken, left) = rest.split_at(n_taken.max(1));
        take_in_at_once(local, project, taken).await?;
        rest = left;
    }
    Ok(())
}

/// Applies messages to the local copy, all or none.
async fn take_in_at_once(local: &EmbeddedLog, project: &dyn Project, messages: &[Message]) -> Result<()> {
    let head = local.head();
    let (staged, last) = {
        let snapshot = local.snapshot()?;
        let mut overlay = Overlay::new(&*snapshot);
        let (mut staged, mut last) = (Vec::new(), head);
        for message in messages {
            let transactions = message.transactions()?;
            check_continues(last, transactions.first())?;
            for transaction in transactions {
                last = transaction.position();
                let writes = project.project(&overlay, &transaction)?;
                overlay.apply(writes.iter().cloned());
                let transaction = Arc::new(transaction);
                staged.push(Staged { transaction, writes });
            }
        }
        (staged, last)
    };
    if staged.is_empty() {
        return Ok(());
    }
    let body = match messages {
        [message] => message.body(),
        messages => {
            let bodies: Vec<Bytes> = messages.iter().map(Message::body).collect();
            bodies.concat().into()
        }
    };
    local.append_encoded(head, last, body, staged).await
}

/// Transactions of one message follow each other and are what their hashes say, which was checked when they were read. What is
/// left to check is that they follow what came before.
fn check_continues(last: Position, first: Option<&Transaction>) -> Result<()> {
    let continues = |first: &Transaction| {
        first.previous == last.lsn && first.previous_hash == last.hash && first.epoch >= last.epoch
    };
    match first {
        Some(first) if !continues(first) => {
            let problem = format!("transaction {} does not follow {}", first.lsn, last.lsn);
            Err(StorageError::Corrupt(problem))
        }
        _ => Ok(()),
    }
}

/// Handles of earlier owners in this process learn of one elsewhere.
async fn adopt_owner(shared: &Shared, log: LogId, standing: Standing) -> Result<()> {
    let Owner { epoch, .. } = standing.owner;
    let known = shared.local.info(log).map(|info| info.owner).unwrap_or_default();
    if epoch > known && epoch >= standing.position.epoch {
        shared.local.open(log, Role::Own { epoch }).await?;
    }
    Ok(())
}

/// The last message whose effect is in a log that stands at `position`; a search by halves, since positions only rise.
/// `None` when the stream no longer reaches back so far.
async fn locate(shared: &Shared, lane: &Lane, position: Position, end: &Message) -> Result<Option<StreamSequence>> {
    let reached = end.standing.position;
    if reached == position {
        return Ok(Some(end.sequence));
    }
    if reached.lsn < position.lsn && shared.is_mirrored() {
        return Err(behind(lane.log));
    }
    if reached.lsn <= position.lsn {
        return Err(diverged(lane.log, position, reached));
    }
    let (mut low, mut high) = (0, end.sequence);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        match lane.next(middle).await? {
            Some(found) if found.standing.position.lsn <= position.lsn => low = found.sequence,
            Some(_) => high = middle,
            None => return Err(StorageError::Unavailable("a log was trimmed while it was read".into())),
        }
    }
    Ok((low > 0).then_some(low))
}

/// A mirror that is being filled is not yet where this node has been.
fn behind(log: LogId) -> StorageError {
    StorageError::Unavailable(format!("the mirror of log {log} is behind this node's copy"))
}

fn gap(log: LogId, message: &Message) -> StorageError {
    StorageError::Corrupt(format!(
        "log {log}: message {} follows {}, which the servers no longer have",
        message.sequence, message.previous
    ))
}

fn diverged(log: LogId, local: Position, stream: Position) -> StorageError {
    StorageError::Corrupt(format!(
        "log {log} stands at {local:?} on this node, but at {stream:?} on the servers"
    ))
}
