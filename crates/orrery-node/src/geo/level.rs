//! Bringing one region to where another stands: waiting for it, and taking over what it lacks before it begins to write.

use std::sync::Arc;
use std::time::Duration;

use orrery_model::{LogId, Lsn, Position, Result};
use orrery_partition::decide::unreadable;
use orrery_partition::storage::{Log, StorageError};

use super::duty::Promise;
use super::follow;
use super::replica::Replica;
use crate::node::Node;
use crate::writer::append_cached;

/// Whether one region has everything another has, as far as both have it open.
pub(super) fn is_level(ahead: &Node, behind: &Node) -> bool {
    let own = behind.live_logs();
    let has =
        |(log, theirs): (LogId, Arc<dyn Log>)| own.get(&log).is_some_and(|own| own.head().lsn >= theirs.head().lsn);
    ahead.live_logs().into_iter().all(has)
}

/// Waits until one region has everything another has.
pub(super) async fn wait_level(ahead: &Arc<Node>, behind: &Arc<Node>) {
    // All of them now: one that is taken later may have moved on, and the next one again.
    let wanted: Vec<(LogId, Position)> = ahead
        .live_logs()
        .iter()
        .map(|(log, theirs)| (*log, theirs.head()))
        .collect();
    for (log, head) in wanted {
        loop {
            let own: Option<Arc<dyn Log>> = behind.live_logs().remove(&log);
            match own {
                Some(own) if own.head().lsn >= head.lsn => break,
                Some(own) => {
                    // Looks again now and then: the log may be installed anew meanwhile.
                    let before = Lsn(head.lsn.0 - 1);
                    let _ = tokio::time::timeout(Duration::from_millis(100), own.wait_past(before)).await;
                }
                // It was split, merged or deleted meanwhile.
                None if !ahead.live_logs().contains_key(&log) => break,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

/// Waits until every region that counts has told the one that writes that it has everything.
pub(super) async fn wait_confirmed(writer: &Arc<Node>) {
    if writer.duty.promise != Promise::Everywhere {
        return;
    }
    for (log, own) in writer.live_logs() {
        writer.duty.progress.of(log).wait_committed(own.head().lsn).await;
    }
}

/// Before a region begins to write it takes over what another region has of the same history and it has not.
pub(super) async fn take_what_is_ahead(heir: &Arc<Node>, other: &Arc<Node>) -> Result<()> {
    let replica = Replica::between(heir, other);
    replica.take_system().await?;
    let ranges = heir.ranges_by_log();
    for (log, theirs) in other.live_logs() {
        let Some(range) = ranges.get(&log) else { continue };
        let Ok(partition) = heir.partition(range) else { continue };
        let own = Arc::clone(&partition.log);
        drop(partition);
        match take_log(heir, &own, &theirs).await {
            // Its copy was made from a view and has no beginning. Both are of the history that one region wrote, and it has more of it.
            Err(StorageError::Trimmed { .. }) if own.head().epoch <= theirs.head().epoch => {
                drop(own);
                replica.install(range).await?;
            }
            taken => taken.map_err(unreadable)?,
        }
    }
    Ok(())
}

/// Takes what follows the end of the own log, as far as it is the same history.
async fn take_log(heir: &Node, own: &Arc<dyn Log>, theirs: &Arc<dyn Log>) -> Result<(), StorageError> {
    while own.head().lsn < theirs.head().lsn {
        let before = own.head();
        let transactions = theirs.read_log(before.lsn, 1024 * 1024).await?;
        if !transactions.first().is_some_and(|first| first.follows(before)) {
            break;
        }
        let (expected, staged) = follow::stage(&**own, transactions)?;
        if staged.is_empty() {
            continue;
        }
        match append_cached(&**own, &heir.cache, expected, staged).await {
            // What following had under way when it was ended came first.
            Err(StorageError::Fenced { .. }) if own.head() != before => {}
            appended => appended?,
        }
    }
    Ok(())
}
