//! The publishing platform: pages of feeds and reviews among very many notifications and articles, and how quickly an article
//! reaches its subscribers. `world` starts the accounts and fills them.

mod fanout;
mod pages;
mod world;

use anyhow::Result;

use super::Settings;
use crate::report::Row;

pub async fn rows(settings: &Settings) -> Result<Vec<Row>> {
    let mut rows = fanout::rows(settings).await?;
    rows.extend(pages::rows(settings).await?);
    Ok(rows)
}
