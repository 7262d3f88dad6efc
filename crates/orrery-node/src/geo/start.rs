//! The regions of an account are started: the one that writes first, then those that follow, which get from it what they have
//! not.
//!
//! Before the one that writes begins to, it gets back what others have of its log and it has not: they had it from here, so it
//! was durable and may have been acknowledged, and a torn end of a file looks like one that was never finished. One whose data
//! is damaged does not begin to write at all; what is put in its place is a copy of the region that has most.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use orrery_model::{Epoch, Error, LogId, Position, Result, Status};
use orrery_partition::decide::unreadable;
use orrery_partition::storage::{Role, Store};

use super::duty::{Duty, Promise};
use super::fleet::RegionParts;
use super::level::take_what_is_ahead;
use super::link::Link;
use super::replica;
use super::roles::EpochStart;
use super::topology::{RegionId, Topology};
use crate::clock::{Clock, SkewedClock};
use crate::events::Events;
use crate::node::{Node, NodeSettings};
use crate::snapshots::copy_view;

/// How long what a region does by itself may take to end before it is given another role.
const DISMISSAL: Duration = Duration::from_secs(5);

pub type Started = (BTreeMap<RegionId, Arc<Node>>, BTreeMap<RegionId, Arc<SkewedClock>>);

/// How nodes of an account are opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    pub settings: &'a NodeSettings,
    pub promise: Promise,
    pub events: &'a Events,
}

/// Starts every region. Those that are new get everything from the one that writes.
pub async fn start_nodes(
    settings: &NodeSettings,
    promise: Promise,
    parts: Vec<RegionParts>,
    topology: &Topology,
    events: &Events,
) -> Result<Started> {
    let opening = Opening {
        settings,
        promise,
        events,
    };
    let mut parts: HashMap<RegionId, RegionParts> = parts
        .into_iter()
        .filter_map(|part| Some((topology.find(&part.name)?.id, part)))
        .collect();
    let mut clocks = BTreeMap::new();
    let mut places = Vec::new();
    for region in topology.present() {
        let Some(part) = parts.remove(&region.id) else {
            return Err(Error::bad_request(format!(
                "The account has a region {}, which was not named.",
                region.name
            )));
        };
        let clock = Arc::new(SkewedClock::new(part.clock));
        clocks.insert(region.id, Arc::clone(&clock));
        places.push((region, part.store, clock));
    }
    let mut nodes = BTreeMap::new();
    let mut others = Vec::new();
    let (writers, readers) = places.split_at(1);
    for (region, store, clock) in readers {
        if has_account(&**store)? {
            let node = opening.reader(Arc::clone(store), Arc::clone(clock) as _).await?;
            nodes.insert(region.id, Arc::clone(&node));
            if topology.is_online(region.id) {
                others.push(node);
            }
        }
    }
    for (region, store, clock) in writers {
        let (store, clock) = (Arc::clone(store), Arc::clone(clock) as Arc<dyn Clock>);
        let node = match region.damaged {
            true => opening.stand_in(store, clock, &others).await?,
            false => opening.writer(topology, store, clock, &others).await?,
        };
        nodes.insert(region.id, Arc::clone(&node));
        for (region, store, clock) in readers
            .iter()
            .filter(|(region, ..)| !nodes.contains_key(&region.id))
            .collect::<Vec<_>>()
        {
            provision(&node, &**store, None).await?;
            let node = opening.reader(Arc::clone(store), Arc::clone(clock) as _).await?;
            nodes.insert(region.id, node);
        }
    }
    Ok((nodes, clocks))
}

