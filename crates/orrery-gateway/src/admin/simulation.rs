//! The JSON of the simulated world: how regions fail, how far clients are, how links behave.

use std::time::Duration;

use orrery_model::{Error, PartitionId, Result};
use orrery_node::geo::distribution::Distribution;
use orrery_node::geo::fleet::{Distance, LinkInfo, Outage, Place};
use orrery_node::geo::link::LinkSettings;
use orrery_node::geo::report::RegionInfo;
use orrery_node::geo::simulated::Simulated;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::handler::RegionCommand;

/// Nothing simulated takes longer than this.
const MS_MAX: f64 = 600_000.0;
/// What a slow region takes longer when nobody says how much.
const SLOW_MS: f64 = 1_000.0;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutageForm {
    mode: String,
    delay_ms: Option<f64>,
}

impl OutageForm {
    pub fn outage(&self) -> Result<Outage> {
        let outage = match self.mode.as_str() {
            "unavailable" => Outage::Unavailable,
            "hang" => Outage::Hanging,
            "refuse" => Outage::Refusing,
            "slow" => return Ok(Outage::Slow(duration(self.delay_ms.unwrap_or(SLOW_MS))?)),
            "kill" => Outage::Killed,
            _ => {
                return Err(Error::bad_request(
                    "A region stops in the mode unavailable, hang, refuse, slow or kill.",
                ));
            }
        };
        match self.delay_ms {
            Some(_) => Err(Error::bad_request("Only a region that is slow has a delay.")),
            None => Ok(outage),
        }
    }
}

/// How far clients are from a region: all, or those who call themselves so.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DistanceForm {
    client: Option<String>,
    round_trip_ms: f64,
}

