//! Where this node stands in its cluster, as requests see it: who executes, and whether this node may.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use orrery_node::Node;
use tokio::sync::watch;

/// Who executes what only the owner may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Here,
    /// The node of that name.
    There(String),
    /// Nobody just now.
    Nowhere,
}

/// Shared by whoever decides and everybody who asks.
#[derive(Debug)]
pub struct Station {
    pub node: Arc<Node>,
    started: Instant,
    place: watch::Sender<Place>,
    /// Until when this node may act as the owner, in milliseconds since the start.
    tenure_ms: AtomicU64,
    /// When the lease was last read, in milliseconds since the start.
    heard_ms: AtomicU64,
    /// How long after that what this node knows still counts.
    hearing: Duration,
    leaving: AtomicBool,
}

impl Station {
    pub fn new(node: Arc<Node>, hearing: Duration) -> Station {
        Station {
            node,
            started: Instant::now(),
            place: watch::Sender::new(Place::Nowhere),
            tenure_ms: AtomicU64::new(0),
            heard_ms: AtomicU64::new(0),
            hearing,
            leaving: AtomicBool::new(false),
        }
    }

    /// Time since the start, by which leases are counted.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn watch(&self) -> watch::Receiver<Place> {
        self.place.subscribe()
    }

    pub fn set_place(&self, place: Place) {
        self.place.send_if_modified(|current| {
            let changed = *current != place;
            if changed {
                tracing::info!(?place, "who owns has changed");
                *current = place;
            }
            changed
        });
    }

    /// Does this node execute, and may it at this moment?
    pub fn is_here(&self) -> bool {
        *self.place.borrow() == Place::Here && self.holds()
    }

    /// This node may act as the owner until then.
    pub fn set_tenure(&self, until: Option<Duration>) {
        let until = until.map_or(0, |until| until.as_millis() as u64);
        self.tenure_ms.store(until, Ordering::Release);
    }

    /// May this node act as the owner at this moment?
    pub fn holds(&self) -> bool {
        (self.now().as_millis() as u64) < self.tenure_ms.load(Ordering::Acquire)
    }

    pub fn set_heard(&self) {
        self.heard_ms.store(self.now().as_millis() as u64, Ordering::Release);
    }

    /// Is this node in touch with the servers, so that its view cannot be older than it seems?
    pub fn is_in_touch(&self) -> bool {
        let heard = Duration::from_millis(self.heard_ms.load(Ordering::Acquire));
        self.now() < heard + self.hearing
    }

    pub fn set_leaving(&self) {
        self.leaving.store(true, Ordering::Release);
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }
}
