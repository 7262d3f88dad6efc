//! Scenarios: a file that says what happens to a running server and when, what clients do meanwhile, and what must hold in the
//! end. The same file serves tests, demonstrations and reports of bugs; `docs/guides/scenarios.md` describes it.
//!
//! [`file`] turns text into values known to be valid, [`act`] a step into requests, [`load`] makes clients, [`verdict`] judges.

mod act;
mod file;
mod load;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::client::Client;
use act::Act;
pub use file::Scenario;
use load::Tally;

/// What came of a scenario.
#[derive(Debug)]
pub struct Report {
    pub shown: Value,
    /// Does everything hold that must?
    pub holds: bool,
}

/// Lets everything happen at its time, then judges.
pub async fn play(scenario: &Scenario, client: &Arc<Client>) -> Result<Report> {
    if let Some(load) = &scenario.load {
        load::prepare(load, client).await?;
    }
    let started = Instant::now();
    let mut acting = JoinSet::new();
    for (index, step) in scenario.steps.iter().cloned().enumerate() {
        let client = Arc::clone(client);
        acting.spawn(async move {
            sleep_until(started + Duration::from_millis(step.at_ms)).await;
            let done = act::carry_out(&step.act, &client).await;
            (index, step, started.elapsed(), done)
        });
    }
    let tally = match &scenario.load {
        Some(load) => load::run(load, scenario.seed, client).await,
        None => Tally::default(),
    };
    let mut steps = vec![Value::Null; scenario.steps.len()];
    while let Some(acted) = acting.join_next().await {
        let (index, step, ended, done) = acted.context("a step was cut off")?;
        steps[index] = shown_step(&step, ended, &done);
        if let Err(error) = done
            && !step.may_fail
        {
            return Err(error.context(format!("step {} at {} ms", index + 1, step.at_ms)));
        }
    }
    let mut verdicts = Vec::new();
    for wanted in &scenario.asserts {
        verdicts.push(verdict::judge(wanted, scenario.load.as_ref(), &tally, client).await?);
    }
    Ok(Report {
        holds: verdicts.iter().all(|verdict| verdict.holds),
        shown: json!({
            "name": scenario.name,
            "seed": scenario.seed,
            "steps": steps,
            "load": tally.shown(),
            "asserts": verdicts.iter().map(verdict::Verdict::shown).collect::<Vec<_>>(),
        }),
    })
}

fn shown_step(step: &file::Step, ended: Duration, done: &Result<()>) -> Value {
    json!({
        "atMs": step.at_ms,
        "do": step.name,
        "endedAtMs": ended.as_millis() as u64,
        "failure": done.as_ref().err().map(|error| format!("{error:#}")),
    })
}
