//! A region whose data is damaged is made anew from another one.
//!
//! What a store reads is checked, and what is not as it was written is an error and never an answer. From then on the region
//! serves nobody. One that reads gets an empty store, what was damaged is kept beside it, and comes back like any region that was
//! out: `online → seeding → online`. The one that writes neither serves nor acknowledges, and keeps its place until another takes
//! over by the rules of a forced failover; meanwhile others may still follow what its log has. Then it is made anew as well.
//! Whatever only the damaged store had and cannot be read is told as lost. With no other region there is nothing to make one anew
//! from, and everything stays as it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_model::{Error, Result, Status};

use super::death::BURIAL;
use super::failover::AcceptLoss;
use super::fleet::{Fleet, RegionParts, TopologyKeeper, refused};
use super::front::Outage;
use super::start::has_account;
use super::topology::{Region, RegionId, Topology};
use crate::events::Happening;
use crate::node::Node;

/// A region that writes and has nothing, while others have the account, has lost everything: it must not begin as an empty one,
/// or the others would follow it there.
pub(super) fn check_writer(topology: Topology, parts: &[RegionParts], keeper: &dyn TopologyKeeper) -> Result<Topology> {
    let writer = topology.writer();
    let (mut own, mut others) = (false, false);
    for part in parts {
        let is_writer = topology.find(&part.name).is_some_and(|region| region.id == writer.id);
        match is_writer {
            true => own = has_account(&*part.store)?,
            false => others |= has_account(&*part.store)?,
        }
    }
    if own || !others || writer.damaged {
        return Ok(topology);
    }
    let harmed = topology.harmed(writer.id);
    keeper.save(&harmed)?;
    Ok(harmed)
}

impl Fleet {
    pub(super) fn is_damaged(&self, region: RegionId) -> bool {
        self.outage(region) == Some(Outage::Damaged)
    }

    /// Is what is in the writer's place only a copy of another region? Nobody may follow it: they may have more.
    pub(super) fn stands_in(&self) -> bool {
        self.topology().writer().damaged && !self.writer().duty.writes()
    }

    /// After a start: a writer that was found damaged before serves nobody.
    pub(super) fn note_damaged_writer(&self) {
        let topology = self.topology();
        let writer = topology.writer();
        if writer.damaged {
            self.put_damaged(writer.id, true);
            tracing::error!(
                region = writer.name,
                "the data of the region that takes writes is damaged; take it offline, and another region takes over"
            );
        }
    }

    /// Waits for damage in a region's store.
    pub(super) fn watch_store(self: &Arc<Fleet>, node: &Arc<Node>) {
        let (fleet, watched) = (Arc::downgrade(self), Arc::downgrade(node));
        let (harmed, stopped) = (node.store.harmed(), node.tasks.stopped());
        node.tasks.spawn(async move {
            tokio::select! {
                biased;
                // Both are safe to drop.
                () = stopped => return,
                () = harmed => {}
            }
            if let (Some(fleet), Some(node)) = (fleet.upgrade(), watched.upgrade()) {
                fleet.note_damage(&node).await;
            }
        });
    }

    async fn note_damage(&self, node: &Arc<Node>) {
        let is_its = |(_, known): &(&RegionId, &Arc<Node>)| Arc::ptr_eq(known, node);
        let region = || {
            let nodes = self.nodes.read().unwrap_or_else(std::sync::PoisonError::into_inner);
            nodes.iter().find(is_its).map(|(region, _)| *region)
        };
        let Some(id) = region() else { return };
        if self.has_others(id) {
            // At once, whatever else is going on.
            self.put_damaged(id, true);
        }
        let _lock = self.changing.lock().await;
        // It may have been replaced or removed meanwhile.
        if region() == Some(id) {
            let reason = node.store.damage().unwrap_or_default();
            self.harm(id, reason).await;
        }
    }

    fn has_others(&self, region: RegionId) -> bool {
        self.topology().online().any(|other| other.id != region)
    }

