//! What a host knows about itself right now, for whoever asks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One lease that this host reads. Times are on the host's clock, as ages when asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeaseHealth {
    /// Since the last successful read.
    pub last_poll: Option<Duration>,
    /// Since the position was last saved.
    pub last_checkpoint: Option<Duration>,
    /// How long the delegate has been running, if it is.
    pub delegate_running: Option<Duration>,
    /// Failed attempts at the current batch.
    pub attempts: u32,
    /// Transactions behind, if known.
    pub lag: Option<u64>,
    /// The last read found nothing new.
    pub caught_up: bool,
    pub epoch: u64,
}

/// The leases of a host by token.
#[derive(Clone, Debug, Default)]
pub struct Health {
    leases: Arc<Mutex<BTreeMap<String, LeaseHealth>>>,
}

impl Health {
    /// Notes something about a lease. The times in it are moments here.
    pub(crate) fn note(&self, lease: &str, change: impl FnOnce(&mut LeaseHealth)) {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        change(leases.entry(lease.to_owned()).or_default());
    }

    pub(crate) fn forget(&self, lease: &str) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).remove(lease);
    }

    /// A copy, with moments turned into ages.
    pub(crate) fn snapshot(&self, now: Duration) -> BTreeMap<String, LeaseHealth> {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let age = |moment: &mut Option<Duration>| *moment = moment.map(|moment| now.saturating_sub(moment));
        for lease in leases.values_mut() {
            age(&mut lease.last_poll);
            age(&mut lease.last_checkpoint);
            age(&mut lease.delegate_running);
        }
        leases
    }
}
