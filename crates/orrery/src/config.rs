//! Settings: defaults, then `orrery.toml`, then `ORRERY_*` variables, then flags, under the same names in all three.
//!
//! Raw text is read once, together with where it came from, and turned into valid values; nothing after that checks again.
//! A key nobody knows is an error, so that a misspelled setting never passes silently.

mod accounts;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use orrery_gateway::names::Suffix;

pub use accounts::{AccountConfig, LinkConfig, consistency};
use accounts::{AccountEntry, LinkEntry, Plain, StalenessSettings};

/// The public, well-known key of emulators. Good for development and nothing else.
pub const DEVELOPMENT_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// Where a value that nobody gave comes from.
const DEFAULT: &str = "default";

/// Every setting: its name, its default, and what it means.
const SETTINGS: [(&str, &str, &str); 27] = [
    ("account", "orrery", "name of the account"),
    (
        "advertise",
        "",
        "URL that clients are told to use, instead of the one they called",
    ),
    ("allow-plain-http", "false", "speak plain HTTP beyond loopback"),
    (
        "cache-mb",
        "384",
        "memory that caches may take, in MiB: a third for hot items, the rest for blocks of data files",
    ),
    ("consistency", "Session", "default consistency level of the account"),
    ("data-dir", "./orrery-data", "where everything is kept"),
    (
        "dev-allow-tight-bounds",
        "false",
        "bounds of BoundedStaleness below the service's minima, to see what happens there",
    ),
    (
        "enforce-throughput",
        "false",
        "answer 429 when a container uses more than its throughput",
    ),
    (
        "host-suffix",
        "",
        "also tell accounts and regions apart by name on every port: ACCOUNT.SUFFIX and ACCOUNT-REGION.SUFFIX",
    ),
    ("key", DEVELOPMENT_KEY, "primary key of the account"),
    (
        "lease-expiry-ms",
        "10000",
        "cluster: others take over from a node that has not renewed for this long",
    ),
    ("lease-renew-ms", "2000", "cluster: how often a node renews"),
    (
        "listen",
        "loopback",
        "address to listen on; loopback means IPv4 and IPv6",
    ),
    (
        "logical-partition-mb",
        "20480",
        "what all items of one partition key may take, in MiB: beyond it they cannot grow; 0: no limit",
    ),
    (
        "max-staleness-interval-s",
        "",
        "BoundedStaleness: how long a region may lack a transaction; empty: the least the service allows",
    ),
    (
        "max-staleness-prefix",
        "",
        "BoundedStaleness: transactions of a partition that a region may lack; empty: the least the service allows",
    ),
    ("memory", "false", "keep nothing: all data is in memory"),
    (
        "monitor",
        "",
        "cluster: monitoring ports of the NATS servers, as HOST:PORT,…",
    ),
    ("nats", "", "cluster: NATS servers, as nats://HOST:PORT,…"),
    (
        "outage-alert-after-ms",
        "900000",
        "platform: somebody should look when changes have waited for an account this long",
    ),
    (
        "outage-failover-after-ms",
        "",
        "platform: an account that changes have waited for this long is failed over; empty: they wait",
    ),
    ("partitions", "1", "physical partitions of a new container"),
    ("port", "8081", "port of the account; 0 takes any free one"),
    ("profile", "dev", "dev or production"),
    ("regions", "West US", "regions of the account, the first takes writes"),
    (
        "replicas",
        "3",
        "cluster: NATS servers that hold a copy of everything, fixed at the first start",
    ),
    ("tls", "", "certificate chain and key to use, as CHAIN.pem,KEY.pem"),
];

/// Variables with our prefix that mean something to logging, the command line's clients or the tests.
const NOT_SETTINGS: [&str; 10] = [
    "LOG",
    "LOG_FORMAT",
    "BIN",
    "SOAK",
    "TEST_CLUSTER",
    "SIM_SEED",
    "SIM_SEEDS",
    "ENDPOINT",
    "CA",
    "RESULTS",
];

