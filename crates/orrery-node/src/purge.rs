//! Removing items whose time has run out. Readers never see them anyway; this gives their space back.
//!
//! Candidates come from two orders the view keeps: items with a time to live of their own by expiry, and items that follow
//! the container's default by their last change. Each round removes a bounded number per partition. A round that found as many
//! as it may remove is followed by another after a pause that leaves writers most of the time, so that what expires is removed
//! as fast as it is written, and many that expire at once in small steps. A clock that jumped forward suspends purging for
//! a while: a wrong clock must not destroy data.
//!
//! The same rounds forget versions that have left a container's change feed window.
//!
//! Rounds follow one another only while something is about to end. Where nothing is, there is a round when something short-lived
//! was written, and otherwise so seldom that nobody notices: often enough to meet what ends later.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::Duration;

use orrery_model::log::Operation;
use orrery_model::{ContainerDefinition, Epk, LogId, Result, Timestamp};
use orrery_partition::command::Command;
use orrery_partition::decide::unreadable;
use orrery_partition::expiry::expires_at;
use orrery_partition::history;
use orrery_partition::keys::{self, EpkForm, KeySpace};
use orrery_partition::storage::{Staged, View};
use orrery_partition::stored::StoredItem;
use tokio::time::Instant;

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
/// While nothing ends for a while: intervals from one round to the next.
const QUIET_INTERVALS: u32 = 10;
/// What ends later than this need not be waited for. A clock that jumps further is not believed anyway.
const SOON_S: u64 = JUMP_MS / 1000;

/// What a round leaves to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// Nothing, for a while.
    Nothing,
    /// What is about to end.
    Soon,
    /// More than it may remove.
    More,
}

pub async fn run(node: Weak<Node>) {
    let Some(strong) = node.upgrade() else { return };
    let (interval, stopped) = (strong.settings.purge_interval, strong.tasks.stopped());
    let (expiring, duty) = (Arc::clone(&strong.expiring), Arc::clone(&strong.duty));
    drop(strong);
    tokio::pin!(stopped);
    let mut trust = ClockTrust::default();
    let mut resume = HashMap::new();
    let mut forgotten = HashMap::new();
    let mut pause = interval;
    let mut left = Left::Soon;
    loop {
        let due = async {
            tokio::time::sleep(pause).await;
            if !duty.may_write_some() {
                // Only the region that writes removes anything; the others follow.
                duty.begins_to_write().await;
            } else if left == Left::Nothing {
                let quiet = tokio::time::sleep(interval * (QUIET_INTERVALS - 1));
                tokio::select! {
                    () = expiring.notified() => {}
                    () = quiet => {}
                }
            }
        };
        tokio::select! {
            biased;
            // Both are safe to drop: neither has begun anything.
            () = &mut stopped => return,
            () = due => {}
        }
        let Some(node) = node.upgrade() else { return };
        // Also when it has only followed so far, so that it does not begin to write with a clock that has gone wrong unseen.
        let is_trusted = trust.check(node.now(), Instant::now());
        (pause, left) = (interval, Left::Soon);
        if is_trusted && node.duty.may_write_some() {
            let begun = Instant::now();
            left = round(&node, &mut resume)
                .await
                .max(forget_versions(&node, &mut forgotten).await);
            if left == Left::More {
                pause = (begun.elapsed() * PAUSE_SHARE).max(PAUSE_MIN).min(interval);
            }
        }
    }
}

/// Whether transactions hold an item that ends soon.
pub fn has_short_lived(definition: &ContainerDefinition, staged: &[Staged]) -> bool {
    let Some(default) = definition.default_ttl() else {
        return false;
    };
    let ends_soon = |operation: &Operation| match operation {
        Operation::Put(put) => u64::try_from(put.ttl.unwrap_or(default)).is_ok_and(|seconds| seconds <= SOON_S),
        _ => false,
    };
    let mut operations = staged.iter().flat_map(|staged| &staged.transaction.operations);
    operations.any(ends_soon)
}

/// Notices when the clock runs ahead of the time that can have passed.
#[derive(Debug, Default)]
pub struct ClockTrust {
    last: Option<(Timestamp, Instant)>,
    distrust_until: Option<Timestamp>,
}

