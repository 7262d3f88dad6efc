//! Test isolation: how long it takes to save a whole account, to bring it back, and to empty it.

use std::time::Instant;

use anyhow::Result;

use super::{Settings, fill_quickly};
use crate::measure::median;
use crate::process::Server;
use crate::report::Row;
use crate::requests::{administer, make_container};

const N_ITEMS: u64 = 10_000;
const GOAL_MS: f64 = 200.0;

pub async fn rows(settings: &Settings) -> Result<Vec<Row>> {
    let scratch = settings.scratch()?;
    let durable = Server::durable(&scratch.path().join("data"))?;
    let memory = Server::orrery(&["--memory"])?;
    let mut rows = Vec::new();
    for (server, kind) in [(&durable, "durable"), (&memory, "--memory")] {
        make_container(server.port).await?;
        fill_quickly(server, N_ITEMS).await?;
        let mut taken: [Vec<f64>; 3] = Default::default();
        for _ in 0..settings.n_rounds {
            taken[0].push(time(server.port, "snapshots", r#"{"name":"clean"}"#, 201).await?);
            taken[2].push(time(server.port, "snapshots/reset", "", 200).await?);
            taken[1].push(time(server.port, "snapshots/clean/restore", "", 200).await?);
        }
        for (what, taken) in ["save", "restore", "reset"].into_iter().zip(taken) {
            let what = format!("{what} an account of 10,000 items, {kind}");
            rows.push(Row::below(&what, median(taken), "ms", GOAL_MS));
        }
    }
    Ok(rows)
}

/// Milliseconds that a command takes.
async fn time(port: u16, command: &str, body: &str, expected: u16) -> Result<f64> {
    let started = Instant::now();
    administer(port, command, body, expected).await?;
    Ok(started.elapsed().as_secs_f64() * 1e3)
}
