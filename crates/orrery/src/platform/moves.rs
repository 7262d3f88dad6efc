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

/// How often it is told after a move, and how long after each.
const N_TELLS: u32 = 5;
const BETWEEN: Duration = Duration::from_secs(3);

/// Tells of moves until it is told to stop.
pub async fn tell(fleets: Vec<Arc<Fleet>>, moves: watch::Sender<()>, stopping: CancellationToken) {
    let (mut known, mut n_left) = (writers(&fleets), 0);
    loop {
        // All only wait.
        tokio::select! {
            () = stopping.cancelled() => return,
            () = next_move(&fleets, &known) => (known, n_left) = (writers(&fleets), N_TELLS),
            () = tokio::time::sleep(BETWEEN), if n_left > 0 => {}
        }
        moves.send_replace(());
        n_left = n_left.saturating_sub(1);
    }
}

/// Waits until one of the accounts takes its writes elsewhere.
async fn next_move(fleets: &[Arc<Fleet>], known: &[RegionId]) {
    let moving = fleets.iter().zip(known);
    let moving = moving.map(|(fleet, from)| Box::pin(fleet.writer_changes(*from)));
    futures::future::select_all(moving).await;
}

fn writers(fleets: &[Arc<Fleet>]) -> Vec<RegionId> {
    fleets.iter().map(|fleet| fleet.topology().writer().id).collect()
}