impl ClockTrust {
    /// May purging go on at `now`? `passed` is what a clock shows that nobody sets.
    pub fn check(&mut self, now: Timestamp, passed: Instant) -> bool {
        let jumped = self.last.is_some_and(|(last, before)| {
            let passed_ms = passed.duration_since(before).as_millis() as u64;
            now.0 > last.0 + passed_ms + JUMP_MS
        });
        self.last = Some((now, passed));
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
                Ok(listed) => {
                    resume.insert(range.log, listed.reached);
                    left = left.max(match listed.items.len() {
                        ROUND_ITEMS_MAX.. => Left::More,
                        0 if !listed.ends_soon => Left::Nothing,
                        _ => Left::Soon,
                    });
                    if !listed.items.is_empty() {
                        remove(node, &partition, listed.items).await;
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
        if keeps {
            left = left.max(Left::Soon);
        }
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

/// What can be removed from a partition.
#[derive(Default)]
struct Candidates {
    items: Vec<(Epk, u64)>,
    /// Where the next round begins in the order of changes: before that only items with a time to live of their own were met.
    reached: Vec<u8>,
    /// Whether more than these end before long.
    ends_soon: bool,
}

fn candidates(view: &dyn View, definition: &ContainerDefinition, now: Timestamp, from: &[u8]) -> Result<Candidates> {
    let form = EpkForm::of(definition.partition_key());
    let mut found = Candidates::default();
    let (first, last) = keys::bounds(KeySpace::Expiry);
    for entry in view
        .scan(Bound::Included(&first), Bound::Excluded(&last), false)
        .take(ROUND_ITEMS_MAX)
    {
        let (key, value) = entry.map_err(unreadable)?;
        let Some((at, number)) = keys::read_expiry(&key) else {
            break;
        };
        if at > now.seconds() {
            found.ends_soon = is_soon(at, now);
            break;
        }
        found.items.extend(form.read(&value).map(|(epk, _)| (epk, number)));
    }
    by_default(view, definition, now, from, &mut found)?;
    Ok(found)
}

fn is_soon(at_s: u64, now: Timestamp) -> bool {
    at_s <= now.seconds() + SOON_S
}

/// Items that follow the default, oldest change first.
fn by_default(
    view: &dyn View,
    definition: &ContainerDefinition,
    now: Timestamp,
    from: &[u8],
    found: &mut Candidates,
) -> Result<()> {
    if definition.default_ttl().is_none_or(|ttl| ttl < 0) {
        return Ok(());
    }
    let form = EpkForm::of(definition.partition_key());
    let (first, last) = keys::bounds(KeySpace::Change);
    let start = if from.is_empty() { first.as_ref() } else { from };
    found.reached = from.to_vec();
    let (mut only_own, mut n_seen) = (true, 0);
    for entry in view
        .scan(Bound::Included(start), Bound::Excluded(&last), false)
        .take(ROUND_ENTRIES_MAX)
    {
        let (key, value) = entry.map_err(unreadable)?;
        n_seen += 1;
        let (Some((_, _, number)), Some((epk, _))) = (keys::read_change(&key), form.read(&value)) else {
            continue;
        };
        let Some(bytes) = view.get(&keys::item(form, &epk, number)).map_err(unreadable)? else {
            continue;
        };
        let item = StoredItem::decode(&bytes).map_err(unreadable)?;
        if item.ttl.is_some() {
            if only_own {
                found.reached = key.to_vec();
            }
            continue;
        }
        only_own = false;
        if let Some(at) = expires_at(definition, &item).filter(|at| *at > now.seconds()) {
            found.ends_soon |= is_soon(at, now);
            break;
        }
        found.items.push((epk, number));
        if found.items.len() >= ROUND_ITEMS_MAX {
            break;
        }
    }
    // What lies behind those that were looked at has not been seen.
    found.ends_soon |= n_seen == ROUND_ENTRIES_MAX;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_jumps_forward_suspends_purging() {
        let (mut trust, begun) = (ClockTrust::default(), Instant::now());
        let mut check = |at_ms: u64, passed_s| trust.check(Timestamp(at_ms), begun + Duration::from_secs(passed_s));
        assert!(check(1_000_000, 0));
        assert!(check(1_001_000, 1));
        assert!(check(4_601_000, 3_601), "a long time has really passed");
        assert!(!check(9_000_000, 3_602));
        assert!(!check(9_030_000, 3_632));
        assert!(check(9_061_000, 3_663));
    }
}
