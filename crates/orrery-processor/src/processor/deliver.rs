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
use crate::dead_letters::{DeadLetter, Within};
use crate::delegate::{ItemFailure, Verdict};
use crate::events::{Event, Loss};
use crate::feed::{Change, FeedPage};
use crate::lease::Condition;
use crate::range::EpkRange;
use crate::retry::{AfterFailure, Delivery};
use crate::start::Position;
use crate::token::FeedToken;

/// A batch that is to come again at once still leaves room for others.
const POSTPONED_MIN: Duration = Duration::from_millis(1);

/// What is the same for all slices of a page.
pub(super) struct Page {
    pub changes: Arc<Vec<Change>>,
    pub range: EpkRange,
    pub from: Position,
    pub token: FeedToken,
    pub charge: f64,
    pub session: Option<String>,
    pub activity_id: Option<String>,
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
        self.failures.clear();
        if self.unit.settings.give_up == GiveUp::Halt && self.has_crashed_often() {
            return self.halt("the process has ended here again and again").await;
        }
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
            health.last_error = None;
            health.oldest_committed_s = None;
        });
        self.held.set_condition(None);
        self.held.set_failures(0);
        let n_items = page.changes.len();
        let labels = self.unit.labels(Some(&token));
        self.unit.metrics.batch(labels, n_items, started.elapsed(), n_rounds);
        self.advance(page.token).await?;
        Ok(Step::Done(()))
    }

    /// As often as the policy lets a process end at one position.
    fn has_crashed_often(&self) -> bool {
        self.held.lease().n_crashes() >= self.unit.settings.retry.crashes
    }

    /// The page as it will be delivered, and its lanes.
    fn prepare(&self, range: &EpkRange, page: FeedPage) -> (Page, Vec<Delivery>) {
        let last = page.changes.last().and_then(|change| change.metadata.lsn);
        let one_by_one = self.has_crashed_often() && self.sets_aside();
        let n_lanes = match self.unit.settings.concurrency {
            Concurrency::ByPartitionKey(n_lanes) if !one_by_one => n_lanes,
            _ => 1,
        };
        let (changes, bounds) = lanes(page.changes, &self.unit.description.key_paths, n_lanes);
        let deliveries = if one_by_one {
            vec![Delivery::one_by_one(changes.len())]
        } else {
            let gives_up = self.gives_up();
            // Beside each other, lanes fail apart, and nobody has counted which one it was.
            let n_failed = if bounds.len() == 1 { self.held.n_failures() } else { 0 };
            let delivery = |bound| Delivery::over(bound, gives_up).having_failed(n_failed);
            bounds.into_iter().map(delivery).collect()
        };
        let page = Page {
            lag: page.head_lsn.zip(last).map(|(head, last)| head.saturating_sub(last)),
            changes: Arc::new(changes),
            range: range.clone(),
            from: self.position.clone(),
            token: page.token,
            charge: page.charge,
            session: page.session,
            activity_id: page.activity_id,
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
        let n_pending: usize = lanes.iter().map(|delivery| delivery.pending().count()).sum();
        let call = |(lane, delivery): (usize, &Delivery)| {
            let (slice, attempt) = (delivery.current()?, delivery.n_calls() + 1);
            let ends_page = slice.len() == n_pending;
            Some(Call {
                lane,
                slice,
                attempt,
                ends_page,
            })
        };
        let calls = lanes.iter().enumerate().filter_map(call).collect();
        let Some(verdicts) = self.call(page, calls).await? else {
            // The time for stopping is over.
            return Ok(Step::Finish(Finish::Stop));
        };
        let mut pause = Duration::ZERO;
        for (lane, verdict) in verdicts {
            match self.settle(page, &mut lanes[lane], verdict).await? {
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

    /// What follows from one call; how long to wait before the next one.
    async fn settle(
        &mut self,
        page: &Page,
        delivery: &mut Delivery,
        verdict: Verdict,
    ) -> Result<Step<Duration>, NotWritten> {
        let slice = delivery.current().unwrap_or_default();
        match verdict {
            Verdict::Done => {
                delivery.succeeded();
                Ok(Step::Done(Duration::ZERO))
            }
            Verdict::Unreadable(items) if self.sets_aside() => {
                self.failures
                    .note(items.iter().map(|(index, _)| *index), &self.unit.stamp());
                // The rest of the slice goes on in its place.
                Ok(self.give_up(page, delivery, items).await?.at_once())
            }
            Verdict::Items(items) => self.settle_items(page, delivery, items).await,
            Verdict::Unreadable(items) => self.after_failure(page, delivery, unreadable(&items)).await,
            Verdict::Failed(error) => self.after_failure(page, delivery, error).await,
            Verdict::RetryBatch { after } => {
                let after = after.unwrap_or_else(|| self.unit.pause(1));
                let lease = self.token();
                self.unit.events.emit(Event::BatchPostponed { lease, after });
                delivery.postponed();
                Ok(Step::Done(after.max(POSTPONED_MIN)))
            }
            Verdict::HaltLease(reason) => {
                self.failures.note(slice, &self.unit.stamp());
                self.halt(&reason).await
            }
            Verdict::StopHost => Ok(Step::Finish(Finish::StopHost)),
        }
    }

    /// All but some items were handled: those that nothing can help are given up, the others come again one by one.
    async fn settle_items(
        &mut self,
        page: &Page,
        delivery: &mut Delivery,
        items: Vec<ItemFailure>,
    ) -> Result<Step<Duration>, NotWritten> {
        let is_single = delivery.current().is_some_and(|slice| slice.len() == 1);
        let sets_aside = self.sets_aside();
        let (lost, again): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| sets_aside && !item.retry);
        if is_single && lost.is_empty() {
            // A single item that is named again has failed as a whole.
            return self.after_failure(page, delivery, failed_items(&again)).await;
        }
        let failed: Vec<usize> = lost.iter().chain(&again).map(|item| item.index).collect();
        let attempt = delivery.n_failed() + 1;
        if !again.is_empty() {
            self.report_failure(attempt, failed_items(&again));
        }
        self.failures.note(failed.iter().copied(), &self.unit.stamp());
        delivery.only(&failed);
        let lost = lost.into_iter().map(|item| (item.index, item.reason)).collect();
        match self.give_up(page, delivery, lost).await? {
            Step::Done(()) if again.is_empty() => Ok(Step::Done(Duration::ZERO)),
            Step::Done(()) => Ok(Step::Done(self.unit.pause(attempt))),
            other => Ok(other.at_once()),
        }
    }

    fn report_failure(&mut self, attempt: u32, error: String) {
        let lease = self.token();
        self.held.set_failures(self.held.n_failures().max(attempt));
        self.unit.health.note(&lease, |health| {
            health.attempts = attempt;
            health.last_error = Some(error.clone());
        });
        let now = self.unit.stamp();
        let since = self.failures.first_at().unwrap_or(&now);
        self.held
            .set_condition(Some(Condition::failing(attempt, since, &error)));
        self.unit.events.emit(Event::BatchFailed { lease, attempt, error });
    }

    async fn after_failure(
        &mut self,
        page: &Page,
        delivery: &mut Delivery,
        error: String,
    ) -> Result<Step<Duration>, NotWritten> {
        let slice = delivery.current().unwrap_or_default();
        self.failures.note(slice, &self.unit.stamp());
        self.report_failure(delivery.n_failed() + 1, error.clone());
        match delivery.failed(&self.unit.settings.retry, clock::jitter()) {
            AfterFailure::Retry { after } => Ok(Step::Done(after)),
            _ if self.unit.settings.give_up == GiveUp::Release => {
                Ok(Step::Finish(Finish::Release(Loss::DelegateFailed)))
            }
            _ if self.unit.settings.give_up == GiveUp::Halt => self.halt(&error).await,
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
        let (change, description) = (&page.changes[index], &self.unit.description);
        let key = change.key(&description.key_paths);
        let Within { n_before, .. } = Within::of(&page.changes, index, &description.key_paths);
        let id = DeadLetter::id_of(&description.identity.container_rid, &key, change, n_before);
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

fn failed_items(items: &[ItemFailure]) -> String {
    match items {
        [item] => item.reason.clone(),
        [item, rest @ ..] => format!("{} items failed; the first: {}", rest.len() + 1, item.reason),
        [] => "items failed".to_owned(),
    }
}

fn unreadable(items: &[(usize, String)]) -> String {
    match items {
        [(_, error), rest @ ..] => format!("{} items cannot be read; the first: {error}", rest.len() + 1),
        [] => "items cannot be read".to_owned(),
    }
}
