//! All regions of one account in one process: starts them, keeps the readers in step with the writer, and changes roles.
//!
//! One change of the topology at a time. A change is decided when the new topology is durable; what follows only carries it
//! out and is carried out again at the next start.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use orrery_model::{Epoch, Error, Result, Status};
use orrery_partition::storage::Store;
use tokio::time::{Instant, timeout, timeout_at};

use super::duty::{Epochs, Promise};
pub use super::failover::{Loss, Place};
use super::flapping::Flapping;
use super::front::Fronts;
pub use super::front::{Distance, Outage};
use super::kept::Holds;
use super::level::{wait_confirmed, wait_level};
use super::membership::{Interrupt, Sites};
use super::repair::check_writer;
use super::replica::{Following, Replica};
use super::returning;
use super::roles::EpochStart;
use super::start::start_nodes;
use super::topology::{RegionId, RegionState, Topology};
pub use super::traffic::LinkInfo;
use super::traffic::Links;
use super::watch;
use crate::account::Account;
use crate::clock::{Clock, SkewedClock};
use crate::cluster::HeldWrites;
use crate::events::Events;
use crate::node::{Node, NodeSettings};
use crate::tasks::Tasks;
use crate::watched::Watched;

/// How long a planned change of the write region may hold writes before it gives up.
const HOLD_MAX: Duration = Duration::from_secs(3);
/// What a region may lack of a log before a planned change is refused at once.
const PLANNED_LAG_MAX: u64 = 50_000;

/// Where an account's topology is kept.
pub trait TopologyKeeper: Send + Sync + fmt::Debug {
    fn load(&self) -> Result<Option<Topology>>;

    /// Durable on return.
    fn save(&self, topology: &Topology) -> Result<()>;
}

/// One region's own parts.
#[derive(Debug)]
pub struct RegionParts {
    pub name: String,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
}

/// The regions of one account.
#[derive(Debug)]
pub struct Fleet {
    pub(super) topology: Arc<Watched<Arc<Topology>>>,
    pub(super) keeper: Arc<dyn TopologyKeeper>,
    /// Of new regions.
    pub(super) settings: NodeSettings,
    pub(super) promise: Promise,
    pub(super) nodes: RwLock<BTreeMap<RegionId, Arc<Node>>>,
    pub(super) clocks: RwLock<BTreeMap<RegionId, Arc<SkewedClock>>>,
    pub(super) links: RwLock<Links>,
    following: Mutex<BTreeMap<RegionId, Following>>,
    pub(super) fronts: Watched<Fronts>,
    pub(super) flapping: Mutex<Flapping>,
    pub(super) changing: tokio::sync::Mutex<()>,
    /// Ends a change that takes its time, so that a more urgent one can happen.
    pub(super) interrupt: Mutex<Interrupt>,
    /// What must stay in the logs of regions that are out.
    pub(super) holds: Mutex<Holds>,
    pub(super) sites: OnceLock<Arc<dyn Sites>>,
    /// Regions that strong writes do not wait for, because they are too slow or cannot be reached.
    pub(super) left_out: Mutex<BTreeSet<RegionId>>,
    pub(super) n_lost: AtomicU64,
    /// Versions that conflicts had no room for and that were dropped because somebody said so.
    pub(super) n_dropped: AtomicU64,
    /// After how long without an answer from the writer another region takes over by itself.
    pub(super) managed_failover: Arc<Watched<Option<Duration>>>,
    pub(super) events: Events,
    pub(super) tasks: Tasks,
}