/// Flags of commands that serve. Each has the name of a setting.
#[derive(Args, Clone, Debug, Default)]
pub struct ServerFlags {
    /// Settings file; orrery.toml in the working directory is read when it exists
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where everything is kept [default: ./orrery-data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Keep nothing: all data is in memory
    #[arg(long)]
    memory: bool,
    /// Address to listen on [default: loopback, IPv4 and IPv6]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Port of the account; 0 takes any free one [default: 8081]
    #[arg(long, value_name = "N")]
    port: Option<String>,
    /// dev or production [default: dev]
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// Regions of the account, the first takes writes [default: West US]
    #[arg(long, value_name = "A,B,C")]
    regions: Option<String>,
    /// Primary key of a new account [default: the well-known development key]
    #[arg(long, value_name = "BASE64")]
    key: Option<String>,
    /// Default consistency level [default: Session]
    #[arg(long, value_name = "LEVEL")]
    consistency: Option<String>,
    /// BoundedStaleness: transactions of a partition that a region may lack [default: the service's minimum]
    #[arg(long, value_name = "N")]
    max_staleness_prefix: Option<String>,
    /// BoundedStaleness: seconds for which a region may lack a transaction [default: the service's minimum]
    #[arg(long, value_name = "SECONDS")]
    max_staleness_interval_s: Option<String>,
    /// Allow bounds of BoundedStaleness below the service's minima
    #[arg(long)]
    dev_allow_tight_bounds: bool,
    /// Physical partitions of a new container [default: 1]
    #[arg(long, value_name = "N")]
    partitions: Option<String>,
    /// Answer 429 when a container uses more than its throughput
    #[arg(long)]
    enforce_throughput: bool,
    /// What all items of one partition key may take, in MiB; 0 for no limit [default: 20480]
    #[arg(long, value_name = "MIB")]
    logical_partition_mb: Option<String>,
    /// Speak plain HTTP beyond loopback
    #[arg(long)]
    allow_plain_http: bool,
    /// Memory for hot items and blocks of data files, in MiB [default: 384]
    #[arg(long, value_name = "MIB")]
    cache_mb: Option<String>,
    /// URL that clients are told to use
    #[arg(long, value_name = "URL")]
    advertise: Option<String>,
    /// Also tell accounts and regions apart by name: ACCOUNT.SUFFIX and ACCOUNT-REGION.SUFFIX, all on one port
    #[arg(long, value_name = "DOMAIN")]
    host_suffix: Option<String>,
    /// Certificate chain and key to use instead of the local authority's
    #[arg(long, value_name = "CHAIN.pem,KEY.pem")]
    tls: Option<String>,
    /// NDJSON or JSON file of items to load at start: each line {"database","container","partitionKey"?,"item"}
    #[arg(long, value_name = "FILE")]
    pub seed: Option<PathBuf>,
}

impl ServerFlags {
    fn given(&self) -> Vec<(&'static str, String)> {
        let switch = |on: bool| on.then(|| "true".to_owned());
        let all = [
            ("data-dir", self.data_dir.clone()),
            ("memory", switch(self.memory)),
            ("listen", self.listen.clone()),
            ("port", self.port.clone()),
            ("profile", self.profile.clone()),
            ("regions", self.regions.clone()),
            ("key", self.key.clone()),
            ("consistency", self.consistency.clone()),
            ("max-staleness-prefix", self.max_staleness_prefix.clone()),
            ("max-staleness-interval-s", self.max_staleness_interval_s.clone()),
            ("dev-allow-tight-bounds", switch(self.dev_allow_tight_bounds)),
            ("partitions", self.partitions.clone()),
            ("enforce-throughput", switch(self.enforce_throughput)),
            ("logical-partition-mb", self.logical_partition_mb.clone()),
            ("allow-plain-http", switch(self.allow_plain_http)),
            ("cache-mb", self.cache_mb.clone()),
            ("advertise", self.advertise.clone()),
            ("host-suffix", self.host_suffix.clone()),
            ("tls", self.tls.clone()),
        ];
        all.into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }
}

/// Settings as text, each with its source.
#[derive(Clone, Debug)]
pub struct Raw {
    values: BTreeMap<&'static str, (String, String)>,
    accounts: Vec<AccountEntry>,
    links: Vec<LinkEntry>,
}

impl Raw {
    /// Gathers all four sources. `environment` is passed in so that tests need not change the process's.
    pub fn gather(flags: &ServerFlags, environment: impl Iterator<Item = (String, String)>) -> Result<Raw> {
        Raw::layered(flags.config.clone(), None, environment, flags.given())
    }

