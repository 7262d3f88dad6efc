//! What is asked of the committer, in the order it was asked.
//!
//! Asking never waits: a command is either taken at once or refused, so a caller that goes away afterwards cancels nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use orrery_model::{LogId, Position};
use orrery_partition::storage::{Result, Role, StorageError};
use tokio::sync::oneshot;

use super::catalog::LogState;
use super::keeper::Ticket;
use super::record::ViewId;
use super::view::Batch;
use crate::fence::Claim;

/// Commands waiting at once. One append per log is in flight, so more means that nobody waits for answers.
const WAITING_MAX: usize = 1 << 16;

pub(super) type Answer<T> = oneshot::Sender<Result<T>>;

/// One append, encoded where it was called.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) state: Arc<LogState>,
    pub(super) claim: Claim,
    pub(super) expected: Position,
    /// Where the log stands afterwards.
    pub(super) last: Position,
    pub(super) body: Bytes,
    /// The log's own view when it was called, which `writes` are for.
    pub(super) view: ViewId,
    pub(super) writes: Batch,
    pub(super) answer: Answer<()>,
}

#[derive(Debug)]
pub(super) enum Command {
    Append(Append),
    Open {
        log: LogId,
        role: Role,
        answer: Answer<(Arc<LogState>, Claim)>,
    },
    Drop {
        log: LogId,
        answer: Answer<()>,
    },
    Branch {
        from: LogId,
        to: LogId,
        answer: Answer<bool>,
    },
    Seed {
        log: LogId,
        answer: Answer<ViewId>,
    },
    SeedWrite {
        writes: Batch,
        answer: Answer<()>,
    },
    SeedFinish {
        log: LogId,
        view: ViewId,
        position: Position,
        answer: Answer<()>,
    },
    SeedAbort {
        log: LogId,
        view: ViewId,
    },
    /// Seal the view and promise to flush it.
    Checkpoint {
        answer: Answer<Ticket>,
    },
    /// A flush has ended or a log was trimmed: remove segments nobody needs.
    Tidy,
    /// Remove what is left of a view that no log has any more.
    Sweep {
        view: ViewId,
    },
    Reopen {
        answer: Answer<()>,
    },
    Close {
        answer: Answer<()>,
    },
    /// End without flushing.
    Stop,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    commands: VecDeque<Command>,
    is_closed: bool,
}

impl Queue {
    /// Hands a command to the committer. One that is refused is dropped, and with it the sender of its answer.
    pub(super) fn push(&self, command: Command) {
        let mut waiting = self.lock();
        if waiting.is_closed || waiting.commands.len() >= WAITING_MAX {
            return;
        }
        waiting.commands.push_back(command);
        self.changed.notify_one();
    }

    /// Hands over a command and waits for its answer.
    pub(super) async fn ask<T>(&self, command: impl FnOnce(Answer<T>) -> Command) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let is_taken = {
            let mut waiting = self.lock();
            let is_taken = !waiting.is_closed && waiting.commands.len() < WAITING_MAX;
            if is_taken {
                waiting.commands.push_back(command(answer));
                self.changed.notify_one();
            }
            is_taken
        };
        if !is_taken {
            return Err(StorageError::Unavailable("the store is closed or overwhelmed".into()));
        }
        answered
            .await
            .unwrap_or_else(|_| Err(StorageError::Unknown("the store ended before it answered".into())))
    }

    /// Everything that waits; waits for something when asked to.
    pub(super) fn take(&self, wait: bool) -> VecDeque<Command> {
        let mut waiting = self.lock();
        while wait && waiting.commands.is_empty() {
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut waiting.commands)
    }

    /// Refuses everything from now on. What still waits goes unanswered.
    pub(super) fn close(&self) {
        let mut waiting = self.lock();
        waiting.is_closed = true;
        waiting.commands.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
