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

/// Listens for SIGTERM and Ctrl-C from now on; the future completes at the first of either.
pub fn stop_signal() -> Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    Ok(async move {
        tokio::select! {
            // Both are safe to drop: a signal that was not waited for is not lost to anyone.
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