    /// The same with flags of any command, and with a settings text of its own in place of the usual file.
    pub fn layered(
        file: Option<PathBuf>,
        own_text: Option<&str>,
        environment: impl Iterator<Item = (String, String)>,
        flags: Vec<(&'static str, String)>,
    ) -> Result<Raw> {
        let defaults = SETTINGS
            .iter()
            .map(|(name, value, _)| (*name, ((*value).to_owned(), DEFAULT.to_owned())));
        let mut raw = Raw {
            values: defaults.collect(),
            accounts: Vec::new(),
            links: Vec::new(),
        };
        let usual = || Some(PathBuf::from("orrery.toml")).filter(|path| path.exists());
        match (own_text, file) {
            (Some(text), _) => raw.read_text(text, "the command")?,
            (None, file) => {
                if let Some(path) = file.or_else(usual) {
                    raw.read_file(&path)?;
                }
            }
        }
        for (name, value) in environment {
            let Some(setting) = name.strip_prefix("ORRERY_") else {
                continue;
            };
            if NOT_SETTINGS.contains(&setting) {
                continue;
            }
            raw.set(&setting.to_ascii_lowercase().replace('_', "-"), value, &name)?;
        }
        for (name, value) in flags {
            raw.set(name, value, &format!("--{name}"))?;
        }
        Ok(raw)
    }

    fn read_file(&mut self, path: &Path) -> Result<()> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        self.read_text(&text, &path.display().to_string())
    }

    fn read_text(&mut self, text: &str, source: &str) -> Result<()> {
        let table: toml::Table = text.parse().with_context(|| format!("{source} is not valid TOML"))?;
        for (name, value) in table {
            let malformed = || format!("{source}: {name} cannot be understood");
            match name.as_str() {
                "accounts" => {
                    self.accounts = value.try_into().with_context(malformed)?;
                    ensure!(!self.accounts.is_empty(), "{source}: accounts are empty");
                    continue;
                }
                "links" => {
                    self.links = value.try_into().with_context(malformed)?;
                    continue;
                }
                _ => {}
            }
            let text = match value {
                toml::Value::String(text) => text,
                toml::Value::Array(items) => {
                    let texts: Option<Vec<&str>> = items.iter().map(toml::Value::as_str).collect();
                    texts
                        .with_context(|| format!("{name} must be a list of strings"))?
                        .join(",")
                }
                toml::Value::Boolean(value) => value.to_string(),
                toml::Value::Integer(value) => value.to_string(),
                _ => bail!("{source}: {name} must be a string, an integer or true or false"),
            };
            self.set(&name, text, source)?;
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: String, source: &str) -> Result<()> {
        let known = SETTINGS.iter().find(|(known, ..)| *known == name);
        let (known, ..) = known.with_context(|| format!("{source}: there is no setting '{name}'"))?;
        self.values.insert(known, (value, source.to_owned()));
        Ok(())
    }

    pub fn text(&self, name: &str) -> &str {
        self.values.get(name).map_or("", |(value, _)| value)
    }

    pub fn is_default(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|(_, source)| source == DEFAULT)
    }

    /// Accounts as the file lists them, or the one the plain settings describe.
    fn accounts(&self) -> Result<Vec<AccountConfig>> {
        let from_outside = |name: &str| {
            let source = self.values.get(name).map_or("", |(_, source)| source);
            source.starts_with("--") || source.starts_with("ORRERY_")
        };
        let plain = Plain {
            id: self.text("account"),
            key: self.text("key"),
            consistency: self.text("consistency"),
            staleness: StalenessSettings {
                prefix: self.parse_given("max-staleness-prefix")?,
                interval_s: self.parse_given("max-staleness-interval-s")?,
                may_be_tight: self.parse("dev-allow-tight-bounds")?,
            },
            regions: self.text("regions"),
            regions_named: !self.is_default("regions"),
            port: self.parse("port")?,
            port_overrides: from_outside("port"),
            advertise: Some(self.text("advertise").to_owned()).filter(|url| !url.is_empty()),
        };
        if self.accounts.is_empty() {
            return Ok(vec![plain.account()?]);
        }
        for name in ["account", "regions"] {
            ensure!(
                self.is_default(name),
                "{name} describes one account, and the settings file lists accounts: leave it out"
            );
        }
        plain.accounts(&self.accounts)
    }

    pub fn parse<T: std::str::FromStr>(&self, name: &str) -> Result<T> {
        let (value, source) = &self.values[name];
        value
            .parse()
            .ok()
            .with_context(|| format!("{source}: '{value}' is not a valid {name}"))
    }

    /// The same for a setting that may be left out.
    fn parse_given<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>> {
        match self.text(name) {
            "" => Ok(None),
            _ => self.parse(name).map(Some),
        }
    }