impl Fleet {
    /// Opens every region. The first name takes writes unless the kept topology says otherwise.
    pub async fn start(
        settings: NodeSettings,
        parts: Vec<RegionParts>,
        keeper: Arc<dyn TopologyKeeper>,
    ) -> Result<Arc<Fleet>> {
        let names: Vec<String> = parts.iter().map(|part| part.name.clone()).collect();
        let topology = match keeper.load()? {
            Some(kept) => kept.grown_to(&names)?,
            None => Topology::new(&names)?,
        };
        settings.account.staleness.check(topology.present().count())?;
        keeper.save(&topology)?;
        // Also of a single region: others may come.
        let promise = Promise::of(&settings.account);
        let clock = parts.first().map(|part| Arc::clone(&part.clock));
        let events = Events::new(clock.ok_or_else(|| Error::bad_request("An account needs at least one region."))?);
        let topology = check_writer(topology, &parts, &*keeper)?;
        let (nodes, clocks) = start_nodes(&settings, promise, parts, &topology, &events).await?;
        let regions: Vec<RegionId> = nodes.keys().copied().collect();
        let fleet = Arc::new(Fleet {
            topology: Arc::new(Watched::new(Arc::new(topology))),
            keeper,
            settings,
            promise,
            nodes: RwLock::new(nodes),
            clocks: RwLock::new(clocks),
            links: RwLock::default(),
            following: Mutex::default(),
            fronts: Watched::default(),
            flapping: Mutex::default(),
            events,
            changing: tokio::sync::Mutex::new(()),
            interrupt: Mutex::default(),
            sites: OnceLock::new(),
            left_out: Mutex::default(),
            holds: Mutex::default(),
            n_lost: AtomicU64::new(0),
            n_dropped: AtomicU64::new(0),
            managed_failover: Arc::default(),
            tasks: Tasks::default(),
        });
        fleet
            .tasks
            .spawn(watch::run(Arc::downgrade(&fleet), fleet.tasks.stopped()));
        fleet
            .tasks
            .spawn(returning::run(Arc::downgrade(&fleet), fleet.tasks.stopped()));
        regions.into_iter().for_each(|region| fleet.add_links(region));
        fleet.nodes().iter().for_each(|node| fleet.employ(node));
        fleet.note_damaged_writer();
        fleet.distrust_readers();
        fleet.publish();
        fleet.hold_what_is_out();
        fleet.follow_writer();
        Ok(fleet)
    }

