//! Applying a changed indexing policy to the items that are there: small steps, each an entry of the partition's log, so
//! that writes come in between and a restart goes on where the last step ended. Until a partition is done its queries
//! scan.

use std::sync::{Arc, Weak};
use std::time::Duration;

use orrery_model::{Epk, ResourceId, Result};
use orrery_partition::command::Command;
use orrery_partition::decide::unreadable;
use orrery_partition::index::IndexProgress;
use orrery_partition::keys::{self, EpkForm};
use orrery_partition::state::PartitionState;

use crate::catalogue::ContainerEntry;
use crate::node::Node;
use crate::partition::Partition;

/// Items indexed by one step.
const STEP_ITEMS: u32 = 200;
/// Until partitions are looked at after the catalogue has changed, however often it does, and until one that could not be
/// brought up to date is tried again.
const PAUSE: Duration = Duration::from_secs(2);

/// Whether everything is indexed as its policy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Done,
    Unfinished,
}

/// Looks at the partitions at once when a policy has changed, and a little later when the catalogue has, or the region's role: a
/// split, a restore or a failover may have opened some whose index is unfinished.
pub async fn run(node: Weak<Node>) {
    let Some(strong) = node.upgrade() else { return };
    let (stopped, changed) = (strong.tasks.stopped(), Arc::clone(&strong.policy_changed));
    let catalogue = Arc::clone(strong.control.watch());
    drop(strong);
    tokio::pin!(stopped);
    loop {
        let Some(strong) = node.upgrade() else { return };
        let seen = catalogue.n_changes();
        let round = tokio::select! {
            biased;
            // All are safe to drop: a step that was sent is decided and answered without us.
            () = &mut stopped => return,
            round = round(&strong) => round,
        };
        drop(strong);
        let due = async {
            if round == Round::Done {
                catalogue.changed_since(seen).await;
            }
            tokio::time::sleep(PAUSE).await;
        };
        tokio::select! {
            biased;
            () = &mut stopped => return,
            () = changed.notified() => {}
            () = due => {}
        }
    }
}

/// Brings every partition's index up to date. A region that follows gets the steps of the one that writes.
async fn round(node: &Arc<Node>) -> Round {
    let mut outcome = Round::Done;
    if !node.duty.may_write_some() {
        return outcome;
    }
    let containers: Vec<Arc<ContainerEntry>> = node.control.catalogue().containers().cloned().collect();
    for container in containers {
        for range in &container.ranges {
            let Some(partition) = node.partition(range).ok().filter(|found| found.is_owned()) else {
                // Where there is no other owner it is about to be opened here.
                if !node.duty.clustered {
                    outcome = Round::Unfinished;
                }
                continue;
            };
            if let Err(error) = apply(&partition, &container).await {
                tracing::debug!(%error, "indexing stopped; it is tried again");
                outcome = Round::Unfinished;
            }
        }
    }
    outcome
}

async fn apply(partition: &Partition, container: &ContainerEntry) -> Result<()> {
    let policy = container.definition.index_rules().fingerprint();
    // Entries may also have been made by an earlier version, which called its policy by another name.
    let is_as_asked = |state: &PartitionState| {
        let knows_policy = state.definition_version == container.definition_version;
        state.index.is_ready() && (state.index_policy == policy || !knows_policy)
    };
    let mut was_ready = false;
    loop {
        let Some(state) = state(partition)?.filter(|state| state.children.is_empty()) else {
            return Ok(());
        };
        // A step that leaves a complete index as it was has nothing to add, whatever the policies are called.
        if is_as_asked(&state) || (was_ready && state.index.is_ready()) {
            return Ok(());
        }
        was_ready = state.index.is_ready();
        partition
            .command(Command::Reindex {
                n_items_max: STEP_ITEMS,
            })
            .await?;
    }
}

fn state(partition: &Partition) -> Result<Option<PartitionState>> {
    PartitionState::load(&*partition.snapshot()?).map_err(unreadable)
}

/// Percent of a container's items that the index knows under the current policy.
pub fn progress(node: &Node, rid: &ResourceId) -> Option<u8> {
    let container = node.control.catalogue().container(rid).cloned()?;
    let form = EpkForm::of(container.definition.partition_key());
    let (mut done, mut all, mut is_ready) = (0.0, 0.0, true);
    for range in &container.ranges {
        let state = state(&*node.partition(range).ok()?).ok()??;
        // An empty partition counts as well, or an empty container would have nothing to divide by.
        let weight = state.n_items as f64 + 1.0;
        all += weight;
        done += weight * share(&state, form);
        is_ready &= state.index.is_ready();
    }
    let percent = (100.0 * done / all) as u8;
    Some(if is_ready { 100 } else { percent.min(99) })
}

/// How much of a partition is indexed. Hashes are spread evenly, so the place reached tells.
fn share(state: &PartitionState, form: EpkForm) -> f64 {
    let at = |epk: &Epk| {
        let mut first = [0; 8];
        let bytes = epk.as_bytes();
        let n = bytes.len().min(8);
        first[..n].copy_from_slice(&bytes[..n]);
        u64::from_be_bytes(first) as f64
    };
    match &state.index {
        IndexProgress::Ready => 1.0,
        IndexProgress::Clearing => 0.0,
        IndexProgress::Building { reached } => match keys::read_item(form, reached) {
            Some((epk, _)) => {
                let (min, max) = (at(&state.range.min), at(&state.range.max));
                ((at(&epk) - min) / (max - min).max(1.0)).clamp(0.0, 1.0)
            }
            None => 0.0,
        },
    }
}
