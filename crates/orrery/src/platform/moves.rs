//! Telling the roles when an account of this process has moved its writes, whoever moved them: by a page, by an administrator or
//! by themselves.
//!
//! Elsewhere roles ask their accounts every few seconds. Here it is known without a request, so they ask rarely, and at once
//! when told. They are told a few times: whoever asks in the middle of a move may hear of the place before. Invariant: a move that
//! is not told at all is found out by the question that comes anyway.

use std::sync::Arc;
use std::time::Duration;

use orrery_node::geo::fleet::Fleet;
use orrery_node::geo::topology::RegionId;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often it is looked who writes, which is a look into memory.
const INTERVAL: Duration = Duration::from_secs(1);
/// For so many looks after a move it is told again.
const LOOKS_AFTER_MOVE: u32 = 15;
const LOOKS_BETWEEN: u32 = 3;

/// Tells of moves until it is told to stop.
pub async fn tell(fleets: Vec<Arc<Fleet>>, moves: watch::Sender<()>, stopping: CancellationToken) {
    let (mut known, mut looks_left) = (writers(&fleets), 0);
    loop {
        // Both only wait.
        tokio::select! {
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let found = writers(&fleets);
        if found != known {
            (known, looks_left) = (found, LOOKS_AFTER_MOVE);
        }
        if looks_left > 0 && looks_left.is_multiple_of(LOOKS_BETWEEN) {
            moves.send_replace(());
        }
        looks_left = looks_left.saturating_sub(1);
    }
}

fn writers(fleets: &[Arc<Fleet>]) -> Vec<RegionId> {
    fleets.iter().map(|fleet| fleet.topology().writer().id).collect()
}
