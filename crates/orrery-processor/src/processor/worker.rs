//! One lease being read: read a page, hand it to the delegate, save the position, again.
//!
//! The task is the only writer of its lease. Whatever it waits for, it goes on renewing; a lease that is lost, or not
//! renewed in time, ends the work at once, whatever is running. Invariant: a position is saved only when the delegate has
//! handled everything before it, and a page's token is used only then.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::failures::Failures;
use super::held::{Attempt, HeldLease, NotWritten};
use super::settings::Checkpoint;
use super::unit::Unit;
use crate::delegate::{CheckpointError, CheckpointRequest};
use crate::events::{Event, Loss};
use crate::feed::FeedPage;
use crate::lease::{Condition, HostMark};
use crate::metrics::LeaseChange;
use crate::start::Position;
use crate::token::FeedToken;

/// What the host wants of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    pub stop: bool,
    pub paused: bool,
    /// Give the lease to this host when the batch is done.
    pub hand_over: Option<HostMark>,
    /// How often the lease looked as if it were not ours any more.
    pub n_checks: u64,
}

/// How a worker ended.
#[derive(Debug)]
pub(crate) struct End {
    /// Id of the lease.
    pub id: String,
    pub why: Why,
}

#[derive(Debug)]
pub(crate) enum Why {
    Lost(Loss),
    /// The whole host has to stop.
    Namesake,
    SourceGone(String),
    /// The delegate asked for it.
    StopHost,
}

/// Why the work on a lease is over, although it is still held.
#[derive(Debug)]
pub(super) enum Finish {
    Stop,
    HandOver(HostMark),
    Resharded,
    Release(Loss),
    SourceGone(String),
    StopHost,
}

/// What a step came to when it did not fail.
pub(super) enum Step<T> {
    Done(T),
    /// The host wants something else first.
    Interrupted,
    Finish(Finish),
}

pub(crate) struct Worker {
    pub(super) unit: Arc<Unit>,
    pub(super) held: HeldLease,
    pub(super) orders: watch::Receiver<Orders>,
    /// Cancelled when the time for stopping is over.
    pub(super) abandon: CancellationToken,
    /// Cancelled for the delegate when the host stops or the lease is lost.
    pub(super) cancelled: CancellationToken,
    _cancel_at_end: DropGuard,
    pub(super) checkpoints: (mpsc::Sender<CheckpointRequest>, mpsc::Receiver<CheckpointRequest>),
    pub(super) position: Position,
    /// Reached without a write of its own; the next write of the lease takes it along.
    reached: Option<FeedToken>,
    n_unsaved: u32,
    unsaved_since: Duration,
    n_empty: u32,
    /// How often the host had doubts whose the lease is, so far.
    n_checks: u64,
    /// How long the last read took, to tell whether the server held it back.
    pub(super) read_took: Duration,
    /// When the lease was taken.
    pub(super) taken_at: Duration,
    /// Of the page at hand.
    pub(super) failures: Failures,
    /// Since when the delegate has been running, by the wall clock.
    pub(super) called_at: Option<String>,
    /// Region that answered last.
    pub(super) region: Option<String>,
    /// The position that the server no longer keeps, until a read has gone on behind it.
    pub(super) skipped_from: Option<String>,
}

impl Worker {
    pub fn new(
        unit: Arc<Unit>,
        held: HeldLease,
        orders: watch::Receiver<Orders>,
        stopping: &CancellationToken,
        abandon: CancellationToken,
    ) -> Worker {
        let cancelled = stopping.child_token();
        let position = held.lease().position();
        let position = position.unwrap_or(Position::From(unit.settings.start));
        Worker {
            orders,
            abandon,
            _cancel_at_end: cancelled.clone().drop_guard(),
            cancelled,
            checkpoints: mpsc::channel(1),
            position,
            reached: None,
            n_unsaved: 0,
            unsaved_since: Duration::ZERO,
            n_empty: 0,
            n_checks: 0,
            read_took: Duration::ZERO,
            taken_at: unit.clock.now(),
            failures: Failures::default(),
            called_at: None,
            region: None,
            skipped_from: None,
            held,
            unit,
        }
    }

    pub fn token(&self) -> String {
        self.held.lease().token.clone()
    }

