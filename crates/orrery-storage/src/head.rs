//! The head of a log as a value that can be waited for.
//!
//! Those who wait are woken in the order in which they began to. A `watch` channel would wake them in an order of its own, and
//! no two runs of a simulation would be alike.

use std::sync::{PoisonError, RwLock};

use orrery_model::{Lsn, Position};
use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct Head {
    position: RwLock<Position>,
    moved: Notify,
}

impl Head {
    pub(crate) fn new(position: Position) -> Head {
        Head {
            position: RwLock::new(position),
            moved: Notify::new(),
        }
    }

    pub(crate) fn get(&self) -> Position {
        *self.position.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, position: Position) {
        *self.position.write().unwrap_or_else(PoisonError::into_inner) = position;
        self.moved.notify_waiters();
    }

    /// Waits until the head is past `after`. Holds no lock while it waits.
    pub(crate) async fn wait_past(&self, after: Lsn) -> Position {
        loop {
            // Made before the look, so that no move in between goes unnoticed.
            let moved = self.moved.notified();
            let position = self.get();
            if position.lsn > after {
                return position;
            }
            moved.await;
        }
    }
}
