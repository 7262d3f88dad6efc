//! Making a unit's leases, once, whoever comes first; and proving that they cover every key.
//!
//! The protocol is .NET's: a mark that the unit is initialised, and a lock for the one who does it. Ours adds that a lock
//! left by somebody who died is taken over by the server's clock even where the container does not expire documents; that
//! the mark is written only after a listing proves the leases to tile the key space; and that every lease is created with
//! a position, so that "now" means the moment the unit was made, for ever. Invariant: a unit that bears the mark has no
//! hole.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::unit::{Unit, UnitListing};
use crate::balance::Listing;
use crate::error::{StartError, StoreError};
use crate::events::Event;
use crate::feed::token_now;
use crate::lease::{FeedMode, Lease};
use crate::pull::{BadCursor, Cursor};
use crate::range::{EpkRange, Tiling};
use crate::reshard::Partition;
use crate::start::{Position, StartFrom};
use crate::store::{Created, id_of, text_of};

/// How long a host waits for others to initialise the unit, in lock times.
const PATIENCE: u32 = 4;
/// The part of a lock's time that is waited before looking again.
const LOOK_AGAIN: u32 = 10;

/// Brings the unit to where work can begin.
pub(crate) async fn initialise(unit: &Arc<Unit>) -> Result<usize, StartError> {
    let deadline = Instant::now() + PATIENCE * unit.settings.timing.lock;
    loop {
        let listed = unit.list().await?;
        check(unit, &listed)?;
        if listed.is_initialised {
            if unit.settings.start != StartFrom::Now || unit.settings.start_at.is_some() {
                unit.events.emit(Event::StartIgnored);
            }
            repair(unit, &listed.listing).await?;
            return Ok(listed.listing.leases.len());
        }
        if let Some(lock) = lock(unit, listed.listing.server_now_ms).await? {
            warn_of_sibling(unit).await?;
            let made = make(unit).await;
            unlock(unit, &lock).await;
            return made;
        }
        if Instant::now() >= deadline {
            return Err(StartError::Locked(unit.names.lock()));
        }
        sleep(unit.settings.timing.lock / LOOK_AGAIN).await;
    }
}

/// The endpoint's host name is part of the ids: the same unit under another one would process everything a second time.
async fn warn_of_sibling(unit: &Unit) -> Result<(), StoreError> {
    let found = unit.store.list(&unit.processor).await?;
    let leases = found
        .documents
        .iter()
        .filter_map(|document| id_of(document).split_once(".."));
    let sibling = leases.map(|(prefix, _)| prefix).find(|prefix| {
        unit.names
            .is_sibling(&unit.processor, &unit.description.identity, prefix)
    });
    if let Some(prefix) = sibling {
        unit.events.emit(Event::SiblingUnit {
            prefix: prefix.to_owned(),
        });
    }
    Ok(())
}

/// What must not be mixed.
fn check(unit: &Unit, listed: &UnitListing) -> Result<(), StartError> {
    if listed.is_foreign {
        return Err(StartError::JavaLeases);
    }
    let wanted = unit.settings.mode;
    if let Some(cursor) = &unit.settings.start_at {
        if cursor.container_rid() != unit.description.identity.container_rid {
            return Err(BadCursor::OtherContainer.into());
        }
        if cursor.mode() != wanted {
            return Err(BadCursor::OtherMode.into());
        }
    }
    if let Some(lease) = listed.listing.leases.iter().find(|lease| lease.feed_mode() != wanted) {
        let stored = lease.feed_mode();
        return Err(StartError::ModeDiffers { stored, wanted });
    }
    let mine = unit.me.name.as_str();
    let alike = |owner: &&str| *owner != mine && owner.eq_ignore_ascii_case(mine);
    match listed.listing.leases.iter().filter_map(Lease::owner).find(alike) {
        Some(owner) => Err(StartError::NameDiffersInCase(owner.to_owned())),
        None => Ok(()),
    }
}

