//! What a host tells about itself: a callback, and a stream for whoever wants to await something.
//!
//! Invariant: nothing a listener does, a panic included, reaches the processor.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use crate::balance::Why;
use crate::range::EpkRange;
use crate::start::StartFrom;

/// How many events a slow listener may fall behind before it misses some.
const BACKLOG: usize = 1024;

/// Why a host no longer has a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The host stopped.
    Stopped,
    /// Given to a host that asked.
    HandedTo(String),
    /// Another host owns it now, or nobody.
    Taken { by: Option<String> },
    /// It was not renewed in time; the host stopped on its own before others could begin.
    Fenced,
    /// The lease document is gone.
    Deleted,
    /// Its range was cut into other leases.
    Resharded,
    /// The delegate failed and the policy is to let another host try.
    DelegateFailed,
    /// Reading cannot go on; see the error event.
    Failed,
}

/// A lease that was made for keys none covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filled {
    pub lease: String,
    /// Where it begins: at the beginning of what the server keeps; or now, where the server has no way back to the versions it
    /// keeps, so that what changed since the former lease was lost is not delivered.
    pub from: StartFrom,
}

/// What happened. Leases are named by their tokens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    LeaseAcquired {
        lease: String,
        why: Why,
        epoch: u64,
    },
    LeaseReleased {
        lease: String,
        why: Loss,
    },
    /// Every lease is accounted for; the host begins to work.
    Started {
        instance: String,
        leases: usize,
    },
    /// The unit has leases already: the configured start has no effect.
    StartIgnored,
    /// The unit is new here, but leases of the same processor over the same container exist under another endpoint name:
    /// everything may be processed twice.
    SiblingUnit {
        prefix: String,
    },
    BatchFailed {
        lease: String,
        attempt: u32,
        error: String,
    },
    DeadLettered {
        lease: String,
        item: Option<String>,
        parked: bool,
        error: String,
    },
    /// The delegate has been running for longer than the threshold.
    Stuck {
        lease: String,
        running_for: Duration,
    },
    /// The delegate asked for the same batch again, later.
    BatchPostponed {
        lease: String,
        after: Duration,
    },
    /// The lease is held and not read any more, until it is reset or another process takes it.
    Halted {
        lease: String,
        reason: String,
    },
    /// The delegate asked the host to stop.
    StopRequested,
    /// A lease was cut because the partitions below it changed.
    Resharded {
        lease: String,
        into: Vec<String>,
    },
    /// Leases did not cover the key space exactly once. Holes have been filled with the leases named here.
    TilingRepaired {
        holes: Vec<EpkRange>,
        overlaps: Vec<EpkRange>,
        filled: Vec<Filled>,
    },
    /// A document has the id of a lease and cannot be read as one: nobody reads its keys until it is mended or deleted.
    LeaseUnreadable {
        id: String,
        error: String,
    },
    /// All versions: changes between the position and the oldest one kept are lost.
    WindowExceeded {
        lease: String,
        position: Option<String>,
        error: String,
    },
    /// The lease goes on behind changes that are lost: it stood at `lost_from`, and goes on after `lost_to`.
    WindowSkipped {
        lease: String,
        lost_from: String,
        lost_to: String,
    },
    /// Another region answers than before.
    RegionChanged {
        lease: String,
        from: String,
        to: String,
    },
    /// The feed goes on in the history of a region that took over by force: changes up to `before` that had not reached that
    /// region are no longer part of it.
    HistoryChanged {
        lease: String,
        before: String,
        /// LSN of what comes next.
        after: u64,
    },
    /// Another process started later under this host's name; this one stops.
    DuplicateInstance {
        instance: String,
    },
    /// The monitored container is gone; the unit has stopped.
    SourceGone {
        error: String,
    },
    Paused,
    Resumed,
    /// Something failed and will be tried again.
    Error {
        lease: Option<String>,
        error: String,
    },
}

pub(crate) type Callback = dyn Fn(&Event) + Send + Sync;

/// Where events go.
#[derive(Clone)]
pub struct Events {
    callback: Option<Arc<Callback>>,
    stream: broadcast::Sender<Event>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    pub(crate) fn new(callback: Option<Arc<Callback>>) -> Events {
        Events {
            callback,
            stream: broadcast::Sender::new(BACKLOG),
        }
    }

    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.stream.subscribe()
    }

    pub(crate) fn emit(&self, event: Event) {
        tracing::debug!(?event, "processor event");
        if let Some(callback) = &self.callback
            && catch_unwind(AssertUnwindSafe(|| callback(&event))).is_err()
        {
            tracing::error!("the event callback panicked");
        }
        // Nobody listening is no failure.
        let _ = self.stream.send(event);
    }
}
