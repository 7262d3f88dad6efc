//! A request on its way through a node of a cluster: what it is about, what of an answer to it counts, how long it waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use orrery_model::{LogId, Status};
use orrery_node::api::{Operation, Outcome, StepResult};
use orrery_node::cluster::Reach;
use orrery_node::{Node, Reply, Request};
use tokio::sync::watch;
use tokio::time::Instant;

use super::station::{Routes, Station};

/// How soon to ask again when the owner did not take a request.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// How long requests wait for an owner when this node is about to leave.
const HOLD_WHEN_LEAVING: Duration = Duration::from_secs(2);

/// A request on its way to whoever executes it.
pub(super) struct Task {
    /// `None` once a write was tried here: it is not copied for the rare case that it comes back.
    pub(super) request: Option<Request>,
    pub(super) reach: Reach,
    pub(super) is_write: bool,
    pub(super) is_metadata: bool,
    /// All of it happens or nothing.
    is_whole: bool,
    /// Doing it twice is doing it once.
    is_repeatable: bool,
}

impl Task {
    pub(super) fn new(request: Request) -> Task {
        Task {
            is_write: request.operation.is_write(),
            is_metadata: matches!(request.operation, Operation::Metadata(_)),
            is_whole: !matches!(&request.operation, Operation::Batch(batch) if !batch.atomic),
            is_repeatable: matches!(request.operation, Operation::DeletePartitionKey { .. }),
            reach: Reach::Catalogue,
            request: Some(request),
        }
    }

    /// A write of one item to a log, of which no more is known.
    pub(super) fn item_write(log: LogId) -> Task {
        Task {
            request: None,
            reach: Reach::Logs {
                logs: BTreeSet::from([log]),
                reads: false,
            },
            is_write: true,
            is_metadata: false,
            is_whole: true,
            is_repeatable: false,
        }
    }

    /// Finds out what it is about, as far as this node knows now.
    pub(super) fn find(&mut self, node: &Node) {
        if let Some(request) = &self.request {
            self.reach = node.reach(request);
        }
    }

    pub(super) fn attempt(&mut self) -> Option<Request> {
        match self.is_write {
            true => self.request.take(),
            false => self.request.clone(),
        }
    }

    /// Of the answer of a node that may not have owned the log when it gave it: what is in the log all the same. `None` when
    /// nothing is.
    pub(super) fn appended(&self, mut reply: Reply) -> Option<Reply> {
        if !self.is_write || self.is_repeatable {
            return None;
        }
        match &mut reply.outcome {
            Outcome::NotModified { .. } => return None,
            Outcome::Batch(steps) => {
                let refused = || steps.iter().any(|step| step.status >= 400);
                if self.is_whole && refused() {
                    return None;
                }
                // One whose outcome is not known is no refusal: repeating it might do it twice.
                let is_refused =
                    |step: &&mut StepResult| step.status >= 400 && step.status != Status::REQUEST_TIMEOUT.code;
                steps.iter_mut().filter(is_refused).for_each(ask_again);
            }
            _ => {}
        }
        Some(reply)
    }

    /// Can it be answered from views?
    pub(super) fn is_read(&self) -> bool {
        matches!(self.reach, Reach::Logs { reads: true, .. })
    }
}

/// A refusal that may be out of date: the client repeats the step.
fn ask_again(step: &mut StepResult) {
    let status = Status::PARTITION_SPLITTING;
    (step.status, step.sub_status) = (status.code, status.sub);
}

/// A request that may have to wait for an owner.
pub(super) struct Waiting {
    routes: watch::Receiver<Arc<Routes>>,
    until: Instant,
}

impl Waiting {
    pub(super) fn new(station: &Station, hold: Duration) -> Waiting {
        let hold = match station.is_leaving() {
            true => HOLD_WHEN_LEAVING.min(hold),
            false => hold,
        };
        Waiting {
            routes: station.watch(),
            until: Instant::now() + hold,
        }
    }

    /// What happens from now on is worth another try.
    pub(super) fn look(&mut self) {
        self.routes.mark_unchanged();
    }

    /// Waits until it may be worth another try. `false` when that is not worth it any more.
    pub(super) async fn wait(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        tokio::select! {
            // Both are safe to drop: a change is still to be seen at the next look.
            _ = self.routes.changed() => {}
            () = tokio::time::sleep(ASK_AGAIN) => {}
        }
        true
    }
}
