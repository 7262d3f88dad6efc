//! What a host knows about itself right now, for whoever asks.
//!
//! Nothing here needs a request: it is what the workers noticed on their way. Invariant: a lease that this host no longer
//! reads is not in it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One lease that this host reads. Times are on the host's clock, as ages when asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeaseHealth {
    /// Since the last successful read.
    pub last_poll: Option<Duration>,
    /// Since the position was last saved.
    pub last_checkpoint: Option<Duration>,
    /// How long the delegate has been running, if it is.
    pub delegate_running: Option<Duration>,
    /// Failed attempts at the current batch.
    pub attempts: u32,
    /// Transactions behind, if known.
    pub lag: Option<u64>,
    /// How long the oldest change that is not handled may have been waiting: since its commit, but not longer than since
    /// the last read that found nothing. Absent when not known.
    pub waiting: Option<Duration>,
    /// The last read found nothing new.
    pub caught_up: bool,
    /// The lease is halted, or the delegate has been running, or nothing has been read, for longer than the processor's
    /// threshold.
    pub is_stuck: bool,
    pub epoch: u64,
    /// What the delegate last said about the batch it fails at.
    pub last_error: Option<String>,
    /// Why the lease is held and not read, if it is.
    pub halted: Option<String>,
    /// Region that answered last.
    pub region: Option<String>,
    /// When the oldest change of the page at hand was committed, by the server's clock.
    pub(crate) oldest_committed_s: Option<u64>,
    /// When a read last found nothing.
    pub(crate) last_empty: Option<Duration>,
    /// When the lease was taken.
    pub(crate) since: Duration,
}

/// The leases of a host by token.
#[derive(Clone, Debug, Default)]
pub struct Health {
    leases: Arc<Mutex<BTreeMap<String, LeaseHealth>>>,
}

/// The moment somebody asks, and how long is too long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// On the host's monotonic clock.
    pub now: Duration,
    /// On the wall clock, for what the server stamped.
    pub since_1970: Duration,
    pub stuck_after: Duration,
    /// A paused lease is not read, on purpose.
    pub paused: bool,
}

impl Health {
    /// Notes something about a lease. The times in it are moments here.
    pub(crate) fn note(&self, lease: &str, change: impl FnOnce(&mut LeaseHealth)) {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        change(leases.entry(lease.to_owned()).or_default());
    }

    pub(crate) fn forget(&self, lease: &str) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).remove(lease);
    }

    /// A copy, with moments turned into ages and judged.
    pub(crate) fn snapshot(&self, asked: Asked) -> BTreeMap<String, LeaseHealth> {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner).clone();
        leases.values_mut().for_each(|lease| lease.judge(asked));
        leases
    }
}

impl LeaseHealth {
    fn judge(&mut self, asked: Asked) {
        let age = |moment: Option<Duration>| moment.map(|moment| asked.now.saturating_sub(moment));
        self.waiting = shortest(
            age(self.last_empty),
            self.oldest_committed_s
                .map(|committed| asked.since_1970.saturating_sub(Duration::from_secs(committed))),
        );
        self.last_poll = age(self.last_poll);
        self.last_checkpoint = age(self.last_checkpoint);
        self.delegate_running = age(self.delegate_running);
        let unread = self.last_poll.or_else(|| age(Some(self.since)));
        let too_long = |time: Option<Duration>| time.is_some_and(|time| time > asked.stuck_after);
        self.is_stuck = self.halted.is_some() || too_long(self.delegate_running) || (!asked.paused && too_long(unread));
    }
}

fn shortest(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    fn judged(lease: LeaseHealth, paused: bool) -> LeaseHealth {
        let health = Health::default();
        health.note("-FF", |noted| *noted = lease);
        let asked = Asked {
            now: Duration::from_secs(1000),
            since_1970: Duration::from_secs(50_000),
            stuck_after: Duration::from_secs(300),
            paused,
        };
        health.snapshot(asked).remove("-FF").unwrap()
    }

    #[test]
    fn a_wait_is_counted_from_the_commit_but_not_beyond_the_last_empty_read() {
        let waiting = |last_empty, oldest_committed_s| {
            let lease = LeaseHealth {
                last_empty,
                oldest_committed_s,
                ..LeaseHealth::default()
            };
            judged(lease, false).waiting
        };
        assert_eq!(waiting(None, None), None, "unknown is not zero");
        assert_eq!(waiting(secs(995), None), secs(5));
        assert_eq!(waiting(secs(400), Some(49_990)), secs(10));
        assert_eq!(
            waiting(secs(995), Some(40_000)),
            secs(5),
            "a clock that is off cannot exaggerate"
        );
    }

    #[test]
    fn a_lease_is_stuck_when_nothing_is_read_or_the_delegate_does_not_return() {
        let lease = LeaseHealth {
            last_poll: secs(650),
            ..LeaseHealth::default()
        };
        assert!(judged(lease.clone(), false).is_stuck);
        assert!(
            !judged(lease.clone(), true).is_stuck,
            "a paused lease is not read on purpose"
        );
        let fresh = LeaseHealth {
            last_poll: secs(999),
            ..lease
        };
        assert!(!judged(fresh.clone(), false).is_stuck);
        let hanging = LeaseHealth {
            delegate_running: secs(600),
            ..fresh
        };
        assert!(judged(hanging, true).is_stuck);
        let never_read = LeaseHealth {
            since: Duration::from_secs(100),
            ..LeaseHealth::default()
        };
        assert!(judged(never_read, false).is_stuck);
    }
}
