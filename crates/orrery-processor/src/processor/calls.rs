//! Calls of the delegate: each a task of its own, so that neither a panic nor a blocked thread stops the renewals.
//!
//! Invariant: when the worker no longer waits for a call, the call is over.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::deliver::Page;
use super::held::NotWritten;
use super::unit::Unit;
use super::worker::Worker;
use crate::delegate::{BatchContext, RawBatch, Verdict};
use crate::events::{Event, Loss};

/// One call to make.
pub(super) struct Call {
    pub lane: usize,
    pub slice: Range<usize>,
    pub attempt: u32,
    /// Everything else of the page is settled, so that its end is saved with this slice.
    pub ends_page: bool,
}

/// What came of the calls, by lane.
pub(super) type Verdicts = Vec<(usize, Verdict)>;

/// Calls under way. Dropping it ends them.
struct Running {
    tasks: JoinSet<Verdict>,
    lanes: HashMap<tokio::task::Id, usize>,
}

impl Worker {
    /// Runs the delegate for every call at once. Nothing comes back if the time for stopping ends first. A process that was
    /// suspended over its fence delivers nothing more of what it had read.
    pub(super) async fn call(&mut self, page: &Page, calls: Vec<Call>) -> Result<Option<Verdicts>, NotWritten> {
        if self.held.is_fenced() {
            return Err(NotWritten::Lost(Loss::Fenced));
        }
        let mut running = Running {
            tasks: JoinSet::new(),
            lanes: HashMap::new(),
        };
        for call in calls {
            let (context, delegate) = (self.context(page, &call), Arc::clone(&self.unit.delegate));
            let batch = RawBatch::new(Arc::clone(&page.changes), call.slice);
            // The call itself belongs into the task too: a delegate may panic before its first await.
            let task = running.tasks.spawn(async move { delegate.call(batch, context).await });
            running.lanes.insert(task.id(), call.lane);
        }
        let (lease, now) = (self.token(), self.unit.clock.now());
        self.unit
            .health
            .note(&lease, |health| health.delegate_running = Some(now));
        let watched = running.watch(Arc::clone(&self.unit), lease.clone(), self.abandon.clone());
        self.called_at = Some(self.unit.stamp());
        let done = self.tend(watched, false).await;
        self.called_at = None;
        self.unit.health.note(&lease, |health| health.delegate_running = None);
        Ok(done?.flatten())
    }

    fn context(&self, page: &Page, call: &Call) -> BatchContext {
        BatchContext {
            lease: self.token(),
            range: page.range.clone(),
            attempt: call.attempt,
            epoch: self.held.lease().epoch(),
            from: page.from.clone(),
            token: page.token.clone(),
            charge: page.charge,
            session: page.session.clone(),
            activity_id: page.activity_id.clone(),
            region: self.region.clone(),
            lag: page.lag,
            cancelled: self.cancelled.clone(),
            checkpoints: self.checkpoints.0.clone(),
            ends_page: call.ends_page,
        }
    }
}

impl Running {
    async fn watch(mut self, unit: Arc<Unit>, lease: String, abandon: CancellationToken) -> Option<Verdicts> {
        let running_for: Duration = unit.settings.stuck_after;
        let (stuck_at, mut is_told) = (Instant::now() + running_for, false);
        let mut verdicts = Verdicts::new();
        loop {
            // Joining, cancellation and the timer lose nothing when another branch is taken.
            tokio::select! {
                joined = self.tasks.join_next_with_id() => match joined {
                    None => break,
                    Some(Ok((id, verdict))) => verdicts.push((self.lane(id), verdict)),
                    Some(Err(error)) => {
                        verdicts.push((self.lane(error.id()), Verdict::Failed(panic_message(error))));
                    }
                },
                () = abandon.cancelled() => return None,
                () = sleep_until(stuck_at), if !is_told => {
                    is_told = true;
                    let lease = lease.clone();
                    unit.events.emit(Event::Stuck { lease, running_for });
                }
            }
        }
        verdicts.sort_by_key(|(lane, _)| *lane);
        Some(verdicts)
    }

    fn lane(&self, id: tokio::task::Id) -> usize {
        self.lanes.get(&id).copied().unwrap_or_default()
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
