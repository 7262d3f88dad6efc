//! A page on its way through the delegate: attempts, pauses, narrowing, dead letters.
//!
//! The delegate runs as a task of its own, so that neither a panic nor a blocked thread stops the renewals. What to do
//! after a failure is decided in [`crate::retry`]; here it is done. Invariant: the position moves past a change only when
//! the delegate has handled it or its letter is stored.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::held::NotWritten;
use super::settings::{GiveUp, KeyOrder};
use super::worker::{Finish, Step, Worker};
use crate::clock;
use crate::dead_letters::{DeadLetter, DeadLetterStore, operation_name};
use crate::delegate::{BatchContext, DelegateError, RawBatch};
use crate::error::StoreError;
use crate::events::{Event, Loss};
use crate::feed::{Change, FeedPage};
use crate::range::EpkRange;
use crate::retry::{AfterFailure, Delivery};
use crate::token::FeedToken;

/// Ends the delegate when nobody waits for it any more.
struct Running(JoinHandle<Result<(), DelegateError>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What is the same for all slices of a page.
struct Page {
    changes: Arc<Vec<Change>>,
    range: EpkRange,
    token: FeedToken,
    charge: f64,
    lag: Option<u64>,
    /// The process died here before: one change at a time, each named before it is tried.
    one_by_one: bool,
    /// Changes whose handling ended the process.
    condemned: Vec<String>,
}

impl Worker {
    pub(super) async fn process(&mut self, range: &EpkRange, page: FeedPage) -> Result<Step<()>, NotWritten> {
        let started = Instant::now();
        let last = page.changes.last().and_then(|change| change.metadata.lsn);
        let one_by_one = self.held.lease().n_crashes() >= self.unit.settings.retry.crashes && self.gives_up();
        let page = Page {
            lag: page.head_lsn.zip(last).map(|(head, last)| head.saturating_sub(last)),
            changes: Arc::new(page.changes),
            range: range.clone(),
            token: page.token,
            charge: page.charge,
            one_by_one,
            condemned: self.held.lease().suspects().map(str::to_owned).collect(),
        };
        let n_items = page.changes.len();
        let mut delivery = if one_by_one {
            Delivery::one_by_one(n_items)
        } else {
            Delivery::new(n_items, self.gives_up())
        };
        let mut n_attempts = 0;
        match self.park(&page, &mut delivery).await? {
            Step::Done(()) => {}
            other => return Ok(other),
        }
        while delivery.current().is_some() {
            n_attempts += 1;
            match self.deliver(&page, &mut delivery).await? {
                Step::Done(()) => {}
                other => return Ok(other),
            }
        }
        let token = self.token();
        self.unit.health.note(&token, |health| health.attempts = 0);
        self.unit.metrics.batch(&token, n_items, started.elapsed(), n_attempts);
        self.advance(page.token).await?;
        Ok(Step::Done(()))
    }

    /// Whether there is anybody to take what cannot be handled.
    fn gives_up(&self) -> bool {
        match self.unit.settings.give_up {
            GiveUp::DeadLetter => self.unit.dead_letters.is_some(),
            GiveUp::Skip | GiveUp::Release => true,
        }
    }

    /// One attempt at the current slice, and what follows from it.
    async fn deliver(&mut self, page: &Page, delivery: &mut Delivery) -> Result<Step<()>, NotWritten> {
        let Some(slice) = delivery.current() else {
            return Ok(Step::Done(()));
        };
        if page.one_by_one && self.is_suspect(page, slice.start).await? {
            let error = "the process ended while handling it".to_owned();
            return self.give_up(page, delivery, vec![(slice.start, error)]).await;
        }
        let batch = RawBatch::new(Arc::clone(&page.changes), slice.clone());
        let attempt = delivery.n_failed() + 1;
        let outcome = match self.call(page, batch, attempt).await? {
            Some(outcome) => outcome,
            // The time for stopping is over.
            None => return Ok(Step::Finish(Finish::Stop)),
        };
        match outcome {
            Ok(()) => {
                delivery.succeeded();
                Ok(Step::Done(()))
            }
            Err(DelegateError::Unreadable(items)) if self.gives_up() => {
                // The rest of the slice goes on in its place.
                self.give_up(page, delivery, items).await
            }
            Err(error) => self.after_failure(page, delivery, attempt, describe(error)).await,
        }
    }

    async fn after_failure(
        &mut self,
        page: &Page,
        delivery: &mut Delivery,
        attempt: u32,
        error: String,
    ) -> Result<Step<()>, NotWritten> {
        let lease = self.token();
        self.unit.health.note(&lease, |health| health.attempts = attempt);
        self.unit.events.emit(Event::BatchFailed {
            lease,
            attempt,
            error: error.clone(),
        });
        let slice = delivery.current();
        match delivery.failed(&self.unit.settings.retry, clock::jitter()) {
            AfterFailure::Retry { after } => {
                let waited = self.tend(sleep(after), true).await?;
                Ok(waited.map_or(Step::Interrupted, Step::Done))
            }
            _ if self.unit.settings.give_up == GiveUp::Release => {
                Ok(Step::Finish(Finish::Release(Loss::DelegateFailed)))
            }
            AfterFailure::Narrow => Ok(Step::Done(())),
            AfterFailure::GiveUp { index } => {
                debug_assert!(slice.is_some_and(|slice| slice.contains(&index)));
                self.bury(page, index, error, false).await
            }
        }
    }

    /// Gives up on items of the current slice and goes on with the others.
    async fn give_up(
        &mut self,
        page: &Page,
        delivery: &mut Delivery,
        items: Vec<(usize, String)>,
    ) -> Result<Step<()>, NotWritten> {
        let indexes: Vec<usize> = items.iter().map(|(index, _)| *index).collect();
        for (index, error) in items {
            match self.bury(page, index, error, false).await? {
                Step::Done(()) => {}
                other => return Ok(other),
            }
        }
        delivery.drop_items(&indexes);
        Ok(Step::Done(()))
    }

    /// Sends the changes of parked keys after the ones they wait for.
    async fn park(&mut self, page: &Page, delivery: &mut Delivery) -> Result<Step<()>, NotWritten> {
        let (Some(store), KeyOrder::Park) = (self.unit.dead_letters.clone(), self.unit.settings.key_order) else {
            return Ok(Step::Done(()));
        };
        let now = self.unit.clock.now();
        if self.parked.is_stale(now, self.unit.settings.timing.acquire) {
            match self.read_parked(&store).await? {
                Step::Done(keys) => self.parked.replace(keys, now),
                Step::Interrupted => return Ok(Step::Interrupted),
                Step::Finish(finish) => return Ok(Step::Finish(finish)),
            }
        }
        if self.parked.is_empty() {
            return Ok(Step::Done(()));
        }
        let mut done = Vec::new();
        for (index, change) in page.changes.iter().enumerate() {
            let key = change.key(&self.unit.description.key_paths);
            if self.parked.contains(&key) {
                done.push(index);
                let error = "an earlier change of this key is a dead letter".to_owned();
                match self.bury(page, index, error, true).await? {
                    Step::Done(()) => {}
                    other => return Ok(other),
                }
            }
        }
        delivery.drop_items(&done);
        Ok(Step::Done(()))
    }

    async fn read_parked(&mut self, store: &Arc<dyn DeadLetterStore>) -> Result<Step<Vec<String>>, NotWritten> {
        let mut n_failed = 0;
        loop {
            let (store, processor) = (Arc::clone(store), self.unit.processor.clone());
            let reading = async move { store.keys(&processor).await };
            match self.tend(reading, true).await? {
                None => return Ok(Step::Interrupted),
                Some(Ok(keys)) => return Ok(Step::Done(keys)),
                Some(Err(error)) => {
                    n_failed += 1;
                    if let Step::Interrupted = self.store_failed(&error, n_failed).await? {
                        return Ok(Step::Interrupted);
                    }
                }
            }
        }
    }

    /// Reports a change that is not handled, and stores its letter if there is a place for it. Nothing is skipped because
    /// that place is down: it is tried until it works or the host wants to stop.
    async fn bury(&mut self, page: &Page, index: usize, error: String, parked: bool) -> Result<Step<()>, NotWritten> {
        let letter = self.letter(page, index, error, parked);
        if let (Some(store), GiveUp::DeadLetter) = (self.unit.dead_letters.clone(), self.unit.settings.give_up) {
            let mut n_failed = 0;
            loop {
                let (store, letter) = (Arc::clone(&store), letter.clone());
                let storing = async move { store.put(&letter).await };
                match self.tend(storing, true).await? {
                    None => return Ok(Step::Interrupted),
                    Some(Ok(())) => break,
                    Some(Err(error)) => {
                        n_failed += 1;
                        if let Step::Interrupted = self.store_failed(&error, n_failed).await? {
                            return Ok(Step::Interrupted);
                        }
                    }
                }
            }
            if self.unit.settings.key_order == KeyOrder::Park {
                self.parked.insert(letter.key.clone());
            }
        }
        self.unit.metrics.dead_letter(&letter.lease_token);
        self.unit.events.emit(Event::DeadLettered {
            lease: letter.lease_token,
            item: letter.item_id,
            parked,
            error: letter.error,
        });
        Ok(Step::Done(()))
    }

    async fn store_failed(&mut self, error: &StoreError, n_failed: u32) -> Result<Step<()>, NotWritten> {
        self.report(error);
        let pause = self.unit.pause(n_failed);
        let waited = self.tend(sleep(pause), true).await?;
        Ok(waited.map_or(Step::Interrupted, Step::Done))
    }

    fn letter(&self, page: &Page, index: usize, error: String, parked: bool) -> DeadLetter {
        let change = &page.changes[index];
        let source = &self.unit.description.identity.container_rid;
        let key = change.key(&self.unit.description.key_paths);
        DeadLetter {
            id: DeadLetter::id_of(source, &key, change),
            processor: self.unit.processor.clone(),
            source: source.clone(),
            lease_token: self.token(),
            item_id: change.id().map(str::to_owned),
            lsn: change.metadata.lsn,
            committed_at: change.metadata.committed_at_s,
            operation: change
                .metadata
                .operation
                .map(|operation| operation_name(operation).to_owned()),
            parked,
            attempts: if parked { 0 } else { self.unit.settings.retry.attempts },
            failed_at: self.unit.stamp(),
            error,
            current: change.current.clone(),
            previous: change.previous.clone(),
            key,
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

    /// Runs the delegate. Nothing comes back if the time for stopping ends first.
    async fn call(
        &mut self,
        page: &Page,
        batch: RawBatch,
        attempt: u32,
    ) -> Result<Option<Result<(), DelegateError>>, NotWritten> {
        let context = BatchContext {
            lease: self.token(),
            range: page.range.clone(),
            attempt,
            epoch: self.held.lease().epoch(),
            token: page.token.clone(),
            charge: page.charge,
            lag: page.lag,
            cancelled: self.cancelled.clone(),
            checkpoints: self.checkpoints.0.clone(),
        };
        let (unit, lease, now) = (Arc::clone(&self.unit), self.token(), self.unit.clock.now());
        self.unit
            .health
            .note(&lease, |health| health.delegate_running = Some(now));
        let delegate = Arc::clone(&self.unit.delegate);
        // The call itself belongs into the task too: a delegate may panic before its first await.
        let mut running = Running(tokio::spawn(async move { delegate.call(batch, context).await }));
        let (abandon, stuck_after) = (self.abandon.clone(), self.unit.settings.stuck_after);
        let (stuck_at, told) = (Instant::now() + stuck_after, lease.clone());
        let watched = async move {
            let mut is_told = false;
            loop {
                tokio::select! {
                    done = &mut running.0 => return Some(done),
                    () = abandon.cancelled() => return None,
                    () = sleep_until(stuck_at), if !is_told => {
                        is_told = true;
                        let (lease, running_for) = (told.clone(), stuck_after);
                        unit.events.emit(Event::Stuck { lease, running_for });
                    }
                }
            }
        };
        let done = self.tend(watched, false).await;
        self.unit.health.note(&lease, |health| health.delegate_running = None);
        Ok(done?
            .flatten()
            .map(|joined| joined.unwrap_or_else(|error| Err(DelegateError::Failed(panic_message(error))))))
    }
}

fn describe(error: DelegateError) -> String {
    match error {
        DelegateError::Failed(error) => error,
        DelegateError::Unreadable(items) => match items.as_slice() {
            [(_, error), rest @ ..] => format!("{} items cannot be read; the first: {error}", rest.len() + 1),
            [] => "items cannot be read".to_owned(),
        },
    }
}

fn panic_message(error: tokio::task::JoinError) -> String {
    if !error.is_panic() {
        return "the delegate was cancelled".to_owned();
    }
    let panic = error.into_panic();
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!(
        "the delegate panicked: {}",
        text.unwrap_or_else(|| "without a message".to_owned())
    )
}
