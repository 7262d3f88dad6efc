//! The node: one front door for every operation of an account in this region.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hashbrown::HashMap;
use orrery_model::log::{Opened, Operation as LogOperation, Transaction};
use orrery_model::{Epoch, Error, LogId, Lsn, Result, Status, Timestamp};
use orrery_partition::command::Command;
use orrery_partition::decide::unreadable;
use orrery_partition::project::Projector;
use orrery_partition::state::PartitionState;
use orrery_partition::storage::{Health, Log, LogInfo, Project as _, Role, Staged, Store};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::account::{Account, AccountKeys, KeyKind, Secret};
use crate::api::{Consistency, Failure, Operation, Options, Reply, Request};
use crate::cache::HotCache;
use crate::catalogue::{ContainerEntry, RangeEntry, Record};
use crate::clock::Clock;
use crate::control::Control;
use crate::events::Events;
use crate::geo::duty::{Duty, Promise};
use crate::meters::Meters;
use crate::partition::{Commitment, Partition};
use crate::query::{self, ItemQuery, QueryCache, QueryLoad};
use crate::tasks::Tasks;
use crate::throttle::Throttle;
use crate::writer::{INBOX, Writer};
use crate::{authorize, batch, change_feed, feed, items, metadata, purge, ranges, recovery, reindex, reshard};

/// What a node is told when it starts. Plain values; parts with behaviour are arguments of [`Node::start`].
#[derive(Clone, Debug)]
pub struct NodeSettings {
    pub account: Account,
    /// The primary key of an account that does not exist yet. One that exists keeps its keys.
    pub primary_key: Secret,
    /// Gives 64 random bytes: keys that nobody chose.
    pub fresh_secret: fn() -> [u8; 64],
    /// Physical partitions of a new container; more when its throughput asks for more.
    pub partitions: u32,
    pub enforce_throughput: bool,
    pub cache_bytes: usize,
    /// How often expired items are looked for.
    pub purge_interval: Duration,
    /// A query that has no answer after this long fails.
    pub query_time_max: Duration,
}

/// One region of one account.
#[derive(Debug)]
pub struct Node {
    pub(crate) settings: NodeSettings,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) control: Control,
    pub(crate) tasks: Tasks,
    pub(crate) cache: Arc<HotCache>,
    /// Holds nothing: for partitions that change without this node's doing.
    no_cache: Arc<HotCache>,
    /// Held while this node changes its role in a cluster, or what it knows as a follower.
    pub(crate) changing_role: tokio::sync::Mutex<()>,
    pub(crate) meters: Meters,
    events: Events,
    /// Readers of change feeds that may wait at a time.
    pub(crate) feed_waiters: Semaphore,
    pub(crate) query_load: Arc<QueryLoad>,
    /// Whether this region takes writes, and what it owes the others.
    pub(crate) duty: Arc<Duty>,
    /// As clients see it now: regions come, go and change places.
    account: RwLock<Arc<Account>>,
    pub(crate) query_cache: QueryCache,
    /// Wakes who applies changed indexing policies.
    pub(crate) policy_changed: Notify,
    keys: RwLock<Arc<AccountKeys>>,
    partitions: RwLock<HashMap<LogId, Arc<Partition>>>,
}

/// Queries that take long run on no more threads than there are processors.
fn heavy_queries_max() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get().max(2))
}

