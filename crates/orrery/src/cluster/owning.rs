//! How a member comes to own the logs that it is to own, and ceases to own the others.
//!
//! What it has no right to any more it ceases to write at once. Opening logs, and closing them when it is asked to hand them
//! over, takes time and runs beside the turns of the member, one piece of work after the other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use orrery_model::{LogId, Lsn, Result};
use orrery_node::Node;
use tokio::task::JoinHandle;

use super::member::{Leading, Running};

/// Waited after work that failed, so that another node gets its turn.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
/// How long a node that lags waits for what it must know of the catalogue before it opens a log.
const CATALOGUE_WAIT: Duration = Duration::from_secs(5);

/// Something that is under way.
#[derive(Debug)]
pub(super) enum Work {
    /// Begins to coordinate.
    Leads(JoinHandle<Result<()>>),
    Ceases(JoinHandle<Result<()>>),
    Takes(JoinHandle<Result<()>>),
    Gives {
        logs: BTreeSet<LogId>,
        done: JoinHandle<Result<()>>,
    },
    /// Follows logs it no longer owns.
    Follows(JoinHandle<Result<()>>),
    /// Has ended.
    Done(Ended),
}

/// What has ended, and how.
#[derive(Debug)]
pub(super) enum Ended {
    Leads(Result<()>),
    Ceases(Result<()>),
    Gives(BTreeSet<LogId>, Result<()>),
    Other(Result<()>),
}

/// Completes when work has ended; never while there is none.
pub(super) async fn ended(work: &mut Option<Work>) {
    if work.is_none() {
        return std::future::pending().await;
    }
    ended_or_none(work).await;
}

/// Completes when no work is under way.
pub(super) async fn ended_or_none(work: &mut Option<Work>) {
    // Looked at in its place: whoever waits may go away and come again.
    let result = match work {
        None | Some(Work::Done(_)) => return,
        Some(
            Work::Leads(done) | Work::Ceases(done) | Work::Takes(done) | Work::Follows(done) | Work::Gives { done, .. },
        ) => done.await.unwrap_or_else(|error| {
            let status = orrery_model::Status::INTERNAL;
            Err(orrery_model::Error::new(status, "Work on logs was cut off.").with_source(error))
        }),
    };
    let ended = match work.take() {
        Some(Work::Leads(_)) => Ended::Leads(result),
        Some(Work::Ceases(_)) => Ended::Ceases(result),
        Some(Work::Gives { logs, .. }) => Ended::Gives(logs, result),
        _ => Ended::Other(result),
    };
    *work = Some(Work::Done(ended));
}

impl Running {
    /// Whether this node is the one to own a log.
    fn is_entitled(&self, log: LogId) -> bool {
        if self.member.station.charge().is_none() {
            return false;
        }
        let placement = self.placement();
        match placement.logs.contains_key(&log) {
            true => placement.is_owned_by(log, &self.member.record.id, self.seated()),
            // At home: the coordinator's, also while it opens it.
            false => {
                let leads = matches!(self.leading, Leading::Opens | Leading::Leads);
                leads && self.lease.holds(self.member.station.now())
            }
        }
    }

    /// Ceases to own what is another's, and begins what there is to do.
    pub(super) async fn begin_work(&mut self) {
        let node = Arc::clone(&self.member.station.node);
        let owned = node.owned_logs();
        let not_ours: BTreeSet<LogId> = owned.iter().copied().filter(|log| !self.is_entitled(*log)).collect();
        if !not_ours.is_empty() {
            tracing::info!(n_logs = not_ours.len(), "this node gives logs up");
            node.cease(&not_ours);
        }
        if self.work.is_none() && !self.left {
            self.work = self.next_work(&node).await;
        }
    }

