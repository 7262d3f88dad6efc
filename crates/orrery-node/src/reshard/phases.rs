//! Splits and merges that somebody leads by hand from one phase to the next, so that what clients meet on the way can be seen:
//!
//! ```text
//! begun ── copied ── sealed ── done
//! ```
//!
//! While it is *begun* or *copied* the parents serve as ever. While it is *sealed* they refuse writes with 410 and their children do
//! not serve yet. One that is led by hand still ends when its region no longer writes or stops: whoever comes next finishes or
//! undoes it, by nobody's hand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use orrery_model::{Error, PartitionId, ResourceId, Result, Status};

use crate::node::Node;
use crate::watched::Watched;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// On record, and nothing else.
    Begun,
    /// The children have nearly everything.
    Copied,
    /// The parents have had their last entry.
    Sealed,
    /// The children serve, or it was given up.
    Done,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Begun => "begun",
            Phase::Copied => "copied",
            Phase::Sealed => "sealed",
            Phase::Done => "done",
        }
    }
}

/// One split or merge that is led by hand.
#[derive(Debug, Default)]
pub struct Steps {
    state: Watched<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` before it has begun.
    reached: Option<Phase>,
    /// It goes on from there.
    left: Option<Phase>,
    failure: Option<Arc<Error>>,
}

impl Steps {
    /// Waits at a phase until somebody says that it may go on, or until it would wait for nothing.
    pub(super) async fn stop_at(&self, node: &Node, phase: Phase) -> Result<()> {
        self.state.modify(|state| state.reached = Some(phase));
        tokio::select! {
            biased;
            // All are safe to drop.
            () = self.state.wait_for(|state| state.left >= Some(phase)) => Ok(()),
            () = node.duty.role_changes() => Err(given_up()),
            () = node.tasks.stopped() => Err(given_up()),
        }
    }

    pub(super) fn end(&self, failure: Option<Error>) {
        self.state.modify(|state| {
            state.reached = Some(Phase::Done);
            state.failure = failure.map(Arc::new);
        });
    }

    /// The phase it has come to, once it has come anywhere.
    async fn reached_after(&self, phase: Option<Phase>) -> Result<Phase> {
        self.state.wait_for(|state| state.reached > phase).await;
        let state = self.state.read();
        match &state.failure {
            Some(failure) => Err(Error::new(failure.status(), failure.message().to_owned())),
            None => Ok(state.reached.unwrap_or(Phase::Done)),
        }
    }

    async fn advance(&self) -> Result<Phase> {
        let at = self.state.change(|state| {
            state.left = state.reached;
            state.reached
        });
        match at {
            Some(Phase::Done) => Ok(Phase::Done),
            at => self.reached_after(at).await,
        }
    }
}

fn given_up() -> Error {
    Error::new(Status::UNAVAILABLE, "Nobody leads the split or merge any more.")
}

/// Those that are led by hand, by their parents.
#[derive(Debug, Default)]
pub struct ByHand(Mutex<HashMap<(ResourceId, PartitionId), Arc<Steps>>>);

impl ByHand {
    /// Waits until it has begun.
    pub async fn begin(
        &self,
        container: &ResourceId,
        parents: &[PartitionId],
        start: impl FnOnce(Arc<Steps>),
    ) -> Result<Phase> {
        let steps = Arc::new(Steps::default());
        start(Arc::clone(&steps));
        let phase = steps.reached_after(None).await?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for parent in parents {
            known.insert((container.clone(), *parent), Arc::clone(&steps));
        }
        Ok(phase)
    }

    /// Lets it go on to its next phase, which it has come to when this returns.
    pub async fn advance(&self, container: &ResourceId, parent: PartitionId) -> Result<Phase> {
        let key = (container.clone(), parent);
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let none = || Error::new(Status::NOT_FOUND, "The partition is not being split or merged by hand.");
        let steps = found.ok_or_else(none)?;
        let reached = steps.advance().await;
        if !matches!(reached, Ok(phase) if phase < Phase::Done) {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|_, other| !Arc::ptr_eq(other, &steps));
        }
        reached
    }
}
