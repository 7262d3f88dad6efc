//! One region dies and lives again, while the others go on: `kill -9` of a single region.
//!
//! Whatever the region's node knows ends with its store, which is given up without a last flush: nothing becomes durable any
//! more, nobody is answered, nothing is replicated from it or to it. What lives again is another node, opened from what the disk
//! has. The dead one stays where it was until then, so that a failover knows how far its logs reached.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use orrery_model::{Error, Result};

use super::duty::Promise;
use super::fleet::{Fleet, RegionParts, refused};
use super::front::Outage;
use super::level::is_level;
use super::link::Link;
use super::repair::damaged;
use super::start::{Opening, provision};
use super::topology::{Region, RegionId};
use crate::clock::SkewedClock;
use crate::node::Node;

/// How long what is left of a dead node may take to end.
pub(super) const BURIAL: Duration = Duration::from_secs(1);

impl Fleet {
    /// Kills a region. On return nothing of it goes on.
    pub async fn kill(self: Arc<Fleet>, region: &str) -> Result<()> {
        let (region, fleet) = (region.to_owned(), Arc::clone(&self));
        self.tasks
            .uncancelled(async move { fleet.kill_named(&region).await })
            .await
    }

    async fn kill_named(&self, name: &str) -> Result<()> {
        let _lock = self.lock()?;
        let topology = self.topology();
        let region = topology.named(name)?;
        self.check_alive(region.id)?;
        let node = self.find_node(region.id);
        let node = node.ok_or_else(|| refused("The region is not there yet."))?;
        let sites = self.sites.get();
        let sites = sites.ok_or_else(|| Error::bad_request("Regions of this account cannot be killed."))?;
        sites.kill(region).await?;
        self.put_outage(region.id, Some(Outage::Killed));
        node.tasks.end();
        match topology.writer().id == region.id {
            true => self.stop_following().await,
            false => self.unfollow(region.id).await,
        }
        Ok(())
    }

    /// Ends whatever keeps a region's clients from being served: a region that is dead is opened from what its disk has.
    pub async fn start_again(self: Arc<Fleet>, region: &str) -> Result<()> {
        let known = self.topology().named(region)?.clone();
        if self.is_damaged(known.id) {
            return Err(damaged(&known));
        }
        if !self.is_dead(known.id) {
            return self.set_outage(region, None);
        }
        let fleet = Arc::clone(&self);
        self.tasks.uncancelled(async move { fleet.revive(&known).await }).await
    }

    async fn revive(self: Arc<Fleet>, region: &Region) -> Result<()> {
        let _lock = self.lock()?;
        if !self.is_dead(region.id) {
            return Ok(());
        }
        let dead = self.find_node(region.id);
        let node = match self.open_again(region).await {
            Ok(node) => node,
            Err(error) => return self.found_damaged(region, error).await,
        };
        let writes = node.duty.writes();
        self.replace(region.id, &node);
        self.employ(&node);
        if self.promise == Promise::Everywhere && !writes {
            // Writes may have gone on without it.
            node.duty.set_left_out(!is_level(&self.writer(), &node));
        }
        self.publish();
        self.hold_what_is_out();
        if writes {
            // Also those that were on their way, and would follow the dead one.
            self.stop_following().await;
            self.follow_writer();
        } else if self.is_online(region.id) {
            self.follow(region.id);
        }
        self.put_outage(region.id, None);
        if let Some(dead) = dead
            && let Err(error) = dead.stop(BURIAL).await
        {
            tracing::debug!(%error, "a dead region's store is closed already");
        }
        Ok(())
    }

    /// As at a start: in the role the topology gives it.
    async fn open_again(&self, region: &Region) -> Result<Arc<Node>> {
        let sites = self.sites.get();
        let sites = sites.ok_or_else(|| Error::bad_request("Regions of this account cannot be opened again."))?;
        let parts = sites.prepare(region).await?;
        let store = Arc::clone(&parts.store);
        let opened = self.open_store(region, parts, None).await;
        if opened.is_err() {
            // Nobody else knows of it.
            let _ = store.close().await;
        }
        opened
    }

    /// A node on a store, which gets over a link what it lacks of the account.
    pub(super) async fn open_store(
        &self,
        region: &Region,
        parts: RegionParts,
        link: Option<&Link>,
    ) -> Result<Arc<Node>> {
        let clock = self.clock_of(region.id);
        let clock = clock.ok_or_else(|| refused("The region is not there yet."))?;
        let topology = self.topology();
        let opening = Opening {
            settings: &self.settings,
            promise: self.promise,
            events: &self.events,
        };
        if topology.writer().id == region.id {
            let others = topology.online().skip(1).filter(|other| !self.is_dead(other.id));
            let others: Vec<Arc<Node>> = others.filter_map(|other| self.find_node(other.id)).collect();
            return opening.writer(&topology, parts.store, clock, &others).await;
        }
        if !self.is_dead(topology.writer().id) {
            provision(&self.writer(), &*parts.store, link).await?;
        }
        opening.reader(parts.store, clock).await
    }

    pub(super) fn replace(&self, region: RegionId, node: &Arc<Node>) {
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        nodes.insert(region, Arc::clone(node));
    }

    /// A clock goes on, whoever dies.
    fn clock_of(&self, region: RegionId) -> Option<Arc<SkewedClock>> {
        let clocks = self.clocks.read().unwrap_or_else(PoisonError::into_inner);
        clocks.get(&region).cloned()
    }

    /// Has the region nothing that others could use?
    pub(super) fn is_dead(&self, region: RegionId) -> bool {
        matches!(self.outage(region), Some(Outage::Killed | Outage::Damaged))
    }

    /// What needs a region that is alive is refused while it is not.
    pub(super) fn check_alive(&self, region: RegionId) -> Result<()> {
        match self.is_dead(region) {
            true if self.is_damaged(region) => Err(refused("The region's data is damaged; it is made anew first.")),
            true => Err(refused("The region has been killed; start it first.")),
            false => Ok(()),
        }
    }
}
