//! How long it takes another node to own every log: one that has a copy of them, and one that has nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use futures::StreamExt as _;
use orrery_model::{Epoch, LogId};
use orrery_partition::storage::{Role, Store as _};
use orrery_storage::{NatsSettings, NatsStore};

use crate::servers::Servers;
use crate::store::{Records, write_group};

const LOGS: u64 = 500;
const GROUPS: usize = 10;
const AT_ONCE: usize = 64;

pub async fn run() -> Result<()> {
    let servers = Servers::start(3).await?;
    let dirs = [tempfile::tempdir()?, tempfile::tempdir()?];
    let first = open(&servers, dirs[0].path()).await?;
    let begun = Instant::now();
    own_all(&first, 1).await?;
    println!("\n{LOGS} logs of {GROUPS} groups of 64 KB; R3, 16 streams");
    println!(
        "made and owned by a first node       {:>8.2} s",
        begun.elapsed().as_secs_f64()
    );
    each_log(async |id| {
        let log = first.open(LogId(id), Role::Own { epoch: Epoch(1) }).await?;
        for _ in 0..GROUPS {
            write_group(&*log).await?;
        }
        Ok(())
    })
    .await?;
    let begun = Instant::now();
    let second = open(&servers, dirs[1].path()).await?;
    println!(
        "opened by a node without a copy      {:>8.2} s",
        begun.elapsed().as_secs_f64()
    );
    let begun = Instant::now();
    own_all(&second, 2).await?;
    println!(
        "taken over by it                     {:>8.2} s",
        begun.elapsed().as_secs_f64()
    );
    first.close().await?;
    drop(first);
    let begun = Instant::now();
    let first = open(&servers, dirs[0].path()).await?;
    println!(
        "opened by a node with a copy         {:>8.2} s",
        begun.elapsed().as_secs_f64()
    );
    let begun = Instant::now();
    own_all(&first, 3).await?;
    println!(
        "taken over by it                     {:>8.2} s",
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

async fn open(servers: &Servers, dir: &Path) -> Result<Arc<NatsStore>> {
    let client = servers.jetstream.client();
    Ok(NatsStore::open(client, dir, NatsSettings::new("takeover"), Arc::new(Records)).await?)
}

async fn own_all(store: &NatsStore, epoch: u32) -> Result<()> {
    each_log(async |id| {
        store.open(LogId(id), Role::Own { epoch: Epoch(epoch) }).await?;
        Ok(())
    })
    .await
}

async fn each_log(work: impl AsyncFn(u64) -> Result<()>) -> Result<()> {
    let mut all = futures::stream::iter((0..LOGS).map(|id| work(id))).buffer_unordered(AT_ONCE);
    while let Some(done) = all.next().await {
        done?;
    }
    Ok(())
}
