//! One lease being read: read a page, hand it to the delegate, save the position, again.
//!
//! The task is the only writer of its lease. Whatever it waits for, it goes on renewing; a lease that is lost, or not
//! renewed in time, ends the work at once, whatever is running. Invariant: a position is saved only when the delegate has
//! handled everything before it, and a page's token is used only then.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::held::{HeldLease, NotWritten};
use super::settings::{Checkpoint, WindowPolicy};
use super::unit::Unit;
use crate::delegate::{CheckpointError, CheckpointRequest, chain};
use crate::error::FeedError;
use crate::events::{Event, Loss};
use crate::feed::{FeedPage, FeedRead};
use crate::lease::HostMark;
use crate::metrics::LeaseChange;
use crate::range::EpkRange;
use crate::start::{Position, StartFrom};
use crate::token::FeedToken;

/// Reads that say the container is gone before the unit believes it.
const NOT_FOUND_MAX: u32 = 3;

/// What the host wants of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Orders {
    pub stop: bool,
    pub paused: bool,
    /// Give the lease to this host when the batch is done.
    pub hand_over: Option<HostMark>,
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
}

/// Why the work on a lease is over, although it is still held.
#[derive(Debug)]
pub(super) enum Finish {
    Stop,
    HandOver(HostMark),
    Resharded,
    Release(Loss),
    SourceGone(String),
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
    /// How long the last read took, to tell whether the server held it back.
    read_took: Duration,
    pub(super) parked: super::parking::Parked,
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
        let lease = held.lease();
        let start = lease.start().and_then(StartFrom::parse).unwrap_or(unit.settings.start);
        let position = lease
            .continuation
            .clone()
            .map_or(Position::From(start), Position::After);
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
            read_took: Duration::ZERO,
            parked: super::parking::Parked::default(),
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
        if let Why::Lost(loss) = &why {
            let (lease, why) = (token, loss.clone());
            self.unit
                .metrics
                .lease_change(&lease, LeaseChange::Released(why.clone()));
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

    fn wanted(&self) -> Option<Finish> {
        let orders = self.orders.borrow();
        if orders.stop {
            return Some(Finish::Stop);
        }
        orders.hand_over.clone().map(Finish::HandOver)
    }

    /// The last words: save what is reached, and let go.
    async fn finish(&mut self, finish: Finish) -> Result<Why, NotWritten> {
        if let Some(token) = self.reached.take() {
            self.held.checkpoint(&token).await?;
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
        })
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
                    let reached = self.reached.take();
                    self.held.renew(reached.as_ref()).await?;
                }
                Ok(()) = self.orders.changed(), if interruptible => return Ok(None),
            }
        }
    }

    async fn checkpoint_for(&mut self, request: CheckpointRequest) -> Result<(), NotWritten> {
        let saved = self.save(&request.token).await;
        let told = if saved.is_ok() {
            Ok(())
        } else {
            Err(CheckpointError::LeaseLost)
        };
        // A delegate that no longer waits has been cancelled.
        let _ = request.done.send(told);
        saved
    }

    async fn save(&mut self, token: &FeedToken) -> Result<(), NotWritten> {
        self.held.checkpoint(token).await?;
        (self.reached, self.n_unsaved) = (None, 0);
        let (now, lease) = (self.unit.clock.now(), self.token());
        self.unit
            .health
            .note(&lease, |health| health.last_checkpoint = Some(now));
        Ok(())
    }

    /// The position after a batch, as the policy has it.
    pub(super) async fn advance(&mut self, token: FeedToken) -> Result<(), NotWritten> {
        self.position = Position::After(token.clone());
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
                // What is reached by reading on must not be saved behind the delegate's back.
                self.reached = None;
                self.n_unsaved += 1;
                Ok(())
            }
        }
    }

    /// Nothing new: note where we stand, and wait.
    async fn rest(&mut self, page: FeedPage) -> Result<Step<()>, NotWritten> {
        self.position = Position::After(page.token.clone());
        self.n_empty = self.n_empty.saturating_add(1);
        let unacknowledged = self.unit.settings.checkpoint == Checkpoint::Manual && self.n_unsaved > 0;
        if self.held.lease().continuation.is_none() && !unacknowledged {
            self.save(&page.token).await?;
        } else if self.held.lease().continuation.as_ref() != Some(&page.token) && !unacknowledged {
            self.reached = Some(page.token);
        }
        // A server that waited for a change itself leaves nothing to wait for.
        let poll = &self.unit.settings.poll;
        if poll.wait.is_none_or(|wait| self.read_took < wait / 2) {
            let pause = poll.pause(self.n_empty);
            self.tend(sleep(pause), true).await?;
        }
        Ok(Step::Done(()))
    }

    async fn read(&mut self, range: &EpkRange) -> Result<Step<FeedPage>, NotWritten> {
        let (mut n_failed, mut n_not_found) = (0, 0);
        loop {
            let (unit, from, range_read) = (Arc::clone(&self.unit), self.position.clone(), range.clone());
            let reading = async move {
                let settings = &unit.settings;
                let read = FeedRead {
                    range: &range_read,
                    from: &from,
                    mode: settings.mode,
                    items_max: settings.items_max,
                    wait: settings.poll.wait,
                };
                let limit = settings.read_timeout + settings.poll.wait.unwrap_or_default();
                let page = timeout(limit, unit.source.read(read)).await;
                page.unwrap_or_else(|late| Err(FeedError::Transient(late.into())))
            };
            let sent_at = self.unit.clock.now();
            let error = match self.tend(reading, true).await? {
                None => return Ok(Step::Interrupted),
                Some(Ok(page)) => {
                    self.read_took = self.unit.clock.now().saturating_sub(sent_at);
                    self.note_page(&page);
                    return Ok(Step::Done(page));
                }
                Some(Err(error)) => error,
            };
            n_failed += 1;
            if matches!(error, FeedError::NotFound(_) | FeedError::Fatal(_)) {
                n_not_found += 1;
            }
            match self.after_read_error(error, range, n_failed, n_not_found).await? {
                Step::Done(()) => {}
                Step::Interrupted => return Ok(Step::Interrupted),
                Step::Finish(finish) => return Ok(Step::Finish(finish)),
            }
        }
    }

    fn note_page(&mut self, page: &FeedPage) {
        let last = page.changes.last().and_then(|change| change.metadata.lsn);
        let lag = match last {
            Some(last) => page.head_lsn.map(|head| head.saturating_sub(last)),
            None => Some(0),
        };
        let (now, token) = (self.unit.clock.now(), self.token());
        self.unit.metrics.feed_charge(&token, page.charge);
        self.unit.metrics.lag(&token, lag);
        self.unit.health.note(&token, |health| {
            health.last_poll = Some(now);
            health.lag = lag;
            health.caught_up = page.changes.is_empty();
            health.oldest_committed_s = page.changes.first().and_then(|change| change.metadata.committed_at_s);
            if health.caught_up {
                health.last_empty = Some(now);
            }
        });
    }

    /// Waits as the error asks for, or finds that the work is over.
    async fn after_read_error(
        &mut self,
        error: FeedError,
        range: &EpkRange,
        n_failed: u32,
        n_not_found: u32,
    ) -> Result<Step<()>, NotWritten> {
        let mut pause = self.unit.pause(n_failed);
        match &error {
            FeedError::Gone => {
                let finish = self.reshard_if_needed(range).await?;
                if let Some(finish) = finish {
                    return Ok(Step::Finish(finish));
                }
            }
            FeedError::Throttled { retry_after } => pause = retry_after.unwrap_or(pause),
            FeedError::WindowExceeded(message) => return self.window_exceeded(message).await,
            FeedError::NotFound(_) | FeedError::Fatal(_) if n_not_found >= NOT_FOUND_MAX => {
                if let Some(reason) = self.source_gone().await? {
                    return Ok(Step::Finish(Finish::SourceGone(reason)));
                }
            }
            FeedError::NotFound(_) | FeedError::Fatal(_) | FeedError::Transient(_) => {}
        }
        self.report(&error);
        let waited = self.tend(sleep(pause), true).await?;
        Ok(waited.map_or(Step::Interrupted, Step::Done))
    }

    pub(super) fn report(&self, error: &(dyn std::error::Error + 'static)) {
        self.unit.events.emit(Event::Error {
            lease: Some(self.token()),
            error: chain(error),
        });
    }

    /// Asks the server whether the container is still the one the unit was made for.
    async fn source_gone(&mut self) -> Result<Option<String>, NotWritten> {
        let unit = Arc::clone(&self.unit);
        let asking = async move { unit.source.container_rid().await };
        let known = self.unit.description.identity.container_rid.clone();
        Ok(match self.tend(asking, true).await? {
            Some(Ok(rid)) if rid != known => {
                Some(format!("the container is another one now: {rid} instead of {known}"))
            }
            Some(Err(error @ FeedError::NotFound(_))) => Some(chain(&error)),
            _ => None,
        })
    }

    async fn window_exceeded(&mut self, message: &str) -> Result<Step<()>, NotWritten> {
        let position = self.held.lease().continuation.as_ref().map(ToString::to_string);
        self.unit.events.emit(Event::WindowExceeded {
            lease: self.token(),
            position,
            error: message.to_owned(),
        });
        match self.unit.settings.window {
            WindowPolicy::ResumeFromNow => {
                self.position = Position::From(StartFrom::Now);
                Ok(Step::Done(()))
            }
            WindowPolicy::Halt => {
                // Held, so that no other host tries the same in vain.
                self.tend(futures::future::pending::<()>(), true).await?;
                Ok(Step::Interrupted)
            }
        }
    }
}
