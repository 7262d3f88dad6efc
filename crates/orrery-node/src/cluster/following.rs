//! What a follower knows of the catalogue, kept in step with a system log that moves by itself.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use orrery_model::{LogId, Lsn, Result};
use orrery_partition::decide::unreadable;
use orrery_partition::state::PartitionState;

use crate::node::{Node, define};

/// How soon to look again for a log that the catalogue names and that has not arrived.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How soon to look again after trouble.
const PAUSE: Duration = Duration::from_millis(500);
/// How often to look at every log although nothing is known to have happened.
const ROUND: Duration = Duration::from_secs(5);

/// Follows the system log for as long as there is a node.
pub async fn run(node: Weak<Node>) {
    let Some(stopped) = node.upgrade().map(|node| node.tasks.stopped()) else {
        return;
    };
    tokio::pin!(stopped);
    let mut settled = false;
    loop {
        let Some(alive) = node.upgrade() else { return };
        let (log, pause) = (alive.control.log(), if settled { ROUND } else { LOOK_AGAIN });
        let known = alive.control.shown();
        drop(alive);
        tokio::select! {
            // All are safe to drop: none has begun anything.
            () = &mut stopped => return,
            _ = log.wait_past(known) => {}
            () = tokio::time::sleep(pause) => {}
        }
        let Some(node) = node.upgrade() else { return };
        settled = match node.keep_up().await {
            Ok(settled) => settled,
            Err(error) => {
                tracing::warn!(%error, "the catalogue cannot be followed now");
                tokio::time::sleep(PAUSE).await;
                false
            }
        };
    }
}

impl Node {
    /// Takes in what has happened. `false` when a log that is named has not arrived yet.
    async fn keep_up(self: &Arc<Node>) -> Result<bool> {
        let _alone = self.changing_role.lock().await;
        if self.duty.writes() {
            return Ok(true);
        }
        self.control.absorb().await?;
        let shown = self.control.shown();
        self.reload_keys()?;
        self.close_unnamed();
        self.reopen_fenced().await?;
        self.open_all().await?;
        let is_defined = self.redefine_owned().await?;
        if is_defined {
            self.carried_out.send_replace(shown);
        }
        let open: HashSet<LogId> = self.open_logs().into_iter().collect();
        Ok(is_defined && self.all_ranges().iter().all(|(_, range)| open.contains(&range.log)))
    }

    /// Brings the partitions that this node owns up to what their containers are now. `false` when one was another's.
    async fn redefine_owned(&self) -> Result<bool> {
        let mut is_done = true;
        for (container, range) in self.all_ranges() {
            let Ok(partition) = self.partition(&range) else {
                continue;
            };
            if !partition.is_owned() {
                continue;
            }
            let state = PartitionState::load(&*partition.snapshot()?).map_err(unreadable)?;
            let is_behind = |state: PartitionState| {
                state.definition_version < container.definition_version && state.children.is_empty()
            };
            if state.is_some_and(is_behind) {
                // Whoever owns it next does it.
                is_done &= partition.command(define(&container)).await.is_ok();
                self.policy_changed.notify_one();
            }
        }
        Ok(is_done)
    }

    /// Lets go of partitions that the catalogue no longer names. Their logs are dropped by whoever owns them.
    pub(super) fn close_unnamed(&self) {
        let named: HashSet<LogId> = self.named_logs().into_iter().collect();
        for log in self.open_logs().into_iter().filter(|log| !named.contains(log)) {
            drop(self.close_partition(log));
        }
    }

    /// A log that was dropped and made anew, or begun in a new epoch, is opened again.
    async fn reopen_fenced(&self) -> Result<()> {
        let exist = self.held_logs()?;
        for (_, range) in self.all_ranges() {
            let Ok(partition) = self.partition(&range) else {
                continue;
            };
            if super::answerable::is_alive(&*partition.log).await {
                continue;
            }
            drop(self.close_partition(range.log));
            if exist.contains(&range.log) {
                self.open_follower(&range).await?;
            }
        }
        Ok(())
    }

    /// LSN of the system log, up to which this node knows what exists.
    pub fn system_lsn(&self) -> Lsn {
        self.control.shown()
    }

    /// Waits until this node knows what exists at `lsn` of the system log.
    pub async fn knows_system(&self, lsn: Lsn) {
        self.control.shown_past(lsn).await;
    }
}
