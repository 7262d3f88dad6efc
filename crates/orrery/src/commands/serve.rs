//! `orrery emulator`: accounts served until the process is told to stop. When everything is ready, one line of JSON on
//! stdout says where.

use std::path::Path;

use anyhow::{Context as _, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::{Raw, ServerConfig, ServerFlags};
use crate::host::{AccountEndpoints, Host};
use crate::runtime::stop_signal;
use crate::{logging, seed};

pub fn run(flags: &ServerFlags) -> Result<()> {
    logging::start();
    let config = ServerConfig::new(&Raw::gather(flags, std::env::vars())?)?;
    allow_many_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(&config, flags.seed.as_deref()))
}

/// Every connection is a file, and the usual limit is meant for other programs. What the system does not allow, it refuses
/// when it comes to it.
pub fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, all) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

async fn serve(config: &ServerConfig, seed_file: Option<&Path>) -> Result<()> {
    let host = Host::open(config).await?;
    if let Some(path) = seed_file {
        let writer = host.first_account()?.writer();
        let n_items = seed::load(&writer, path).await.context("cannot load the seed")?;
        tracing::info!(n_items, "seed loaded");
    }
    host.serve();
    // Whoever reads the ready line may stop the server right away, and must find it listening for that.
    let stop = stop_signal()?;
    println!("{}", ready_line(host.endpoints()));
    stop.await;
    host.stop().await
}

pub fn ready_line(accounts: Vec<AccountEndpoints>) -> serde_json::Value {
    serde_json::json!({
        "event": "ready",
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "accounts": accounts,
    })
}
