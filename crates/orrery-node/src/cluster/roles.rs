//! A node of a cluster begins to own the logs, and ceases to.

use std::sync::Arc;

use orrery_model::{Epoch, LogId, Result};
use orrery_partition::decide::unreadable;
use orrery_partition::storage::Store;

use super::following;
use crate::clock::Clock;
use crate::control::Control;
use crate::events::Events;
use crate::geo::duty::Duty;
use crate::geo::roles::EpochStart;
use crate::node::{Node, NodeSettings, owning_epoch};

impl Node {
    /// Makes the account in a store that has none: its keys, and nothing else.
    pub async fn found(settings: NodeSettings, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<()> {
        let events = Events::new(Arc::clone(&clock));
        let role = orrery_partition::storage::Role::Own {
            epoch: system_epoch(&*store)?,
        };
        let control = Control::open(&*store, role, clock, events).await?;
        crate::node::account_keys(&control, &settings).await.map(drop)
    }

    /// Whether the store holds an account.
    pub async fn is_founded(store: &dyn Store) -> Result<bool> {
        let logs = store.list().map_err(unreadable)?;
        if !logs
            .iter()
            .any(|info| info.log == LogId::SYSTEM && info.position.lsn.0 > 0)
        {
            return Ok(false);
        }
        let log = store.open(LogId::SYSTEM, orrery_partition::storage::Role::Follow).await;
        let snapshot = log.map_err(unreadable)?.snapshot().map_err(unreadable)?;
        let account = snapshot.get(&orrery_partition::keys::record(b"account"));
        Ok(account.map_err(unreadable)?.is_some())
    }

    /// Opens an account that exists, as a node that follows. The store must follow what others write by itself.
    pub async fn follow(settings: NodeSettings, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Arc<Node>> {
        let events = Events::new(Arc::clone(&clock));
        let node = Node::start_in(settings, store, clock, Duty::clustered(false), events).await?;
        node.tasks.spawn(following::run(Arc::downgrade(&node)));
        Ok(node)
    }

    /// Takes every log over from whoever owned it, and begins to write. The store knows all logs there are.
    pub async fn take_over(self: &Arc<Node>) -> Result<()> {
        let _alone = self.changing_role.lock().await;
        let epoch = system_epoch(&*self.store)?;
        self.open_logs().into_iter().for_each(|log| self.cache.clear(log));
        self.promote(epoch, EpochStart::Next).await?;
        self.reload_keys()?;
        // Names that came since this node last looked.
        self.open_all().await?;
        self.drop_strangers().await
    }

    /// Lets what is under way end, then ceases to write. Whatever waits is refused, surely not done.
    pub async fn hand_over(self: &Arc<Node>) -> Result<()> {
        let _alone = self.changing_role.lock().await;
        let _held = self.hold_all().await?;
        let _unchanged = self.control.hold().await;
        self.demote().await?;
        self.close_unnamed();
        Ok(())
    }

    /// Ceases to write at once.
    pub async fn step_down(self: &Arc<Node>) -> Result<()> {
        // Before anything that may take its time.
        self.duty.set_writes(false);
        let _alone = self.changing_role.lock().await;
        self.demote().await?;
        self.close_unnamed();
        Ok(())
    }

    /// Completes when a log turned out to be another's.
    pub async fn fenced(&self) {
        self.duty.fenced().await;
    }

    /// Whether this node still owns what it believes to own, proven by the store.
    pub async fn proves_ownership(&self) -> bool {
        self.duty.writes() && self.control.log().barrier().await.is_ok()
    }
}

/// The epoch in which the account is owned.
fn system_epoch(store: &dyn Store) -> Result<Epoch> {
    let logs = store.list().map_err(unreadable)?;
    let system = logs.iter().find(|info| info.log == LogId::SYSTEM);
    Ok(system.map_or(Epoch(1), owning_epoch).max(Epoch(1)))
}
