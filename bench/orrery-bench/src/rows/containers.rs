//! A thousand containers: made, held, opened again.

use anyhow::Result;

use super::{MEGABYTE, Settings};
use crate::load::http1::{Target, workers};
use crate::load::{Until, drive};
use crate::process::Server;
use crate::report::Row;
use crate::requests::{container_creates, make_container};
use crate::usage;

const N_CONTAINERS: u64 = 1000;
/// As a test suite that sets up its containers would.
const IN_FLIGHT: usize = 16;
const SECONDS_GOAL: f64 = 5.0;
const MEGABYTES_GOAL: f64 = 100.0;
const OPEN_MS_GOAL: f64 = 1000.0;

pub async fn rows(settings: &Settings) -> Result<Vec<Row>> {
    let scratch = settings.scratch()?;
    let data = scratch.path().join("data");
    let server = Server::durable(&data)?;
    make_container(server.port).await?;
    let mut workers = workers(&Target::plain(server.port), IN_FLIGHT, &container_creates(), 201).await?;
    let load = drive(&mut workers, Until::Requests(N_CONTAINERS)).await?;
    drop(workers);
    let resident = usage::resident_bytes(server.pid())? as f64 / MEGABYTE;
    server.stop()?;
    let again = Server::durable(&data)?;
    Ok(vec![
        Row::below(
            "1,000 containers: create",
            load.elapsed.as_secs_f64(),
            "s",
            SECONDS_GOAL,
        ),
        Row::below("1,000 containers: resident", resident, "MB", MEGABYTES_GOAL),
        Row::below(
            "1,000 containers: open again",
            again.ready_after.as_secs_f64() * 1e3,
            "ms",
            OPEN_MS_GOAL,
        ),
    ])
}