    pub async fn run(mut self) -> End {
        let (id, token) = (self.held.lease().id.clone(), self.token());
        let (epoch, since) = (self.held.lease().epoch(), self.unit.clock.now());
        self.unit
            .health
            .note(&token, |health| (health.epoch, health.since) = (epoch, since));
        let ended = match self.work().await {
            Ok(finish) => self.finish(finish).await,
            Err(lost) => Err(lost),
        };
        let why = match ended {
            Ok(why) => why,
            Err(NotWritten::Lost(loss)) => Why::Lost(loss),
            Err(NotWritten::Namesake) => Why::Namesake,
        };
        self.unit.health.forget(&token);
        let loss = match &why {
            Why::Lost(loss) => Some(loss.clone()),
            Why::StopHost => Some(Loss::Stopped),
            Why::Namesake | Why::SourceGone(_) => None,
        };
        if let Some(why) = loss {
            let lease = token;
            self.unit
                .metrics
                .lease_change(self.unit.labels(Some(&lease)), LeaseChange::Released(why.clone()));
            self.unit.events.emit(Event::LeaseReleased { lease, why });
        }
        End { id, why }
    }

    async fn work(&mut self) -> Result<Finish, NotWritten> {
        let range = match self.find_range().await? {
            Step::Done(range) => range,
            Step::Interrupted => return Ok(self.wanted().unwrap_or(Finish::Stop)),
            Step::Finish(finish) => return Ok(finish),
        };
        if self.held.lease().is_retired()
            && let Some(finish) = self.finish_cut(&range).await?
        {
            return Ok(finish);
        }
        loop {
            if let Some(finish) = self.wanted() {
                return Ok(finish);
            }
            if self.orders.borrow().paused {
                self.tend(futures::future::pending::<()>(), true).await?;
                continue;
            }
            let page = match self.read(&range).await? {
                Step::Done(page) => page,
                Step::Interrupted => continue,
                Step::Finish(finish) => return Ok(finish),
            };
            let step = if page.changes.is_empty() {
                self.rest(page).await?
            } else {
                self.process(&range, page).await?
            };
            if let Step::Finish(finish) = step {
                return Ok(finish);
            }
        }
    }

    pub(super) fn wanted(&self) -> Option<Finish> {
        let orders = self.orders.borrow();
        if orders.stop {
            return Some(Finish::Stop);
        }
        orders.hand_over.clone().map(Finish::HandOver)
    }

    /// The last words: save what is reached, and let go.
    async fn finish(&mut self, finish: Finish) -> Result<Why, NotWritten> {
        if !matches!(finish, Finish::Resharded) {
            self.save_reached().await?;
        }
        Ok(match finish {
            Finish::Stop => {
                self.held.release().await?;
                Why::Lost(Loss::Stopped)
            }
            Finish::HandOver(to) => {
                self.held.hand_over(&to).await?;
                Why::Lost(Loss::HandedTo(to.name))
            }
            Finish::Resharded => Why::Lost(Loss::Resharded),
            Finish::Release(loss) => {
                self.held.release().await?;
                Why::Lost(loss)
            }
            Finish::SourceGone(error) => {
                self.held.release().await?;
                Why::SourceGone(error)
            }
            Finish::StopHost => {
                self.held.release().await?;
                Why::StopHost
            }
        })
    }

    /// Saves what was reached without a write of its own, before the lease becomes another's.
    pub(super) async fn save_reached(&mut self) -> Result<(), NotWritten> {
        match self.reached.take() {
            Some(token) => self.held.checkpoint_surely(&token).await,
            None => Ok(()),
        }
    }