    async fn next_work(&mut self, node: &Arc<Node>) -> Option<Work> {
        let worker = Arc::clone(node);
        match self.leading {
            Leading::Ceases => {
                return Some(Work::Ceases(tokio::spawn(async move { worker.cease_to_lead().await })));
            }
            Leading::Begins => return self.begin_to_lead(worker).await,
            Leading::Not | Leading::Opens | Leading::Leads => {}
        }
        if node.has_ceased_some() {
            return Some(Work::Follows(tokio::spawn(async move { worker.follow_ceased().await })));
        }
        if self.member.station.now() < self.idle_until {
            return None;
        }
        let placement = self.placement();
        let mut asked = BTreeSet::new();
        if self.seated().is_some() {
            asked = placement.to_hand_over(&self.member.record.id);
        }
        if !asked.is_empty() {
            let logs = asked.clone();
            let done = tokio::spawn(async move { worker.disown(&asked).await });
            return Some(Work::Gives { logs, done });
        }
        let missing = node
            .serving_logs()
            .into_iter()
            .filter(|log| self.is_entitled(*log) && !node.owns(*log));
        let missing: BTreeSet<LogId> = missing.collect();
        (!missing.is_empty()).then(|| Work::Takes(tokio::spawn(take(worker, missing, placement.known))))
    }

    /// A lease that was just taken: the system log and what is at home are opened.
    async fn begin_to_lead(&mut self, node: Arc<Node>) -> Option<Work> {
        if !self.lease.holds(self.member.station.now()) {
            self.stop_leading();
            return None;
        }
        let least = self.member.station.charge()?;
        // In a new epoch of the region every log is begun here before any other node owns one.
        let is_ready = match node.begins_epoch(least) {
            true => self.bring_all_home().await,
            false => self.stamp_placement().await,
        };
        if !is_ready {
            return None;
        }
        self.leading = Leading::Opens;
        if let Some(until) = self.lease.held_until() {
            self.member.station.extend_lead(until);
        }
        let elsewhere: BTreeSet<LogId> = self.placement().logs.keys().copied().collect();
        let store = Arc::clone(&self.member.store);
        Some(Work::Leads(tokio::spawn(async move {
            store.refresh().await.map_err(orrery_partition::decide::unreadable)?;
            node.lead(&elsewhere, least).await
        })))
    }

    /// Something has ended: what follows from it.
    pub(super) async fn finish_work(&mut self) {
        let Some(Work::Done(ended)) = self.work.take() else {
            return;
        };
        let now = self.member.station.now();
        let failed = match ended {
            Ended::Leads(led) => {
                let holds = self.lease.holds(now) && self.leading == Leading::Opens;
                match &led {
                    Ok(()) if holds => {
                        self.leading = Leading::Leads;
                        self.lease.serve(now);
                    }
                    Ok(()) => self.stop_leading(),
                    Err(_) => {
                        self.stop_leading();
                        self.release_lease().await;
                    }
                }
                led.err()
            }
            Ended::Ceases(ceased) => {
                if ceased.is_ok() {
                    self.leading = Leading::Not;
                }
                ceased.err()
            }
            Ended::Gives(logs, given) => {
                let me = self.member.record.id.clone();
                if given.is_ok() {
                    self.change_placement(|current| current.handed_over(&me, &logs)).await;
                }
                given.err()
            }
            Ended::Other(done) => done.err(),
        };
        if let Some(error) = failed {
            tracing::warn!(%error, "this node could not change what it owns");
            self.idle_until = now + PAUSE_AFTER_FAILURE;
        }
        self.member.station.stir();
    }
}

/// Opens logs, once this node knows of the catalogue what whoever assigned them knew.
async fn take(node: Arc<Node>, logs: BTreeSet<LogId>, known: Lsn) -> Result<()> {
    let learns = tokio::time::timeout(CATALOGUE_WAIT, node.knows_system(known)).await;
    learns.map_err(|error| {
        let status = orrery_model::Status::UNAVAILABLE;
        orrery_model::Error::new(status, "This node lags behind what exists.").with_source(error)
    })?;
    node.own(&logs).await
}
