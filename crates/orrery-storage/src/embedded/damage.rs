//! What has been read and is not what was written: noted once, and told to whoever can do something about it.

use std::sync::OnceLock;

use orrery_partition::storage::StorageError;
use tokio::sync::Notify;

/// The first damage that was met.
#[derive(Debug, Default)]
pub(super) struct Damage {
    found: OnceLock<String>,
    told: Notify,
}

impl Damage {
    /// Passes an error on; one that says that something is damaged is noted.
    pub(super) fn noted(&self, error: StorageError) -> StorageError {
        if let StorageError::Corrupt(what) = &error
            && self.found.set(what.clone()).is_ok()
        {
            tracing::error!(what, "the store is damaged");
            self.told.notify_waiters();
        }
        error
    }

    pub(super) fn found(&self) -> Option<String> {
        self.found.get().cloned()
    }

    /// Ends when something was found.
    pub(super) async fn wait(&self) {
        // Made before the look, so that nothing in between goes unnoticed.
        let told = self.told.notified();
        if self.found.get().is_none() {
            told.await;
        }
    }
}
