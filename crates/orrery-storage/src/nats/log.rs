//! A log of a store on JetStream in the role it was opened in.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use orrery_model::log::Transaction;
use orrery_model::{LogId, Lsn, Position};
use orrery_partition::storage::{BoxFuture, Hold, Log, Result, Role, Snapshot, Staged, StorageError};

use super::Shared;
use super::message::{Change, Standing};
use super::publish::Outcome;
use super::tail::{Known, Tail};
use crate::body::encode_transactions;
use crate::embedded::EmbeddedLog;
use crate::fence::check_chain;

/// What a message carries beside its transactions, generously.
const OVERHEAD_BYTES: usize = 1 << 10;
/// Waited between attempts to learn what became of an append.
const SETTLE_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(super) struct NatsLog {
    shared: Arc<Shared>,
    tail: Arc<Tail>,
    /// The node's own copy, in the same role: it fences handles of this process by itself.
    local: Arc<EmbeddedLog>,
    role: Role,
}

impl NatsLog {
    pub(super) fn new(shared: Arc<Shared>, tail: Arc<Tail>, local: Arc<EmbeddedLog>, role: Role) -> NatsLog {
        NatsLog {
            shared,
            tail,
            local,
            role,
        }
    }

    async fn append(self, expected: Position, staged: Vec<Staged>) -> Result<()> {
        check_chain(expected, &staged)?;
        let last = staged.last().map_or(expected, |last| last.transaction.position());
        let body = Bytes::from(encode_transactions(&staged));
        if body.len() + OVERHEAD_BYTES > self.shared.bus.message_bytes_max {
            let problem = format!("an append of {} bytes is too large for a message", body.len());
            return Err(StorageError::Unavailable(problem));
        }
        let mut known = self.tail.known.lock().await;
        let before = self.check(&mut known).await?;
        if self.local.head() != expected {
            return Err(self.fenced());
        }
        let standing = Standing {
            position: last,
            ..before
        };
        let change = Change::Transactions(body.clone());
        match self.tail.add(&mut known, standing, Some(change)).await {
            Outcome::Stored(_) => self.show(&mut known, expected, body, staged).await,
            Outcome::Conflict => {
                self.tail.catch_up(&self.shared, &mut known).await?;
                // Says so when the log is gone.
                self.local.barrier().await?;
                Err(self.fenced())
            }
            Outcome::Unknown(why) => {
                drop(known);
                self.settle();
                Err(StorageError::Unknown(why))
            }
            Outcome::Refused(error) => Err(error),
        }
    }

    /// Takes what the servers have stored into the node's copy.
    async fn show(&self, known: &mut Known, expected: Position, body: Bytes, staged: Vec<Staged>) -> Result<()> {
        let last = known.standing.map(|standing| standing.position).unwrap_or_default();
        if let Err(error) = self.local.append_encoded(expected, last, body, staged).await {
            // It happened, but cannot be seen here until the copy is well again.
            *known = Known::default();
            return Err(StorageError::Unknown(format!("this node's copy failed: {error}")));
        }
        if known.unsaved_bytes >= self.shared.settings.save_after_bytes {
            self.save();
        }
        Ok(())
    }

    /// Saves a snapshot while appends go on.
    fn save(&self) {
        let Self { shared, tail, .. } = self.clone();
        self.shared.tasks.spawn(async move {
            if let Err(error) = shared.save(&tail).await {
                tracing::warn!(log = %tail.id, %error, "cannot save a snapshot");
            }
        });
    }

    /// Learns what became of an append, so that whoever watches the log hears of it if it happened.
    fn settle(&self) {
        let Self { shared, tail, .. } = self.clone();
        self.shared.tasks.spawn(async move {
            while shared.check_open().is_ok() {
                let mut known = tail.known.lock().await;
                if known.is_certain {
                    return;
                }
                match tail.catch_up(&shared, &mut known).await {
                    Ok(()) => return,
                    Err(error) => tracing::warn!(log = %tail.id, %error, "an append is still in doubt"),
                }
                drop(known);
                tokio::time::sleep(SETTLE_PAUSE).await;
            }
        });
    }

    /// Where the log stands, if this handle may still append to it.
    async fn check(&self, known: &mut Known) -> Result<Standing> {
        // Says it first when the log was dropped or is owned anew by this process.
        self.local.barrier().await?;
        if !known.is_certain {
            self.tail.catch_up(&self.shared, known).await?;
            self.local.barrier().await?;
        }
        let gone = StorageError::Fenced {
            actual: Position::default(),
        };
        let standing = known.standing.ok_or(gone)?;
        match self.role {
            Role::Own { epoch } if standing.owner != self.shared.owner(epoch) => Err(self.fenced()),
            _ => Ok(standing),
        }
    }

    async fn prove(self) -> Result<()> {
        let mut known = self.tail.known.lock().await;
        loop {
            self.check(&mut known).await?;
            if self.role == Role::Follow {
                return Ok(());
            }
            match self.tail.lane.prove(known.last).await {
                Outcome::Stored(_) => return Ok(()),
                // Whoever added to the log is known after the next look, and is someone else.
                Outcome::Conflict => known.is_certain = false,
                Outcome::Unknown(why) => return Err(StorageError::Unavailable(why)),
                Outcome::Refused(error) => return Err(error),
            }
        }
    }

    fn fenced(&self) -> StorageError {
        StorageError::Fenced {
            actual: self.local.head(),
        }
    }
}

impl Log for NatsLog {
    fn id(&self) -> LogId {
        self.tail.id
    }

    fn head(&self) -> Position {
        self.local.head()
    }

    fn append(&self, expected: Position, staged: Vec<Staged>) -> BoxFuture<'_, Result<()>> {
        if staged.is_empty() {
            // Only looks, and has nothing to complete.
            return Log::append(&*self.local, expected, staged);
        }
        Box::pin(self.shared.complete(self.clone().append(expected, staged)))
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.local.snapshot()
    }

    fn read_log(&self, after: Lsn, limit_bytes: usize) -> BoxFuture<'_, Result<Vec<Transaction>>> {
        Log::read_log(&*self.local, after, limit_bytes)
    }

    fn wait_past(&self, after: Lsn) -> BoxFuture<'_, Position> {
        self.local.wait_past(after)
    }

    fn hold(&self, after: Lsn) -> Box<dyn Hold> {
        self.local.hold(after)
    }

    /// Trims this node's copy. The servers' log is trimmed behind saved snapshots, which is all that a node needs to come
    /// back.
    fn trim(&self, below: Lsn) -> BoxFuture<'_, Result<Lsn>> {
        Log::trim(&*self.local, below)
    }

    fn barrier(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.shared.complete(self.clone().prove()))
    }
}
