//! Regions come and go while the account is served.
//!
//! A region that comes is seeded with a copy of everything, follows the writer until it has caught up, and only then serves:
//! `seeding → online`. One that goes serves nothing from the first moment, is named to clients for as long as the caller
//! wishes, and leaves nothing behind: `draining → retired`. Both are decided by a durable topology and finished at the next
//! start. While one of them takes its time, a region can still be taken offline or removed: that ends what is under way.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use orrery_model::{Error, Result};
use orrery_partition::decide::unreadable;
use orrery_partition::storage::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::duty::Duty;
use super::failover::AcceptLoss;
use super::fleet::{Fleet, RegionParts, refused};
use super::level::wait_level;
use super::start::provision;
use super::topology::{Region, RegionId, RegionState, Topology};
use crate::clock::SkewedClock;
use crate::node::Node;

/// How long a change that was interrupted may take to end.
const INTERRUPT_WAIT: Duration = Duration::from_secs(10);
/// How long the requests of a region that has left may take to end.
const ERASE_DEADLINE: Duration = Duration::from_secs(5);

/// Where regions live: makes room for one that comes, and takes it back from one that has left.
pub trait Sites: Send + Sync + fmt::Debug {
    /// A store and a clock for the region, and whatever else its clients need to reach it.
    fn prepare<'a>(&'a self, region: &'a Region) -> BoxFuture<'a, Result<RegionParts>>;

    /// Ends the region's store at once, as when its process is killed. [`Sites::prepare`] opens it again, with what it has kept.
    fn kill<'a>(&'a self, _region: &'a Region) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Err(Error::bad_request("Regions of this account cannot be killed.")) })
    }

    /// What is known to be damaged of the region's store, open or not.
    fn damage<'a>(&'a self, _region: &'a Region) -> BoxFuture<'a, Option<String>> {
        Box::pin(async { None })
    }

    /// Sets a damaged store aside, keeps it, and gives the region an empty one. One that is not damaged is opened as it is, so
    /// that this may be asked again. `None` while others share the damaged one.
    fn renew<'a>(&'a self, _region: &'a Region) -> BoxFuture<'a, Result<Option<RegionParts>>> {
        Box::pin(async { Err(Error::bad_request("Regions of this account cannot be made anew.")) })
    }

    /// The region is gone and its data with it.
    fn release<'a>(&'a self, region: &'a Region) -> BoxFuture<'a, Result<()>>;
}

impl Fleet {
    /// Says where new regions live, and finishes what was under way when the account was last served.
    pub fn settle(self: &Arc<Fleet>, sites: Arc<dyn Sites>) {
        if self.sites.set(sites).is_err() {
            return;
        }
        // One that comes is seen to by whoever looks after those.
        let unfinished = |region: &&Region| region.state == RegionState::Draining;
        if !self.topology().regions.iter().any(|region| unfinished(&region)) {
            return;
        }
        let fleet = Arc::clone(self);
        self.writer().tasks.spawn(async move {
            let regions = fleet.topology().regions.clone();
            for region in regions.iter().filter(unfinished) {
                if let Err(error) = fleet.finish(region).await {
                    tracing::warn!(region = region.name, %error, "a change of regions could not be finished");
                }
            }
        });
    }

    async fn finish(&self, region: &Region) -> Result<()> {
        let _lock = self.lock()?;
        self.discard(region).await
    }

    /// Adds a region; it serves when this returns.
    pub async fn add_region(self: Arc<Fleet>, name: &str) -> Result<()> {
        let (name, anchor) = (name.to_owned(), self.writer());
        anchor
            .uncancelled(async move {
                self.add(&name).await?;
                let added = self
                    .topology()
                    .named(&name)
                    .ok()
                    .and_then(|region| self.find_node(region.id));
                added.iter().for_each(|node| self.employ(node));
                Ok(())
            })
            .await
    }

    async fn add(&self, name: &str) -> Result<()> {
        let _lock = self.lock()?;
        let interrupted = self.interruptible();
        let (next, region) = self.topology().adding(name)?;
        self.check_alive(self.topology().writer().id)?;
        self.settings.account.staleness.check(next.present().count())?;
        let sites = self.sites.get();
        let sites = sites.ok_or_else(|| Error::bad_request("Regions cannot be added to this account."))?;
        let parts = sites.prepare(&region).await?;
        self.keeper.save(&next)?;
        self.set_topology(next);
        let added = tokio::select! {
            biased;
            // What was half done is discarded below.
            () = interrupted.cancelled() => Err(refused("Another change was more urgent; the region has not been added.")),
            added = self.seed(&region, parts) => added,
        };
        if added.is_err() {
            let next = self.topology().draining(region.id)?;
            self.keeper.save(&next)?;
            self.set_topology(next);
            self.discard(&region).await?;
        }
        added
    }

    /// Copies everything to a new region, and lets it catch up.
    async fn seed(&self, region: &Region, parts: RegionParts) -> Result<()> {
        let writer = self.writer();
        self.add_links(region.id);
        let link = self.link_between(self.topology().writer().id, region.id);
        provision(&writer, &*parts.store, link.as_deref()).await?;
        let clock = Arc::new(SkewedClock::new(parts.clock));
        let duty = Duty::new(false, self.promise);
        let (settings, events) = (self.settings.clone(), self.events.clone());
        let node = Node::start_in(settings, parts.store, Arc::clone(&clock) as _, duty, events).await?;
        self.take_in(region.id, node, clock);
        self.publish();
        self.follow(region.id);
        self.come_online(region.id).await
    }