    /// Name, value, source and meaning of every setting; keys are not shown.
    pub fn rows(&self) -> impl Iterator<Item = [&str; 4]> {
        SETTINGS.iter().map(|(name, default, meaning)| {
            let (value, source) = &self.values[name];
            let shown = if *name == "key" && value != default {
                "(hidden)"
            } else {
                value
            };
            [*name, shown, source, meaning]
        })
    }
}

/// Valid settings of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// At least one.
    pub accounts: Vec<AccountConfig>,
    pub links: Vec<LinkConfig>,
    /// `None`: memory only.
    pub data_dir: Option<PathBuf>,
    /// `None`: loopback, both families.
    pub listen: Option<IpAddr>,
    pub development: bool,
    pub partitions: u32,
    pub enforce_throughput: bool,
    pub logical_partition_bytes_max: u64,
    /// Is plain HTTP spoken?
    pub plain_http: bool,
    /// For all accounts and regions together.
    pub caches: CacheSizes,
    pub tls: Option<(PathBuf, PathBuf)>,
    /// `None`: accounts and regions are told apart by port only.
    pub host_suffix: Option<Suffix>,
    pub outage: OutageConfig,
}

/// What the platform does while an account takes no changes of what it owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutageConfig {
    pub alert_after: Duration,
    /// `None`: changes wait for as long as it takes.
    pub failover_after: Option<Duration>,
}

impl OutageConfig {
    fn new(raw: &Raw) -> Result<OutageConfig> {
        Ok(OutageConfig {
            alert_after: Duration::from_millis(raw.parse("outage-alert-after-ms")?),
            failover_after: raw.parse_given("outage-failover-after-ms")?.map(Duration::from_millis),
        })
    }
}

impl ServerConfig {
    pub fn new(raw: &Raw) -> Result<ServerConfig> {
        let listen = match raw.text("listen") {
            "loopback" | "localhost" => None,
            _ => Some(raw.parse::<IpAddr>("listen")?),
        };
        let loopback = listen.is_none_or(|address| address.is_loopback());
        let allow_plain_http: bool = raw.parse("allow-plain-http")?;
        let partitions: u32 = raw.parse("partitions")?;
        ensure!(
            (1..=1000).contains(&partitions),
            "partitions must be between 1 and 1000"
        );
        let memory: bool = raw.parse("memory")?;
        let development = match raw.text("profile") {
            "dev" => true,
            "production" => false,
            other => bail!("'{other}' is not a profile; it is dev or production"),
        };
        ensure!(
            development || !raw.parse::<bool>("dev-allow-tight-bounds")?,
            "dev-allow-tight-bounds is for development, and the profile is production"
        );
        let accounts = raw.accounts()?;
        ensure!(
            loopback || !accounts.iter().any(has_development_key),
            "the development key is public: give --key with a key of your own to listen on {}",
            raw.text("listen")
        );
        let links = raw.links.iter().map(LinkEntry::links).collect::<Result<Vec<_>>>()?;
        let links = links.concat();
        accounts::check_links(&links, &accounts)?;
        Ok(ServerConfig {
            accounts,
            links,
            data_dir: (!memory).then(|| PathBuf::from(raw.text("data-dir"))),
            listen,
            development,
            partitions,
            enforce_throughput: raw.parse("enforce-throughput")?,
            logical_partition_bytes_max: match raw.parse::<u32>("logical-partition-mb")? {
                0 => u64::MAX,
                mib => u64::from(mib) << 20,
            },
            plain_http: loopback || allow_plain_http,
            caches: CacheSizes::of_mb(raw.parse("cache-mb")?),
            tls: tls(raw.text("tls"))?,
            host_suffix: host_suffix(raw.text("host-suffix"))?,
            outage: OutageConfig::new(raw)?,
        })
    }
}

/// How much memory each kind of cache may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSizes {
    pub hot_item_bytes: usize,
    pub block_bytes: u64,
}

impl CacheSizes {
    /// Blocks get more: they hold the index, and one item needs several.
    fn of_mb(all_mb: usize) -> CacheSizes {
        let all_bytes = all_mb.min(1 << 20) << 20;
        let hot_item_bytes = all_bytes / 3;
        CacheSizes {
            hot_item_bytes,
            block_bytes: (all_bytes - hot_item_bytes) as u64,
        }
    }
}

fn has_development_key(account: &AccountConfig) -> bool {
    STANDARD.decode(DEVELOPMENT_KEY).is_ok_and(|key| key == account.key.0)
}

fn host_suffix(text: &str) -> Result<Option<Suffix>> {
    match text {
        "" => Ok(None),
        text => Suffix::new(text)
            .map(Some)
            .with_context(|| format!("'{text}' is not a domain that names could end with")),
    }
}

fn tls(text: &str) -> Result<Option<(PathBuf, PathBuf)>> {
    if text.is_empty() {
        return Ok(None);
    }
    let (chain, key) = text.split_once(',').context("tls needs two files: CHAIN.pem,KEY.pem")?;
    Ok(Some((PathBuf::from(chain.trim()), PathBuf::from(key.trim()))))
}

#[cfg(test)]
mod tests;
