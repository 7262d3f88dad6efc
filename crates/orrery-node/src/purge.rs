//! Removing items whose time has run out. Readers never see them anyway; this gives their space back.
//!
//! Candidates come from two orders the view keeps: items with a time to live of their own by expiry, and items that follow
//! the container's default by their last change. Each round removes a bounded number per partition. A round that found as many
//! as it may remove is followed by another after a pause that leaves writers most of the time, so that what expires is removed
//! as fast as it is written, and many that expire at once in small steps. A clock that jumped forward suspends purging for
//! a while: a wrong clock must not destroy data.
//!
//! The same rounds forget versions that have left a container's change feed window.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::Duration;

use orrery_model::{ContainerDefinition, Epk, LogId, Result, Timestamp};
use orrery_partition::command::Command;
use orrery_partition::decide::unreadable;
use orrery_partition::expiry::{expires_at, is_expired};
use orrery_partition::history;
use orrery_partition::keys::{self, EpkForm, KeySpace};
use orrery_partition::storage::View;
use orrery_partition::stored::StoredItem;

use crate::catalogue::ContainerEntry;
use crate::node::Node;
use crate::partition::Partition;

/// Items removed per partition and round.
const ROUND_ITEMS_MAX: usize = 200;
/// Versions forgotten per partition and round.
const ROUND_VERSIONS_MAX: usize = 2_000;
/// Entries looked at per partition and round: items that never expire may stand in front.
const ROUND_ENTRIES_MAX: usize = 2_000;
/// A forward jump of the clock that is not believed at first, and for how long.
const JUMP_MS: u64 = 60_000;
const DISTRUST_MS: u64 = 60_000;
/// While there is more to remove: the pause after a round, in times of what it took, and the shortest.
const PAUSE_SHARE: u32 = 2;
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// Whether a round found more than it may remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Nothing,
    More,
}

pub async fn run(node: Weak<Node>) {
    let Some((interval, stopped)) = node
        .upgrade()
        .map(|node| (node.settings.purge_interval, node.tasks.stopped()))
    else {
        return;
    };
    tokio::pin!(stopped);
    let mut trust = ClockTrust::default();
    let mut resume = HashMap::new();
    let mut forgotten = HashMap::new();
    let mut pause = interval;
    loop {
        tokio::select! {
            biased;
            // Both are safe to drop: neither has begun anything.
            () = &mut stopped => return,
            () = tokio::time::sleep(pause) => {}
        }
        let Some(node) = node.upgrade() else { return };
        // Also while it only follows, so that it does not begin to write with a clock that has gone wrong unseen.
        let is_trusted = trust.check(node.now(), interval.as_millis() as u64);
        pause = interval;
        // Only the region that writes removes anything; the others follow.
        if is_trusted && node.duty.may_write_some() {
            let begun = tokio::time::Instant::now();
            let left = [
                round(&node, &mut resume).await,
                forget_versions(&node, &mut forgotten).await,
            ];
            if left.contains(&Left::More) {
                pause = (begun.elapsed() * PAUSE_SHARE).max(PAUSE_MIN).min(interval);
            }
        }
    }
}

/// Notices when the clock runs ahead of the time that can have passed.
#[derive(Debug, Default)]
pub struct ClockTrust {
    last: Option<Timestamp>,
    distrust_until: Option<Timestamp>,
}

impl ClockTrust {
    /// May purging go on at `now`, about `interval_ms` after the last call?
    pub fn check(&mut self, now: Timestamp, interval_ms: u64) -> bool {
        let jumped = self.last.is_some_and(|last| now.0 > last.0 + interval_ms + JUMP_MS);
        self.last = Some(now);
        if jumped {
            tracing::warn!("the clock jumped forward; expired items are kept for now");
            self.distrust_until = Some(Timestamp(now.0 + DISTRUST_MS));
        }
        match self.distrust_until {
            Some(until) if now < until => false,
            _ => {
                self.distrust_until = None;
                true
            }
        }
    }
}

/// One pass over every container with a time to live. `resume` remembers how far the order of changes holds nothing that
/// follows the default, per log.
pub async fn round(node: &Arc<Node>, resume: &mut HashMap<LogId, Vec<u8>>) -> Left {
    let mut left = Left::Nothing;
    let containers: Vec<Arc<ContainerEntry>> = {
        let catalogue = node.control.catalogue();
        catalogue
            .containers()
            .filter(|container| container.definition.default_ttl().is_some())
            .cloned()
            .collect()
    };
    for container in containers {
        for range in &container.ranges {
            let Ok(partition) = node.partition(range) else { continue };
            if !partition.is_owned() {
                continue;
            }
            let Ok(snapshot) = partition.snapshot() else { continue };
            let from = resume.remove(&range.log).unwrap_or_default();
            let (definition, now) = (Arc::clone(&container.definition), node.now());
            let listed = crate::feed::blocking(move || candidates(&*snapshot, &definition, now, &from)).await;
            match listed {
                Ok((candidates, reached)) => {
                    resume.insert(range.log, reached);
                    if candidates.len() >= ROUND_ITEMS_MAX {
                        left = Left::More;
                    }
                    if !candidates.is_empty() {
                        remove(node, &partition, candidates).await;
                    }
                }
                Err(error) => tracing::warn!(%error, "expired items cannot be listed"),
            }
        }
    }
    left
}

