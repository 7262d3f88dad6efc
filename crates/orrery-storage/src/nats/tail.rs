//! What this process knows of one log in the stream, and how it learns what others have added.
//!
//! Invariant: the local copy of a log is a part of what the stream holds from its beginning, or from a saved snapshot, and
//! ends with the message named by [`Known::last`]. Only whoever holds the lock on [`Known`] adds to either.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use orrery_model::{LogId, Position};
use orrery_partition::overlay::Overlay;
use orrery_partition::storage::{Log, Project, Result, Role, Staged, StorageError, Store as _};
use tokio::sync::Mutex;

use super::Shared;
use super::lane::Lane;
use super::message::{Change, Message, Owner, Standing, StreamSequence, encode};
use super::publish::Outcome;

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

    /// Takes in a message that came by itself, at once if it is the next.
    pub(super) async fn arrived(&self, shared: &Shared, known: &mut Known, message: &Message) -> Result<()> {
        let is_next = known.is_certain && message.previous == known.last;
        let goes_on = known
            .standing
            .is_some_and(|standing| standing.life == message.standing.life);
        let is_plain = matches!(message.change, None | Some(Change::Transactions(_)));
        if !(is_next && goes_on && is_plain) {
            return self.catch_up(shared, known).await;
        }
        let local = shared.local.open(self.id, Role::Follow).await?;
        known.is_certain = false;
        take_in(&*local, shared.project.as_ref(), message).await?;
        adopt_owner(shared, self.id, message.standing).await?;
        known.last = message.sequence;
        known.standing = Some(message.standing);
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
        let local = shared.local.open(self.id, Role::Follow).await?;
        let mut reading = self.lane.read(last, end.sequence);
        while let Some(message) = reading.next().await? {
            if message.previous != last {
                return Err(gap(self.id, &message));
            }
            last = message.sequence;
            take_in(&*local, shared.project.as_ref(), &message).await?;
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

/// Applies one message to the local copy.
async fn take_in(local: &dyn Log, project: &dyn Project, message: &Message) -> Result<()> {
    let transactions = message.transactions()?;
    if transactions.is_empty() {
        return Ok(());
    }
    let staged = {
        let snapshot = local.snapshot()?;
        let mut overlay = Overlay::new(&*snapshot);
        let mut staged = Vec::with_capacity(transactions.len());
        for transaction in transactions {
            let writes = project.project(&overlay, &transaction)?;
            overlay.apply(writes.iter().cloned());
            let transaction = Arc::new(transaction);
            staged.push(Staged { transaction, writes });
        }
        staged
    };
    // The append checks that they follow.
    local.append(local.head(), staged).await
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