    /// Runs `work` and meanwhile keeps the lease and serves manual checkpoints. Ends early, with nothing, when the host
    /// wants something else and `interruptible`.
    pub(super) async fn tend<T>(
        &mut self,
        work: impl Future<Output = T>,
        interruptible: bool,
    ) -> Result<Option<T>, NotWritten> {
        tokio::pin!(work);
        loop {
            let renew_at = self.unit.clock.instant(self.held.renew_at());
            // Every branch may be dropped and begun again: `work` is pinned outside, channels and timers lose nothing.
            tokio::select! {
                biased;
                done = &mut work => return Ok(Some(done)),
                Some(request) = self.checkpoints.1.recv() => self.checkpoint_for(request).await?,
                () = sleep_until(renew_at) => {
                    if let Some(since) = self.called_at.clone() {
                        self.held.set_condition(Some(Condition::Running { since }));
                    }
                    self.renew().await?;
                }
                Ok(()) = self.orders.changed() => {
                    self.check().await?;
                    if interruptible {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// A write tells whose the lease is.
    async fn check(&mut self) -> Result<(), NotWritten> {
        let n_checks = self.orders.borrow().n_checks;
        if std::mem::replace(&mut self.n_checks, n_checks) < n_checks {
            self.renew().await?;
        }
        Ok(())
    }

    /// Renews, and saves with it what was reached without a write of its own.
    async fn renew(&mut self) -> Result<(), NotWritten> {
        match self.reached.clone() {
            Some(token) => self.save(&token).await,
            None => self.held.renew(None).await.map(drop),
        }
    }

    async fn checkpoint_for(&mut self, request: CheckpointRequest) -> Result<(), NotWritten> {
        let saved = self.held.checkpoint_surely(&request.token).await;
        if saved.is_ok() {
            self.saved();
        }
        let told = if saved.is_ok() {
            Ok(())
        } else {
            Err(CheckpointError::LeaseLost)
        };
        // A delegate that no longer waits has been cancelled.
        let _ = request.done.send(told);
        saved
    }

    /// Saves a position up to which everything is handled. While the store is in trouble, that waits until it takes it, and the
    /// work goes on as long as the lease is held.
    async fn save(&mut self, token: &FeedToken) -> Result<(), NotWritten> {
        if self.held.is_put_off() || self.held.checkpoint(token).await? == Attempt::PutOff {
            self.reached = Some(token.clone());
            return Ok(());
        }
        self.saved();
        Ok(())
    }

    fn saved(&mut self) {
        (self.reached, self.n_unsaved) = (None, 0);
        let (now, lease) = (self.unit.clock.now(), self.token());
        self.unit
            .health
            .note(&lease, |health| health.last_checkpoint = Some(now));
    }

    /// The position after a batch, as the policy has it.
    pub(super) async fn advance(&mut self, token: FeedToken) -> Result<(), NotWritten> {
        self.position = self.position.moved_to(token.clone());
        self.n_empty = 0;
        match self.unit.settings.checkpoint {
            Checkpoint::EveryBatch => self.save(&token).await,
            Checkpoint::Coalesced { batches, interval } => {
                let now = self.unit.clock.now();
                if self.n_unsaved == 0 {
                    self.unsaved_since = now;
                }
                self.n_unsaved += 1;
                if self.n_unsaved >= batches || now.saturating_sub(self.unsaved_since) >= interval {
                    return self.save(&token).await;
                }
                self.reached = Some(token);
                Ok(())
            }
            Checkpoint::Manual => {
                // What is reached by reading on must not be saved behind the delegate's back, unless the delegate saved this page.
                self.reached = None;
                if self.held.lease().continuation.as_ref() != Some(&token) {
                    self.n_unsaved += 1;
                }
                Ok(())
            }
        }
    }

    /// Nothing new: note where we stand, and wait.
    async fn rest(&mut self, page: FeedPage) -> Result<Step<()>, NotWritten> {
        let reached = self.position.moved_to(page.token.clone());
        let before = std::mem::replace(&mut self.position, reached);
        // Much that is not for this reader was looked through, and there is more to look at.
        let goes_on = !page.is_last && before != self.position;
        self.n_empty = if goes_on { 0 } else { self.n_empty.saturating_add(1) };
        let unacknowledged = self.unit.settings.checkpoint == Checkpoint::Manual && self.n_unsaved > 0;
        if self.held.lease().continuation.is_none() && !unacknowledged {
            self.save(&page.token).await?;
        } else if self.held.lease().continuation.as_ref() != Some(&page.token) && !unacknowledged {
            self.reached = Some(page.token);
        }
        // A server that waited for a change itself leaves nothing to wait for.
        let poll = &self.unit.settings.poll;
        if !goes_on && poll.wait.is_none_or(|wait| self.read_took < wait / 2) {
            let pause = poll.pause(self.n_empty);
            self.tend(sleep(pause), true).await?;
        }
        Ok(Step::Done(()))
    }
}
