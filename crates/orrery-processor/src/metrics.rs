//! Numbers a host can be asked to report: a hook with one method per measurement, all of which may be left out.
//!
//! Names and units are those a dashboard would use; the labels are the unit's name, the instance and, where it says so,
//! the lease's token.

use std::time::Duration;

use crate::balance::Why;
use crate::events::Loss;

/// How a host's leases change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    Acquired(Why),
    Released(Loss),
}

/// Receives measurements. Called from the host's tasks: it must not block.
pub trait Metrics: Send + Sync + 'static {
    /// A batch came to an end: `cfp.batch.duration`, `cfp.items`, `cfp.attempts`.
    fn batch(&self, _lease: &str, _items: usize, _duration: Duration, _attempts: u32) {}
    /// Transactions behind, where known: `cfp.lag.transactions`. Absent is not zero.
    fn lag(&self, _lease: &str, _transactions: Option<u64>) {}
    /// How long the oldest change that is not handled has been waiting, where known, after each balancing:
    /// `cfp.lag.seconds`, and `cfp.lag.known` for whether there is a value.
    fn waiting(&self, _lease: &str, _waiting: Option<Duration>) {}
    /// Since the position was last saved, after each balancing: `cfp.checkpoint.age`.
    fn checkpoint_age(&self, _lease: &str, _age: Duration) {}
    /// `cfp.lease.changes`, by what happened.
    fn lease_change(&self, _lease: &str, _change: LeaseChange) {}
    /// `cfp.dead_letters`.
    fn dead_letter(&self, _lease: &str) {}
    /// `cfp.leases.owned`, after each balancing.
    fn leases_owned(&self, _count: usize) {}
    /// `cfp.feed.ru`.
    fn feed_charge(&self, _lease: &str, _request_units: f64) {}
    /// `cfp.lease.ru`.
    fn lease_charge(&self, _request_units: f64) {}
}

/// Reports to nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMetrics;

impl Metrics for NoMetrics {}
