//! The regions of an account are started: the one that writes first, then those that follow, which get from it what they have
//! not.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use orrery_model::{Error, LogId, Result};
use orrery_partition::decide::unreadable;
use orrery_partition::storage::{Role, Store};

use super::duty::{Duty, Promise};
use super::fleet::RegionParts;
use super::link::Link;
use super::replica;
use super::roles::EpochStart;
use super::topology::{RegionId, Topology};
use crate::clock::SkewedClock;
use crate::events::Events;
use crate::node::{Node, NodeSettings};
use crate::snapshots::copy_view;

pub type Started = (BTreeMap<RegionId, Arc<Node>>, BTreeMap<RegionId, Arc<SkewedClock>>);

/// Starts the writer first: regions that are new get everything from it.
pub async fn start_nodes(
    settings: &NodeSettings,
    promise: Promise,
    parts: Vec<RegionParts>,
    topology: &Topology,
    events: &Events,
) -> Result<Started> {
    let mut parts: HashMap<RegionId, RegionParts> = parts
        .into_iter()
        .filter_map(|part| Some((topology.find(&part.name)?.id, part)))
        .collect();
    let (mut nodes, mut clocks) = (BTreeMap::new(), BTreeMap::new());
    let mut writer: Option<Arc<Node>> = None;
    for region in topology.present() {
        let Some(part) = parts.remove(&region.id) else {
            return Err(Error::bad_request(format!(
                "The account has a region {}, which was not named.",
                region.name
            )));
        };
        if let Some(writer) = &writer {
            provision(writer, &*part.store, None).await?;
        }
        let duty = Duty::new(writer.is_none(), promise);
        let clock = Arc::new(SkewedClock::new(part.clock));
        clocks.insert(region.id, Arc::clone(&clock));
        let node = Node::start_in(settings.clone(), part.store, clock, duty, events.clone()).await?;
        if writer.is_none() && node.control.log().head().epoch < topology.epoch {
            // The last change of the write region was decided and not carried out.
            node.promote(topology.epoch, EpochStart::Above).await?;
        }
        writer.get_or_insert_with(|| Arc::clone(&node));
        nodes.insert(region.id, node);
    }
    Ok((nodes, clocks))
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
