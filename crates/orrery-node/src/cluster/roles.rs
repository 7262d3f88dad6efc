//! What a node of a cluster is to each log: it owns some and follows the others, and it may coordinate.
//!
//! To coordinate is to own the system log and whatever is at home ([`super::placement`]). Beginning and ceasing to own a log
//! touches no other: its neighbours go on.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use orrery_model::{Epoch, Error, LogId, Lsn, Result, Status};
use orrery_partition::decide::unreadable;
use orrery_partition::storage::{Role, Store};
use tokio::task::JoinSet;

use super::following;
use crate::clock::Clock;
use crate::control::Control;
use crate::events::Events;
use crate::geo::duty::{Duty, Promise};
use crate::geo::roles::EpochStart;
use crate::node::{Node, NodeSettings, owning_epoch};
use crate::partition::Partition;
use crate::reshard;

impl Node {
    /// Makes the account in a store that has none: its keys, and nothing else.
    pub async fn found(settings: NodeSettings, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<()> {
        let events = Events::new(Arc::clone(&clock));
        let role = Role::Own {
            epoch: system_epoch(&*store)?,
        };
        let duty = Arc::new(Duty::clustered(true, Promise::Local)).of(LogId::SYSTEM);
        let control = Control::open(&*store, role, clock, events, duty).await?;
        crate::node::account_keys(&control, &settings).await.map(drop)
    }

    /// Whether the store holds an account.
    pub async fn is_founded(store: &dyn Store) -> Result<bool> {
        let logs = store.list().map_err(unreadable)?;
        if !logs
            .iter()
            .any(|info| info.log == LogId::SYSTEM && info.position.lsn.0 > 0)
        {
            return Ok(false);
        }
        let log = store.open(LogId::SYSTEM, Role::Follow).await;
        let snapshot = log.map_err(unreadable)?.snapshot().map_err(unreadable)?;
        let account = snapshot.get(&orrery_partition::keys::record(b"account"));
        Ok(account.map_err(unreadable)?.is_some())
    }

    /// Opens an account that exists, as a node that follows every log. The store must follow what others write by itself.
    pub async fn follow(settings: NodeSettings, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Arc<Node>> {
        Node::follow_with(Promise::Local, settings, store, clock).await
    }

    /// The same where the account has other regions, which what it promises is about.
    pub async fn follow_among_regions(
        settings: NodeSettings,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Node>> {
        Node::follow_with(Promise::of(&settings.account), settings, store, clock).await
    }

    async fn follow_with(
        promise: Promise,
        settings: NodeSettings,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Node>> {
        let events = Events::new(Arc::clone(&clock));
        let duty = Duty::clustered(false, promise);
        let node = Node::start_in(settings, store, clock, duty, events).await?;
        node.tasks.spawn(following::run(Arc::downgrade(&node)));
        Ok(node)
    }

    /// Begins to coordinate: takes the system log over from whoever owned it, and every log that is not `elsewhere`. Finishes
    /// what the last coordinator left undone.
    ///
    /// `least` is the epoch in which the region takes writes. When it begins, every log does, at LSNs that no other region can
    /// have given out; the system log last, so that what is cut off is done again.
    pub async fn lead(self: &Arc<Node>, elsewhere: &BTreeSet<LogId>, least: Epoch) -> Result<()> {
        let _alone = self.changing_role.lock().await;
        let begun = self.begins_epoch(least).then_some(least);
        let epoch = system_epoch(&*self.store)?.max(least);
        self.control.reopen_as(&*self.store, Role::Own { epoch }).await?;
        self.duty.set_writes(true);
        self.reload_keys()?;
        self.close_unnamed();
        self.open_all().await?;
        let all = self.all_ranges().into_iter().map(|(_, range)| range.log);
        let home: BTreeSet<LogId> = all.filter(|log| !elsewhere.contains(log)).collect();
        self.open_as_owner(&home, begun).await?;
        let head = self.control.log().head();
        if head.epoch < epoch {
            let start = begun.map_or(EpochStart::Next, |_| EpochStart::Above);
            self.control.begin_epoch(epoch, start).await?;
        }
        // What was cut off may have had the same children, with other contents at the same LSNs.
        reshard::recover(self, begun).await?;
        self.drop_strangers().await
    }

    /// Whether the region's epoch has yet to begin here. The first one began with the account.
    pub fn begins_epoch(&self, least: Epoch) -> bool {
        least > Epoch(1) && self.control.log().head().epoch < least
    }

    /// This node may act as the coordinator until then, whatever becomes of whoever says so. Without a word from anybody: for
    /// ever.
    pub fn lead_until(&self, until: Instant) {
        self.duty.set_until(Some(until));
    }

    /// Ceases to coordinate, at once. Logs are given up by themselves.
    pub async fn cease_to_lead(self: &Arc<Node>) -> Result<()> {
        // Before anything that may take its time.
        self.duty.set_writes(false);
        let _alone = self.changing_role.lock().await;
        // A change that has begun ends first: it is refused by the log, or it happened.
        let _unchanged = self.control.hold().await;
        self.control.reopen_as(&*self.store, Role::Follow).await?;
        self.close_unnamed();
        Ok(())
    }

    /// Begins to own logs, in the place of whoever did. Names that this node does not know yet are left out.
    pub async fn own(self: &Arc<Node>, logs: &BTreeSet<LogId>) -> Result<()> {
        let _alone = self.changing_role.lock().await;
        self.open_as_owner(logs, None).await
    }

    /// `begun`: an epoch that all of them begin.
    async fn open_as_owner(self: &Arc<Node>, logs: &BTreeSet<LogId>, begun: Option<Epoch>) -> Result<()> {
        let known = self.store.list().map_err(unreadable)?;
        let epoch_of = |log: LogId| known.iter().find(|info| info.log == log).map_or(Epoch(1), owning_epoch);
        let mut opening = JoinSet::new();
        for (container, range) in self.all_ranges() {
            if !logs.contains(&range.log) || self.owns(range.log) {
                continue;
            }
            let (node, epoch) = (Arc::clone(self), epoch_of(range.log));
            opening.spawn(async move {
                match begun {
                    Some(begun) => {
                        let start = EpochStart::Above;
                        node.promote_partition(&container, &range, begun.max(epoch), start)
                            .await?;
                    }
                    None => drop(node.open_partition_as(&container, &range, epoch).await?),
                }
                node.set_throttles(&container);
                Ok(())
            });
        }
        let mut outcome = Ok(());
        while let Some(opened) = opening.join_next().await {
            let opened = opened
                .map_err(|error| Error::new(Status::INTERNAL, "A partition did not open.").with_source(error))
                .flatten();
            // The others open all the same.
            outcome = outcome.and(opened);
        }
        outcome
    }

    /// Lets what is under way end, then ceases to own logs. Whatever waits is refused, surely not done.
    pub async fn disown(self: &Arc<Node>, logs: &BTreeSet<LogId>) -> Result<()> {
        let _alone = self.changing_role.lock().await;
        let mut holding = JoinSet::new();
        for partition in self.owned().into_iter().filter(|one| logs.contains(&one.log.id())) {
            holding.spawn(async move {
                let held = partition.hold().await;
                partition.cease();
                held
            });
        }
        let mut held = Vec::new();
        while let Some(one) = holding.join_next().await {
            // A writer that has ended holds nothing up.
            held.extend(one.ok().and_then(Result::ok));
        }
        self.follow_again(logs).await
    }

    /// Ceases to own logs at once. What is under way may still be stored, and is answered as what it was.
    pub fn cease(&self, logs: &BTreeSet<LogId>) {
        let ceasing = self.owned().into_iter().filter(|one| logs.contains(&one.log.id()));
        ceasing.for_each(|partition| partition.cease());
    }

    /// Follows logs that this node has ceased to own.
    pub async fn follow_ceased(self: &Arc<Node>) -> Result<()> {
        let _alone = self.changing_role.lock().await;
        let ceased: BTreeSet<LogId> = {
            let partitions = self.partitions.read().unwrap_or_else(PoisonError::into_inner);
            let ceased = partitions.values().filter(|one| one.has_ceased());
            ceased.map(|partition| partition.log.id()).collect()
        };
        self.follow_again(&ceased).await
    }

    async fn follow_again(&self, logs: &BTreeSet<LogId>) -> Result<()> {
        for (_, range) in self.all_ranges() {
            if logs.contains(&range.log) {
                self.open_follower(&range).await?;
                self.cache.clear(range.log);
            }
        }
        Ok(())
    }

    /// Every partition whose log this node owns.
    fn owned(&self) -> Vec<Arc<Partition>> {
        let partitions = self.partitions.read().unwrap_or_else(PoisonError::into_inner);
        partitions.values().filter(|one| one.is_owned()).cloned().collect()
    }

    /// The logs of partitions that this node owns.
    pub fn owned_logs(&self) -> BTreeSet<LogId> {
        self.owned().iter().map(|partition| partition.log.id()).collect()
    }

    pub fn owns(&self, log: LogId) -> bool {
        let partitions = self.partitions.read().unwrap_or_else(PoisonError::into_inner);
        partitions.get(&log).is_some_and(|partition| partition.is_owned())
    }

    /// Whether a partition's log is open here in no role any more, since this node ceased to own it.
    pub fn has_ceased_some(&self) -> bool {
        let partitions = self.partitions.read().unwrap_or_else(PoisonError::into_inner);
        partitions.values().any(|partition| partition.has_ceased())
    }

    /// The logs of all partitions that the catalogue names.
    pub fn serving_logs(&self) -> BTreeSet<LogId> {
        self.all_ranges().into_iter().map(|(_, range)| range.log).collect()
    }

    /// The logs of a container's partitions; none when there is no such container.
    pub fn logs_of(&self, database: &str, container: &str) -> BTreeSet<LogId> {
        let found = self.named(database, container);
        found.map_or_else(
            |_| BTreeSet::new(),
            |container| container.ranges.iter().map(|range| range.log).collect(),
        )
    }

    /// Completes when a log turned out to be another's.
    pub async fn fenced(&self) {
        self.duty.fenced().await;
    }

    /// Whether this node coordinates, proven by the store.
    pub async fn proves_ownership(&self) -> bool {
        self.duty.writes() && self.control.log().barrier().await.is_ok()
    }

    /// Refuses to go on where another node may decide by now what exists. There is nothing to prove in a store that no other
    /// node opens.
    pub(crate) async fn prove_leads(&self) -> Result<()> {
        if !self.duty.clustered {
            return Ok(());
        }
        // Before it, so that the log is one that this node writes; after it, because proving takes its time.
        self.duty.check_writes()?;
        self.control.log().barrier().await.map_err(unreadable)?;
        self.duty.check_writes()
    }

    /// How far this node has done what the system log asks of it.
    pub fn carried_out(&self) -> Lsn {
        *self.carried_out.borrow()
    }

    /// Waits until this node has done everything that the system log asks of it up to `lsn`.
    pub async fn carries_out(&self, lsn: Lsn) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.carried_out.subscribe().wait_for(|done| *done >= lsn).await;
    }
}

/// The epoch in which the account is owned.
fn system_epoch(store: &dyn Store) -> Result<Epoch> {
    let logs = store.list().map_err(unreadable)?;
    let system = logs.iter().find(|info| info.log == LogId::SYSTEM);
    Ok(system.map_or(Epoch(1), owning_epoch).max(Epoch(1)))
}