    async fn come_online(&self, region: RegionId) -> Result<()> {
        let next = self.topology().seeded(region)?;
        self.join(region, &next).await;
        self.keeper.save(&next)?;
        self.readmit(region);
        self.set_topology(next);
        self.supersede_tokens().await;
        Ok(())
    }

    /// The version of session tokens counts how often regions have come and gone. Where that cannot be written now the old
    /// tokens stay good, which does no harm: what they ask for is there.
    pub(super) async fn supersede_tokens(&self) {
        if let Err(error) = self.writer().raise_versions().await {
            tracing::warn!(%error, "session tokens of some partitions keep their version");
        }
    }

    /// Waits until a region that does not serve yet has everything that was ever acknowledged. What is acknowledged while it
    /// takes the last step must count it already, or it would begin to serve without that.
    pub(super) async fn join(&self, region: RegionId, next: &Topology) {
        let (writer, node) = (self.writer(), self.node(region));
        wait_level(&writer, &node).await;
        let mut members = self.members(next);
        members.insert(region);
        writer.duty.progress.set_members(members);
        wait_level(&writer, &node).await;
    }

    /// Removes a region and its data. Clients are told of it for as long as `drain`, although it serves nothing any more.
    pub async fn remove_region(self: Arc<Fleet>, name: &str, drain: Duration) -> Result<()> {
        let (name, anchor) = (name.to_owned(), self.writer());
        anchor.uncancelled(async move { self.remove(&name, drain).await }).await
    }

    async fn remove(&self, name: &str, drain: Duration) -> Result<()> {
        let was_there = self.topology().named(name).is_ok();
        let _lock = self.lock_interrupting().await?;
        let topology = self.topology();
        let region = match topology.named(name) {
            Ok(region) => region.clone(),
            // It was being added, which has been interrupted.
            Err(_) if was_there => return Ok(()),
            Err(error) => return Err(error),
        };
        let interrupted = self.interruptible();
        topology.draining(region.id)?;
        self.check_alive(region.id)?;
        // What only it has would go with it. Where that cannot be kept, it stays.
        tokio::select! {
            biased;
            // What has been kept is not kept again.
            () = interrupted.cancelled() => return Err(refused("Another change was more urgent; the region has not been removed.")),
            kept = self.salvage(&region, AcceptLoss::IfNotPromised) => drop(kept?),
        }
        let next = self.topology().draining(region.id)?;
        self.keeper.save(&next)?;
        self.unfollow(region.id).await;
        self.set_topology(next);
        tokio::select! {
            biased;
            // Both are safe to drop.
            () = interrupted.cancelled() => {}
            () = tokio::time::sleep(drain) => {}
        }
        self.discard(&region).await
    }

    /// Gives up a region that drains, and its data.
    async fn discard(&self, region: &Region) -> Result<()> {
        self.unfollow(region.id).await;
        if let Some(node) = self.take_out(region.id) {
            erase(&node).await?;
        }
        self.remove_links(region.id);
        let next = self.topology().retired(region.id)?;
        self.keeper.save(&next)?;
        self.set_topology(next);
        self.supersede_tokens().await;
        match self.sites.get() {
            Some(sites) => sites.release(region).await,
            None => Ok(()),
        }
    }

    fn take_in(&self, region: RegionId, node: Arc<Node>, clock: Arc<SkewedClock>) {
        let mut clocks = self.clocks.write().unwrap_or_else(PoisonError::into_inner);
        clocks.insert(region, clock);
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        nodes.insert(region, node);
    }

    fn take_out(&self, region: RegionId) -> Option<Arc<Node>> {
        let mut clocks = self.clocks.write().unwrap_or_else(PoisonError::into_inner);
        clocks.remove(&region);
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        nodes.remove(&region)
    }

    /// Ends whatever change can be interrupted, and waits for its turn.
    pub(super) async fn lock_interrupting(&self) -> Result<tokio::sync::MutexGuard<'_, ()>> {
        let _urgent = Urgent::begin(&self.interrupt);
        let locked = tokio::time::timeout(INTERRUPT_WAIT, self.changing.lock()).await;
        locked.map_err(|_| refused("Another change of the account's regions is under way."))
    }

    /// Begins something that may be interrupted.
    pub(super) fn interruptible(&self) -> CancellationToken {
        let mut interrupt = self.interrupt.lock().unwrap_or_else(PoisonError::into_inner);
        interrupt.token = CancellationToken::new();
        if interrupt.n_urgent > 0 {
            interrupt.token.cancel();
        }
        interrupt.token.clone()
    }
}

/// What ends a change that takes its time.
#[derive(Debug, Default)]
pub struct Interrupt {
    /// Of the change that is under way.
    token: CancellationToken,
    /// How many wait for it to end, and for whatever begins before it is their turn.
    n_urgent: usize,
}

/// Somebody waits who is more urgent than what can be interrupted.
#[derive(Debug)]
struct Urgent<'a>(&'a Mutex<Interrupt>);

impl Urgent<'_> {
    fn begin(interrupt: &Mutex<Interrupt>) -> Urgent<'_> {
        let mut known = interrupt.lock().unwrap_or_else(PoisonError::into_inner);
        known.n_urgent += 1;
        known.token.cancel();
        Urgent(interrupt)
    }
}

impl Drop for Urgent<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).n_urgent -= 1;
    }
}

/// Stops a region and removes its data.
async fn erase(node: &Node) -> Result<()> {
    for log in node.open_logs() {
        drop(node.close_partition(log));
    }
    node.tasks.stop(ERASE_DEADLINE).await;
    for info in node.store.list().map_err(unreadable)? {
        node.store.drop_log(info.log).await.map_err(unreadable)?;
    }
    node.store.close().await.map_err(unreadable)
}
