//! What a server costs that nobody uses.

use std::time::Duration;

use anyhow::Result;

use super::{MEGABYTE, Settings};
use crate::process::Server;
use crate::report::Row;
use crate::usage;

const MEMORY_MB_GOAL: f64 = 25.0;
const DURABLE_MB_GOAL: f64 = 60.0;
const CPU_PERCENT_GOAL: f64 = 0.2;
/// For the work of starting to end.
const SETTLE: Duration = Duration::from_secs(2);
const WATCHED: Duration = Duration::from_secs(10);

pub async fn rows(settings: &Settings) -> Result<Vec<Row>> {
    let scratch = settings.scratch()?;
    let memory = Server::orrery(&["--memory"])?;
    let durable = Server::durable(&scratch.path().join("data"))?;
    tokio::time::sleep(SETTLE).await;
    let before = (usage::cpu_fine(memory.pid())?, usage::cpu_fine(durable.pid())?);
    tokio::time::sleep(WATCHED).await;
    let percent = |before: Duration, after: Duration| (after - before).as_secs_f64() / WATCHED.as_secs_f64() * 100.0;
    let memory_cpu = percent(before.0, usage::cpu_fine(memory.pid())?);
    let durable_cpu = percent(before.1, usage::cpu_fine(durable.pid())?);
    let resident = |server: &Server| Ok::<_, anyhow::Error>(usage::resident_bytes(server.pid())? as f64 / MEGABYTE);
    Ok(vec![
        Row::below("idle, --memory: resident", resident(&memory)?, "MB", MEMORY_MB_GOAL),
        Row::below("idle, --memory: share of a core", memory_cpu, "%", CPU_PERCENT_GOAL),
        Row::below("idle, durable: resident", resident(&durable)?, "MB", DURABLE_MB_GOAL),
        Row::below("idle, durable: share of a core", durable_cpu, "%", CPU_PERCENT_GOAL),
    ])
}
