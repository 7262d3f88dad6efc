//! Throughput: how many request units a second a database or container may use, and the offer resource that shows it.
//!
//! A [`Throughput`] is always within the limits and steps the service allows; parsing is where that is checked.

use crate::error::{Error, Result};
use crate::etag::Etag;
use crate::id::Timestamp;
use crate::json::{self, Object, Value};
use crate::rid::ResourceId;

/// Request units a second that one physical partition serves.
pub const PARTITION_RU_MAX: u32 = 10_000;
const RU_MAX: u32 = 1_000_000;
const MANUAL_MIN: u32 = 400;
const MANUAL_STEP: u32 = 100;
const AUTOSCALE_MIN: u32 = 1_000;
const AUTOSCALE_STEP: u32 = 1_000;

/// Provisioned throughput, in request units a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throughput {
    Manual(u32),
    /// Between a tenth of `max` and `max`, following use. `increment_percent` says how far `max` may grow by itself.
    Autoscale {
        max: u32,
        increment_percent: Option<u32>,
    },
}

/// What a replace of an offer does to its mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Migration {
    #[default]
    None,
    ToAutoscale,
    ToManual,
}

impl Throughput {
    pub fn manual(units: i64) -> Result<Throughput> {
        within(units, MANUAL_MIN, MANUAL_STEP).map(Throughput::Manual)
    }

    pub fn autoscale(max: i64, increment_percent: Option<u32>) -> Result<Throughput> {
        let max = within(max, AUTOSCALE_MIN, AUTOSCALE_STEP)?;
        Ok(Throughput::Autoscale { max, increment_percent })
    }

    /// Reads the values of the two headers of a create request. `None` when neither was sent.
    pub fn from_headers(manual: Option<&str>, autoscale: Option<&str>) -> Result<Option<Throughput>> {
        match (manual, autoscale) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(Error::bad_request(
                "Manual throughput and autopilot settings cannot be given together.",
            )),
            (Some(text), None) => {
                let units = text.trim().parse().map_err(|_| {
                    Error::bad_request(format!(
                        "The value '{}' of offer throughput is not an integer.",
                        shorten(text)
                    ))
                })?;
                Throughput::manual(units).map(Some)
            }
            (None, Some(text)) => {
                let settings = json::parse_value(text.as_bytes())
                    .map_err(|error| Error::bad_request(format!("The autopilot settings are not JSON: {error}.")))?;
                autoscale_of(&settings).map(Some)
            }
        }
    }

    /// Reads the body of an offer replace. Without a migration the mode stays as it is.
    pub fn replace(self, body: &Value, migration: Migration) -> Result<Throughput> {
        let content = body
            .get("content")
            .filter(|content| content.as_object().is_some())
            .ok_or_else(|| Error::bad_request("The offer's content is missing."))?;
        let settings = content
            .get("offerAutopilotSettings")
            .filter(|settings| **settings != Value::Null);
        let units = content
            .get("offerThroughput")
            .and_then(Value::as_number)
            .and_then(json::Number::as_i64);
        match (self, migration) {
            (Throughput::Manual(_), Migration::None | Migration::ToManual) => match (settings, units) {
                (Some(_), _) => Err(Error::bad_request(
                    "A manual offer cannot take autopilot settings. Ask for a migration to autopilot.",
                )),
                (None, Some(units)) => Throughput::manual(units),
                (None, None) => Err(Error::bad_request("The offer's content has no offerThroughput.")),
            },
            (Throughput::Autoscale { .. }, Migration::None | Migration::ToAutoscale) => match settings {
                Some(settings) => autoscale_of(settings),
                None => Err(Error::bad_request(
                    "An autopilot offer needs autopilot settings. Ask for a migration to manual throughput.",
                )),
            },
            (Throughput::Manual(current), Migration::ToAutoscale) => match settings {
                Some(settings) => autoscale_of(settings),
                None => Throughput::autoscale(i64::from(current.next_multiple_of(AUTOSCALE_STEP)), None),
            },
            (Throughput::Autoscale { max, .. }, Migration::ToManual) => match (settings, units) {
                (None, Some(units)) => Throughput::manual(units),
                _ => Ok(Throughput::Manual(max)),
            },
        }
    }

    /// The most this may use, in request units a second.
    pub fn peak(self) -> u32 {
        match self {
            Throughput::Manual(units) => units,
            Throughput::Autoscale { max, .. } => max,
        }
    }

    /// The least this could be set to.
    pub fn minimum(self) -> u32 {
        match self {
            Throughput::Manual(_) => MANUAL_MIN,
            Throughput::Autoscale { .. } => AUTOSCALE_MIN,
        }
    }

    /// Physical partitions it takes to serve this.
    pub fn n_partitions(self) -> u32 {
        self.peak().div_ceil(PARTITION_RU_MAX).max(1)
    }

    fn content(self) -> Object {
        let mut content = Object::new();
        match self {
            Throughput::Manual(units) => content.insert("offerThroughput", Value::from(i64::from(units))),
            Throughput::Autoscale { max, increment_percent } => {
                content.insert("offerThroughput", Value::from(i64::from(max / 10)));
                let mut settings = object([("maxThroughput", Value::from(i64::from(max)))]);
                if let Some(percent) = increment_percent {
                    let policy = object([("incrementPercent", Value::from(i64::from(percent)))]);
                    let policy = object([("throughputPolicy", Value::Object(policy))]);
                    settings.insert("autoUpgradePolicy", Value::Object(policy));
                }
                content.insert("offerAutopilotSettings", Value::Object(settings));
            }
        }
        content
    }
}

