//! The official Rust SDK against a running server: every behaviour of `scenarios.toml`, all at once.
//!
//! What the SDK has no call for is skipped with a sentence that says so. Each scenario has databases of its own and shares
//! nothing with the others; a panic, such as a debug assertion of the SDK, fails only the scenario it happened in.

mod admin;
mod catalogue;
mod fleet;
mod harness;
mod scenarios;
mod scene;

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    trust_the_local_authority()?;
    let environment = scene::Environment::read()?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(harness::run(environment))
}

/// The SDK trusts the machine's certificates, which `SSL_CERT_FILE` replaces where no directory is named. A process cannot
/// safely change its own environment, so it starts over with the variable set.
fn trust_the_local_authority() -> Result<()> {
    let authority = std::env::var_os("ORRERY_CA").context("ORRERY_CA is not set")?;
    if std::env::var_os("SSL_CERT_FILE").as_ref() == Some(&authority) {
        return Ok(());
    }
    let mut again = Command::new(std::env::current_exe()?);
    Err(again
        .args(std::env::args_os().skip(1))
        .env("SSL_CERT_FILE", authority)
        .env_remove("SSL_CERT_DIR")
        .exec()
        .into())
}