    /// Lets a region ask for new epochs, and looks after its store.
    pub(super) fn employ(self: &Arc<Fleet>, node: &Arc<Node>) {
        node.duty.set_epochs(Arc::new(OwnEpochs(Arc::downgrade(self))));
        self.watch_store(node);
    }

    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        nodes.values().cloned().collect()
    }

    pub fn topology(&self) -> Arc<Topology> {
        Arc::clone(&self.topology.read())
    }

    /// Waits until another region than this takes writes.
    pub async fn writer_changes(&self, from: RegionId) {
        self.topology.wait_for(|topology| topology.writer().id != from).await;
    }

    /// The node of a region that is online.
    pub fn node(&self, region: RegionId) -> Arc<Node> {
        self.find_node(region).expect("every region that is online has a node")
    }

    /// The node of a region, if it has one: a region that comes has none yet, and one that has left no longer.
    pub fn find_node(&self, region: RegionId) -> Option<Arc<Node>> {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        nodes.get(&region).cloned()
    }

    /// As clients know a region.
    pub fn name_of(&self, region: RegionId) -> Option<String> {
        let topology = self.topology();
        let found = topology.regions.iter().find(|known| known.id == region);
        found.map(|region| region.name.clone())
    }

    /// The node that takes writes now.
    pub fn writer(&self) -> Arc<Node> {
        self.node(self.topology().writer().id)
    }

    pub fn is_online(&self, region: RegionId) -> bool {
        self.topology().is_online(region)
    }

    /// What happens in any region.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Lets another region take the writes, without losing any: writes wait until the target has everything.
    pub async fn change_writer(self: Arc<Fleet>, target: &str) -> Result<()> {
        let target = target.to_owned();
        // Not to be left half done when the caller goes away.
        let anchor = self.writer();
        anchor
            .uncancelled(async move { self.change_writer_to(&target).await })
            .await
    }

    async fn change_writer_to(&self, target: &str) -> Result<()> {
        let _lock = self.lock()?;
        let topology = self.topology();
        let target = topology.named(target)?.id;
        let next = topology.with_writer(target)?;
        self.check_alive(target)?;
        self.check_alive(topology.writer().id)?;
        self.check_in_touch(topology.writer().id, target)?;
        let (old, new) = (self.writer(), self.node(target));
        let lag = self.greatest_lag(target);
        if lag > PLANNED_LAG_MAX {
            return Err(refused(&format!("The region lags behind by {lag} transactions.")));
        }
        let interrupted = self.interruptible();
        let held = tokio::select! {
            biased;
            // Nothing is decided yet: whoever waits goes on.
            () = interrupted.cancelled() => return Err(refused("Another change was more urgent; nothing has changed.")),
            held = self.hold_until_level(&topology, &old, &new) => held?,
        };
        self.keeper.save(&next)?;
        self.stop_following().await;
        // Before it writes: the first write it acknowledges must wait for the others.
        new.duty.progress.set_members(self.members(&next));
        new.duty.set_taking_over(true);
        let promoted = new.promote(next.epoch, EpochStart::Next).await;
        if promoted.is_ok() {
            self.set_topology(next);
        }
        if let Err(error) = promoted {
            // The old writer goes on, and after a restart as well; what the target has begun is installed anew there.
            if let Err(error) = self.keeper.save(&topology) {
                tracing::error!(%error, "a change of the write region that failed is still on record");
            }
            if let Err(error) = new.demote().await {
                tracing::warn!(%error, "a region that could not take over cannot follow for the moment");
            }
            new.duty.set_taking_over(false);
            self.follow_writer();
            return Err(error);
        }
        // Only now: what a client wrote before would have been gone if the target had given the role back.
        new.duty.set_taking_over(false);
        // Only now: a client that is refused asks for the account, and must find the new writer in it.
        old.duty.set_writes(false);
        drop(held);
        let demoted = old.demote().await;
        // The others follow whatever becomes of the old one.
        self.follow_writer();
        demoted
    }

    /// A planned change is for a region that serves and is in touch with the one that writes: whoever is refused there would be sent
    /// to where nobody answers, and the way back would need what cannot arrive.
    fn check_in_touch(&self, writer: RegionId, target: RegionId) -> Result<()> {
        if !self.is_up(target) {
            return Err(refused("The region does not serve its clients; start it first."));
        }
        let is_cut = |from, to| self.link_between(from, to).is_some_and(|link| link.settings().cut);
        match is_cut(writer, target) || is_cut(target, writer) {
            true => Err(refused("The link between the two regions is cut.")),
            false => Ok(()),
        }
    }

    /// Holds writes until the region that is to take over has everything, and the others what they can get in time.
    async fn hold_until_level<'a>(
        &self,
        topology: &Topology,
        old: &'a Arc<Node>,
        new: &Arc<Node>,
    ) -> Result<HeldWrites<'a>> {
        let deadline = Instant::now() + HOLD_MAX;
        let held = timeout_at(deadline, old.hold_writes()).await;
        let held = held.map_err(|_| refused("Writes did not come to rest in time; nothing has changed."))??;
        if timeout_at(deadline, wait_level(old, new)).await.is_err() {
            return Err(refused(
                "The region did not catch up while writes were held; nothing has changed.",
            ));
        }
        // The others follow the new writer's log, which may not reach back as far as the old one's. And writers that wait for
        // every region get their answer while this one can still give it.
        let others = async {
            for reader in topology.online().skip(1) {
                wait_level(old, &self.node(reader.id)).await;
            }
        };
        let _ = timeout(HOLD_MAX / 4, others).await;
        let _ = timeout(HOLD_MAX / 4, wait_confirmed(old)).await;
        Ok(held)
    }

    /// Says in which order regions take over: all that serve, the one that writes left out or first.
    pub fn prioritize(&self, names: &[String]) -> Result<()> {
        let _lock = self.lock()?;
        let topology = self.topology();
        let regions: Result<Vec<RegionId>> = names.iter().map(|name| Ok(topology.named(name)?.id)).collect();
        let regions = regions?;
        let readers = match regions.split_first() {
            Some((first, rest)) if *first == topology.writer().id => rest,
            _ => &regions,
        };
        let next = topology.prioritized(readers)?;
        self.keeper.save(&next)?;
        self.set_topology(next);
        Ok(())
    }

    /// Stops every region.
    pub async fn stop(&self, deadline: Duration) -> Result<()> {
        self.tasks.stop(deadline).await;
        self.stop_following().await;
        for node in self.nodes() {
            node.stop(deadline).await?;
        }
        Ok(())
    }

    pub(super) fn lock(&self) -> Result<tokio::sync::MutexGuard<'_, ()>> {
        self.changing
            .try_lock()
            .map_err(|_| refused("Another change of the account's regions is under way."))
    }

    fn greatest_lag(&self, region: RegionId) -> u64 {
        let writer = self.writer();
        let lags = writer.live_logs().into_keys();
        lags.map(|log| writer.duty.progress.of(log).lag(region).transactions)
            .max()
            .unwrap_or(0)
    }

    pub(super) fn set_topology(&self, next: Topology) {
        self.topology.set(Arc::new(next));
        self.hold_what_is_out();
        self.publish();
    }

    /// Tells every region's clients, and the writer, which regions there are. One that leaves is still named for a while.
    pub(super) fn publish(&self) {
        let topology = self.topology();
        let leaving = topology.regions.iter();
        let leaving = leaving.filter(|region| region.state == RegionState::Draining);
        let named = topology.online().chain(leaving);
        let regions: Vec<String> = named.map(|region| region.name.clone()).collect();
        self.note_account(&regions);
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        for node in nodes.values() {
            node.set_account(Account {
                regions: regions.clone(),
                ..Account::clone(&node.account())
            });
        }
        drop(nodes);
        // Whoever writes has everything.
        self.readmit(topology.writer().id);
        self.writer().duty.progress.set_members(self.members(&topology));
    }

    /// The regions that strong writes wait for. When more are left out than may be, because others have gone since, all count.
    pub(super) fn members(&self, topology: &Topology) -> BTreeSet<RegionId> {
        let (readers, left_out) = (readers(topology), self.left_out());
        let n_out = readers.intersection(&left_out).count();
        match n_out <= watch::may_be_left_out(readers.len()) {
            true => &readers - &left_out,
            false => readers,
        }
    }

    pub(super) fn follow_writer(&self) {
        for reader in self.topology().online().skip(1) {
            self.follow(reader.id);
        }
    }

    pub(super) fn follow(&self, reader: RegionId) {
        if self.stands_in() {
            return;
        }
        let writer = self.topology().writer().id;
        let links = (self.link_between(writer, reader), self.link_between(reader, writer));
        let (Some(there), Some(back)) = links else {
            return;
        };
        let replica = Replica {
            node: self.node(reader),
            leader: self.node(writer),
            region: reader,
            there,
            back,
            adopting: Arc::default(),
        };
        let guard = replica.start();
        self.following().insert(reader, guard);
    }

    pub(super) async fn unfollow(&self, reader: RegionId) {
        let following = self.following().remove(&reader);
        if let Some(following) = following {
            following.end().await;
        }
    }

    pub(super) fn is_following(&self, reader: RegionId) -> bool {
        self.following().contains_key(&reader)
    }

    pub(super) async fn stop_following(&self) {
        let all = std::mem::take(&mut *self.following());
        for following in all.into_values() {
            following.end().await;
        }
    }

    fn following(&self) -> std::sync::MutexGuard<'_, BTreeMap<RegionId, Following>> {
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Fleet {
    /// Whoever looks after it waits to be told of something, and would wait for ever.
    fn drop(&mut self) {
        self.tasks.end();
    }
}

