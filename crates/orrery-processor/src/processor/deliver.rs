//! A page on its way through the delegate: lanes, attempts, pauses, narrowing.
//!
//! What to do after a failure is decided in [`crate::retry`]; here it is done, lane by lane, in rounds: every lane that is
//! not done is tried once, at the same time as the others. Invariant: the position moves past a change only when the
//! delegate has handled it or its letter is stored.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::calls::Call;
use super::held::NotWritten;
use super::lanes::lanes;
use super::settings::{Concurrency, GiveUp};
use super::worker::{Finish, Step, Worker};
use crate::clock;
use crate::dead_letters::DeadLetter;
use crate::delegate::DelegateError;
use crate::events::{Event, Loss};
use crate::feed::{Change, FeedPage};
use crate::range::EpkRange;
use crate::retry::{AfterFailure, Delivery};
use crate::token::FeedToken;

/// What is the same for all slices of a page.
pub(super) struct Page {
    pub changes: Arc<Vec<Change>>,
    pub range: EpkRange,
    pub token: FeedToken,
    pub charge: f64,
    pub lag: Option<u64>,
    /// The process died here before: one change at a time, each named before it is tried.
    one_by_one: bool,
    /// Changes whose handling ended the process.
    condemned: Vec<String>,
}

impl Worker {
    pub(super) async fn process(&mut self, range: &EpkRange, page: FeedPage) -> Result<Step<()>, NotWritten> {
        let started = Instant::now();
        let (page, mut lanes) = self.prepare(range, page);
        let mut n_rounds = 0;
        match self.park(&page, &mut lanes).await? {
            Step::Done(()) => {}
            other => return Ok(other),
        }
        while lanes.iter().any(|lane| lane.current().is_some()) {
            n_rounds += 1;
            match self.round(&page, &mut lanes).await? {
                Step::Done(()) => {}
                other => return Ok(other),
            }
        }
        let token = self.token();
        self.unit.health.note(&token, |health| {
            health.attempts = 0;
            health.oldest_committed_s = None;
        });
        let n_items = page.changes.len();
        self.unit.metrics.batch(&token, n_items, started.elapsed(), n_rounds);
        self.advance(page.token).await?;
        Ok(Step::Done(()))
    }

    /// The page as it will be delivered, and its lanes.
    fn prepare(&self, range: &EpkRange, page: FeedPage) -> (Page, Vec<Delivery>) {
        let last = page.changes.last().and_then(|change| change.metadata.lsn);
        let one_by_one = self.held.lease().n_crashes() >= self.unit.settings.retry.crashes && self.gives_up();
        let n_lanes = match self.unit.settings.concurrency {
            Concurrency::ByPartitionKey(n_lanes) if !one_by_one => n_lanes,
            _ => 1,
        };
        let (changes, bounds) = lanes(page.changes, &self.unit.description.key_paths, n_lanes);
        let deliveries = if one_by_one {
            vec![Delivery::one_by_one(changes.len())]
        } else {
            let gives_up = self.gives_up();
            let delivery = |bound| Delivery::over(bound, gives_up);
            bounds.into_iter().map(delivery).collect()
        };
        let page = Page {
            lag: page.head_lsn.zip(last).map(|(head, last)| head.saturating_sub(last)),
            changes: Arc::new(changes),
            range: range.clone(),
            token: page.token,
            charge: page.charge,
            one_by_one,
            condemned: self.held.lease().suspects().map(str::to_owned).collect(),
        };
        (page, deliveries)
    }

    /// One attempt at the current slice of every lane, and what follows from it.
    async fn round(&mut self, page: &Page, lanes: &mut [Delivery]) -> Result<Step<()>, NotWritten> {
        if page.one_by_one
            && let Some(slice) = lanes[0].current()
            && self.is_suspect(page, slice.start).await?
        {
            let error = "the process ended while handling it".to_owned();
            return self.give_up(page, &mut lanes[0], vec![(slice.start, error)]).await;
        }
        let call = |(lane, delivery): (usize, &Delivery)| {
            let (slice, attempt) = (delivery.current()?, delivery.n_failed() + 1);
            Some(Call { lane, slice, attempt })
        };
        let calls = lanes.iter().enumerate().filter_map(call).collect();
        let Some(outcomes) = self.call(page, calls).await? else {
            // The time for stopping is over.
            return Ok(Step::Finish(Finish::Stop));
        };
        let mut pause = Duration::ZERO;
        for (lane, outcome) in outcomes {
            match self.settle(page, &mut lanes[lane], outcome).await? {
                Step::Done(after) => pause = pause.max(after),
                Step::Interrupted => return Ok(Step::Interrupted),
                Step::Finish(finish) => return Ok(Step::Finish(finish)),
            }
        }
        if pause.is_zero() {
            return Ok(Step::Done(()));
        }
        let waited = self.tend(sleep(pause), true).await?;
        Ok(waited.map_or(Step::Interrupted, Step::Done))
    }

