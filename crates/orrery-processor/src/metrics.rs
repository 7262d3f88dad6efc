//! Numbers a host can be asked to report: a hook with one method per measurement, all of which may be left out.
//!
//! Names and units are those a dashboard would use; the labels are the unit's name, the instance and, where it says so,
//! the lease's token.

use std::time::Duration;

/// Receives measurements. Called from the host's tasks: it must not block.
pub trait Metrics: Send + Sync + 'static {
    /// A batch came to an end: `cfp.batch.duration`, `cfp.items`, `cfp.attempts`.
    fn batch(&self, _lease: &str, _items: usize, _duration: Duration, _attempts: u32) {}
    /// Transactions behind, where known: `cfp.lag.transactions`. Absent is not zero.
    fn lag(&self, _lease: &str, _transactions: Option<u64>) {}
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
