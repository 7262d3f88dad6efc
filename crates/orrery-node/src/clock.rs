//! Time, as an argument: the real clock at the edge, a set one in tests and simulations.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use orrery_model::Timestamp;

/// Tells the time of day.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    fn now(&self) -> Timestamp;
}

/// The machine's clock, with an offset that development tools may set.
#[derive(Debug, Default)]
pub struct SystemClock {
    offset_ms: AtomicI64,
}

impl SystemClock {
    /// Runs this many milliseconds ahead of (or behind) the machine from now on.
    pub fn set_offset_ms(&self, offset_ms: i64) {
        self.offset_ms.store(offset_ms, Ordering::Relaxed);
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        let offset_ms = self.offset_ms.load(Ordering::Relaxed);
        Timestamp((since.as_millis() as u64).saturating_add_signed(offset_ms))
    }
}

/// A clock that goes wrong by as much as it is told: one region's, while the others' are right.
#[derive(Debug)]
pub struct SkewedClock {
    right: Arc<dyn Clock>,
    skew_ms: AtomicI64,
}

impl SkewedClock {
    pub fn new(right: Arc<dyn Clock>) -> SkewedClock {
        SkewedClock {
            right,
            skew_ms: AtomicI64::new(0),
        }
    }

    /// How far it is ahead, or behind when negative.
    pub fn skew_ms(&self) -> i64 {
        self.skew_ms.load(Ordering::Relaxed)
    }

    pub fn set_skew_ms(&self, skew_ms: i64) {
        self.skew_ms.store(skew_ms, Ordering::Relaxed);
    }
}

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.right.now().0.saturating_add_signed(self.skew_ms()))
    }
}

/// A clock that stands still until told to move.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ms: AtomicU64,
}

impl ManualClock {
    pub fn at(now: Timestamp) -> ManualClock {
        ManualClock {
            now_ms: AtomicU64::new(now.0),
        }
    }

    pub fn advance_ms(&self, milliseconds: u64) {
        self.now_ms.fetch_add(milliseconds, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now_ms.load(Ordering::SeqCst))
    }
}