impl Opening<'_> {
    /// A region that follows.
    pub async fn reader(&self, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Arc<Node>> {
        self.start(store, clock, false).await
    }

    /// The region that writes, with whatever the others have of its logs.
    pub async fn writer(
        &self,
        topology: &Topology,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        others: &[Arc<Node>],
    ) -> Result<Arc<Node>> {
        self.fetch_lost_end(topology.epoch, &store, &clock, others).await?;
        let node = self.start(store, clock, true).await?;
        if node.control.log().head().epoch < topology.epoch {
            // The last change of the write region was decided and not carried out.
            node.promote(topology.epoch, EpochStart::Above).await?;
        }
        Ok(node)
    }

    /// In the place of a region that writes and whose data is damaged: it has what the others have, and does not write.
    async fn stand_in(&self, store: Arc<dyn Store>, clock: Arc<dyn Clock>, others: &[Arc<Node>]) -> Result<Arc<Node>> {
        if !has_account(&*store)? {
            let most = |node: &&Arc<Node>| node.positions().values().map(|position| position.lsn.0).sum::<u64>();
            let nobody = || {
                let message =
                    "The data of the region that takes writes is damaged, and no other region has the account.";
                Error::new(Status::UNAVAILABLE, message)
            };
            let donor = others.iter().max_by_key(most).ok_or_else(nobody)?;
            provision(donor, &*store, None).await?;
        }
        self.start(store, clock, false).await
    }

    async fn start(&self, store: Arc<dyn Store>, clock: Arc<dyn Clock>, writes: bool) -> Result<Arc<Node>> {
        let duty = Duty::new(writes, self.promise);
        Node::start_in(self.settings.clone(), store, clock, duty, self.events.clone()).await
    }

    /// Gives a store back what it has lost of the ends of its logs, as far as other regions have it.
    async fn fetch_lost_end(
        &self,
        epoch: Epoch,
        store: &Arc<dyn Store>,
        clock: &Arc<dyn Clock>,
        others: &[Arc<Node>],
    ) -> Result<()> {
        let mut ahead = Vec::new();
        for other in others {
            if is_ahead(&*other.store, &**store, epoch)? {
                ahead.push(other);
            }
        }
        if ahead.is_empty() {
            return Ok(());
        }
        tracing::error!(
            "the region that writes has lost the end of its log; it takes what the other regions have of it"
        );
        // As a follower: nothing is written before everything is back.
        let node = self.reader(Arc::clone(store), Arc::clone(clock)).await?;
        for other in ahead {
            take_what_is_ahead(&node, other).await?;
        }
        for log in node.open_logs() {
            drop(node.close_partition(log));
        }
        node.tasks.stop(DISMISSAL).await;
        Ok(())
    }
}

pub(super) fn has_account(store: &dyn Store) -> Result<bool> {
    let logs = store.list().map_err(unreadable)?;
    Ok(logs.iter().any(|info| info.log == LogId::SYSTEM))
}

/// Whether a region that follows has more of a log than the one that writes. What was begun in an epoch that did not come to be
/// does not count.
fn is_ahead(other: &dyn Store, writer: &dyn Store, epoch: Epoch) -> Result<bool> {
    let own = writer.list().map_err(unreadable)?;
    let own: BTreeMap<LogId, Position> = own.iter().map(|info| (info.log, info.position)).collect();
    let theirs = other.list().map_err(unreadable)?;
    let is_ahead = |(log, position): (LogId, Position)| own.get(&log).is_some_and(|own| position.lsn > own.lsn);
    Ok(theirs.iter().all(|info| info.position.epoch <= epoch)
        && theirs.iter().any(|info| is_ahead((info.log, info.position))))
}

/// Gives a store that has no account yet a copy of the writer's, over a link if there is one. What is changed meanwhile, and
/// what the writer has given up, shows when the region follows its system log.
pub async fn provision(writer: &Arc<Node>, store: &dyn Store, link: Option<&Link>) -> Result<()> {
    let existing: BTreeSet<LogId> = store.list().map_err(unreadable)?.iter().map(|info| info.log).collect();
    if existing.contains(&LogId::SYSTEM) {
        return Ok(());
    }
    // Taken first and installed last: whatever it names has been copied by then, at least as new.
    let system = writer.control.log().snapshot().map_err(unreadable)?;
    for log in writer.named_logs() {
        let exists = writer.store.list().map_err(unreadable)?;
        if !exists.iter().any(|info| info.log == log) {
            continue;
        }
        let theirs = writer.store.open(log, Role::Follow).await.map_err(unreadable)?;
        if existing.contains(&log) {
            store.drop_log(log).await.map_err(unreadable)?;
        }
        let snapshot = theirs.snapshot().map_err(unreadable)?;
        if let Some(link) = link {
            replica::carry(link, Arc::clone(&snapshot)).await?;
        }
        copy_view(store, Arc::clone(&snapshot), log, snapshot.position()).await?;
    }
    let position = system.position();
    copy_view(store, system, LogId::SYSTEM, position).await
}
