//! Whether what a scenario demands holds in the end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::file::{Assert, Load};
use super::load::{self, Tally};
use crate::client::{Call, Client};

/// How often regions are looked at that may yet become equal.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct Verdict {
    pub holds: bool,
    demand: String,
    found: Value,
}

impl Verdict {
    pub fn shown(&self) -> Value {
        json!({"that": self.demand, "holds": self.holds, "found": self.found})
    }
}

pub async fn judge(wanted: &Assert, load: Option<&Load>, tally: &Tally, client: &Arc<Client>) -> Result<Verdict> {
    let at_most = |demand: &str, limit: u64, found: u64| Verdict {
        holds: found <= limit,
        demand: format!("{demand}: at most {limit}"),
        found: found.into(),
    };
    Ok(match wanted {
        Assert::LostWrites { at_most: limit } => {
            let n_lost = count_lost(load, tally, client).await?;
            at_most("acknowledged writes that are lost", *limit, n_lost)
        }
        Assert::FailedWrites { at_most: limit } => at_most("writes that failed", *limit, tally.n_writes_failed()),
        Assert::FailedReads { at_most: limit } => at_most("reads that failed", *limit, tally.n_reads_failed),
        Assert::WriteLatency { at_most_ms } => {
            at_most("99 of 100 writes, in milliseconds", *at_most_ms, tally.latency_p99_ms())
        }
        Assert::RegionsEqual { within_ms } => regions_equal(*within_ms, client).await?,
        Assert::Writer { region } => {
            let regions = regions(client).await?;
            let writer = regions.iter().find(|region| region["role"] == "write");
            let found = writer.map_or(Value::Null, |writer| writer["name"].clone());
            Verdict {
                holds: found == json!(region),
                demand: format!("{region} takes the writes"),
                found,
            }
        }
    })
}

async fn count_lost(load: Option<&Load>, tally: &Tally, client: &Arc<Client>) -> Result<u64> {
    let Some(load) = load else { return Ok(0) };
    let mut n_lost = 0;
    for number in &tally.acknowledged {
        n_lost += u64::from(!load::is_there(load, *number, client).await?);
    }
    Ok(n_lost)
}

async fn regions_equal(within_ms: u64, client: &Arc<Client>) -> Result<Verdict> {
    let started = Instant::now();
    loop {
        let regions = regions(client).await?;
        let lag = |region: &Value| (region["name"].clone(), region["lagTransactionsTotal"].clone());
        let online = regions.iter().filter(|region| region["state"] == "online").map(lag);
        let behind: Vec<_> = online.filter(|(_, lag)| lag != &json!(0)).collect();
        if behind.is_empty() || started.elapsed() >= Duration::from_millis(within_ms) {
            return Ok(Verdict {
                holds: behind.is_empty(),
                demand: format!("regions are equal within {within_ms} ms"),
                found: behind
                    .into_iter()
                    .map(|(name, lag)| json!({"region": name, "lacks": lag}))
                    .collect(),
            });
        }
        sleep(LOOK_AGAIN).await;
    }
}

async fn regions(client: &Arc<Client>) -> Result<Vec<Value>> {
    let call = Call::administration(Method::GET, "regions", &[]);
    let answer = client.connection().call(&call).await?.success()?.parse()?;
    answer["regions"]
        .as_array()
        .cloned()
        .context("the server names no regions")
}