    /// What follows from the outcome of one call; how long to wait before the next one.
    async fn settle(
        &mut self,
        page: &Page,
        delivery: &mut Delivery,
        outcome: Result<(), DelegateError>,
    ) -> Result<Step<Duration>, NotWritten> {
        match outcome {
            Ok(()) => {
                delivery.succeeded();
                Ok(Step::Done(Duration::ZERO))
            }
            Err(DelegateError::Unreadable(items)) if self.gives_up() => {
                // The rest of the slice goes on in its place.
                Ok(self.give_up(page, delivery, items).await?.at_once())
            }
            // A single item that is named again has failed as a whole.
            Err(DelegateError::Items(items)) if delivery.current().is_some_and(|slice| slice.len() > 1) => {
                let failed: Vec<usize> = items.iter().map(|(index, _)| *index).collect();
                let attempt = delivery.n_failed() + 1;
                self.report_failure(attempt, describe(DelegateError::Items(items)));
                delivery.only(&failed);
                Ok(Step::Done(self.unit.pause(attempt)))
            }
            Err(error) => self.after_failure(page, delivery, describe(error)).await,
        }
    }

    fn report_failure(&self, attempt: u32, error: String) {
        let lease = self.token();
        self.unit.health.note(&lease, |health| health.attempts = attempt);
        self.unit.events.emit(Event::BatchFailed { lease, attempt, error });
    }

    async fn after_failure(
        &mut self,
        page: &Page,
        delivery: &mut Delivery,
        error: String,
    ) -> Result<Step<Duration>, NotWritten> {
        self.report_failure(delivery.n_failed() + 1, error.clone());
        match delivery.failed(&self.unit.settings.retry, clock::jitter()) {
            AfterFailure::Retry { after } => Ok(Step::Done(after)),
            _ if self.unit.settings.give_up == GiveUp::Release => {
                Ok(Step::Finish(Finish::Release(Loss::DelegateFailed)))
            }
            AfterFailure::Narrow => Ok(Step::Done(Duration::ZERO)),
            AfterFailure::GiveUp { index } => match self.bury(page, index, error, false).await? {
                Step::Done(()) => Ok(self.park_behind(page, delivery, index).await?.at_once()),
                other => Ok(other.at_once()),
            },
        }
    }

    /// Whether the process ended while it handled this change. If not, it is named in the lease before it is tried, behind
    /// those already found, so that several of them in one page do not hide each other.
    async fn is_suspect(&mut self, page: &Page, index: usize) -> Result<bool, NotWritten> {
        let change = &page.changes[index];
        let key = change.key(&self.unit.description.key_paths);
        let id = DeadLetter::id_of(&self.unit.description.identity.container_rid, &key, change);
        if page.condemned.contains(&id) {
            return Ok(true);
        }
        let suspects = [page.condemned.as_slice(), &[id]].concat().join(",");
        self.held.suspect(&suspects).await?;
        Ok(false)
    }
}

impl Step<()> {
    /// The same, with nothing to wait for.
    fn at_once(self) -> Step<Duration> {
        match self {
            Step::Done(()) => Step::Done(Duration::ZERO),
            Step::Interrupted => Step::Interrupted,
            Step::Finish(finish) => Step::Finish(finish),
        }
    }
}

fn describe(error: DelegateError) -> String {
    match error {
        DelegateError::Failed(error) => error,
        DelegateError::Items(items) => match items.as_slice() {
            [(_, error)] => error.clone(),
            [(_, error), rest @ ..] => format!("{} items failed; the first: {error}", rest.len() + 1),
            [] => "items failed".to_owned(),
        },
        DelegateError::Unreadable(items) => match items.as_slice() {
            [(_, error), rest @ ..] => format!("{} items cannot be read; the first: {error}", rest.len() + 1),
            [] => "items cannot be read".to_owned(),
        },
    }
}
