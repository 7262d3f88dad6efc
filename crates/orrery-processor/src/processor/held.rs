//! A lease this host holds: every write of it goes through here.
//!
//! Each write is a pure change of the document, conditioned on the one it was made from. When that has changed, the change
//! is made again on the fresh one, if it is still ours. Renewals and checkpoints are tried once and put off when the store does
//! not take them, so that the work goes on as long as the lease is held; what decides who holds it is tried until the fence
//! shuts. Invariants: one writer per lease; a confirmed write of any kind renews; nothing is written, and nothing counts as
//! held, once the fence is shut.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::unit::Unit;
use crate::balance::Why;
use crate::clock::out_of_step;
use crate::error::StoreError;
use crate::events::{Event, Loss};
use crate::fence::Fence;
use crate::lease::{Condition, Conflict, HostMark, Lease, Takeover, judge};
use crate::metrics::LeaseChange;
use crate::range::EpkRange;
use crate::token::FeedToken;

/// How often a write is made again because the document changed.
const CONFLICTS_MAX: u32 = 5;
/// Least pause before a write that was put off is tried again, whatever the store says.
const PUT_OFF_MIN: Duration = Duration::from_millis(10);

pub(crate) struct HeldLease {
    unit: Arc<Unit>,
    lease: Lease,
    fence: Fence,
    renew_at: Duration,
    /// What the next write says about the lease.
    condition: Option<Condition>,
    /// Failed attempts at the batch that comes next.
    n_failures: u32,
    /// Renewals and checkpoints in a row that the store did not take.
    n_put_off: u32,
}