impl Node {
    /// Opens the account's data and everything in it; finishes what a crash cut off.
    pub async fn start(settings: NodeSettings, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Arc<Node>> {
        let events = Events::new(Arc::clone(&clock));
        Node::start_in(settings, store, clock, Duty::new(true, Promise::Local), events).await
    }

    /// The same for one of several regions: as the one that writes or as one that follows.
    pub(crate) async fn start_in(
        settings: NodeSettings,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        duty: Duty,
        events: Events,
    ) -> Result<Arc<Node>> {
        let epoch = store
            .list()
            .map_err(unreadable)?
            .iter()
            .find(|info| info.log == LogId::SYSTEM)
            .map_or(Epoch(1), |info| info.owner.max(info.position.epoch));
        let role = match duty.writes() {
            true => Role::Own { epoch },
            false => Role::Follow,
        };
        let control = Control::open(&*store, role, Arc::clone(&clock), events.clone()).await?;
        let keys = account_keys(&control, &settings).await?;
        let node = Arc::new(Node {
            cache: Arc::new(HotCache::new(settings.cache_bytes)),
            no_cache: Arc::new(HotCache::new(0)),
            query_load: QueryLoad::new(heavy_queries_max()),
            account: RwLock::new(Arc::new(settings.account.clone())),
            settings,
            store,
            clock,
            control,
            tasks: Tasks::default(),
            meters: Meters::default(),
            events,
            feed_waiters: Semaphore::new(change_feed::WAITERS_MAX),
            duty: Arc::new(duty),
            keys: RwLock::new(Arc::new(keys)),
            partitions: RwLock::default(),
            policy_changed: Notify::new(),
            query_cache: QueryCache::default(),
            changing_role: tokio::sync::Mutex::default(),
        });
        node.open_all().await?;
        if node.duty.writes() {
            reshard::recover(&node, None).await?;
        }
        if node.duty.writes() || !node.duty.clustered {
            node.drop_strangers().await?;
        }
        node.tasks.spawn(purge::run(Arc::downgrade(&node)));
        node.tasks.spawn(reindex::run(Arc::downgrade(&node)));
        node.tasks.spawn(recovery::run(Arc::downgrade(&node)));
        Ok(node)
    }

    /// Executes one operation. A dropped future never cancels a change that has begun.
    pub async fn execute(self: &Arc<Node>, request: Request) -> Result<Reply, Failure> {
        let executed = self.dispatch(request).await;
        if let Err(failure) = &executed
            && failure.error.status() == Status::THROTTLED
        {
            self.meters.throttled.add(1);
        }
        executed
    }

    async fn dispatch(self: &Arc<Node>, request: Request) -> Result<Reply, Failure> {
        let Request {
            principal,
            options,
            operation,
        } = request;
        authorize::writes(&principal, &operation)?;
        if options.hub_only || authorize::is_write(&operation) {
            self.duty.check_writes()?;
        }
        // Boxed where it is rare: what a request could be besides is not part of every request's state.
        match operation {
            Operation::Metadata(operation) => Box::pin(metadata::execute(self, &principal, operation)).await,
            Operation::PartitionRanges { container, since } => {
                ranges::read(self, &principal, &options, &container, since.as_deref())
            }
            Operation::Item(operation) => items::execute(self, &principal, &options, operation).await,
            Operation::Batch(operation) => Box::pin(batch::execute(self, &principal, &options, operation)).await,
            Operation::ReadFeed {
                container,
                target,
                page,
            } => Box::pin(feed::read(self, &principal, &options, &container, &target, &page)).await,
            Operation::DeletePartitionKey {
                container,
                partition_key,
            } => {
                let deleted = items::delete_partition_key(self, &principal, &options, &container, &partition_key);
                Box::pin(deleted).await
            }
            Operation::Query {
                container,
                target,
                query,
                page,
                cross_partition,
                diagnostics,
            } => {
                self.meters.queries.add(1);
                let request = ItemQuery {
                    container,
                    target,
                    query,
                    page,
                    cross_partition,
                    diagnostics,
                };
                Box::pin(query::items(self, &principal, &options, request)).await
            }
            Operation::QueryPlan {
                container,
                query,
                features,
                partition_key,
            } => {
                let (query, key) = (&query, partition_key.as_ref());
                let planned = query::plan_for_client(self, &principal, &options, &container, query, &features, key);
                Box::pin(planned).await
            }
            Operation::ChangeFeed(read) => Box::pin(change_feed::read(self, &principal, &options, read)).await,
        }
    }

    /// The account as clients see it now.
    pub fn account(&self) -> Arc<Account> {
        Arc::clone(&self.account.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_account(&self, account: Account) {
        *self.account.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(account);
    }

    /// Learns the keys anew from the system log: another region may have replaced one.
    pub(crate) fn reload_keys(&self) -> Result<()> {
        if let Some(Record::Account(keys)) = self.control.stored("account")? {
            *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        }
        Ok(())
    }

    /// The keys in force now.
    pub fn keys(&self) -> Arc<AccountKeys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces one key by a new one; whoever used the old one is refused from now on.
    pub async fn rotate_key(self: &Arc<Node>, kind: KeyKind) -> Result<Secret> {
        let node = Arc::clone(self);
        self.uncancelled(async move {
            let mut change = node.control.change().await;
            let mut keys = AccountKeys::clone(&node.keys());
            let fresh = Secret((node.settings.fresh_secret)().to_vec());
            let slot = match kind {
                KeyKind::Primary => &mut keys.primary,
                KeyKind::Secondary => &mut keys.secondary,
                KeyKind::PrimaryReadOnly => &mut keys.primary_read_only,
                KeyKind::SecondaryReadOnly => &mut keys.secondary_read_only,
            };
            *slot = fresh.clone();
            change.put(Record::Account(keys.clone()));
            change.commit().await?;
            *node.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
            Ok(fresh)
        })
        .await
    }

    /// What happens here, for those who want to know.
    pub fn events(&self) -> &Events {
        &self.events
    }

    pub fn health(&self) -> Health {
        self.store.health()
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Before a strong read answers with what a partition held at `lsn`: waits until every region that serves has it, so
    /// that no later read anywhere shows less. Other reads do not wait.
    pub(crate) async fn confirm(&self, options: &Options, partition: &Partition, lsn: Lsn) -> Result<()> {
        let strong = options.consistency.is_none_or(|level| level == Consistency::Strong);
        if self.duty.clustered && options.level(self.account().consistency) == Consistency::Strong {
            // After the snapshot was taken: nobody else had written by then.
            partition.log.barrier().await.map_err(unreadable)?;
        }
        if self.duty.promise == Promise::Everywhere && strong {
            // Asked first: what was read by a region that was left out does not become right when it is taken back.
            self.check_in_quorum()?;
            partition.wait_committed(lsn).await?;
            // And last: one that was left out meanwhile may lack what has been acknowledged since.
            self.check_in_quorum()?;
        }
        Ok(())
    }

    fn check_in_quorum(&self) -> Result<()> {
        if !self.duty.is_left_out() {
            return Ok(());
        }
        Err(Error::new(
            Status::UNAVAILABLE,
            "This region is not up to date with the others and answers no strong reads until it is.",
        ))
    }

    /// Stops taking work, lets what has begun finish, and closes the store.
    pub async fn stop(&self, deadline: Duration) -> Result<()> {
        self.partitions.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.tasks.stop(deadline).await;
        self.store.close().await.map_err(unreadable)
    }

    /// Runs work that must not stop halfway when its caller goes away.
    pub(crate) async fn uncancelled<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (done, result) = tokio::sync::oneshot::channel();
        self.tasks.spawn(async move {
            // The caller may be gone; the work is done all the same.
            let _ = done.send(work.await);
        });
        result
            .await
            .map_err(|_| Error::new(Status::INTERNAL, "The operation ended without an answer."))?
    }

    /// The running partition behind an entry of the catalogue.
    pub(crate) fn partition(&self, range: &RangeEntry) -> Result<Arc<Partition>> {
        let partitions = self.partitions.read().unwrap_or_else(PoisonError::into_inner);
        partitions
            .get(&range.log)
            .cloned()
            .ok_or_else(|| Error::new(Status::PARTITION_GONE, "The partition is not served here."))
    }

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
        // No writer takes anything from this inbox: whatever is put in is refused.
        let (sender, _) = mpsc::channel(1);
        let cache = match self.duty.clustered {
            // What comes into the log by itself would not come into the cache.
            true => Arc::clone(&self.no_cache),
            false => Arc::clone(&self.cache),
        };
        let partition = Partition::new(
            range.partition,
            log,
            sender,
            cache,
            Throttle::default(),
            CancellationToken::new(),
            Commitment::Learned(watch::Sender::new(Lsn::ZERO)),
        )?;
        let partition = Arc::new(partition.without_writer());
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
        duty.progress.begin(head.lsn, Lsn((head.lsn.0 >> 32) << 32));
        let partition = Partition::new(
            range.partition,
            Arc::clone(&log),
            sender,
            Arc::clone(&self.cache),
            Throttle::default(),
            ended.clone(),
            Commitment::Counted(duty.clone()),
        )?;
        let partition = Arc::new(partition);
        let writer = Writer {
            duty,
            tasks: self.tasks.clone(),
            partition: range.partition,
            identity: container.identity.clone(),
            log,
            definition: Arc::clone(&container.definition),
            cache: Arc::clone(&self.cache),
            clock: Arc::clone(&self.clock),
            last_at: state.head_at,
        };
        self.tasks.spawn(writer.run(inbox, ended.drop_guard()));
        self.partitions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(range.log, Arc::clone(&partition));
        if state.definition_version < container.definition_version && state.children.is_empty() {
            partition.command(define(container)).await?;
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
        partitions.keys().copied().collect()
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
                        // Both are safe to drop: neither has begun anything.
                        () = ended => {}
                        () = stopped => return,
                    }
                }
                if let Err(error) = store.drop_log(log).await {
                    tracing::warn!(%log, %error, "a log that is no longer needed stays until the next start");
                }
            });
        }
    }

    /// Sets every partition's share of its container's throughput.
    pub(crate) fn set_throttles(&self, container: &ContainerEntry) {
        if !self.settings.enforce_throughput {
            return;
        }
        let throughput = self.control.catalogue().throughput_of(&container.rid);
        let share = throughput.map_or(0, |throughput| throughput.peak() / container.ranges.len().max(1) as u32);
        for range in &container.ranges {
            if let Ok(partition) = self.partition(range) {
                partition.throttle.set_rate(share);
            }
        }
    }

    /// Opens every partition the catalogue names that is not open yet.
    pub(crate) async fn open_all(&self) -> Result<()> {
        let containers: Vec<Arc<ContainerEntry>> = self.control.catalogue().containers().cloned().collect();
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
                if !self.duty.writes() {
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

    /// Drops logs that no record names: left behind by a crash in the middle of a create, delete, split or restore.
    pub(crate) async fn drop_strangers(&self) -> Result<()> {
        let known: std::collections::HashSet<LogId> = {
            let catalogue = self.control.catalogue();
            let live = catalogue
                .containers()
                .flat_map(|container| container.ranges.iter().map(|range| range.log));
            let saved = catalogue
                .snapshots
                .values()
                .flat_map(|saved| saved.partitions.iter().map(|saved| saved.copy));
            live.chain(saved).chain([LogId::SYSTEM]).collect()
        };
        for info in self.store.list().map_err(unreadable)? {
            if !known.contains(&info.log) {
                self.store.drop_log(info.log).await.map_err(unreadable)?;
            }
        }
        Ok(())
    }
}

/// The epoch in which a log is opened to be written again: at least that of its last entry.
pub(crate) fn owning_epoch(info: &LogInfo) -> Epoch {
    info.owner.max(info.position.epoch)
}

/// The command that brings a partition to the container's current definition.
pub(crate) fn define(container: &ContainerEntry) -> Command {
    Command::Define {
        version: container.definition_version,
        definition: container.definition.to_stored().into(),
    }
}

/// Appends one operation to a log nobody else writes yet.
pub(crate) async fn append_one(log: &dyn Log, at: Timestamp, operation: LogOperation) -> Result<()> {
    let head = log.head();
    append_transaction(log, Transaction::following(head, at, vec![operation])).await
}

/// Appends a transaction to a log nobody else writes yet.
pub(crate) async fn append_transaction(log: &dyn Log, transaction: Transaction) -> Result<()> {
    let transaction = Arc::new(transaction);
    let head = log.head();
    let snapshot = log.snapshot().map_err(unreadable)?;
    // The definition, if it matters, is in the view or in the transaction itself.
    let writes = Projector::default()
        .project(&*snapshot, &transaction)
        .map_err(unreadable)?;
    log.append(head, vec![Staged { transaction, writes }])
        .await
        .map_err(unreadable)
}

pub(crate) async fn account_keys(control: &Control, settings: &NodeSettings) -> Result<AccountKeys> {
    if let Some(Record::Account(keys)) = control.stored("account")? {
        return Ok(keys);
    }
    let fresh = || Secret((settings.fresh_secret)().to_vec());
    let keys = AccountKeys {
        primary: settings.primary_key.clone(),
        secondary: fresh(),
        primary_read_only: fresh(),
        secondary_read_only: fresh(),
        internal: fresh(),
    };
    let mut change = control.change().await;
    change.put(Record::Account(keys.clone()));
    change.commit().await?;
    Ok(keys)
}
