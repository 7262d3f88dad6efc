//! What a region owes the others before it acknowledges a write, and whether it may take writes at all.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use orrery_model::{Epoch, Error, LogId, Lsn, Result, Status};
use tokio::sync::{Notify, watch};

use super::progress::{Bounds, LogProgress, Progress};

/// Shared by a node and all its writers.
#[derive(Debug)]
pub struct Duty {
    writes: AtomicBool,
    /// May this region be behind what was acknowledged as strong? Then it answers no strong read.
    left_out: AtomicBool,
    /// Counts how often this region began or ceased to write.
    term: watch::Sender<Term>,
    pub promise: Promise,
    pub progress: Progress,
    epochs: OnceLock<Arc<dyn Epochs>>,
    /// Do other nodes open the same store? Then it follows them by itself, and whoever owns a log must prove it.
    pub clustered: bool,
    /// Told when a log turned out to be another's.
    fenced: Notify,
}

/// Gives out numbers of epochs, durably and to all regions of an account together.
pub trait Epochs: fmt::Debug + Send + Sync {
    /// One that was never used, and that every later change of the write region goes beyond.
    fn next(&self) -> Result<Epoch>;
}

/// A time in which a region writes without a break. What was begun in one must not be confirmed in another: in between, another
/// region may have written and may lack it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Term(u64);

/// What an acknowledged write means across regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Durable here; the other regions follow.
    Local,
    /// Durable here, and no region that serves lacks more than this.
    Within(Bounds),
    /// Durable and visible in every region that serves.
    Everywhere,
}

impl Duty {
    pub fn new(writes: bool, promise: Promise) -> Duty {
        Duty {
            writes: AtomicBool::new(writes),
            left_out: AtomicBool::new(false),
            term: watch::Sender::default(),
            promise,
            progress: Progress::default(),
            epochs: OnceLock::new(),
            clustered: false,
            fenced: Notify::new(),
        }
    }

    /// The duty of one node of a cluster.
    pub fn clustered(writes: bool) -> Duty {
        Duty {
            clustered: true,
            ..Duty::new(writes, Promise::Local)
        }
    }

    pub fn tell_fenced(&self) {
        self.fenced.notify_one();
    }

    /// Completes when a log turned out to be another's.
    pub async fn fenced(&self) {
        self.fenced.notified().await;
    }

    /// Says who gives out epochs. Only the first one counts.
    pub fn set_epochs(&self, epochs: Arc<dyn Epochs>) {
        let _ = self.epochs.set(epochs);
    }

    /// A new epoch for something that starts over, if the account has other regions to agree with.
    pub fn next_epoch(&self) -> Result<Option<Epoch>> {
        self.epochs.get().map(|epochs| epochs.next()).transpose()
    }

    pub fn writes(&self) -> bool {
        self.writes.load(Ordering::Acquire)
    }

    pub fn set_writes(&self, writes: bool) {
        self.writes.store(writes, Ordering::Release);
        self.term.send_modify(|term| term.0 += 1);
    }

    pub fn is_left_out(&self) -> bool {
        self.left_out.load(Ordering::Acquire)
    }

    pub fn set_left_out(&self, left_out: bool) {
        self.left_out.store(left_out, Ordering::Release);
    }

    /// Refuses a write where another region takes them.
    pub fn check_writes(&self) -> Result<()> {
        if self.writes() { Ok(()) } else { Err(write_forbidden()) }
    }

    pub fn of(self: &Arc<Duty>, log: LogId) -> LogDuty {
        LogDuty {
            progress: self.progress.of(log),
            duty: Arc::clone(self),
        }
    }
}

/// The same for one log.
#[derive(Clone, Debug)]
pub struct LogDuty {
    duty: Arc<Duty>,
    pub progress: Arc<LogProgress>,
}

impl LogDuty {
    /// How many transactions may be decided now; at least one.
    pub fn room(&self) -> Result<usize> {
        self.duty.check_writes()?;
        let Promise::Within(bounds) = self.duty.promise else {
            return Ok(usize::MAX);
        };
        match self.progress.room(bounds) {
            0 => Err(Error::new(
                Status::REPLICATION_QUEUE_FULL,
                "Another region lags behind by as much as the account's bounded staleness allows.",
            )
            .with_retry_after_ms(100)),
            room => Ok(usize::try_from(room).unwrap_or(usize::MAX)),
        }
    }

    /// The term that runs now.
    pub fn term(&self) -> Term {
        *self.duty.term.borrow()
    }

    /// Waits until every region that counts has `lsn`, which was appended or read in `term`. `false` when the term ended
    /// first: whether the others have it is not known then, and may never be.
    pub async fn committed_in(&self, term: Term, lsn: Lsn) -> bool {
        let mut terms = self.duty.term.subscribe();
        let committed = tokio::select! {
            biased;
            // The sender lives in `self`, so waiting cannot fail. Both are safe to drop.
            _ = terms.wait_for(|now| *now != term) => false,
            () = self.progress.wait_committed(lsn) => true,
        };
        committed && self.term() == term
    }

    /// The same for what was read just now.
    pub async fn committed_now(&self, lsn: Lsn) -> bool {
        let term = self.term();
        self.duty.writes() && self.committed_in(term, lsn).await
    }

    /// The log is another's.
    pub fn tell_fenced(&self) {
        self.duty.tell_fenced();
    }

    /// Must an acknowledgement wait for other regions?
    pub fn is_strong(&self) -> bool {
        self.duty.promise == Promise::Everywhere
    }
}

pub fn write_forbidden() -> Error {
    Error::new(
        Status::WRITE_FORBIDDEN,
        "The requested operation cannot be performed at this region: another region of the account takes writes.",
    )
}