/// What became of a write that need not happen at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    Done,
    /// The store did not take it; the lease is held all the same, and the next renewal tries again.
    PutOff,
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
        unit.metrics.lease_charge(unit.labels(None), written.charge);
        let mut held = HeldLease {
            unit: Arc::clone(unit),
            fence: Fence::new(sent_at, unit.settings.timing.expiry),
            renew_at: Duration::ZERO,
            condition: None,
            n_failures: next.n_failures(),
            n_put_off: 0,
            lease: Lease {
                etag: Some(written.etag),
                ..next
            },
        };
        held.schedule();
        let labels = unit.labels(Some(&held.lease.token));
        unit.metrics.lease_change(labels, LeaseChange::Acquired(why));
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

    /// The delegate has failed so often at the batch that comes next; the next write says so too.
    pub fn set_failures(&mut self, n_failures: u32) {
        self.n_failures = n_failures;
    }

    pub fn n_failures(&self) -> u32 {
        self.n_failures
    }

    /// When the lease is to be renewed, on the host's clock.
    pub fn renew_at(&self) -> Duration {
        self.renew_at.min(self.fence.shuts_at())
    }

    /// Whether the last confirmed write is too old to act on: others may begin.
    pub fn is_fenced(&self) -> bool {
        self.fence.is_shut(self.unit.clock.now())
    }

    /// Whether the store is in trouble, and the next try is some way off.
    pub fn is_put_off(&self) -> bool {
        self.n_put_off > 0 && self.unit.clock.now() < self.renew_at()
    }

    fn schedule(&mut self) {
        let (settings, clock) = (&self.unit.settings, &self.unit.clock);
        let at = clock.now() + settings.timing.renew;
        let since = settings.in_step_since;
        let early = since.map(|since| out_of_step(clock.instant(at), since, settings.timing.renew));
        self.renew_at = at.saturating_sub(early.unwrap_or_default());
    }

    /// Renews; a position that was reached without a write of its own goes along.
    pub async fn renew(&mut self, reached: Option<&FeedToken>) -> Result<Attempt, NotWritten> {
        match reached {
            Some(token) => self.checkpoint(token).await,
            None => self.try_write(|lease, stamp| lease.renewed(stamp)).await,
        }
    }

    pub async fn checkpoint(&mut self, token: &FeedToken) -> Result<Attempt, NotWritten> {
        self.try_write(|lease, stamp| lease.checkpointed(token.clone(), stamp))
            .await
    }

    /// For somebody who waits for it.
    pub async fn checkpoint_surely(&mut self, token: &FeedToken) -> Result<(), NotWritten> {
        let told = self.told();
        self.write(|lease, stamp| told.on(lease.checkpointed(token.clone(), stamp)))
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
        let n_failures = self.n_failures;
        self.write(|lease, stamp| lease.released(stamp).having_failed(n_failures))
            .await
    }

    pub async fn hand_over(&mut self, to: &HostMark) -> Result<(), NotWritten> {
        let n_failures = self.n_failures;
        self.write(|lease, stamp| lease.handed_to(to, stamp).having_failed(n_failures))
            .await
    }

    /// What goes along with renewals and checkpoints.
    fn told(&self) -> Told {
        Told {
            condition: self.condition.clone(),
            n_failures: self.n_failures,
        }
    }

    /// Writes, or puts it off.
    async fn try_write(&mut self, change: impl Fn(&Lease, &str) -> Lease) -> Result<Attempt, NotWritten> {
        let told = self.told();
        // A store that does not answer at all must not hold the work up until the fence.
        let patience = self.unit.settings.timing.renew;
        match self
            .send(|lease, stamp| told.on(change(lease, stamp)), patience)
            .await?
        {
            Ok(()) => Ok(Attempt::Done),
            Err(error) => {
                self.put_off(error)?;
                Ok(Attempt::PutOff)
            }
        }
    }

    /// Writes, however often it takes.
    async fn write(&mut self, change: impl Fn(&Lease, &str) -> Lease) -> Result<(), NotWritten> {
        let mut n_failed = 0;
        loop {
            let Err(error) = self.send(&change, Duration::MAX).await? else {
                return Ok(());
            };
            n_failed += 1;
            self.wait_out(error, n_failed).await?;
        }
    }

    /// Sends the change, again if the document has changed under it. The store's trouble comes back.
    async fn send(
        &mut self,
        change: impl Fn(&Lease, &str) -> Lease,
        patience: Duration,
    ) -> Result<Result<(), StoreError>, NotWritten> {
        let mut n_conflicts = 0;
        loop {
            let next = change(&self.lease, &self.unit.stamp());
            let sent_at = self.unit.clock.now();
            match self.send_once(&next, patience).await {
                Ok(etag) => {
                    self.lease = Lease {
                        etag: Some(etag),
                        ..next
                    };
                    self.fence = Fence::new(sent_at, self.unit.settings.timing.expiry);
                    self.n_put_off = 0;
                    self.schedule();
                    return Ok(Ok(()));
                }
                Err(StoreError::Changed) if n_conflicts < CONFLICTS_MAX => {
                    n_conflicts += 1;
                    self.refresh().await?;
                }
                Err(StoreError::Changed) => return Err(NotWritten::Lost(Loss::Taken { by: None })),
                Err(StoreError::NotFound) => return Err(NotWritten::Lost(Loss::Deleted)),
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    async fn send_once(&self, next: &Lease, patience: Duration) -> Result<String, StoreError> {
        let etag = self.lease.etag.as_deref().unwrap_or_default();
        let document = next.to_document();
        let written = self.unit.store.replace(&document, etag);
        let left = self.left();
        if left.is_zero() {
            return Err(StoreError::Unavailable("the lease was not renewed in time".into()));
        }
        let written = timeout(left.min(patience), written)
            .await
            .map_err(|late| StoreError::Unavailable(late.into()))??;
        self.unit.metrics.lease_charge(self.unit.labels(None), written.charge);
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
            let document = self.lease.to_document();
            let read = timeout(self.left(), self.unit.store.read(&document)).await;
            match read.unwrap_or_else(|late| Err(StoreError::Unavailable(late.into()))) {
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
        let pause = self.pause_after(&error, n_failed);
        let left = self.left();
        sleep(pause.min(left)).await;
        self.check_fence()
    }

    /// Leaves the next try to the next renewal, unless the lease is not ours any more.
    fn put_off(&mut self, error: StoreError) -> Result<(), NotWritten> {
        self.n_put_off = self.n_put_off.saturating_add(1);
        let pause = self.pause_after(&error, self.n_put_off).max(PUT_OFF_MIN);
        self.renew_at = self.unit.clock.now() + pause;
        self.check_fence()
    }

    fn check_fence(&self) -> Result<(), NotWritten> {
        if self.is_fenced() {
            return Err(NotWritten::Lost(Loss::Fenced));
        }
        Ok(())
    }

    /// Tells of the store's trouble; how long to leave it alone.
    fn pause_after(&self, error: &StoreError, n_failed: u32) -> Duration {
        self.unit.events.emit(Event::Error {
            lease: Some(self.lease.token.clone()),
            error: crate::delegate::chain(error),
        });
        let asked = match error {
            StoreError::Throttled { retry_after } => *retry_after,
            _ => None,
        };
        asked.unwrap_or_else(|| self.unit.pause(n_failed))
    }
}

/// What the owner says about its lease with renewals and checkpoints.
struct Told {
    condition: Option<Condition>,
    n_failures: u32,
}

impl Told {
    fn on(&self, lease: Lease) -> Lease {
        lease
            .in_condition(self.condition.as_ref())
            .having_failed(self.n_failures)
    }
}
