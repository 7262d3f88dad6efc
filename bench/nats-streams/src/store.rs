//! What a store on JetStream makes of the bare servers' speed, with the same bytes in the same groups.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use orrery_model::log::{Operation, Transaction};
use orrery_model::{Epoch, LogId, Position, Timestamp};
use orrery_partition::storage::{Log, Project, Role, Staged, StorageError, Store as _, View, ViewWrite};
use orrery_storage::{NatsSettings, NatsStore};
use tokio::task::JoinSet;

use crate::append;
use crate::servers::Servers;

const LOGS: u64 = 64;
const N_STREAMS: u16 = 16;
const GROUP: usize = 64;
const DOCUMENT_BYTES: usize = 1 << 10;
const RUN: Duration = Duration::from_secs(6);
const ROUNDS: usize = 3;

pub async fn run() -> Result<()> {
    println!(
        "\n{LOGS} logs in {N_STREAMS} streams, groups of {GROUP} transactions of 1 KB; bare messages and the store in turn, medians"
    );
    println!("{:<4} {:>16} {:>18} {:>8}", "", "bare, MB/s", "store, MB/s", "ratio");
    for replicas in [1, 3] {
        let (mut bare, mut store) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let servers = Arc::new(Servers::start(replicas).await?);
            bare.push(
                append::side_by_side(servers, usize::from(N_STREAMS))
                    .await?
                    .mb_per_second,
            );
            store.push(through_store(replicas).await?);
        }
        let (bare, store) = (median(bare), median(store));
        println!("R{replicas:<3} {bare:>16.1} {store:>18.1} {:>8.2}", store / bare);
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// One view entry per record, as a point read needs it.
#[derive(Debug)]
pub struct Records;

impl Project for Records {
    fn project(&self, _: &dyn View, transaction: &Transaction) -> Result<Vec<ViewWrite>, StorageError> {
        Ok(writes(transaction))
    }
}

fn writes(transaction: &Transaction) -> Vec<ViewWrite> {
    let write = |operation: &Operation| match operation {
        Operation::Record { key, value } => Some((key.clone(), value.clone())),
        _ => None,
    };
    transaction.operations.iter().filter_map(write).collect()
}

async fn through_store(replicas: usize) -> Result<f64> {
    let servers = Servers::start(replicas).await?;
    let dir = tempfile::tempdir()?;
    let settings = NatsSettings {
        replicas,
        n_streams: N_STREAMS,
        ..NatsSettings::new("bench")
    };
    let store = NatsStore::open(servers.jetstream.client(), dir.path(), settings, Arc::new(Records)).await?;
    let mut logs = Vec::new();
    for id in 0..LOGS {
        logs.push(store.open(LogId(id), Role::Own { epoch: Epoch(1) }).await?);
    }
    let begun = Instant::now();
    let mut writers = JoinSet::new();
    for log in logs {
        writers.spawn(async move { write_groups(&*log, begun).await });
    }
    let mut n_groups = 0;
    while let Some(written) = writers.join_next().await {
        n_groups += written??;
    }
    let bytes = n_groups * GROUP * DOCUMENT_BYTES;
    let rate = bytes as f64 / 1e6 / begun.elapsed().as_secs_f64();
    store.close().await?;
    Ok(rate)
}

async fn write_groups(log: &dyn Log, begun: Instant) -> Result<usize> {
    let mut n_groups = 0;
    while begun.elapsed() < RUN {
        write_group(log).await?;
        n_groups += 1;
    }
    Ok(n_groups)
}

pub async fn write_group(log: &dyn Log) -> Result<()> {
    let head = log.head();
    Ok(log.append(head, group(head)).await?)
}

fn group(mut position: Position) -> Vec<Staged> {
    let body = Bytes::from(vec![7; DOCUMENT_BYTES]);
    let mut staged = Vec::with_capacity(GROUP);
    for _ in 0..GROUP {
        let key = Bytes::copy_from_slice(&position.lsn.0.to_be_bytes());
        let operations = vec![Operation::Record {
            key,
            value: Some(body.clone()),
        }];
        let transaction = Transaction::following(position, Timestamp(1), operations);
        position = transaction.position();
        let writes = writes(&transaction);
        let transaction = Arc::new(transaction);
        staged.push(Staged { transaction, writes });
    }
    staged
}
