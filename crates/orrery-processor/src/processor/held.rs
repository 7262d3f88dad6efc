//! A lease this host holds: every write of it goes through here.
//!
//! Each write is a pure change of the document, conditioned on the one it was made from. When that has changed, the change
//! is made again on the fresh one, if it is still ours. Invariants: one writer per lease; a confirmed write of any kind
//! renews; nothing is written, and nothing counts as held, once the fence is shut.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::unit::Unit;
use crate::balance::Why;
use crate::error::StoreError;
use crate::events::{Event, Loss};
use crate::fence::Fence;
use crate::lease::{Condition, Conflict, HostMark, Lease, Takeover, judge};
use crate::metrics::LeaseChange;
use crate::range::EpkRange;
use crate::token::FeedToken;

/// How often a write is made again because the document changed.
const CONFLICTS_MAX: u32 = 5;

pub(crate) struct HeldLease {
    unit: Arc<Unit>,
    lease: Lease,
    fence: Fence,
    renew_at: Duration,
    /// What the next write says about the lease.
    condition: Option<Condition>,
}

/// Why a write did not happen.
#[derive(Debug)]
pub(crate) enum NotWritten {
    Lost(Loss),
    /// A later process has our name.
    Namesake,
}

impl HeldLease {
    /// Takes a lease as it was listed. Nothing if somebody else was quicker: the next listing will show what it became.
    pub async fn acquire(
        unit: &Arc<Unit>,
        listed: &Lease,
        how: Takeover,
        why: Why,
    ) -> Result<Option<HeldLease>, StoreError> {
        let next = listed.acquired(&unit.me, how, &unit.stamp());
        let Some(etag) = listed.etag.clone() else {
            return Ok(None);
        };
        let sent_at = unit.clock.now();
        let written = match unit.store.replace(&next.to_document(), &etag).await {
            Ok(written) => written,
            Err(StoreError::Changed | StoreError::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        unit.metrics.lease_charge(written.charge);
        let mut held = HeldLease {
            unit: Arc::clone(unit),
            fence: Fence::new(sent_at, unit.settings.timing.expiry),
            renew_at: Duration::ZERO,
            condition: None,
            lease: Lease {
                etag: Some(written.etag),
                ..next
            },
        };
        held.schedule();
        unit.metrics.lease_change(&held.lease.token, LeaseChange::Acquired(why));
        unit.events.emit(Event::LeaseAcquired {
            lease: held.lease.token.clone(),
            why,
            epoch: held.lease.epoch(),
        });
        Ok(Some(held))
    }

    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Fills in what an old lease does not say.
    pub fn set_range(&mut self, range: EpkRange) {
        self.lease.range = Some(range);
    }

    /// What others should know about the lease; the next write says it.
    pub fn set_condition(&mut self, condition: Option<Condition>) {
        self.condition = condition;
    }

    /// When the lease is to be renewed, on the host's clock.
    pub fn renew_at(&self) -> Duration {
        self.renew_at.min(self.fence.shuts_at())
    }

    fn schedule(&mut self) {
        self.renew_at = self.unit.clock.now() + self.unit.settings.timing.renew;
    }

    /// Renews; a position that was reached without a batch goes along.
    pub async fn renew(&mut self, reached: Option<&FeedToken>) -> Result<(), NotWritten> {
        match reached {
            Some(token) => self.checkpoint(token).await,
            None => self.write_with_condition(|lease, stamp| lease.renewed(stamp)).await,
        }
    }

    pub async fn checkpoint(&mut self, token: &FeedToken) -> Result<(), NotWritten> {
        self.write_with_condition(|lease, stamp| lease.checkpointed(token.clone(), stamp))
            .await
    }

    pub async fn suspect(&mut self, change: &str) -> Result<(), NotWritten> {
        self.write(|lease, stamp| lease.suspecting(change, stamp)).await
    }

    pub async fn retire(&mut self) -> Result<(), NotWritten> {
        self.write(|lease, stamp| lease.retired(stamp)).await
    }

    pub async fn unretire(&mut self) -> Result<(), NotWritten> {
        self.write(|lease, stamp| lease.unretired(stamp)).await
    }

    pub async fn release(&mut self) -> Result<(), NotWritten> {
        self.write(|lease, stamp| lease.released(stamp)).await
    }

    pub async fn hand_over(&mut self, to: &HostMark) -> Result<(), NotWritten> {
        self.write(|lease, stamp| lease.handed_to(to, stamp)).await
    }

    async fn write_with_condition(&mut self, change: impl Fn(&Lease, &str) -> Lease) -> Result<(), NotWritten> {
        let condition = self.condition.clone();
        self.write(|lease, stamp| change(lease, stamp).in_condition(condition.as_ref()))
            .await
    }

    async fn write(&mut self, change: impl Fn(&Lease, &str) -> Lease) -> Result<(), NotWritten> {
        let (mut n_conflicts, mut n_failed) = (0, 0);
        loop {
            let next = change(&self.lease, &self.unit.stamp());
            let sent_at = self.unit.clock.now();
            match self.send(&next).await {
                Ok(etag) => {
                    self.lease = Lease {
                        etag: Some(etag),
                        ..next
                    };
                    self.fence = Fence::new(sent_at, self.unit.settings.timing.expiry);
                    self.schedule();
                    return Ok(());
                }
                Err(StoreError::Changed) if n_conflicts < CONFLICTS_MAX => {
                    n_conflicts += 1;
                    self.refresh().await?;
                }
                Err(StoreError::Changed) => return Err(NotWritten::Lost(Loss::Taken { by: None })),
                Err(StoreError::NotFound) => return Err(NotWritten::Lost(Loss::Deleted)),
                Err(error) => {
                    n_failed += 1;
                    self.wait_out(error, n_failed).await?;
                }
            }
        }
    }

    async fn send(&self, next: &Lease) -> Result<String, StoreError> {
        let etag = self.lease.etag.as_deref().unwrap_or_default();
        let document = next.to_document();
        let written = self.unit.store.replace(&document, etag);
        let left = self.left();
        if left.is_zero() {
            return Err(StoreError::Unavailable("the lease was not renewed in time".into()));
        }
        let written = timeout(left, written)
            .await
            .map_err(|late| StoreError::Unavailable(late.into()))??;
        self.unit.metrics.lease_charge(written.charge);
        Ok(written.etag)
    }

    /// What is left before the fence shuts.
    fn left(&self) -> Duration {
        self.fence.shuts_at().saturating_sub(self.unit.clock.now())
    }

    /// Looks at what the document has become.
    async fn refresh(&mut self) -> Result<(), NotWritten> {
        let mut n_failed = 0;
        let fresh = loop {
            match self.unit.store.read(&self.lease.to_document()).await {
                Ok(Some(fresh)) => break fresh,
                Ok(None) => return Err(NotWritten::Lost(Loss::Deleted)),
                Err(error) => {
                    n_failed += 1;
                    self.wait_out(error, n_failed).await?;
                }
            }
        };
        let Ok(fresh) = Lease::from_document(&fresh) else {
            return Err(NotWritten::Lost(Loss::Failed));
        };
        match judge(&fresh, &self.unit.me) {
            // An older process of our name wrote it; it stops at its next write, and this one is ours again.
            Conflict::StillMine | Conflict::OlderNamesake => {
                let range = fresh.range.clone().or(self.lease.range.take());
                self.lease = Lease { range, ..fresh };
                Ok(())
            }
            Conflict::NewerNamesake => Err(NotWritten::Namesake),
            Conflict::Lost { to } => Err(NotWritten::Lost(Loss::Taken { by: to })),
        }
    }

    /// Waits before trying again, unless the lease would not be ours any more by then.
    async fn wait_out(&self, error: StoreError, n_failed: u32) -> Result<(), NotWritten> {
        let asked = match &error {
            StoreError::Throttled { retry_after } => *retry_after,
            _ => None,
        };
        let pause = asked.unwrap_or_else(|| self.unit.pause(n_failed));
        self.unit.events.emit(Event::Error {
            lease: Some(self.lease.token.clone()),
            error: crate::delegate::chain(&error),
        });
        let left = self.left();
        sleep(pause.min(left)).await;
        if self.fence.is_shut(self.unit.clock.now()) {
            return Err(NotWritten::Lost(Loss::Fenced));
        }
        Ok(())
    }
}
