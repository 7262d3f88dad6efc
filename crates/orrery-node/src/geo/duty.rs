//! What a region owes the others before it acknowledges a write, and whether it may take writes at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orrery_model::{Error, LogId, Result, Status};

use super::progress::{Bounds, LogProgress, Progress};

/// Shared by a node and all its writers.
#[derive(Debug)]
pub struct Duty {
    writes: AtomicBool,
    pub promise: Promise,
    pub progress: Progress,
}

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
            promise,
            progress: Progress::default(),
        }
    }

    pub fn writes(&self) -> bool {
        self.writes.load(Ordering::Acquire)
    }

    pub fn set_writes(&self, writes: bool) {
        self.writes.store(writes, Ordering::Release);
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
    /// May a write be decided now?
    pub fn admit(&self) -> Result<()> {
        self.duty.check_writes()?;
        match self.duty.promise {
            Promise::Within(bounds) if self.progress.exceeds(bounds) => Err(Error::new(
                Status::REPLICATION_QUEUE_FULL,
                "Another region lags behind by as much as the account's bounded staleness allows.",
            )
            .with_retry_after_ms(100)),
            _ => Ok(()),
        }
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
