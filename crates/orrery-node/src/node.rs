//! The node: one front door for every operation of an account in this region.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use hashbrown::HashMap;
use orrery_model::log::{Operation as LogOperation, Transaction};
use orrery_model::{Charge, Epoch, Error, LogId, Lsn, Result, Status, Timestamp};
use orrery_partition::command::Command;
use orrery_partition::decide::unreadable;
use orrery_partition::project::Projector;
use orrery_partition::storage::{Health, Log, LogInfo, Project as _, Role, Staged, Store};
use tokio::sync::{Notify, Semaphore, watch};

use crate::account::{Account, AccountKeys, KeyKind, Secret};
use crate::api::{Consistency, Failure, Operation, Options, Reply, Request};
use crate::caches::Caches;
use crate::catalogue::{ContainerEntry, RangeEntry, Record};
use crate::clock::Clock;
use crate::control::Control;
use crate::events::Events;
use crate::geo::duty::{Duty, EVERYWHERE_WAIT, Promise, cannot_tell, unconfirmed, unvouched};
use crate::metadata::conflicts::ConflictLimits;
use crate::meters::Meters;
use crate::partition::Partition;
use crate::query::{self, ItemQuery, QueryCache, QueryLoad};
use crate::tasks::Tasks;
use crate::throttle::SharedPools;
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
    /// What all items of one partition key may take.
    pub logical_partition_bytes_max: u64,
    pub cache_bytes: usize,
    /// How often expired items are looked for.
    pub purge_interval: Duration,
    /// A query that has no answer after this long fails.
    pub query_time_max: Duration,
    pub conflicts: ConflictLimits,
    /// Entries that a page of the change feed looks at; what it does not find among them is left to the next one.
    pub feed_entries_max: usize,
}

impl NodeSettings {
    /// What a page of the change feed looks at unless somebody wants it otherwise.
    pub const FEED_ENTRIES_MAX: usize = 200_000;
}

/// One region of one account.
#[derive(Debug)]
pub struct Node {
    pub(crate) settings: NodeSettings,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) control: Control,
    pub(crate) tasks: Tasks,
    pub(crate) cache: Arc<Caches>,
    /// Held while this node changes its role in a cluster, or what it knows as a follower.
    pub(crate) changing_role: tokio::sync::Mutex<()>,
    /// Splits and merges that somebody is at.
    pub(crate) resharding: reshard::AtWork,
    /// Those of them that somebody leads from phase to phase.
    pub(crate) by_hand: reshard::phases::ByHand,
    pub(crate) meters: Meters,
    pub(crate) shared_pools: SharedPools,
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
    pub(crate) policy_changed: Arc<Notify>,
    /// Told when something was written that ends soon.
    pub(crate) expiring: Arc<Notify>,
    keys: RwLock<Arc<AccountKeys>>,
    pub(crate) partitions: RwLock<HashMap<LogId, Arc<Partition>>>,
    /// In a cluster: everything the system log asks of this node is done up to there.
    pub(crate) carried_out: watch::Sender<Lsn>,
}

