//! The JSON that administration takes and gives.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery_model::{Error, Result};
use orrery_node::admin::{PartitionInfo, SnapshotInfo};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::auth::header::percent_decode;
use crate::handler::{Answer, Command};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitForm {
    pub database: String,
    pub container: String,
    pub partition: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MergeForm {
    pub database: String,
    pub container: String,
    pub partitions: [u32; 2],
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotForm {
    pub name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClockForm {
    pub offset_ms: i64,
}

/// `?database=…&container=…`, both or neither.
pub fn partitions_wanted(query: Option<&str>) -> Result<Command> {
    let (mut database, mut container) = (None, None);
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("database", value)) => database = Some(decoded(value)?),
            Some(("container", value)) => container = Some(decoded(value)?),
            _ => {
                return Err(Error::bad_request(
                    "Partitions can be asked for by database and container.",
                ));
            }
        }
    }
    match (database, container) {
        (None, None) => Ok(Command::Partitions { container: None }),
        (Some(database), Some(container)) => Ok(Command::Partitions {
            container: Some((database, container)),
        }),
        _ => Err(Error::bad_request(
            "A container is named by its database and its own name.",
        )),
    }
}

pub(super) fn decoded(value: &str) -> Result<String> {
    percent_decode(value)
        .map(Into::into)
        .ok_or_else(|| Error::bad_request("The query string is not well formed."))
}

pub fn show(answer: &Answer) -> Value {
    match answer {
        Answer::Done => json!({}),
        Answer::Partitions(partitions) => json!({"partitions": partitions.iter().map(partition).collect::<Vec<_>>()}),
        Answer::Snapshots(snapshots) => json!({"snapshots": snapshots.iter().map(snapshot).collect::<Vec<_>>()}),
        Answer::Key(key) => json!({"key": STANDARD.encode(key)}),
    }
}

fn partition(info: &PartitionInfo) -> Value {
    json!({
        "database": info.database,
        "container": info.container,
        "partition": info.partition.0,
        "minInclusive": info.range.min.to_string(),
        "maxExclusive": info.range.max.to_string(),
        "parents": info.parents.iter().map(|parent| parent.0).collect::<Vec<_>>(),
        "lsn": info.lsn.0,
        "items": info.n_items,
        "sizeBytes": info.size_bytes,
    })
}

fn snapshot(info: &SnapshotInfo) -> Value {
    json!({"name": info.name, "savedAt": info.saved_at, "items": info.n_items})
}
