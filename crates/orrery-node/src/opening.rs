//! Partitions are opened, closed and given up: the one place that decides in which role a log is opened.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use orrery_model::log::{Opened, Operation as LogOperation};
use orrery_model::{Epoch, Error, LogId, ResourceId, Result, Status};
use orrery_partition::IndexedDefinition;
use orrery_partition::decide::unreadable;
use orrery_partition::state::PartitionState;
use orrery_partition::storage::{Log, Role, StorageError};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::catalogue::{ContainerEntry, RangeEntry};
use crate::geo::jumps::jumps_of;
use crate::node::{Node, append_one, define, owning_epoch};
use crate::partition::{Commitment, Partition};
use crate::quota::Quota;
use crate::throttle::Throttle;
use crate::writer::{INBOX, Writer};

/// Logs that the servers are asked for at once, and for how long.
const ASKED_AT_ONCE: usize = 32;
const ASKED_FOR: Duration = Duration::from_secs(1);

impl Node {
    /// Opens a partition's log, brings it up to the container's definition, and starts its writer.
    pub(crate) async fn open_partition(
        &self,
        container: &ContainerEntry,
        range: &RangeEntry,
    ) -> Result<Arc<Partition>> {
        let owner = self
            .store
            .list()
            .map_err(unreadable)?
            .iter()
            .find(|info| info.log == range.log)
            .map_or(Epoch(1), owning_epoch);
        self.open_partition_as(container, range, owner).await
    }

    /// Opens a partition that another region writes.
    pub(crate) async fn open_follower(&self, range: &RangeEntry) -> Result<Arc<Partition>> {
        let log = self.store.open(range.log, Role::Follow).await.map_err(unreadable)?;
        if !self.duty.clustered {
            // What readers of an earlier copy still put there is from before.
            self.cache.begin(range.log, log.head().lsn);
        }
        // No writer takes anything from this inbox: whatever is put in is refused.
        let (sender, _) = mpsc::channel(1);
        let partition = Partition::new(
            range.partition,
            log,
            sender,
            Arc::clone(&self.cache),
            Throttle::default(),
            CancellationToken::new(),
            Commitment::Learned(Arc::default()),
            self.now(),
        )?;
        let partition = match self.duty.clustered {
            true => partition.without_writer().moved_by_others(),
            false => partition.without_writer(),
        };
        let partition = Arc::new(partition);
        self.partitions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(range.log, Arc::clone(&partition));
        Ok(partition)
    }

    pub(crate) async fn open_partition_as(
        &self,
        container: &ContainerEntry,
        range: &RangeEntry,
        owner: Epoch,
    ) -> Result<Arc<Partition>> {
        let log = self
            .store
            .open(
                range.log,
                Role::Own {
                    epoch: owner.max(Epoch(1)),
                },
            )
            .await
            .map_err(unreadable)?;
        let state = PartitionState::load(&*log.snapshot().map_err(unreadable)?).map_err(unreadable)?;
        let state = match state {
            Some(state) => state,
            None => self.append_opened(&*log, container, range).await?,
        };
        let (sender, inbox) = mpsc::channel(INBOX);
        let ended = CancellationToken::new();
        let duty = self.duty.of(range.log);
        let head = log.head();
        if self.duty.clustered {
            self.cache.begin(range.log, head.lsn);
            duty.wrote(head.lsn);
        }
        duty.progress.begin(head.lsn, jumps_of(&*log).await);
        let partition = Partition::new(
            range.partition,
            Arc::clone(&log),
            sender,
            Arc::clone(&self.cache),
            Throttle::default(),
            ended.clone(),
            Commitment::Counted(duty.clone()),
            self.now(),
        )?;
        let partition = Arc::new(partition);
        let writer = Writer {
            duty,
            tasks: self.tasks.clone(),
            partition: range.partition,
            identity: container.identity.clone(),
            log,
            definition: IndexedDefinition::new((*container.definition).clone()),
            cache: Arc::clone(&self.cache),
            clock: Arc::clone(&self.clock),
            expiring: Arc::clone(&self.expiring),
            last_at: state.head_at,
            quota: Arc::new(Quota::new(self.settings.logical_partition_bytes_max)),
        };
        self.tasks.spawn(writer.run(inbox, ended.drop_guard()));
        self.partitions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(range.log, Arc::clone(&partition));
        if state.definition_version < container.definition_version && state.children.is_empty() {
            partition.command(define(container)).await?;
        }
        if !state.index.is_ready() {
            self.policy_changed.notify_one();
        }
        Ok(partition)
    }

