//! The one place tasks are spawned from: every task ends with the node that owns it.

use std::future::Future;
use std::time::Duration;

use orrery_model::{Error, Result, Status};
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

    /// Runs work that must not stop halfway when its caller goes away.
    pub async fn uncancelled<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (done, result) = tokio::sync::oneshot::channel();
        self.spawn(async move {
            // The caller may be gone; the work is done all the same.
            let _ = done.send(work.await);
        });
        result
            .await
            .map_err(|_| Error::new(Status::INTERNAL, "The operation ended without an answer."))?
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
