//! How fan-out runs in a region, as plain values.

use std::time::Duration;

use orrery_processor::retry::RetryPolicy;
use orrery_processor::{InstanceName, LeaseTiming, Poll};
use tokio::sync::watch;
use tokio::time::Instant;

use super::serve::Limits;
use crate::supervise::LONG_POLL;

/// How a region's roles run.
#[derive(Clone, Debug)]
pub struct FanoutSettings {
    /// Name of this host of its region's roles. One that is the same after a restart goes on at once.
    pub instance: InstanceName,
    /// How often every account is asked where it takes its writes: its role runs there.
    pub place_every: Duration,
    /// Changes whenever an account may have begun to take its writes elsewhere, if somebody can tell: everybody is asked at once
    /// then.
    pub moves: Option<watch::Receiver<()>>,
    pub poll: Poll,
    pub lease_timing: LeaseTiming,
    /// How often a role looks at leases that it holds alone; nothing: as often as at others.
    pub look_when_alone: Option<Duration>,
    /// Since when the roles of a process renew their leases in step.
    pub in_step_since: Option<Instant>,
    pub retry: RetryPolicy,
    /// Subscribers read at a time, per key.
    pub page: usize,
    /// Notifications of an account written at the same time.
    pub in_flight: usize,
    /// Articles of one page of a feed that are served at the same time.
    pub articles: usize,
    /// Subscribers served between two saves of an article's progress.
    pub save_every: usize,
    /// A filter with more subscribers than this is spread over buckets for those who come later.
    pub spread_above: u64,
    pub buckets: u32,
}

impl FanoutSettings {
    pub fn new(instance: InstanceName) -> FanoutSettings {
        FanoutSettings {
            instance,
            place_every: Duration::from_secs(3),
            moves: None,
            poll: Poll::adaptive(Duration::from_millis(200), Duration::from_secs(2)).with_long_poll(LONG_POLL),
            lease_timing: LeaseTiming::default(),
            look_when_alone: None,
            in_step_since: None,
            // About a minute: longer than most silences, and an account that is silent cannot take dead letters anyway.
            retry: RetryPolicy {
                most: Duration::from_secs(10),
                attempts: 12,
                ..RetryPolicy::default()
            },
            page: 500,
            in_flight: 256,
            articles: 8,
            save_every: 1000,
            spread_above: 50_000,
            buckets: 16,
        }
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            page: self.page.clamp(1, 1000),
            in_flight: self.in_flight.max(1),
            articles: self.articles.max(1),
            save_every: self.save_every.max(1),
            spread_above: self.spread_above,
            buckets: self.buckets.max(1),
        }
    }

    /// The name under which this host takes leases. Hosts of several regions meet at one account while its role moves.
    pub(super) fn host_name(&self, region: &str) -> InstanceName {
        let named = InstanceName::new(format!("{} in {region}", self.instance));
        named.unwrap_or_else(|_| self.instance.clone())
    }
}

/// Waits until somebody says that an account may have moved; for ever where nobody does.
pub(super) async fn told_of_move(moves: &mut Option<watch::Receiver<()>>) {
    if let Some(told) = moves
        && told.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}
