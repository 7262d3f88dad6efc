//! A node changes its role: from following to writing, and back.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_model::log::{Operation, Transaction};
use orrery_model::{Epoch, Error, LogId, Lsn, Position, Result, Status};
use orrery_partition::command::Command;
use orrery_partition::decide::unreadable;
use orrery_partition::state::PartitionState;
use orrery_partition::storage::{Log, Role};
use tokio::task::JoinSet;

use crate::catalogue::{ContainerEntry, RangeEntry};
use crate::node::{Node, append_transaction};
use crate::partition::{Held, Partition};
use crate::reshard;

/// Where LSNs go on in a new epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochStart {
    /// Right after the last one: nothing was lost.
    Next,
    /// Above everything that any earlier epoch may have given out, known here or not.
    Above,
}

impl EpochStart {
    pub(crate) fn lsn(self, head: Position, epoch: Epoch) -> Lsn {
        match self {
            EpochStart::Next => head.lsn.next(),
            EpochStart::Above => head.lsn.next_epoch_start().max(epoch.start_above()),
        }
    }
}

/// Held until the new version is known: no token may name a later write with the version before.
async fn raise_version(partition: &Partition) -> Result<()> {
    let held = partition.hold().await?;
    let raised = held.command(Command::RaiseVersion).await;
    // Also if nobody can tell whether it happened.
    partition.refresh_session_version()?;
    match raised {
        // A partition that has been split or merged gives out no tokens any more.
        Err(error) if error.status() == Status::PARTITION_GONE => Ok(()),
        raised => raised.map(drop),
    }
}

impl Node {
    /// Begins to write, in a new epoch. Whoever follows another region must have stopped. What cannot be opened does not keep the
    /// rest from being opened; called again, this tries only what is left.
    pub(crate) async fn promote(self: &Arc<Node>, epoch: Epoch, start: EpochStart) -> Result<()> {
        if !self.duty.writes() || self.control.log().head().epoch < epoch {
            self.control.reopen_as(&*self.store, Role::Own { epoch }).await?;
            let head = self.control.log().head();
            if head.epoch < epoch {
                self.control.begin_epoch(epoch, start).await?;
            }
            // Before the partitions open: bringing one up to its container's definition is a write.
            self.duty.set_writes(true);
        }
        let mut opening = JoinSet::new();
        for (container, range) in self.unopened(epoch) {
            let node = Arc::clone(self);
            opening.spawn(async move { node.promote_partition(&container, &range, epoch, start).await });
        }
        let mut outcome = Ok(());
        while let Some(opened) = opening.join_next().await {
            let opened = opened
                .map_err(|error| Error::new(Status::INTERNAL, "A partition did not open.").with_source(error))
                .flatten();
            outcome = outcome.and(opened);
        }
        outcome?;
        // What was cut off may have had the same children, with other contents at the same LSNs.
        let children = (start == EpochStart::Above).then_some(epoch);
        reshard::recover(self, children).await
    }

    /// Partitions that do not take writes in an epoch yet.
    fn unopened(&self, epoch: Epoch) -> Vec<(Arc<ContainerEntry>, RangeEntry)> {
        let mut ranges = self.all_ranges();
        ranges.retain(|(_, range)| {
            let open = self.partition(range);
            !open.is_ok_and(|open| open.is_owned() && open.log.head().epoch >= epoch)
        });
        ranges
    }

    pub(crate) fn n_unopened(&self, epoch: Epoch) -> u64 {
        self.unopened(epoch).len() as u64
    }

    pub(crate) async fn promote_partition(
        &self,
        container: &ContainerEntry,
        range: &RangeEntry,
        epoch: Epoch,
        start: EpochStart,
    ) -> Result<()> {
        let log = self
            .store
            .open(range.log, Role::Own { epoch })
            .await
            .map_err(unreadable)?;
        let state = PartitionState::load(&*log.snapshot().map_err(unreadable)?).map_err(unreadable)?;
        let head = log.head();
        // A sealed partition has had its last entry, unless the split or merge that sealed it is not known here.
        let is_sealed = state.is_some_and(|state| !state.children.is_empty());
        let is_over = is_sealed && reshard::is_parent(self, &container.rid, range.partition);
        if !is_over && head.epoch < epoch {
            let operation = Operation::EpochStarted { previous: head.lsn };
            let entry = Transaction::at_lsn(head, epoch, start.lsn(head, epoch), self.now(), vec![operation]);
            append_transaction(&*log, entry).await?;
        }
        self.open_partition_as(container, range, epoch).await.map(drop)
    }