/// Epochs of an account, kept in its topology: a region that is lost cannot take along which ones were used.
#[derive(Debug)]
struct OwnEpochs(Weak<Fleet>);

impl Epochs for OwnEpochs {
    fn next(&self) -> Result<Epoch> {
        let stopped = || Error::new(Status::UNAVAILABLE, "The account is stopping.");
        let fleet = self.0.upgrade().ok_or_else(stopped)?;
        let _lock = fleet.lock()?;
        let next = fleet.topology().in_next_epoch();
        fleet.keeper.save(&next)?;
        let epoch = next.epoch;
        fleet.set_topology(next);
        Ok(epoch)
    }
}

/// The regions that serve and do not write.
fn readers(topology: &Topology) -> BTreeSet<RegionId> {
    topology.online().skip(1).map(|region| region.id).collect()
}

pub(super) fn refused(message: &str) -> Error {
    Error::new(Status::PRECONDITION_FAILED, message)
}

/// Keeps a topology as long as the process lives.
#[derive(Debug, Default)]
pub struct InMemory(Mutex<Option<Topology>>);

impl TopologyKeeper for InMemory {
    fn load(&self) -> Result<Option<Topology>> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn save(&self, topology: &Topology) -> Result<()> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(topology.clone());
        Ok(())
    }
}