    /// The first entry of a new container's partition.
    async fn append_opened(
        &self,
        log: &dyn Log,
        container: &ContainerEntry,
        range: &RangeEntry,
    ) -> Result<PartitionState> {
        let opened = Opened {
            partition: range.partition,
            range: range.range.clone(),
            parents: Vec::new(),
            session_version: 0,
            definition_version: container.definition_version,
            definition: container.definition.to_stored().into(),
        };
        append_one(log, self.clock.now(), LogOperation::Opened(opened)).await?;
        let state = PartitionState::load(&*log.snapshot().map_err(unreadable)?).map_err(unreadable)?;
        state.ok_or_else(|| Error::new(Status::INTERNAL, "a partition that was opened has no state"))
    }

    /// The logs of all partitions that are open.
    pub(crate) fn open_logs(&self) -> Vec<LogId> {
        let partitions = self.partitions.read().unwrap_or_else(PoisonError::into_inner);
        let mut logs: Vec<LogId> = partitions.keys().copied().collect();
        logs.sort_unstable();
        logs
    }

    /// Takes a partition out of service: its writer ends once the last request lets go of it.
    pub(crate) fn close_partition(&self, log: LogId) -> Option<Arc<Partition>> {
        let closed = self
            .partitions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&log);
        self.cache.clear(log);
        closed
    }

    /// Takes partitions out of service and gives their space back when the last request has let go of them: one that is
    /// still under way must not meet a view that is being emptied. What is cut off goes at the next start.
    pub(crate) fn retire_partitions(&self, logs: Vec<LogId>) {
        for log in logs {
            let closed = self.close_partition(log);
            let ended = closed.as_ref().map(|partition| partition.ended());
            drop(closed);
            let (store, stopped) = (Arc::clone(&self.store), self.tasks.stopped());
            self.tasks.spawn(async move {
                if let Some(ended) = ended {
                    tokio::select! {
                        biased;
                        // Both are safe to drop: neither has begun anything.
                        () = ended => {}
                        () = stopped => return,
                    }
                }
                let mut dropped = store.drop_log(log).await;
                if matches!(dropped, Err(StorageError::Fenced { .. })) {
                    // Whoever owned it last is known now.
                    dropped = store.drop_log(log).await;
                }
                if let Err(error) = dropped {
                    tracing::warn!(%log, %error, "a log that is no longer needed stays until the next start");
                }
            });
        }
    }

    /// Gives up the logs of a change that failed. One that may have happened needs them: then they are only closed, and the
    /// next start drops them if no record names them.
    pub(crate) fn retire_unless_unknown(&self, logs: Vec<LogId>, error: &Error) {
        match error.status() == Status::REQUEST_TIMEOUT {
            true => logs.into_iter().for_each(|log| drop(self.close_partition(log))),
            false => self.retire_partitions(logs),
        }
    }

    /// Sets every partition's share of its container's throughput, or has it draw on what its database has for all.
    pub(crate) fn set_throttles(&self, container: &ContainerEntry) {
        if !self.settings.enforce_throughput {
            return;
        }
        let catalogue = self.control.catalogue();
        let peak_of = |target: &ResourceId| catalogue.offer_of(target).map(|(_, offer)| offer.throughput.peak());
        let database = container.rid.database_part();
        let (own, shared) = (peak_of(&container.rid), peak_of(&database));
        let n_partitions = u32::try_from(container.ranges.len().max(1)).unwrap_or(u32::MAX);
        for partition in container.ranges.iter().filter_map(|range| self.partition(range).ok()) {
            match (own, shared) {
                (Some(own), _) => partition.throttle.set_rate(own / n_partitions),
                (None, Some(shared)) => partition.throttle.share(self.shared_pools.of(&database, shared)),
                (None, None) => partition.throttle.lift(),
            }
        }
    }

    /// Opens every partition the catalogue names that is not open yet.
    pub(crate) async fn open_all(&self) -> Result<()> {
        let containers: Vec<Arc<ContainerEntry>> = self.control.catalogue().containers().cloned().collect();
        if self.duty.clustered {
            self.ask_for_unknown(&containers).await?;
        }
        let owners: HashMap<LogId, Epoch> = self
            .store
            .list()
            .map_err(unreadable)?
            .into_iter()
            .map(|info| (info.log, owning_epoch(&info)))
            .collect();
        for container in containers {
            for range in &container.ranges {
                if self.partition(range).is_ok() {
                    continue;
                }
                // In a cluster roles are given to each log by itself.
                if !self.duty.writes() || self.duty.clustered {
                    // One that has not arrived yet is installed by whoever follows the leader.
                    if owners.contains_key(&range.log) {
                        self.open_follower(range).await?;
                    }
                    continue;
                }
                let owner = owners.get(&range.log).copied().unwrap_or(Epoch(1));
                self.open_partition_as(&container, range, owner).await?;
            }
            self.set_throttles(&container);
        }
        Ok(())
    }

    /// The logs that are in the store, whatever the catalogue says.
    pub(crate) fn held_logs(&self) -> Result<HashSet<LogId>> {
        let held = self.store.list().map_err(unreadable)?;
        Ok(held.iter().map(|info| info.log).collect())
    }

    /// A node of a cluster does not hear of every log that another has made: it asks for those that the catalogue names.
    async fn ask_for_unknown(&self, containers: &[Arc<ContainerEntry>]) -> Result<()> {
        let known = self.held_logs()?;
        let mut asking = JoinSet::new();
        for range in containers.iter().flat_map(|container| &container.ranges) {
            if known.contains(&range.log) {
                continue;
            }
            if asking.len() == ASKED_AT_ONCE {
                asking.join_next().await;
            }
            let (store, log) = (Arc::clone(&self.store), range.log);
            asking.spawn(async move { tokio::time::timeout(ASKED_FOR, store.mark(log)).await });
        }
        // One that does not answer is asked again when somebody misses it.
        while asking.join_next().await.is_some() {}
        Ok(())
    }

    /// Drops logs that no record names: left behind by a crash in the middle of a create, delete, split or restore.
    ///
    /// In a cluster this node may have been replaced without knowing, and what looks like a stranger may be what the next
    /// coordinator has made. So they are marked before this node proves that it coordinates, and dropped as they were then.
    pub(crate) async fn drop_strangers(&self) -> Result<()> {
        // Nothing is half made meanwhile.
        let _unchanged = self.control.hold().await;
        let named = self.logs_in_use();
        let mut strangers = Vec::new();
        for info in self.store.list().map_err(unreadable)? {
            if !named.contains(&info.log) {
                strangers.push((info.log, self.store.mark(info.log).await.map_err(unreadable)?));
            }
        }
        if strangers.is_empty() {
            return Ok(());
        }
        self.prove_leads().await?;
        let named = self.logs_in_use();
        for (log, mark) in strangers.into_iter().filter(|(log, _)| !named.contains(log)) {
            self.store.drop_marked(log, mark).await.map_err(unreadable)?;
        }
        Ok(())
    }

    /// Every log that the catalogue names in any way.
    fn logs_in_use(&self) -> HashSet<LogId> {
        let mut logs: HashSet<LogId> = self.named_logs().into_iter().collect();
        let catalogue = self.control.catalogue();
        let children = catalogue.reshards.values().flat_map(|record| &record.children);
        logs.extend(children.map(|(_, log, _)| *log));
        logs.insert(LogId::SYSTEM);
        logs
    }
}
