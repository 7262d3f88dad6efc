//! The runtime of commands that talk to a server, and the signal that ends any command.

use std::future::Future;

use anyhow::{Context as _, Result};

/// Runs a command to its end.
pub fn run<T>(command: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(command);
    // A thread that waits for standard input would otherwise keep the process alive.
    runtime.shutdown_background();
    result
}

/// Completes on SIGTERM or Ctrl-C.
pub async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        // Both are safe to drop: a signal that was not waited for is not lost to anyone.
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