fn within(units: i64, min: u32, step: u32) -> Result<u32> {
    if units < i64::from(min) {
        return Err(Error::bad_request(format!(
            "Requested throughput {units} is less than required minimum throughput {min}."
        )));
    }
    let valid = units <= i64::from(RU_MAX) && units % i64::from(step) == 0;
    valid.then_some(units as u32).ok_or_else(|| {
        Error::bad_request(format!(
            "The offer should have valid throughput values between {min} and {RU_MAX} inclusive in increments of {step}."
        ))
    })
}

/// Reads `{"maxThroughput":4000,"autoUpgradePolicy"?:{"throughputPolicy":{"incrementPercent":10}}}`.
fn autoscale_of(settings: &Value) -> Result<Throughput> {
    let integer = |value: &Value| value.as_number().and_then(json::Number::as_i64);
    let max = settings
        .get("maxThroughput")
        .and_then(integer)
        .ok_or_else(|| Error::bad_request("The autopilot settings need an integer maxThroughput."))?;
    let percent = settings
        .get("autoUpgradePolicy")
        .and_then(|policy| policy.get("throughputPolicy"))
        .and_then(|policy| policy.get("incrementPercent"));
    let percent = match percent {
        None | Some(Value::Null) => None,
        Some(value) => {
            let percent = integer(value)
                .and_then(|percent| u32::try_from(percent).ok())
                .filter(|&percent| percent <= 100);
            Some(
                percent
                    .ok_or_else(|| Error::bad_request("The incrementPercent must be an integer between 0 and 100."))?,
            )
        }
    };
    Throughput::autoscale(max, percent)
}

/// The offer resource of one database or container.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    pub rid: ResourceId,
    pub target_rid: ResourceId,
    /// `_self` of the target, with its final slash.
    pub target_self: String,
    pub etag: Etag,
    pub ts: Timestamp,
    pub throughput: Throughput,
}

impl Offer {
    /// The resource as clients read it. `id` equals `_rid`, because clients use either in the path.
    pub fn to_value(&self) -> Value {
        let rid = self.rid.to_string();
        Value::Object(object([
            ("resource", Value::from(self.target_self.as_str())),
            ("offerType", Value::from("Invalid")),
            ("offerResourceId", Value::from(self.target_rid.to_string().as_str())),
            ("offerVersion", Value::from("V2")),
            ("content", Value::Object(self.throughput.content())),
            ("id", Value::from(rid.as_str())),
            ("_rid", Value::from(rid.as_str())),
            ("_self", Value::from(format!("offers/{rid}/").as_str())),
            ("_etag", Value::from(self.etag.to_string().as_str())),
            ("_ts", Value::from(self.ts.seconds() as i64)),
        ]))
    }
}

fn object<const N: usize>(members: [(&str, Value); N]) -> Object {
    members
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests;
