//! The head of a log as a value that can be waited for.

use orrery_model::{Lsn, Position};
use tokio::sync::watch;

/// Waits until the head is past `after`. Holds no lock while it waits.
pub(crate) async fn wait_past(head: &watch::Sender<Position>, after: Lsn) -> Position {
    let mut receiver = head.subscribe();
    let reached = receiver.wait_for(|position| position.lsn > after).await;
    *reached.expect("the sender is borrowed, so it lives")
}
