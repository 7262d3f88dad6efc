//! Keeping a processor alive: started again when it cannot start or ends by itself, stopped when asked.

use std::time::Duration;

use futures::future::BoxFuture;
use orrery_processor::Running;
use tokio_util::sync::CancellationToken;

use crate::error::Cause;

/// How long servers that can may hold an empty answer back from roles, whose connections expect it.
pub(crate) const LONG_POLL: Duration = Duration::from_secs(55);
/// Between two attempts to start.
const PAUSE: Duration = Duration::from_secs(1);
/// How long what is under way may take to finish.
const GRACE: Duration = Duration::from_secs(5);

/// Runs until it is told to stop. `note` is told whether the processor runs.
pub(crate) async fn supervise(
    name: &str,
    stopping: &CancellationToken,
    start: impl Fn() -> BoxFuture<'static, Result<Running, Cause>>,
    note: impl Fn(bool),
) {
    loop {
        // Starting sends requests only, and repeats what was left undone; it may be dropped.
        let started = tokio::select! {
            () = stopping.cancelled() => return,
            started = start() => started,
        };
        match started {
            Ok(running) => {
                note(true);
                // Both only wait.
                let is_stopping = tokio::select! {
                    () = stopping.cancelled() => true,
                    () = running.ended() => false,
                };
                running.stop(GRACE).await;
                note(false);
                if is_stopping {
                    return;
                }
                tracing::warn!(name, "a processor has ended and is started again");
            }
            Err(error) => tracing::debug!(name, error, "a processor cannot start yet"),
        }
        tokio::select! {
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}
