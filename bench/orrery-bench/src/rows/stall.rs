//! Do writes ever wait long, while views are flushed and tables merged?

use anyhow::Result;

use super::Settings;
use crate::load::http1::{Target, workers};
use crate::load::{IN_FLIGHT, Until, drive};
use crate::process::Server;
use crate::report::Row;
use crate::requests::{creates, make_container};

const GOAL: f64 = 100.0;

pub async fn rows(settings: &Settings) -> Result<Vec<Row>> {
    let scratch = settings.scratch()?;
    let server = Server::durable(&scratch.path().join("data"))?;
    make_container(server.port).await?;
    let mut workers = workers(&Target::plain(server.port), IN_FLIGHT, &creates(0), 201).await?;
    let load = drive(&mut workers, Until::Elapsed(settings.stall_length)).await?;
    let (p50, p999) = (load.latency_ms(0.5), load.latency_ms(0.999));
    Ok(vec![Row::at_most(
        &format!(
            "write stall: p99.9 of creates over {} s",
            settings.stall_length.as_secs()
        ),
        format!(
            "{p999:.1} ms (p99 {:.1}, slowest {:.0} ms)",
            load.latency_ms(0.99),
            load.latency_ms(1.0)
        ),
        format!("own p50: {p50:.2} ms"),
        p999 / p50,
        GOAL,
    )])
}
