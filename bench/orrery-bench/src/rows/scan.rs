//! A query that no index serves: every item is looked at, by a filter over three of its paths.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use lsm_tree::config::CompressionPolicy;
use lsm_tree::{AbstractTree as _, AnyTree, CompressionType, Guard as _, SequenceNumberCounter};
use orrery_model::Value;
use orrery_model::json::{PathPart, Wanted};

use super::{Settings, filled};
use crate::documents::{document, id};
use crate::measure::median;
use crate::report::Row;
use crate::requests::query_once;

const GOAL_OF_LIMIT: f64 = 0.6;
/// A sum is nothing an index knows, and no document has a negative one.
const SQL: &str = "SELECT VALUE COUNT(1) FROM c WHERE c.rank + c.owner.age + c.score < 0";
/// What the server stores in front of a document, and the system properties it adds.
const HEADER_BYTES: usize = 52;
const SYSTEM_PROPERTIES: &str = r#","_rid":"AAAAAAAAAAAAAAAAAAAAAA==","_self":"dbs/AAAAAA==/colls/AAAAAAAAAAA=/docs/AAAAAAAAAAAAAAAAAAAAAA==/","_etag":"\"00000000-0000-0000-0000-000000000000\"","_attachments":"attachments/","_ts":1700000000}"#;

pub async fn rows(settings: &Settings) -> Result<Vec<Row>> {
    let scratch = settings.scratch()?;
    let n_items = settings.n_documents();
    let server = filled(&scratch.path().join("data"), n_items).await?;
    let bare = Bare::filled(&scratch.path().join("bare"), n_items)?;
    let (mut ours, mut limit) = (Vec::new(), Vec::new());
    for round in 0..=settings.n_rounds {
        let started = Instant::now();
        let answer = query_once(server.port, SQL).await?;
        let server_seconds = started.elapsed().as_secs_f64();
        ensure!(
            answer.body.windows(3).any(|text| text == b"[0]"),
            "the query has another answer than 0"
        );
        let started = Instant::now();
        ensure!(bare.n_negative(n_items)? == 0, "the limit has another answer than 0");
        let bare_seconds = started.elapsed().as_secs_f64();
        // The first round warms up.
        if round > 0 {
            ours.push(n_items as f64 / server_seconds);
            limit.push(n_items as f64 / bare_seconds);
        }
    }
    let (ours, limit) = (median(ours), median(limit));
    Ok(vec![Row::at_least(
        "full scan with a filter over three paths",
        format!("{ours:.0} items/s"),
        format!("limit: {limit:.0} items/s"),
        ours / limit,
        GOAL_OF_LIMIT,
    )])
}

/// The unavoidable part: the same documents in the same kind of tree.
struct Bare {
    tree: AnyTree,
    wanted: Wanted,
}

impl Bare {
    fn filled(directory: &Path, n_items: u64) -> Result<Bare> {
        let sequence = SequenceNumberCounter::default();
        let config = lsm_tree::Config::new(directory, sequence.clone(), SequenceNumberCounter::default());
        let compression = [CompressionType::None, CompressionType::None, CompressionType::Lz4];
        let tree = config
            .data_block_compression_policy(CompressionPolicy::new(compression))
            .open()
            .map_err(failed)?;
        for number in 0..n_items {
            let text = document(number, 0);
            let body = text.strip_suffix('}').unwrap_or(&text);
            let value = [&[0; HEADER_BYTES], body.as_bytes(), SYSTEM_PROPERTIES.as_bytes()].concat();
            tree.insert(id(number), value, sequence.next());
        }
        tree.flush_active_memtable(0).map_err(failed)?;
        let mut wanted = Wanted::default();
        for path in [&["rank"][..], &["owner", "age"], &["score"]] {
            let path: Vec<PathPart> = path.iter().map(|name| PathPart::Member((*name).to_owned())).collect();
            wanted.add(&path, true);
        }
        Ok(Bare { tree, wanted })
    }

    /// Looks at every document.
    fn n_negative(&self, n_items: u64) -> Result<u64> {
        let (mut n_seen, mut n_negative) = (0, 0);
        for entry in self.tree.iter(u64::MAX, None) {
            let (_, value) = entry.into_inner().map_err(failed)?;
            let item = self.wanted.read(&value[HEADER_BYTES..])?;
            let number = |value: Option<&Value>| value.and_then(Value::as_number).map_or(0.0, |number| number.to_f64());
            let age = item.get("owner").and_then(|owner| owner.get("age"));
            let sum = number(item.get("rank")) + number(age) + number(item.get("score"));
            n_negative += u64::from(sum < 0.0);
            n_seen += 1;
        }
        ensure!(n_seen == n_items, "the limit has {n_seen} documents");
        Ok(n_negative)
    }
}

fn failed(error: lsm_tree::Error) -> anyhow::Error {
    anyhow!("the bare tree failed: {error}")
}
