//! The JSON that administration takes and gives.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery_model::{Error, Result};
use orrery_node::admin::{PartitionInfo, SnapshotInfo};
use orrery_node::geo::fleet::{LinkInfo, Loss, Outage};
use orrery_node::geo::link::LinkSettings;
use orrery_node::geo::report::{PartitionLag, RegionInfo};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::auth::header::percent_decode;
use crate::handler::{Answer, Command, RegionCommand};

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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutageForm {
    pub mode: String,
}

impl OutageForm {
    pub fn outage(&self) -> Result<Outage> {
        match self.mode.as_str() {
            "unavailable" => Ok(Outage::Unavailable),
            "hang" => Ok(Outage::Hanging),
            _ => Err(Error::bad_request("A region stops in the mode unavailable or hang.")),
        }
    }
}

/// A link, with what it does; whatever is left out is as on a perfect one.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LinkForm {
    from: String,
    to: String,
    #[serde(default)]
    latency_ms: f64,
    #[serde(default)]
    jitter_ms: f64,
    bytes_per_second: Option<u64>,
    #[serde(default)]
    loss: f64,
    #[serde(default)]
    cut: bool,
    #[serde(default)]
    paused: bool,
}

/// A link takes at most this long.
const LINK_MS_MAX: f64 = 600_000.0;

impl LinkForm {
    pub fn command(self) -> Result<RegionCommand> {
        let duration = |milliseconds: f64| {
            (0.0..=LINK_MS_MAX)
                .contains(&milliseconds)
                .then(|| Duration::from_secs_f64(milliseconds / 1000.0))
                .ok_or_else(|| Error::bad_request("A link takes between 0 and 600,000 milliseconds."))
        };
        if !(0.0..=1.0).contains(&self.loss) {
            return Err(Error::bad_request("The loss of a link is a share between 0 and 1."));
        }
        Ok(RegionCommand::SetLink {
            settings: LinkSettings {
                latency: duration(self.latency_ms)?,
                jitter: duration(self.jitter_ms)?,
                bytes_per_second: self.bytes_per_second,
                loss: self.loss,
                cut: self.cut,
                paused: self.paused,
            },
            from: self.from,
            to: self.to,
        })
    }
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
        Answer::Links(links) => json!({"links": links.iter().map(link).collect::<Vec<_>>()}),
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
        "outage": info.outage.map(|outage| match outage {
            Outage::Unavailable => "unavailable",
            Outage::Hanging => "hang",
        }),
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

fn link(info: &LinkInfo) -> Value {
    let LinkInfo { from, to, settings } = info;
    json!({
        "from": from,
        "to": to,
        "latencyMs": settings.latency.as_secs_f64() * 1000.0,
        "jitterMs": settings.jitter.as_secs_f64() * 1000.0,
        "bytesPerSecond": settings.bytes_per_second,
        "loss": settings.loss,
        "cut": settings.cut,
        "paused": settings.paused,
    })
}

fn snapshot(info: &SnapshotInfo) -> Value {
    json!({"name": info.name, "savedAt": info.saved_at, "items": info.n_items})
}
