//! What a server costs that nobody uses.

use std::time::Duration;

use anyhow::Result;

use super::{MEGABYTE, Settings};
use crate::process::Server;
use crate::report::Row;
use crate::usage;

const MEMORY_MB_GOAL: f64 = 25.0;
const DURABLE_MB_GOAL: f64 = 60.0;
const PLATFORM_MB_GOAL: f64 = 200.0;
const CPU_PERCENT_GOAL: f64 = 0.2;
/// For the work of starting to end.
const SETTLE: Duration = Duration::from_secs(10);
/// As long as the rarest of what the platform does by itself, so that all of it is counted.
const WATCHED: Duration = Duration::from_secs(60);

pub async fn rows(settings: &Settings) -> Result<Vec<Row>> {
    let scratch = settings.scratch()?;
    let subjects = [
        ("--memory", Server::orrery(&["--memory"])?, MEMORY_MB_GOAL),
        (
            "durable",
            Server::durable(&scratch.path().join("data"))?,
            DURABLE_MB_GOAL,
        ),
        ("up", Server::platform(&scratch.path().join("up"))?, PLATFORM_MB_GOAL),
    ];
    tokio::time::sleep(SETTLE).await;
    let used = || {
        subjects
            .iter()
            .map(|(_, server, _)| usage::cpu_fine(server.pid()))
            .collect::<Result<Vec<_>>>()
    };
    let before = used()?;
    tokio::time::sleep(WATCHED).await;
    let after = used()?;
    let mut rows = Vec::new();
    for ((kind, server, goal), (before, after)) in subjects.iter().zip(before.into_iter().zip(after)) {
        let percent = after.saturating_sub(before).as_secs_f64() / WATCHED.as_secs_f64() * 100.0;
        let resident = usage::resident_bytes(server.pid())? as f64 / MEGABYTE;
        rows.push(Row::below(&format!("idle, {kind}: resident"), resident, "MB", *goal));
        let what = format!("idle, {kind}: share of a core");
        rows.push(Row::below(&what, percent, "%", CPU_PERCENT_GOAL));
    }
    Ok(rows)
}
