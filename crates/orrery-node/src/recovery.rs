//! A store that failed to sync is read-only until it has been reopened and verified. This does it, without a restart, and
//! tells when the store's health changes.

use std::sync::Weak;
use std::time::Duration;

use orrery_partition::storage::Health;

use crate::events;
use crate::node::Node;

/// How often the store's health is looked at while something is wrong with it, and how long between attempts to reopen.
const INTERVAL: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

pub async fn run(node: Weak<Node>) {
    let Some(stopped) = node.upgrade().map(|node| node.tasks.stopped()) else {
        return;
    };
    tokio::pin!(stopped);
    let mut pause = INTERVAL;
    let mut known = Health::Writable;
    loop {
        let Some(ailing) = node.upgrade().map(|node| node.store.ails()) else {
            return;
        };
        let due = async {
            tokio::time::sleep(pause).await;
            // While all is well nobody looks; what has been wrong and is right again is told as well.
            if known == Health::Writable {
                ailing.await;
            }
        };
        tokio::select! {
            biased;
            // Both are safe to drop: neither has begun anything.
            () = &mut stopped => return,
            () = due => {}
        }
        let Some(node) = node.upgrade() else { return };
        let health = node.store.health();
        if health != known
            && let Some(happening) = events::of_health(&health)
        {
            node.events().tell(happening);
            known = health.clone();
        }
        let Health::ReadOnly(reason) = health else {
            pause = INTERVAL;
            continue;
        };
        let reopened = match node.control.reopen(&*node.store).await {
            Ok(()) => node.open_all().await,
            Err(error) => Err(error),
        };
        match reopened {
            Ok(()) => {
                tracing::info!(reason, "the store was reopened and verified; it takes writes again");
                pause = INTERVAL;
            }
            Err(error) => {
                tracing::error!(%error, reason, "the store cannot be reopened; it stays read-only");
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}
