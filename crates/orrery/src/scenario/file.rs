//! The file of a scenario, TOML or JSON: read once into values that are known to be valid.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Act;

/// Nothing goes on for longer than this.
const MS_MAX: u64 = 86_400_000;

#[derive(Debug)]
pub struct Scenario {
    pub name: String,
    pub seed: u64,
    pub load: Option<Load>,
    pub steps: Vec<Step>,
    pub asserts: Vec<Assert>,
}

/// Something that happens at a time.
#[derive(Clone, Debug)]
pub struct Step {
    pub at_ms: u64,
    /// As the file calls it.
    pub name: String,
    pub may_fail: bool,
    pub act: Act,
}

/// What clients do meanwhile.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Load {
    pub database: String,
    pub container: String,
    pub for_ms: u64,
    #[serde(default)]
    pub writes_per_second: u32,
    #[serde(default)]
    pub reads_per_second: u32,
    /// Logical partitions that they are spread over.
    #[serde(default = "ten")]
    pub keys: u32,
}

fn ten() -> u32 {
    10
}

/// Something that must hold in the end.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(
    tag = "that",
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case",
    deny_unknown_fields
)]
pub enum Assert {
    /// Writes that were acknowledged and are gone.
    LostWrites {
        #[serde(default)]
        at_most: u64,
    },
    /// Writes that were refused, or whose outcome nobody knows.
    FailedWrites {
        at_most: u64,
    },
    FailedReads {
        at_most: u64,
    },
    /// The longest of a hundred acknowledged writes but one.
    WriteLatency {
        at_most_ms: u64,
    },
    /// Every region that is online has everything.
    RegionsEqual {
        within_ms: u64,
    },
    /// Which region takes writes.
    Writer {
        region: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Raw {
    name: String,
    #[serde(default)]
    seed: u64,
    load: Option<Load>,
    #[serde(default)]
    steps: Vec<Map<String, Value>>,
    #[serde(default, rename = "assert")]
    asserts: Vec<Assert>,
}

impl Scenario {
    pub fn read(path: &Path) -> Result<Scenario> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        Scenario::parse(&text, is_json).with_context(|| format!("{} is not a scenario", path.display()))
    }

    fn parse(text: &str, is_json: bool) -> Result<Scenario> {
        let raw: Raw = match is_json {
            true => serde_json::from_str(text)?,
            false => toml::from_str(text)?,
        };
        if let Some(load) = &raw.load {
            ensure!(load.keys > 0, "the load needs at least one key");
            ensure!(load.for_ms <= MS_MAX, "the load goes on for a day at most");
        }
        let steps = raw.steps.into_iter().enumerate();
        let steps = steps.map(|(index, step)| Step::new(step).with_context(|| format!("step {}", index + 1)));
        Ok(Scenario {
            name: raw.name,
            seed: raw.seed,
            load: raw.load,
            steps: steps.collect::<Result<_>>()?,
            asserts: raw.asserts,
        })
    }
}

impl Step {
    fn new(mut members: Map<String, Value>) -> Result<Step> {
        let at_ms = members.remove("at-ms").and_then(|at| at.as_u64());
        let at_ms = at_ms.context("it has no time: at-ms")?;
        ensure!(at_ms <= MS_MAX, "it happens within a day or not at all");
        let may_fail = match members.remove("may-fail") {
            None => false,
            Some(Value::Bool(may_fail)) => may_fail,
            Some(_) => bail!("may-fail is true or false"),
        };
        let name = members.remove("do");
        let name = name.and_then(|name| name.as_str().map(str::to_owned));
        let name = name.context("nobody knows what it does: do")?;
        let act = Act::new(&name, members)?;
        Ok(Step {
            at_ms,
            name,
            may_fail,
            act,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
name = "the write region dies"
seed = 7

[load]
database = "db"
container = "c"
for-ms = 2000
writes-per-second = 20

[[steps]]
at-ms = 500
do = "stop"
region = "West US"
mode = "slow"
delay-ms = 200

[[steps]]
at-ms = 900
do = "link"
from = "West US"
to = "North Europe"
latency-ms = 80
may-fail = true

[[assert]]
that = "lost-writes"

[[assert]]
that = "regions-equal"
within-ms = 5000
"#;

    #[test]
    fn a_file_says_what_happens_and_what_must_hold() {
        let scenario = Scenario::parse(WHOLE, false).unwrap();
        assert_eq!((scenario.name.as_str(), scenario.seed), ("the write region dies", 7));
        let [stop, link] = scenario.steps.as_slice() else {
            panic!("two steps: {scenario:?}");
        };
        assert_eq!((stop.at_ms, stop.may_fail, link.may_fail), (500, false, true));
        let expected = [
            Assert::LostWrites { at_most: 0 },
            Assert::RegionsEqual { within_ms: 5000 },
        ];
        assert_eq!(scenario.asserts, expected);
        let load = scenario.load.unwrap();
        assert_eq!((load.writes_per_second, load.reads_per_second, load.keys), (20, 0, 10));
    }

    #[test]
    fn the_same_is_said_in_json() {
        let text = r#"{"name": "n", "steps": [{"at-ms": 1, "do": "flap", "for-ms": 10}], "assert": [{"that": "writer", "region": "A"}]}"#;
        let scenario = Scenario::parse(text, true).unwrap();
        assert_eq!(scenario.steps.len(), 1);
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_anything_happens() {
        for (part, reason) in [
            ("[[steps]]\ndo = \"flap\"", "no time"),
            ("[[steps]]\nat-ms = 1", "nobody knows"),
            ("[[steps]]\nat-ms = 1\ndo = \"explode\"", "explode"),
            ("[[steps]]\nat-ms = 1\ndo = \"stop\"\nmode = \"hang\"", "region"),
            ("[[assert]]\nthat = \"luck\"", "luck"),
            ("colour = \"red\"", "colour"),
        ] {
            let error = Scenario::parse(&format!("name = \"n\"\n{part}"), false).unwrap_err();
            assert!(format!("{error:#}").contains(reason), "{part}: {error:#}");
        }
    }
}
