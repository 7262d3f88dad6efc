//! The one place tasks are spawned from: every task ends with the node that owns it.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Tasks of one node and the signal that ends them.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(task);
    }

    /// Completes when the node stops.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        self.stop.clone().cancelled_owned()
    }

    /// Asks every task to end, without waiting.
    pub fn end(&self) {
        self.stop.cancel();
    }

    /// Asks every task to end and waits for them, up to a deadline.
    pub async fn stop(&self, deadline: Duration) {
        self.end();
        self.tracker.close();
        if tokio::time::timeout(deadline, self.tracker.wait()).await.is_err() {
            tracing::warn!(n_tasks = self.tracker.len(), "tasks did not end in time");
        }
    }
}
