//! How a processor behaves, as plain values that were checked when it was built.

use std::time::Duration;

use tokio::time::Instant;

use crate::balance::BalanceSettings;
use crate::error::BuildError;
use crate::lease::FeedMode;
use crate::pull::Cursor;
use crate::retry::RetryPolicy;
use crate::start::StartFrom;

/// Most items a batch may be asked to hold.
pub(super) const BATCH_ITEMS_MAX: u32 = 10_000;
/// Most calls of the delegate that a lease may have at the same time.
pub(super) const CALLS_MAX: usize = 1000;

/// When leases are looked at, renewed, and given up for dead. All hosts of a unit should have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    pub acquire: Duration,
    pub renew: Duration,
    pub expiry: Duration,
    /// How long one host may take to initialise a unit before another does it.
    pub lock: Duration,
}

impl Default for LeaseTiming {
    /// Those of the .NET processor.
    fn default() -> LeaseTiming {
        LeaseTiming {
            acquire: Duration::from_secs(13),
            renew: Duration::from_secs(17),
            expiry: Duration::from_secs(60),
            lock: Duration::from_secs(30),
        }
    }
}

/// How long to wait when there was nothing new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// After the first empty read; doubled after each.
    pub first: Duration,
    pub most: Duration,
    /// Let the server hold empty answers back this long, if it can.
    pub wait: Option<Duration>,
}

impl Poll {
    pub fn every(interval: Duration) -> Poll {
        Poll {
            first: interval,
            most: interval,
            wait: None,
        }
    }

    /// Quick after a change, slower and slower while nothing happens.
    pub fn adaptive(first: Duration, most: Duration) -> Poll {
        Poll {
            first,
            most,
            wait: None,
        }
    }

    /// Lets the server hold empty answers back for `wait`, so that a change arrives within milliseconds. Servers that
    /// cannot do that answer at once, and the pauses apply.
    #[must_use]
    pub fn with_long_poll(self, wait: Duration) -> Poll {
        Poll {
            wait: Some(wait),
            ..self
        }
    }

    /// The pause after `n_empty` empty reads in a row.
    pub fn pause(&self, n_empty: u32) -> Duration {
        let doubled = self
            .first
            .saturating_mul(2u32.saturating_pow(n_empty.saturating_sub(1).min(16)));
        doubled.min(self.most.max(self.first))
    }
}

impl Default for Poll {
    fn default() -> Poll {
        Poll::every(Duration::from_secs(5))
    }
}

/// When the position is saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checkpoint {
    /// After every batch the delegate has handled.
    #[default]
    EveryBatch,
    /// After so many batches or so long, whichever comes first: fewer writes, more repeated after a crash.
    Coalesced { batches: u32, interval: Duration },
    /// Only when the delegate asks for it.
    Manual,
}

/// How many calls of the delegate a lease may have at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Concurrency {
    /// One: changes come in the order of the feed.
    #[default]
    Sequential,
    /// Up to so many, each with the changes of keys of its own: the changes of a key still come in order.
    ByPartitionKey(usize),
}

/// What follows when the delegate has failed as often as the policy allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GiveUp {
    /// Dead letters if there is a place for them, otherwise try for ever.
    #[default]
    DeadLetter,
    /// Keep the lease where it is, visibly, and read it no more, until it is reset or another process takes it.
    Halt,
    /// Leave the bad items out. They are reported as events and lost.
    Skip,
    /// Let go of the lease; another host may have more luck.
    Release,
}

/// What happens to later changes of a key whose change was dead-lettered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyOrder {
    /// They follow it to the dead letters, until those are replayed.
    #[default]
    Park,
    /// They are delivered.
    Ignore,
}

/// What follows when the position of an all-versions unit is older than what the container keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowPolicy {
    /// The lease stops, and says so, until somebody resets it.
    #[default]
    Halt,
    /// Go on with the oldest change that is kept; what lies between is lost, and reported. A server that cannot do that, as
    /// Azure, halts the lease.
    ResumeFromOldest,
    /// Go on with what changes from now on; what lies between is lost, and reported.
    ResumeFromNow,
}