/// One pass over every container that keeps versions, or has kept some: `forgotten` remembers, per log, the definition with
/// which it was found to have none.
pub async fn forget_versions(node: &Arc<Node>, forgotten: &mut HashMap<LogId, u64>) -> Left {
    let mut left = Left::Nothing;
    let containers: Vec<Arc<ContainerEntry>> = node.control.catalogue().containers().cloned().collect();
    for container in containers {
        let keeps = container.definition.change_feed_retention_minutes().is_some();
        for range in &container.ranges {
            if !keeps && forgotten.get(&range.log) == Some(&container.definition_version) {
                continue;
            }
            let Ok(partition) = node.partition(range) else { continue };
            if !partition.is_owned() {
                continue;
            }
            let Ok(snapshot) = partition.snapshot() else { continue };
            match history::trimmable(&*snapshot, &container.definition, node.now(), 1) {
                Ok(Some(_)) => {
                    drop(snapshot);
                    let limit = ROUND_VERSIONS_MAX;
                    if let Err(error) = partition.command(Command::TrimHistory { limit }).await {
                        tracing::debug!(%error, "forgetting versions failed; it is tried again");
                    } else if has_old_versions(node, &partition, &container.definition) {
                        left = Left::More;
                    }
                }
                Ok(None) if !keeps => drop(forgotten.insert(range.log, container.definition_version)),
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "kept versions cannot be listed"),
            }
        }
    }
    left
}

fn has_old_versions(node: &Node, partition: &Partition, definition: &ContainerDefinition) -> bool {
    let Ok(snapshot) = partition.snapshot() else {
        return false;
    };
    matches!(history::trimmable(&*snapshot, definition, node.now(), 1), Ok(Some(_)))
}

async fn remove(node: &Node, partition: &Partition, candidates: Vec<(Epk, u64)>) {
    let n_candidates = candidates.len() as u64;
    match partition.command(Command::Purge { candidates }).await {
        Ok(_) => node.meters.purged.add(n_candidates),
        Err(error) => tracing::debug!(%error, "purging failed; it is tried again"),
    }
}

type Candidates = (Vec<(Epk, u64)>, Vec<u8>);

fn candidates(view: &dyn View, definition: &ContainerDefinition, now: Timestamp, from: &[u8]) -> Result<Candidates> {
    let form = EpkForm::of(definition.partition_key());
    let mut found = Vec::new();
    let (first, last) = keys::bounds(KeySpace::Expiry);
    for entry in view
        .scan(Bound::Included(&first), Bound::Excluded(&last), false)
        .take(ROUND_ITEMS_MAX)
    {
        let (key, value) = entry.map_err(unreadable)?;
        let Some((at, number)) = keys::read_expiry(&key).filter(|(at, _)| *at <= now.seconds()) else {
            break;
        };
        let _ = at;
        found.extend(form.read(&value).map(|(epk, _)| (epk, number)));
    }
    let reached = by_default(view, definition, now, from, &mut found)?;
    Ok((found, reached))
}

/// Items that follow the default, oldest change first. Answers the key up to which only items with a time to live of
/// their own were met, where the next round begins.
fn by_default(
    view: &dyn View,
    definition: &ContainerDefinition,
    now: Timestamp,
    from: &[u8],
    found: &mut Vec<(Epk, u64)>,
) -> Result<Vec<u8>> {
    if definition.default_ttl().is_none_or(|ttl| ttl < 0) {
        return Ok(Vec::new());
    }
    let form = EpkForm::of(definition.partition_key());
    let (first, last) = keys::bounds(KeySpace::Change);
    let start = if from.is_empty() { first.as_ref() } else { from };
    let mut reached = from.to_vec();
    let mut only_own = true;
    for entry in view
        .scan(Bound::Included(start), Bound::Excluded(&last), false)
        .take(ROUND_ENTRIES_MAX)
    {
        let (key, value) = entry.map_err(unreadable)?;
        let (Some((_, _, number)), Some((epk, _))) = (keys::read_change(&key), form.read(&value)) else {
            continue;
        };
        let Some(bytes) = view.get(&keys::item(form, &epk, number)).map_err(unreadable)? else {
            continue;
        };
        let item = StoredItem::decode(&bytes).map_err(unreadable)?;
        if item.ttl.is_some() {
            if only_own {
                reached = key.to_vec();
            }
            continue;
        }
        only_own = false;
        if !is_expired(definition, &item, now) {
            debug_assert!(expires_at(definition, &item).is_some());
            break;
        }
        found.push((epk, number));
        if found.len() >= ROUND_ITEMS_MAX {
            break;
        }
    }
    Ok(reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_jumps_forward_suspends_purging() {
        let mut trust = ClockTrust::default();
        assert!(trust.check(Timestamp(1_000_000), 1000));
        assert!(trust.check(Timestamp(1_001_000), 1000));
        assert!(!trust.check(Timestamp(9_000_000), 1000));
        assert!(!trust.check(Timestamp(9_030_000), 30_000));
        assert!(trust.check(Timestamp(9_061_000), 31_000));
    }
}
