//! The JSON that administration takes and gives.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery_model::{Error, Result};
use orrery_node::admin::{PartitionInfo, SnapshotInfo};
use orrery_node::geo::fleet::Loss;
use orrery_node::geo::report::{PartitionLag, RegionInfo};
use serde::Deserialize;
use serde_json::{Value, json};

use super::simulation;
use crate::auth::header::percent_decode;
use crate::handler::{Answer, Command};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitForm {
    pub database: String,
    pub container: String,
    pub partition: u32,
    /// Led by hand from phase to phase.
    #[serde(default)]
    pub manual: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MergeForm {
    pub database: String,
    pub container: String,
    pub partitions: [u32; 2],
    #[serde(default)]
    pub manual: bool,
}

/// A split or merge that is led by hand, by one of the partitions it replaces.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdvanceForm {
    pub database: String,
    pub container: String,
    pub partition: u32,
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

/// The region that is to take the writes, or to be added.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionForm {
    pub region: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SkewForm {
    pub skew_ms: i64,
}

/// Of a region that is taken out, or in again.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AcceptForm {
    pub accept_loss: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriorityForm {
    pub regions: Vec<String>,
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

/// `?drainMs=…`: for how long clients are told of a region that leaves.
pub fn drain_wanted(query: Option<&str>) -> Result<Duration> {
    const DRAIN_MS_MAX: u64 = 3_600_000;
    let Some(query) = query.filter(|query| !query.is_empty()) else {
        return Ok(Duration::ZERO);
    };
    let milliseconds = query.strip_prefix("drainMs=").and_then(|text| text.parse::<u64>().ok());
    milliseconds
        .filter(|milliseconds| *milliseconds <= DRAIN_MS_MAX)
        .map(Duration::from_millis)
        .ok_or_else(|| Error::bad_request("A region drains for up to 3,600,000 milliseconds: drainMs."))
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
        Answer::Regions(regions) => json!({"regions": regions.iter().map(region).collect::<Vec<_>>()}),
        Answer::Phase(phase) => json!({"phase": phase.name()}),
        Answer::Links(links) => json!({"links": links.iter().map(simulation::link).collect::<Vec<_>>()}),
        Answer::Simulation {
            regions,
            links,
            flapping,
        } => json!({
            "regions": regions.iter().map(simulation::region).collect::<Vec<_>>(),
            "links": links.iter().map(simulation::link).collect::<Vec<_>>(),
            "flappingMs": flapping.as_millis() as u64,
        }),
        Answer::Loss(loss) => self::loss(loss),
        Answer::Back { regions, n_dropped } => json!({
            "regions": regions.iter().map(region).collect::<Vec<_>>(),
            "droppedVersions": n_dropped,
        }),
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

fn region(info: &RegionInfo) -> Value {
    json!({
        "name": info.name,
        "role": if info.writes { "write" } else { "read" },
        "state": info.state.name(),
        "lagTransactions": info.lag.transactions,
        "lagTransactionsTotal": info.lag_total,
        "lagMs": info.lag.age.as_millis() as u64,
        "clockSkewMs": info.clock_skew_ms,
        "inQuorum": !info.left_out,
        "outage": info.outage.map(simulation::outage_name),
        "outageDelayMs": info.outage.and_then(simulation::outage_delay_ms),
        "clients": info.distances.iter().map(simulation::distance).collect::<Vec<_>>(),
        "partitions": info.partitions.iter().map(partition_lag).collect::<Vec<_>>(),
    })
}

/// What is unknown is null: a sum of which a part is unknown, too.
fn loss(loss: &Loss) -> Value {
    let counted = loss.transactions.iter().map(|(log, lost)| (*log, json!(lost)));
    let uncounted = loss.uncounted.iter().map(|log| (*log, Value::Null));
    let partitions = counted.chain(uncounted).map(|(log, lost)| {
        let place = loss.places.get(&log);
        json!({
            "database": place.map(|place| &place.database),
            "container": place.map(|place| &place.container),
            "partition": place.map(|place| place.partition.0),
            "lost": lost,
        })
    });
    json!({
        "lostTransactions": loss.uncounted.is_empty().then(|| loss.n_transactions()),
        "partitions": partitions.collect::<Vec<_>>(),
        "knownAlone": loss.known_alone.iter().map(|(database, container)| {
            json!({"database": database, "container": container})
        }).collect::<Vec<_>>(),
        "unopenedPartitions": loss.n_unopened,
    })
}

fn partition_lag(info: &PartitionLag) -> Value {
    json!({
        "database": info.database,
        "container": info.container,
        "partition": info.partition.0,
        "lagTransactions": info.lag.transactions,
        "lagMs": info.lag.age.as_millis() as u64,
    })
}

fn snapshot(info: &SnapshotInfo) -> Value {
    json!({"name": info.name, "savedAt": info.saved_at, "items": info.n_items})
}