/// Everything a processor was told.
#[derive(Clone, Debug)]
pub struct Settings {
    pub mode: FeedMode,
    pub start: StartFrom,
    /// Where a new unit starts, range by range; `start` is for what it does not cover.
    pub start_at: Option<Cursor>,
    pub items_max: Option<u32>,
    pub poll: Poll,
    pub checkpoint: Checkpoint,
    pub concurrency: Concurrency,
    pub timing: LeaseTiming,
    /// How often a host looks at the leases while it holds all of its unit.
    pub look_when_alone: Option<Duration>,
    /// Since when renewals are in step with those of other units.
    pub in_step_since: Option<Instant>,
    pub balance: BalanceSettings,
    pub retry: RetryPolicy,
    pub give_up: GiveUp,
    pub key_order: KeyOrder,
    pub window: WindowPolicy,
    /// Leases per partition when the unit is first made.
    pub leases_per_partition: usize,
    /// A delegate that runs longer is reported.
    pub stuck_after: Duration,
    /// A feed read that takes longer is given up.
    pub read_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            mode: FeedMode::default(),
            start: StartFrom::default(),
            start_at: None,
            items_max: None,
            poll: Poll::default(),
            checkpoint: Checkpoint::default(),
            concurrency: Concurrency::default(),
            timing: LeaseTiming::default(),
            look_when_alone: None,
            in_step_since: None,
            balance: BalanceSettings::default(),
            retry: RetryPolicy::default(),
            give_up: GiveUp::default(),
            key_order: KeyOrder::default(),
            window: WindowPolicy::default(),
            leases_per_partition: 1,
            stuck_after: Duration::from_secs(300),
            read_timeout: Duration::from_secs(65),
        }
    }
}

impl Settings {
    /// Checks what can be wrong, and lets the balancer know the timing.
    pub(super) fn checked(mut self) -> Result<Settings, BuildError> {
        let LeaseTiming {
            acquire, renew, expiry, ..
        } = self.timing;
        if renew >= expiry || renew.is_zero() || acquire.is_zero() {
            return Err(BuildError::LeaseTiming { renew, expiry });
        }
        if self.mode == FeedMode::AllVersionsAndDeletes {
            match self.start {
                StartFrom::Now => {}
                StartFrom::Beginning => return Err(BuildError::StartOfAllVersions("the beginning")),
                StartFrom::Time(_) => return Err(BuildError::StartOfAllVersions("a point in time")),
            }
        }
        let (min, max) = (self.balance.leases_min, self.balance.leases_max.unwrap_or(usize::MAX));
        if min > max || max == 0 {
            return Err(BuildError::LeaseLimits { min, max });
        }
        if let Concurrency::ByPartitionKey(calls) = self.concurrency {
            if calls == 0 || calls > CALLS_MAX {
                return Err(BuildError::Concurrency(CALLS_MAX));
            }
            if self.checkpoint == Checkpoint::Manual {
                return Err(BuildError::ManualConcurrency);
            }
        }
        if self
            .items_max
            .is_some_and(|items| items == 0 || items > BATCH_ITEMS_MAX)
        {
            return Err(BuildError::BatchItems(BATCH_ITEMS_MAX));
        }
        self.balance.acquire_interval = acquire;
        self.balance.expiry = expiry;
        self.leases_per_partition = self.leases_per_partition.max(1);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adaptive_poll_doubles_up_to_its_limit() {
        let poll = Poll::adaptive(Duration::from_millis(200), Duration::from_secs(5));
        let pauses: Vec<_> = [1, 2, 3, 5, 6, 60].map(|n| poll.pause(n).as_millis()).into();
        assert_eq!(pauses, [200, 400, 800, 3200, 5000, 5000]);
        assert_eq!(Poll::default().pause(9), Duration::from_secs(5));
    }
}