/// The lock's entity tag, if we have it.
async fn lock(unit: &Unit, server_now_ms: Option<u64>) -> Result<Option<String>, StoreError> {
    let ttl = unit.settings.timing.lock;
    let document = json!({"id": unit.names.lock(), "ttl": ttl.as_secs().max(1)});
    if let Created::New(written) = unit.store.create(&document).await? {
        return Ok(Some(written.etag));
    }
    let Some(stored) = unit.store.read(&document).await? else {
        return Ok(None);
    };
    if !is_abandoned(&stored, server_now_ms, ttl) {
        return Ok(None);
    }
    let Some(etag) = text_of(&stored, "_etag") else {
        return Ok(None);
    };
    match unit.store.replace(&document, etag).await {
        Ok(written) => Ok(Some(written.etag)),
        Err(StoreError::Changed | StoreError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where documents do not expire by themselves, a lock outlives whoever held it.
fn is_abandoned(lock: &Value, server_now_ms: Option<u64>, ttl: Duration) -> bool {
    let (Some(written), Some(now)) = (lock.get("_ts").and_then(Value::as_u64), server_now_ms) else {
        return false;
    };
    Duration::from_millis(now).saturating_sub(Duration::from_secs(written)) > 2 * ttl
}

async fn unlock(unit: &Unit, etag: &str) {
    let lock = json!({"id": unit.names.lock()});
    // If it is not ours any more, somebody else will remove it; otherwise it expires.
    if let Err(error) = unit.store.delete(&lock, Some(etag)).await
        && !matches!(error, StoreError::Changed | StoreError::NotFound)
    {
        tracing::warn!(%error, "the lock of the lease store could not be removed");
    }
}

async fn make(unit: &Arc<Unit>) -> Result<usize, StartError> {
    let listed = unit.list().await?;
    fill_holes(unit, &listed.listing).await?;
    let listed = unit.list().await?;
    let tiling = tiling(&listed.listing);
    if !tiling.holes.is_empty() {
        return Err(StartError::Tiling(format!("{:?} is covered by no lease", tiling.holes)));
    }
    unit.store.create(&json!({"id": unit.names.info()})).await?;
    Ok(listed.listing.leases.len())
}

/// How the leases cover the key space. A retired lease and its children cover the same keys on purpose; while one exists,
/// overlaps mean nothing. Leases of partition ids that do not say their range are taken to cover it all.
pub(crate) fn tiling(listing: &Listing) -> Tiling {
    if listing.leases.iter().any(|lease| lease.range.is_none()) {
        return Tiling::default();
    }
    let ranges: Vec<EpkRange> = listing.leases.iter().filter_map(|lease| lease.range.clone()).collect();
    let mut tiling = Tiling::of(&ranges);
    if listing.leases.iter().any(Lease::is_retired) {
        tiling.overlaps.clear();
    }
    tiling
}

/// Finds and fills holes in a unit that should have none, and reports what it found.
pub(crate) async fn repair(unit: &Arc<Unit>, listing: &Listing) -> Result<(), StartError> {
    let Tiling { holes, overlaps } = tiling(listing);
    if holes.is_empty() && overlaps.is_empty() {
        return Ok(());
    }
    fill_holes(unit, listing).await?;
    unit.events.emit(Event::TilingRepaired { holes, overlaps });
    Ok(())
}

/// Creates leases for what no lease covers, cut at the partitions.
async fn fill_holes(unit: &Arc<Unit>, listing: &Listing) -> Result<(), StartError> {
    let holes = tiling(listing).holes;
    if holes.is_empty() {
        return Ok(());
    }
    let is_new = listing.leases.is_empty();
    let partitions = unit.source.partitions().await?;
    let cursor = unit.settings.start_at.as_ref().filter(|_| is_new);
    for part in parts(&holes, &partitions, unit.settings.leases_per_partition) {
        let (at_cursor, rest) = placed(part, cursor);
        for (range, position) in at_cursor {
            let id = unit.names.lease(&range.to_string());
            let lease = Lease::for_range(id, range, unit.settings.mode).at(&position);
            unit.store.create(&lease.to_document()).await?;
        }
        for range in rest {
            let lease = new_lease(unit, range, is_new).await?;
            // Existing is fine: somebody else had the same idea.
            unit.store.create(&lease.to_document()).await?;
        }
    }
    Ok(())
}

/// What of a part a cursor has places for, and what it leaves.
fn placed(part: EpkRange, cursor: Option<&Cursor>) -> (Vec<(EpkRange, Position)>, Vec<EpkRange>) {
    let Some(cursor) = cursor else {
        return (Vec::new(), vec![part]);
    };
    let within = |(range, position): (&EpkRange, &Position)| Some((range.intersection(&part)?, position.clone()));
    let at_cursor: Vec<_> = cursor.ranges().filter_map(within).collect();
    let rest = part.without(at_cursor.iter().map(|(range, _)| range));
    (at_cursor, rest)
}

/// What is to be covered, cut at the partitions' bounds, and finer if wished.
fn parts(holes: &[EpkRange], partitions: &[Partition], per_partition: usize) -> Vec<EpkRange> {
    let cuts = partitions
        .iter()
        .flat_map(|partition| partition.range.split_evenly(per_partition));
    let cuts: Vec<EpkRange> = cuts.collect();
    let within = |hole: &EpkRange| cuts.iter().filter_map(|cut| cut.intersection(hole)).collect::<Vec<_>>();
    holes.iter().flat_map(within).collect()
}

/// A lease with its position. One that had been there before starts where the unit was told to, but never silently later
/// than that: a hole found afterwards begins at the beginning, and its changes come again.
async fn new_lease(unit: &Arc<Unit>, range: EpkRange, is_new: bool) -> Result<Lease, StartError> {
    let mode = unit.settings.mode;
    let lease = Lease::for_range(unit.names.lease(&range.to_string()), range.clone(), mode);
    let start = match (is_new, mode) {
        (false, FeedMode::LatestVersion) => StartFrom::Beginning,
        _ => unit.settings.start,
    };
    match start {
        StartFrom::Now => Ok(Lease {
            continuation: Some(token_now(unit.source.as_ref(), &range, mode).await?),
            ..lease
        }),
        start => Ok(lease.with_start(start.to_text())),
    }
}
