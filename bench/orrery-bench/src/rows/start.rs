//! From the start of the process to its ready line: empty, with data after a clean stop, with data after `kill -9`.

use anyhow::Result;

use super::{Settings, fill, filled};
use crate::measure::median;
use crate::process::Server;
use crate::report::Row;
use crate::requests::read_once;

const MEMORY_MS_GOAL: f64 = 20.0;
const EMPTY_MS_GOAL: f64 = 150.0;
const CLEAN_MS_GOAL: f64 = 1000.0;
const CRASH_MS_GOAL: f64 = 5000.0;
/// Written again before each kill, so that the log has something to replay.
const DOCUMENTS_BEFORE_KILL: u64 = 5000;

pub async fn rows(settings: &Settings) -> Result<Vec<Row>> {
    let scratch = settings.scratch()?;
    let data = scratch.path().join("data");
    let mut times: [Vec<f64>; 4] = Default::default();
    for round in 0..settings.n_rounds {
        times[0].push(ready_ms(&Server::orrery(&["--memory"])?));
        times[1].push(ready_ms(&Server::durable(&scratch.path().join(round.to_string()))?));
    }
    let n_documents = settings.n_documents();
    let mut server = filled(&data, n_documents).await?;
    for round in 0..settings.n_rounds as u64 {
        fill(
            &server,
            n_documents + round * DOCUMENTS_BEFORE_KILL,
            DOCUMENTS_BEFORE_KILL,
        )
        .await?;
        server.kill()?;
        let after_crash = Server::durable(&data)?;
        times[3].push(ready_ms(&after_crash));
        // What was acknowledged last before the kill is there.
        let last = n_documents + (round + 1) * DOCUMENTS_BEFORE_KILL - 1;
        read_once(after_crash.port, last).await?;
        after_crash.stop()?;
        server = Server::durable(&data)?;
        times[2].push(ready_ms(&server));
    }
    let [memory, empty, clean, crash] = times.map(median);
    let with = |text: &str| format!("start, {} MB of documents, {text}", settings.megabytes);
    Ok(vec![
        Row::below("start, --memory", memory, "ms", MEMORY_MS_GOAL),
        Row::below("start, durable, empty", empty, "ms", EMPTY_MS_GOAL),
        Row::below(&with("after a clean stop"), clean, "ms", CLEAN_MS_GOAL),
        Row::below(&with("after kill -9"), crash, "ms", CRASH_MS_GOAL),
    ])
}

fn ready_ms(server: &Server) -> f64 {
    server.ready_after.as_secs_f64() * 1e3
}