impl Drop for Node {
    /// Whoever looks after it waits to be told of something, and would wait for ever.
    fn drop(&mut self) {
        self.tasks.end();
    }
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
        let duty = Arc::new(duty);
        let own_log = duty.of(LogId::SYSTEM);
        let control = Control::open(&*store, role, Arc::clone(&clock), events.clone(), own_log).await?;
        let keys = account_keys(&control, &settings).await?;
        let node = Arc::new(Node {
            cache: Arc::new(Caches::new(settings.cache_bytes)),
            query_load: QueryLoad::new(heavy_queries_max()),
            account: RwLock::new(Arc::new(settings.account.clone())),
            settings,
            store,
            clock,
            control,
            tasks: Tasks::default(),
            meters: Meters::default(),
            shared_pools: SharedPools::default(),
            events,
            feed_waiters: Semaphore::new(change_feed::WAITERS_MAX),
            duty,
            keys: RwLock::new(Arc::new(keys)),
            partitions: RwLock::default(),
            carried_out: watch::Sender::default(),
            policy_changed: Arc::default(),
            expiring: Arc::default(),
            query_cache: QueryCache::default(),
            changing_role: tokio::sync::Mutex::default(),
            resharding: reshard::AtWork::default(),
            by_hand: reshard::phases::ByHand::default(),
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
        self.count(&executed);
        executed
    }

    /// Executes what has nothing to wait for, as most point reads have not. `None`: nothing was done, and [`Node::execute`] does it.
    pub fn execute_at_once(&self, request: &Request) -> Option<Result<Reply, Failure>> {
        let Operation::Item(operation) = &request.operation else {
            return None;
        };
        if self.duty.clustered || self.duty.promise != Promise::Local {
            return None;
        }
        let executed = match self.admit(request) {
            Ok(()) => items::read_at_once(self, &request.principal, &request.options, operation)?,
            Err(error) => Err(error.into()),
        };
        self.count(&executed);
        Some(executed)
    }

    pub(crate) fn count(&self, executed: &Result<Reply, Failure>) {
        if let Err(failure) = executed
            && failure.error.status() == Status::THROTTLED
        {
            self.meters.throttled.add(1);
        }
    }

    /// Refuses what the sender, or this region, may not do.
    pub(crate) fn admit(&self, request: &Request) -> Result<()> {
        let Request {
            principal,
            options,
            operation,
        } = request;
        authorize::writes(principal, operation)?;
        authorize::permissions(principal, operation)?;
        // In a cluster each partition knows by itself whether it is written here.
        let is_partitions = self.duty.clustered && !matches!(operation, Operation::Metadata(_));
        if (options.hub_only || authorize::needs_writer(operation)) && !is_partitions {
            self.duty.check_client_writes()?;
        }
        Ok(())
    }

    async fn dispatch(self: &Arc<Node>, request: Request) -> Result<Reply, Failure> {
        self.admit(&request)?;
        let Request {
            principal,
            options,
            operation,
        } = request;
        let is_write = authorize::is_write(&operation);
        let shows_catalogue = matches!(operation, Operation::Metadata(_) | Operation::PartitionRanges { .. });
        let shown = match self.duty.promise {
            Promise::Within(_) | Promise::Everywhere => self.control.shown(),
            Promise::Local => Lsn::ZERO,
        };
        if !is_write && shows_catalogue && self.asks_about_catalogue(&options) {
            Box::pin(self.catch_up_with_catalogue()).await?;
        }
        // Boxed where it is rare: what a request could be besides is not part of every request's state.
        let answered = match operation {
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
        };
        // That there is no such container is read from the catalogue, too.
        let is_missing = |failure: &Failure| failure.error.status() == Status::PARENT_NOT_FOUND;
        if !is_write && (shows_catalogue || answered.as_ref().is_err_and(is_missing)) {
            Box::pin(self.confirm_catalogue(&options, shown, shows_catalogue)).await?;
        }
        answered
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
        self.change_catalogue(async move {
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
        if self.asks_about(options, partition) {
            return self.prove_shown(partition.log.id(), lsn).await;
        }
        if self.duty.clustered && options.level(self.account().consistency) == Consistency::Strong {
            // After the snapshot was taken: nobody else had written by then.
            partition.log.barrier().await.map_err(unreadable)?;
        }
        if self.is_bounded_by_strong(options) {
            self.check_in_quorum()?;
        }
        if self.is_strong(options) {
            // Asked first: what was read by a region that was left out does not become right when it is taken back.
            self.check_in_quorum()?;
            // Who was told by another region and now writes itself is told no more.
            if partition.is_told() && !self.duty.clustered && self.duty.writes() {
                return Err(cannot_tell());
            }
            tokio::select! {
                biased;
                // Both are safe to drop.
                committed = partition.wait_committed(lsn) => committed?,
                () = self.duty.role_changes() => return Err(cannot_tell()),
            }
            // And last: one that was left out meanwhile may lack what has been acknowledged since.
            self.check_in_quorum()?;
        }
        Ok(())
    }

    /// Is this a read that must show what was acknowledged in any region?
    pub(crate) fn is_strong(&self, options: &Options) -> bool {
        // In a cluster a region that was taken over from does not know it, so it vouches for nothing that is to be of a certain age, either.
        let least = match self.duty.clustered {
            true => Consistency::BoundedStaleness,
            false => Consistency::Strong,
        };
        let asks = options.consistency.is_none_or(|level| level >= least);
        self.duty.promise == Promise::Everywhere && asks
    }

    /// What a read costs that would cost `charge` of one copy: one that is to show what others have written asks two in the service.
    pub(crate) fn charge_of_read(&self, options: &Options, charge: Charge) -> Charge {
        match options.level(self.account().consistency) >= Consistency::BoundedStaleness {
            true => charge.of_two_copies(),
            false => charge,
        }
    }

    /// Is this a read of an account that promises more, and which asks only not to be shown what is too old? Regions that writes are
    /// waited for show nothing old; one that is left out does not know what it lacks.
    fn is_bounded_by_strong(&self, options: &Options) -> bool {
        self.duty.promise == Promise::Everywhere && options.consistency == Some(Consistency::BoundedStaleness)
    }

    /// The same before an answer that says what the catalogue said at some time after `shown`.
    async fn confirm_catalogue(&self, options: &Options, shown: Lsn, has_caught_up: bool) -> Result<()> {
        if self.asks_about_catalogue(options) {
            if !has_caught_up {
                self.prove_missing(shown).await?;
            }
            return self.prove_shown(LogId::SYSTEM, self.control.shown()).await;
        }
        if self.is_strong(options) {
            self.check_in_quorum()?;
            self.control.wait_committed(self.control.shown()).await?;
            self.check_in_quorum()?;
        }
        if let Some(age) = self.bound_of(options) {
            self.duty.freshness.wait(&*self.control.log(), Some(shown), age).await?;
        }
        Ok(())
    }

    /// Before a read takes its snapshot: under bounded staleness this region must lack nothing that was acknowledged too long
    /// ago. Reads that ask for less do not wait.
    pub(crate) async fn await_bound(&self, options: &Options, partition: &Partition) -> Result<()> {
        if self.asks_about(options, partition) {
            return self.catch_up_with(&*partition.log).await;
        }
        match self.bound_of(options) {
            Some(age) => self.duty.freshness.wait(&*partition.log, None, age).await,
            None => Ok(()),
        }
    }

    /// How old what a read does not show may be, where that is bounded and not known anyway.
    fn bound_of(&self, options: &Options) -> Option<Duration> {
        let Promise::Within(bounds) = self.duty.promise else {
            return None;
        };
        let asks = options
            .consistency
            .is_none_or(|level| level >= Consistency::BoundedStaleness);
        (asks && self.duty.follows()).then_some(bounds.age)
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
        self.tasks.uncancelled(work).await
    }

    /// Runs a client's change of the catalogue. Under strong consistency it is answered once every region that counts has it, a
    /// refusal as well: it may be because of a change that is not everywhere yet.
    pub(crate) async fn change_catalogue<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let duty = self.control.duty();
        let term = duty.term();
        let changed = self.uncancelled(work).await;
        let is_confirmed = match duty.is_strong() {
            true => {
                let everywhere = duty.committed_in(term, self.control.shown());
                let waited = tokio::time::timeout(EVERYWHERE_WAIT, everywhere).await;
                waited.unwrap_or(false)
            }
            // What was begun before another region took over may be cut off by it.
            false => duty.term() == term,
        };
        match is_confirmed {
            true => changed,
            // It is durable here and may yet be everywhere.
            false if duty.is_strong() => Err(unvouched(changed)),
            false => changed.and_then(|_| Err(unconfirmed())),
        }
    }

    /// The running partition behind an entry of the catalogue.
    pub(crate) fn partition(&self, range: &RangeEntry) -> Result<Arc<Partition>> {
        let partitions = self.partitions.read().unwrap_or_else(PoisonError::into_inner);
        partitions
            .get(&range.log)
            .cloned()
            .ok_or_else(|| Error::new(Status::PARTITION_GONE, "The partition is not served here."))
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