    /// Ceases to write. Commands that wait are refused; what has been appended stays.
    pub(crate) async fn demote(&self) -> Result<()> {
        self.duty.set_writes(false);
        self.control.reopen_as(&*self.store, Role::Follow).await?;
        for (_, range) in self.all_ranges() {
            self.open_follower(&range).await?;
        }
        Ok(())
    }

    /// Supersedes the session tokens of every partition, here at once and in other regions once they have applied that.
    pub(crate) async fn raise_versions(&self) -> Result<()> {
        let mut raising = JoinSet::new();
        for (_, range) in self.all_ranges() {
            if let Ok(partition) = self.partition(&range) {
                raising.spawn(async move { raise_version(&partition).await });
            }
        }
        let mut outcome = Ok(());
        while let Some(raised) = raising.join_next().await {
            let raised = raised
                .map_err(|error| Error::new(Status::INTERNAL, "A writer did not wait.").with_source(error))
                .flatten();
            outcome = outcome.and(raised);
        }
        outcome
    }

    /// Makes every writer wait until the answer is dropped.
    pub(crate) async fn hold_all(&self) -> Result<Vec<Held>> {
        let mut holding = JoinSet::new();
        for (_, range) in self.all_ranges() {
            let partition = self.partition(&range)?;
            holding.spawn(async move { partition.hold().await });
        }
        let mut held = Vec::new();
        while let Some(one) = holding.join_next().await {
            let one = one.map_err(|error| Error::new(Status::INTERNAL, "A writer did not wait.").with_source(error))?;
            held.push(one?);
        }
        Ok(held)
    }

    /// Every partition of every container, in the order of their logs: what is begun for each begins in the same order every time.
    pub(crate) fn all_ranges(&self) -> Vec<(Arc<ContainerEntry>, RangeEntry)> {
        let catalogue = self.control.catalogue();
        let of_container = |container: &Arc<ContainerEntry>| {
            let container = Arc::clone(container);
            let ranges = container.ranges.clone().into_iter();
            ranges.map(move |range| (Arc::clone(&container), range))
        };
        let mut all: Vec<_> = catalogue.containers().flat_map(of_container).collect();
        all.sort_unstable_by_key(|(_, range)| range.log);
        all
    }

    pub(crate) fn ranges_by_log(&self) -> BTreeMap<LogId, RangeEntry> {
        self.all_ranges()
            .into_iter()
            .map(|(_, range)| (range.log, range))
            .collect()
    }

    /// Every log the catalogue names besides the system log: partitions and saved copies.
    pub(crate) fn named_logs(&self) -> Vec<LogId> {
        let mut logs: Vec<LogId> = self.all_ranges().iter().map(|(_, range)| range.log).collect();
        let catalogue = self.control.catalogue();
        let saved = catalogue.snapshots.values().flat_map(|saved| &saved.partitions);
        logs.extend(saved.map(|saved| saved.copy));
        logs
    }

    /// The system log and the logs of every partition that is open, in one region's hands.
    pub(crate) fn live_logs(&self) -> BTreeMap<LogId, Arc<dyn Log>> {
        let mut logs: BTreeMap<LogId, Arc<dyn Log>> = self
            .all_ranges()
            .iter()
            .filter_map(|(_, range)| Some((range.log, Arc::clone(&self.partition(range).ok()?.log))))
            .collect();
        logs.insert(LogId::SYSTEM, self.control.log());
        logs
    }

    /// Where this region's copy of every log stands.
    pub fn positions(&self) -> BTreeMap<LogId, Position> {
        let logs = self.live_logs().into_iter();
        logs.map(|(log, open)| (log, open.head())).collect()
    }
}
