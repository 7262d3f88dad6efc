//! How much disk does a byte take once everything has been overwritten several times?

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::{MEGABYTE, Settings, filled};
use crate::load::http1::{Target, workers};
use crate::load::{IN_FLIGHT, Until, drive};
use crate::report::Row;
use crate::requests::{read_once, upserts};
use crate::usage;

/// Times that the data set is overwritten.
const TIMES: u64 = 3;
const GOAL: f64 = 3.0;
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const LOOKS_MAX: usize = 30;

pub async fn rows(settings: &Settings) -> Result<Vec<Row>> {
    let scratch = settings.scratch()?;
    let data = scratch.path().join("data");
    let n_items = settings.n_documents();
    let server = filled(&data, n_items).await?;
    // An upsert of what exists is answered with 200.
    let mut workers = workers(&Target::plain(server.port), IN_FLIGHT, &upserts(n_items), 200).await?;
    drive(&mut workers, Until::Requests(n_items * TIMES)).await?;
    let stored = (n_items * read_once(server.port, 0).await?.body.len() as u64) as f64;
    let disk = settled_bytes(&data).await? as f64;
    Ok(vec![Row::at_most(
        &format!("disk after {} MB were overwritten {TIMES} ×", settings.megabytes),
        format!("{:.0} MB", disk / MEGABYTE),
        format!("stored: {:.0} MB", stored / MEGABYTE),
        disk / stored,
        GOAL,
    )])
}

/// The size once merging has come to rest.
async fn settled_bytes(data: &Path) -> Result<u64> {
    let mut last = 0;
    for _ in 0..LOOKS_MAX {
        let now = usage::disk_bytes(data)?;
        if now == last {
            break;
        }
        last = now;
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(last)
}