    /// Takes a damaged region out of service. Whoever calls this holds the lock.
    async fn harm(&self, id: RegionId, reason: String) {
        let topology = self.topology();
        let Some(region) = topology.regions.iter().find(|known| known.id == id) else {
            return;
        };
        tracing::error!(region = region.name, reason, "the data of a region is damaged");
        self.events.tell(Happening::RegionDamaged {
            region: region.name.clone(),
            reason,
        });
        if !self.has_others(id) {
            return;
        }
        self.put_damaged(id, true);
        let next = topology.harmed(id);
        if let Err(error) = self.keeper.save(&next) {
            tracing::error!(%error, "that a region is damaged cannot be kept; a restart finds out anew");
        }
        if topology.writer().id != id {
            self.unfollow(id).await;
        }
        self.set_topology(next);
    }

    /// A dead region could not be opened again. If that is because its data is damaged, it is made anew.
    pub(super) async fn found_damaged(&self, region: &Region, error: Error) -> Result<()> {
        let reason = match self.sites.get() {
            Some(sites) => sites.damage(region).await,
            None => None,
        };
        let Some(reason) = reason.filter(|_| self.has_others(region.id)) else {
            return Err(error);
        };
        self.harm(region.id, reason).await;
        match self.topology().writer().id == region.id {
            true => Err(damaged(region)),
            false => Ok(()),
        }
    }

    /// Gives a damaged region an empty store and, over the link, what the region that writes has. Does nothing as long as others
    /// share the store that is damaged. Whoever calls this holds the lock.
    pub(super) async fn make_anew(self: &Arc<Fleet>, region: &Region) -> Result<()> {
        let no_room = || Error::bad_request("Regions of this account cannot be made anew.");
        let sites = Arc::clone(self.sites.get().ok_or_else(no_room)?);
        let old = self.find_node(region.id);
        let is_harmed = old.as_ref().is_some_and(|old| old.store.damage().is_some());
        if is_harmed || sites.damage(region).await.is_some() {
            if !region.cut_off.is_empty() {
                // What can be read of what it alone has is kept; the rest is told.
                self.salvage(region, AcceptLoss::Damaged).await?;
                self.set_left(region.id, BTreeMap::new())?;
            }
            self.unfollow(region.id).await;
            let Some(parts) = sites.renew(region).await? else {
                return Ok(());
            };
            let node = self.open_renewed(region, parts).await?;
            self.replace(region.id, &node);
            self.employ(&node);
            self.publish();
            self.hold_what_is_out();
            if let Some(old) = old {
                old.tasks.end();
                if let Err(error) = old.stop(BURIAL).await {
                    tracing::debug!(%error, "a damaged store is closed already");
                }
            }
            tracing::warn!(region = region.name, "a damaged region has been made anew");
            self.events.tell(Happening::RegionRenewed {
                region: region.name.clone(),
            });
        }
        self.put_damaged(region.id, false);
        Ok(())
    }

    async fn open_renewed(&self, region: &Region, parts: RegionParts) -> Result<Arc<Node>> {
        let (store, interrupted) = (Arc::clone(&parts.store), self.interruptible());
        let link = self.link_between(self.topology().writer().id, region.id);
        let opened = tokio::select! {
            biased;
            // What was copied is copied again by whoever tries next.
            () = interrupted.cancelled() => Err(refused("Another change was more urgent.")),
            opened = self.open_store(region, parts, link.as_deref()) => opened,
        };
        if opened.is_err() {
            // Nobody else knows of it.
            let _ = store.close().await;
        }
        opened
    }
}

pub(super) fn damaged(region: &Region) -> Error {
    let message = format!(
        "The data of {} is damaged. It is made anew from another region by itself; if it takes writes, take it offline, so that \
         another region takes over.",
        region.name
    );
    Error::new(Status::PRECONDITION_FAILED, message)
}
