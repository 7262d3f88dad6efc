//! What keeps a log from being trimmed: any number of holds, of which the lowest counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orrery_model::Lsn;
use orrery_partition::storage::Hold;

/// The holds on one log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holds {
    registry: Arc<Mutex<Registry>>,
}

#[derive(Debug, Default)]
struct Registry {
    next_id: u64,
    held: BTreeMap<u64, Lsn>,
}

impl Holds {
    /// Transactions after `after` stay until the hold advances or is dropped.
    pub(crate) fn add(&self, after: Lsn) -> Box<dyn Hold> {
        let mut registry = self.lock();
        let id = registry.next_id;
        registry.next_id += 1;
        registry.held.insert(id, after);
        Box::new(HeldFrom {
            holds: self.clone(),
            id,
        })
    }

    /// `wanted`, or less when a hold says so.
    pub(crate) fn limit(&self, wanted: Lsn) -> Lsn {
        self.lock()
            .held
            .values()
            .copied()
            .min()
            .map_or(wanted, |held| held.min(wanted))
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        // No code panics while it holds the lock, so what it guards is whole.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct HeldFrom {
    holds: Holds,
    id: u64,
}

impl Hold for HeldFrom {
    fn advance(&self, after: Lsn) {
        if let Some(held) = self.holds.lock().held.get_mut(&self.id) {
            *held = after.max(*held);
        }
    }
}

impl Drop for HeldFrom {
    fn drop(&mut self) {
        self.holds.lock().held.remove(&self.id);
    }
}
