//! Numbers a host or an estimator can be asked to report: a hook with one method per measurement, all of which may be left
//! out.
//!
//! Which exporter they go to is the listener's business; [`name`] has what a dashboard would call them. Invariant: what is not
//! known is reported as absent, never as zero; nothing a listener does, a panic included, reaches the processor.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::balance::Why;
use crate::events::Loss;

/// Names of the measurements.
pub mod name {
    /// Transactions behind.
    pub const LAG_TRANSACTIONS: &str = "cfp.lag.transactions";
    /// How long the oldest change that is not handled has been waiting, in seconds.
    pub const LAG_SECONDS: &str = "cfp.lag.seconds";
    /// One where the lag is known, otherwise zero.
    pub const LAG_KNOWN: &str = "cfp.lag.known";
    /// From the first call of the delegate to the end of the batch.
    pub const BATCH_DURATION: &str = "cfp.batch.duration";
    /// Changes handled.
    pub const ITEMS: &str = "cfp.items";
    /// Rounds of calls that a batch took.
    pub const ATTEMPTS: &str = "cfp.attempts";
    pub const DEAD_LETTERS: &str = "cfp.dead_letters";
    pub const LEASES_OWNED: &str = "cfp.leases.owned";
    /// Leases taken and let go, by what happened.
    pub const LEASE_CHANGES: &str = "cfp.lease.changes";
    /// Since the position was last saved, in seconds.
    pub const CHECKPOINT_AGE: &str = "cfp.checkpoint.age";
    /// Request units of feed reads.
    pub const FEED_RU: &str = "cfp.feed.ru";
    /// Request units of the lease store.
    pub const LEASE_RU: &str = "cfp.lease.ru";

    /// Names of the labels.
    pub mod label {
        pub const UNIT: &str = "unit";
        pub const INSTANCE: &str = "instance";
        pub const LEASE: &str = "lease";
        /// Of [`super::LEASE_CHANGES`].
        pub const WHY: &str = "why";
    }
}

/// What a measurement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Labels<'a> {
    /// The processor's name.
    pub unit: &'a str,
    /// The host that measures; from an estimator, the lease's owner, and empty where it has none.
    pub instance: &'a str,
    /// The lease's token, where it is about one lease.
    pub lease: Option<&'a str>,
}

/// How a host's leases change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    Acquired(Why),
    Released(Loss),
}

/// Receives measurements. Called from the host's tasks: it must not block.
pub trait Metrics: Send + Sync + 'static {
    /// A batch came to an end: [`name::BATCH_DURATION`], [`name::ITEMS`], [`name::ATTEMPTS`].
    fn batch(&self, _of: Labels<'_>, _items: usize, _duration: Duration, _attempts: u32) {}
    /// Transactions behind, where known: [`name::LAG_TRANSACTIONS`]. Absent is not zero.
    fn lag(&self, _of: Labels<'_>, _transactions: Option<u64>) {}
    /// How long the oldest change that is not handled has been waiting, where known, after each balancing:
    /// [`name::LAG_SECONDS`], and [`name::LAG_KNOWN`] for whether there is a value.
    fn waiting(&self, _of: Labels<'_>, _waiting: Option<Duration>) {}
    /// After each balancing: [`name::CHECKPOINT_AGE`].
    fn checkpoint_age(&self, _of: Labels<'_>, _age: Duration) {}
    /// [`name::LEASE_CHANGES`].
    fn lease_change(&self, _of: Labels<'_>, _change: LeaseChange) {}
    /// [`name::DEAD_LETTERS`].
    fn dead_letter(&self, _of: Labels<'_>) {}
    /// After each balancing: [`name::LEASES_OWNED`]. About the whole host.
    fn leases_owned(&self, _of: Labels<'_>, _count: usize) {}
    /// [`name::FEED_RU`].
    fn feed_charge(&self, _of: Labels<'_>, _request_units: f64) {}
    /// [`name::LEASE_RU`]. About the whole host.
    fn lease_charge(&self, _of: Labels<'_>, _request_units: f64) {}
}

/// Reports to a listener whose panics stay with it.
pub(crate) struct Guarded(pub Arc<dyn Metrics>);

impl Guarded {
    fn tell(&self, tell: impl FnOnce(&dyn Metrics)) {
        if catch_unwind(AssertUnwindSafe(|| tell(self.0.as_ref()))).is_err() {
            tracing::error!("the listener to measurements panicked");
        }
    }
}

impl Metrics for Guarded {
    fn batch(&self, of: Labels<'_>, items: usize, duration: Duration, attempts: u32) {
        self.tell(|metrics| metrics.batch(of, items, duration, attempts));
    }
    fn lag(&self, of: Labels<'_>, transactions: Option<u64>) {
        self.tell(|metrics| metrics.lag(of, transactions));
    }
    fn waiting(&self, of: Labels<'_>, waiting: Option<Duration>) {
        self.tell(|metrics| metrics.waiting(of, waiting));
    }
    fn checkpoint_age(&self, of: Labels<'_>, age: Duration) {
        self.tell(|metrics| metrics.checkpoint_age(of, age));
    }
    fn lease_change(&self, of: Labels<'_>, change: LeaseChange) {
        self.tell(|metrics| metrics.lease_change(of, change));
    }
    fn dead_letter(&self, of: Labels<'_>) {
        self.tell(|metrics| metrics.dead_letter(of));
    }
    fn leases_owned(&self, of: Labels<'_>, count: usize) {
        self.tell(|metrics| metrics.leases_owned(of, count));
    }
    fn feed_charge(&self, of: Labels<'_>, request_units: f64) {
        self.tell(|metrics| metrics.feed_charge(of, request_units));
    }
    fn lease_charge(&self, of: Labels<'_>, request_units: f64) {
        self.tell(|metrics| metrics.lease_charge(of, request_units));
    }
}

/// Reports to nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMetrics;

impl Metrics for NoMetrics {}
