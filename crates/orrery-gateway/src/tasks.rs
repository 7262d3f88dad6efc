//! The tasks of a server: tracked, told to stop, and told to drop everything if they do not.

use std::future::Future;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Spawns tasks that end with the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks {
    pub tracker: TaskTracker,
    /// Finish what is under way and begin nothing new.
    pub stopping: CancellationToken,
    /// Drop everything.
    pub aborting: CancellationToken,
}

impl Tasks {
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(task);
    }
}

/// HTTP/2 runs every request of a connection as a task of its own, which ends when the connection does.
impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}