impl DistanceForm {
    pub fn distance(self) -> Result<Distance> {
        Ok(Distance {
            client: self.client,
            round_trip: duration(self.round_trip_ms)?,
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FlappingForm {
    for_ms: f64,
}

impl FlappingForm {
    pub fn command(&self) -> Result<RegionCommand> {
        Ok(RegionCommand::Flapping {
            lasts: duration(self.for_ms)?,
        })
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
    distribution: Option<String>,
    bytes_per_second: Option<u64>,
    queue_bytes: Option<usize>,
    #[serde(default)]
    loss: f64,
    #[serde(default)]
    cut: bool,
    #[serde(default)]
    paused: bool,
}

impl LinkForm {
    pub fn command(self) -> Result<RegionCommand> {
        if !(0.0..=1.0).contains(&self.loss) {
            return Err(Error::bad_request("The loss of a link is a share between 0 and 1."));
        }
        if self.queue_bytes == Some(0) {
            return Err(Error::bad_request("A link has room for at least one byte."));
        }
        let distribution = match &self.distribution {
            None => Some(Distribution::default()),
            Some(name) => Distribution::named(name),
        };
        let distribution = distribution
            .ok_or_else(|| Error::bad_request("The distribution of a link is fixed, uniform, normal or pareto."))?;
        Ok(RegionCommand::SetLink {
            settings: LinkSettings {
                latency: duration(self.latency_ms)?,
                jitter: duration(self.jitter_ms)?,
                distribution,
                bytes_per_second: self.bytes_per_second,
                queue_bytes: self.queue_bytes,
                loss: self.loss,
                cut: self.cut,
                paused: self.paused,
            },
            from: self.from,
            to: self.to,
        })
    }
}

/// One partition on a link.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PauseForm {
    from: String,
    to: String,
    database: String,
    container: String,
    partition: u32,
    #[serde(default = "yes")]
    paused: bool,
}

fn yes() -> bool {
    true
}

impl PauseForm {
    pub fn command(self) -> RegionCommand {
        RegionCommand::PausePartition {
            from: self.from,
            to: self.to,
            partition: Place {
                database: self.database,
                container: self.container,
                partition: PartitionId(self.partition),
            },
            paused: self.paused,
        }
    }
}

/// Transactions that are to pass a paused link: of one partition, or whichever come first.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StepForm {
    from: String,
    to: String,
    #[serde(default = "one")]
    transactions: u64,
    database: Option<String>,
    container: Option<String>,
    partition: Option<u32>,
}

fn one() -> u64 {
    1
}

impl StepForm {
    pub fn command(self) -> Result<RegionCommand> {
        let partition = match (self.database, self.container, self.partition) {
            (None, None, None) => None,
            (Some(database), Some(container), Some(partition)) => Some(Place {
                database,
                container,
                partition: PartitionId(partition),
            }),
            _ => {
                return Err(Error::bad_request(
                    "A partition is named by its database, its container and its number.",
                ));
            }
        };
        Ok(RegionCommand::Step {
            from: self.from,
            to: self.to,
            partition,
            n_transactions: self.transactions,
        })
    }
}

fn duration(milliseconds: f64) -> Result<Duration> {
    (0.0..=MS_MAX)
        .contains(&milliseconds)
        .then(|| Duration::from_secs_f64(milliseconds / 1000.0))
        .ok_or_else(|| Error::bad_request("What is simulated takes between 0 and 600,000 milliseconds."))
}

fn shown_ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

pub fn outage_name(outage: Outage) -> &'static str {
    match outage {
        Outage::Unavailable => "unavailable",
        Outage::Hanging => "hang",
        Outage::Refusing => "refuse",
        Outage::Slow(_) => "slow",
        Outage::Killed => "kill",
        Outage::Damaged => "damaged",
    }
}

pub fn outage_delay_ms(outage: Outage) -> Option<f64> {
    match outage {
        Outage::Slow(by) => Some(shown_ms(by)),
        _ => None,
    }
}

pub fn distance(distance: &Distance) -> Value {
    json!({"client": distance.client, "roundTripMs": shown_ms(distance.round_trip)})
}

/// What is simulated about a region.
pub fn region(info: &RegionInfo) -> Value {
    json!({
        "name": info.name,
        "outage": info.outage.map(outage_name),
        "outageDelayMs": info.outage.and_then(outage_delay_ms),
        "clients": info.distances.iter().map(distance).collect::<Vec<_>>(),
        "clockSkewMs": info.clock_skew_ms,
    })
}

pub fn link(info: &LinkInfo) -> Value {
    let mut shown = behaviour(&info.from, &info.to, &info.settings);
    shown["pausedPartitions"] = info.paused_partitions.iter().map(place).collect();
    shown["stepsLeft"] = info.steps_left.into();
    shown
}

fn behaviour(from: &str, to: &str, settings: &LinkSettings) -> Value {
    json!({
        "from": from,
        "to": to,
        "latencyMs": shown_ms(settings.latency),
        "jitterMs": shown_ms(settings.jitter),
        "distribution": settings.distribution.name(),
        "bytesPerSecond": settings.bytes_per_second,
        "queueBytes": settings.queue_bytes,
        "loss": settings.loss,
        "cut": settings.cut,
        "paused": settings.paused,
    })
}

fn place(place: &Place) -> Value {
    json!({"database": place.database, "container": place.container, "partition": place.partition.0})
}

/// The name of a control that was moved, and where it stands now.
pub fn moved(simulated: &Simulated) -> (&'static str, Value) {
    match simulated {
        Simulated::Link { from, to, settings } => ("link-changed", behaviour(from, to, settings)),
        Simulated::PartitionPaused {
            from,
            to,
            partition,
            paused,
        } => {
            let mut data = place(partition);
            (data["from"], data["to"], data["paused"]) = (json!(from), json!(to), json!(paused));
            ("link-partition-paused", data)
        }
        Simulated::Stepped {
            from,
            to,
            partition,
            n_transactions,
        } => {
            let mut data = partition.as_ref().map_or_else(|| json!({}), place);
            (data["from"], data["to"], data["transactions"]) = (json!(from), json!(to), json!(n_transactions));
            ("link-stepped", data)
        }
        Simulated::Outage { region, outage } => match outage {
            None => ("region-started", json!({"region": region})),
            Some(outage) => {
                let data = json!({"region": region, "mode": outage_name(*outage), "delayMs": outage_delay_ms(*outage)});
                ("region-stopped", data)
            }
        },
        Simulated::Distance {
            region,
            distance: moved,
        } => {
            let mut data = distance(moved);
            data["region"] = json!(region);
            ("clients-moved", data)
        }
        Simulated::Clock { region, skew_ms } => ("clock-skewed", json!({"region": region, "skewMs": skew_ms})),
        Simulated::Flapping { for_ms } => ("account-flapping", json!({"forMs": for_ms})),
    }
}
