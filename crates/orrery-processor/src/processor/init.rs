//! Making a unit's leases, once, whoever comes first; and proving that they cover every key.
//!
//! The protocol is .NET's: a mark that the unit is initialised, and a lock for the one who does it. Ours adds that a lock
//! left by somebody who died is taken over by the server's clock even where the container does not expire documents; that
//! the mark is written only after a listing proves the leases to tile the key space; that every lease is created with a
//! position, so that "now" means the moment the unit was made, for ever; and that the lock is renewed, so that a unit of many
//! leases is made by one. Invariants: a unit that bears the mark has no hole; one that was left half made begins where it was
//! told to, as if nobody had begun it.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::coverage::Coverage;
use super::unit::{Unit, UnitListing, Unreadable};
use crate::error::{StartError, StoreError};
use crate::events::{Event, Filled};
use crate::feed::{reaches_back, token_now};
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
/// How often a lock is renewed within its time.
const RENEWALS: u32 = 3;
/// Leases that are made at the same time, as by .NET.
const CONCURRENCY: usize = 25;

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
            repair(unit, &listed).await?;
            return Ok(listed.listing.leases.len());
        }
        if let Some(lock) = lock(unit, listed.listing.server_now_ms).await?
            && let Some(made) = make_locked(unit, lock).await
        {
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
    if let Some(Unreadable { id, error, .. }) = listed.unreadable.first() {
        let (id, error) = (id.clone(), error.clone());
        return Err(StartError::UnreadableLease { id, error });
    }
    let wanted = unit.settings.mode;
    if let Some(cursor) = &unit.settings.start_at {
        cursor.check_ranges()?;
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

fn lock_document(unit: &Unit) -> Value {
    json!({"id": unit.names.lock(), "ttl": unit.settings.timing.lock.as_secs().max(1)})
}

/// The lock's entity tag, if we have it.
async fn lock(unit: &Unit, server_now_ms: Option<u64>) -> Result<Option<String>, StoreError> {
    let (ttl, document) = (unit.settings.timing.lock, lock_document(unit));
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

/// Makes the leases while the lock is kept. Nothing if it was lost, to somebody who took us for dead: then it is theirs to make
/// them, and creating any more could bring back leases that were cut since.
async fn make_locked(unit: &Arc<Unit>, lock: String) -> Option<Result<usize, StartError>> {
    let done = CancellationToken::new();
    let keeping = keep(unit, lock, &done);
    tokio::pin!(keeping);
    let making = async {
        warn_of_sibling(unit).await?;
        make(unit).await
    };
    // What is under way when the lock is lost may be dropped: whoever has it looks at what there is.
    let made = tokio::select! {
        made = making => made,
        _ = &mut keeping => return None,
    };
    done.cancel();
    if let Some(lock) = keeping.await {
        unlock(unit, &lock).await;
    }
    Some(made)
}

/// Renews the lock until the leases are made. Its last tag comes back, or nothing if it is another's by now.
async fn keep(unit: &Unit, mut etag: String, done: &CancellationToken) -> Option<String> {
    let (ttl, document) = (unit.settings.timing.lock, lock_document(unit));
    loop {
        tokio::select! {
            () = done.cancelled() => return Some(etag),
            () = sleep(ttl / RENEWALS) => {}
        }
        match timeout(ttl, unit.store.replace(&document, &etag)).await {
            Ok(Ok(written)) => etag = written.etag,
            Ok(Err(StoreError::Changed | StoreError::NotFound)) => return None,
            // It is ours for a while yet.
            Ok(Err(error)) => tracing::warn!(%error, "the lock of the lease store could not be renewed"),
            Err(late) => tracing::warn!(%late, "the lock of the lease store could not be renewed"),
        }
    }
}

async fn make(unit: &Arc<Unit>) -> Result<usize, StartError> {
    let listed = unit.list().await?;
    // Without the mark nobody has begun to work, unless it was deleted: then leases have been taken.
    let is_new = listed.listing.leases.iter().all(Lease::is_unused);
    let tiling = Coverage::of(unit.source.as_ref(), &listed.listing).await?.tiling();
    let filled = fill(unit, &tiling.holes, is_new).await?;
    if !is_new {
        report(unit, tiling, filled);
    }
    let listed = unit.list().await?;
    let tiling = Coverage::of(unit.source.as_ref(), &listed.listing).await?.tiling();
    if !tiling.holes.is_empty() {
        return Err(StartError::Tiling(format!("{:?} is covered by no lease", tiling.holes)));
    }
    unit.store.create(&json!({"id": unit.names.info()})).await?;
    Ok(listed.listing.leases.len())
}

/// Finds and fills holes in a unit that should have none, and reports what it found. Whether leases were made.
pub(crate) async fn repair(unit: &Arc<Unit>, listed: &UnitListing) -> Result<bool, StartError> {
    let coverage = Coverage::of(unit.source.as_ref(), &listed.listing).await?;
    let mut tiling = coverage.tiling();
    spare_unreadable(&mut tiling, &listed.unreadable);
    let filled = fill(unit, &tiling.holes, false).await?;
    let is_filled = !filled.is_empty();
    report(unit, tiling, filled);
    Ok(is_filled)
}

/// A hole that a document stands in which cannot be read is for whoever put it there: a lease of these keys could not be created
/// beside it. Where it does not say which keys it is about, any hole may be its.
pub(crate) fn spare_unreadable(tiling: &mut Tiling, unreadable: &[Unreadable]) {
    let ranges: Option<Vec<EpkRange>> = unreadable.iter().map(|document| document.range.clone()).collect();
    let holes = std::mem::take(&mut tiling.holes);
    if let Some(ranges) = ranges {
        tiling.holes = holes.iter().flat_map(|hole| hole.without(&ranges)).collect();
    }
}

fn report(unit: &Unit, Tiling { holes, overlaps }: Tiling, filled: Vec<Filled>) {
    // Holes that somebody else has filled meanwhile are reported there.
    if !filled.is_empty() || !overlaps.is_empty() {
        unit.events.emit(Event::TilingRepaired {
            holes,
            overlaps,
            filled,
        });
    }
}

/// Creates leases for what no lease covers, cut at the partitions. Which of them are ours comes back, with where they begin,
/// unless a cursor says that.
async fn fill(unit: &Arc<Unit>, holes: &[EpkRange], is_new: bool) -> Result<Vec<Filled>, StartError> {
    if holes.is_empty() {
        return Ok(Vec::new());
    }
    let partitions = unit.source.partitions().await?;
    let cursor = unit.settings.start_at.as_ref().filter(|_| is_new);
    let mut creating = Vec::new();
    for part in parts(holes, &partitions, unit.settings.leases_per_partition) {
        let (at_cursor, rest) = placed(part, cursor);
        let at_cursor = at_cursor.into_iter().map(|(range, position)| (range, Some(position)));
        let rest = rest.into_iter().map(|range| (range, None));
        let each = at_cursor.chain(rest);
        creating.extend(each.map(|(range, position)| create(unit, range, position, is_new)));
    }
    let created = futures::stream::iter(creating).buffered(CONCURRENCY);
    created
        .try_filter_map(|filled| std::future::ready(Ok(filled)))
        .try_collect()
        .await
}

/// Creates the lease of a range, at the position a cursor has for it or where it begins otherwise.
async fn create(
    unit: &Arc<Unit>,
    range: EpkRange,
    position: Option<Position>,
    is_new: bool,
) -> Result<Option<Filled>, StartError> {
    let (lease, from) = match position {
        Some(Position::From(from)) => (new_lease(unit, range, from).await?, None),
        Some(position) => {
            let id = unit.names.lease(&range.to_string());
            (Lease::for_range(id, range, unit.settings.mode).at(&position), None)
        }
        None => {
            let from = start_of(unit, &range, is_new).await?;
            (new_lease(unit, range, from).await?, Some(from))
        }
    };
    let lease = if is_new { lease.unused() } else { lease };
    Ok(match unit.store.create(&lease.to_document()).await? {
        Created::New(_) => from.map(|from| Filled {
            lease: lease.token,
            from,
        }),
        // Somebody else had the same idea.
        Created::Exists => None,
    })
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

/// Where a lease begins. One of a new unit begins where the unit was told to. A hole that is found afterwards had a lease
/// before, and nobody knows where that stood: it begins at the beginning of what is kept, and changes come again. Only a
/// server that keeps versions and has no way back to them leaves nothing but now.
async fn start_of(unit: &Unit, range: &EpkRange, is_new: bool) -> Result<StartFrom, StartError> {
    let mode = unit.settings.mode;
    Ok(match mode {
        _ if is_new => unit.settings.start,
        FeedMode::AllVersionsAndDeletes if !reaches_back(unit.source.as_ref(), range, mode).await? => StartFrom::Now,
        _ => StartFrom::Beginning,
    })
}

/// A lease with its position.
async fn new_lease(unit: &Unit, range: EpkRange, from: StartFrom) -> Result<Lease, StartError> {
    let mode = unit.settings.mode;
    let lease = Lease::for_range(unit.names.lease(&range.to_string()), range.clone(), mode);
    match from {
        StartFrom::Now => Ok(Lease {
            continuation: Some(token_now(unit.source.as_ref(), &range, mode).await?),
            ..lease
        }),
        start => Ok(lease.with_start(start.to_text())),
    }
}
