//! Accounts and the links between their regions: one account from the plain settings, or several from `[[accounts]]` and
//! `[[links]]` of the settings file.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery_node::account::Secret;
use orrery_node::api::Consistency;
use orrery_node::geo::bounds::{Bounds, Staleness};
use orrery_node::geo::distribution::Distribution;
use orrery_node::geo::link::LinkSettings;
use orrery_node::geo::topology::Topology;
use serde::Deserialize;

/// Ports from one account's global endpoint to the next one's, unless an account has more regions than that.
const PORTS_PER_ACCOUNT: u16 = 10;
const ACCOUNT_ID_BYTES_MAX: usize = 50;
/// A link takes at most this long.
const LINK_MS_MAX: f64 = 600_000.0;

/// One of `[[accounts]]`. What is left out is as the plain settings say.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AccountEntry {
    id: String,
    /// The first takes writes, the others follow it in the order in which they would take over.
    regions: Vec<String>,
    key: Option<String>,
    consistency: Option<String>,
    /// Of the global endpoint; the regions' come after it.
    port: Option<u16>,
    /// Another region takes over by itself when the one that writes cannot be reached for this long.
    failover_after_ms: Option<u64>,
    /// Of bounded staleness: transactions that a region may lack of a partition.
    max_staleness_prefix: Option<u64>,
    /// And how long it may lack any.
    max_staleness_interval_s: Option<u64>,
}

/// One of `[[links]]`. Leads there and back, unless it says otherwise.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LinkEntry {
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
    one_way: bool,
}

/// An account to be served.
#[derive(Clone, Debug)]
pub struct AccountConfig {
    pub id: String,
    pub key: Secret,
    pub consistency: Consistency,
    pub staleness: Staleness,
    /// The first takes writes when the account is new.
    pub regions: Vec<String>,
    /// Did anybody name the regions? An account that exists has the regions it has.
    pub regions_named: bool,
    /// Of the global endpoint; 0 takes any free ones.
    pub port: u16,
    /// Where clients are told to find an account of one region.
    pub advertise: Option<String>,
    /// Another region takes over by itself when the one that writes cannot be reached for this long.
    pub failover_after: Option<Duration>,
}

/// How one direction between two regions behaves, in every account that has both.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    pub from: String,
    pub to: String,
    pub settings: LinkSettings,
}

/// What the plain settings say about an account.
#[derive(Debug)]
pub struct Plain<'a> {
    pub id: &'a str,
    pub key: &'a str,
    pub consistency: &'a str,
    pub staleness: StalenessSettings,
    pub regions: &'a str,
    pub regions_named: bool,
    pub port: u16,
    /// Was the port given by more than the file? Then it counts for all accounts.
    pub port_overrides: bool,
    pub advertise: Option<String>,
}

/// The bounds of bounded staleness as somebody gave them.
#[derive(Clone, Copy, Debug, Default)]
pub struct StalenessSettings {
    pub prefix: Option<u64>,
    pub interval_s: Option<u64>,
    pub may_be_tight: bool,
}

impl StalenessSettings {
    /// What holds for an account; what was left out is the least it may have.
    fn of_account(self, level: Consistency, n_regions: usize) -> Result<Staleness> {
        if level != Consistency::BoundedStaleness {
            return Ok(Staleness::default());
        }
        let least = Bounds::least(n_regions);
        let chosen = (self.prefix.is_some() || self.interval_s.is_some()).then(|| Bounds {
            transactions: self.prefix.unwrap_or(least.transactions),
            age: self.interval_s.map_or(least.age, Duration::from_secs),
        });
        let staleness = Staleness {
            chosen,
            may_be_tight: self.may_be_tight,
        };
        let range = chosen.map_or(Ok(()), Bounds::check_range);
        match range.and_then(|()| staleness.check(n_regions)) {
            Ok(()) => Ok(staleness),
            Err(error) => bail!("max-staleness-prefix, max-staleness-interval-s: {}", error.message()),
        }
    }

    /// Refuses bounds for an account that has none.
    fn refuse_unless_bounded(self, level: Consistency) -> Result<()> {
        ensure!(
            level == Consistency::BoundedStaleness || (self.prefix.is_none() && self.interval_s.is_none()),
            "max-staleness-prefix and max-staleness-interval-s are for BoundedStaleness, and the account has {level:?}"
        );
        Ok(())
    }
}

impl Plain<'_> {
    /// The one account of the plain settings.
    pub fn account(&self) -> Result<AccountConfig> {
        let named = self.regions.split(',').map(str::trim);
        let regions: Vec<String> = named.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        check_id(self.id)?;
        check_regions(&regions)?;
        ensure!(
            self.advertise.is_none() || regions.len() == 1,
            "advertise names one URL, and an account with several regions has one for each: leave it out"
        );
        let level = consistency(self.consistency)?;
        self.staleness.refuse_unless_bounded(level)?;
        Ok(AccountConfig {
            id: self.id.to_owned(),
            key: key(self.key)?,
            consistency: level,
            staleness: self.staleness.of_account(level, regions.len())?,
            regions,
            regions_named: self.regions_named,
            port: self.port,
            advertise: self.advertise.clone(),
            failover_after: None,
        })
    }

    /// The accounts of a file, with what it leaves out taken from the plain settings.
    pub fn accounts(&self, entries: &[AccountEntry]) -> Result<Vec<AccountConfig>> {
        ensure!(
            self.advertise.is_none(),
            "advertise names one URL, and there are several accounts: leave it out"
        );
        let mut ids = HashSet::new();
        let mut accounts = Vec::new();
        let mut next_port = Some(self.port);
        for entry in entries {
            ensure!(ids.insert(&entry.id), "the account {} is named twice", entry.id);
            let given = entry.port.filter(|_| !self.port_overrides);
            let port = given.or(next_port).context("there are not so many ports")?;
            let account = self.one_of(entry, port);
            accounts.push(account.with_context(|| format!("account {}", entry.id))?);
            next_port = following(port, entry.regions.len());
        }
        Ok(accounts)
    }

    fn one_of(&self, entry: &AccountEntry, port: u16) -> Result<AccountConfig> {
        check_id(&entry.id)?;
        check_regions(&entry.regions)?;
        ensure!(
            entry.failover_after_ms.is_none() || entry.regions.len() > 2,
            "failover-after-ms needs three regions: two cannot tell which of them is cut off"
        );
        let level = consistency(entry.consistency.as_deref().unwrap_or(self.consistency))?;
        let own = StalenessSettings {
            prefix: entry.max_staleness_prefix,
            interval_s: entry.max_staleness_interval_s,
            ..self.staleness
        };
        own.refuse_unless_bounded(level)?;
        let staleness = StalenessSettings {
            prefix: own.prefix.or(self.staleness.prefix),
            interval_s: own.interval_s.or(self.staleness.interval_s),
            ..own
        };
        Ok(AccountConfig {
            id: entry.id.clone(),
            key: key(entry.key.as_deref().unwrap_or(self.key))?,
            consistency: level,
            staleness: staleness.of_account(level, entry.regions.len())?,
            regions: entry.regions.clone(),
            regions_named: true,
            port,
            advertise: None,
            failover_after: entry.failover_after_ms.map(Duration::from_millis),
        })
    }
}

/// Where the account after this one begins; 0 is followed by 0.
fn following(port: u16, n_regions: usize) -> Option<u16> {
    if port == 0 {
        return Some(0);
    }
    let taken = u16::try_from(n_regions + 1).ok()?;
    port.checked_add(taken.div_ceil(PORTS_PER_ACCOUNT).checked_mul(PORTS_PER_ACCOUNT)?)
}

impl LinkEntry {
    /// Both directions, or the one that is meant.
    pub fn links(&self) -> Result<Vec<LinkConfig>> {
        let duration = |milliseconds: f64| {
            ensure!(
                (0.0..=LINK_MS_MAX).contains(&milliseconds),
                "the link from {} to {} takes between 0 and 600,000 milliseconds",
                self.from,
                self.to
            );
            Ok(Duration::from_secs_f64(milliseconds / 1000.0))
        };
        ensure!(
            (0.0..=1.0).contains(&self.loss),
            "the loss of a link is between 0 and 1"
        );
        ensure!(self.queue_bytes != Some(0), "a link has room for at least one byte");
        let link = |from: &str, to: &str, settings: &LinkSettings| LinkConfig {
            from: from.to_owned(),
            to: to.to_owned(),
            settings: settings.clone(),
        };
        let settings = LinkSettings {
            latency: duration(self.latency_ms)?,
            jitter: duration(self.jitter_ms)?,
            distribution: self.distribution()?,
            bytes_per_second: self.bytes_per_second,
            queue_bytes: self.queue_bytes,
            loss: self.loss,
            ..LinkSettings::default()
        };
        let mut links = vec![link(&self.from, &self.to, &settings)];
        if !self.one_way {
            links.push(link(&self.to, &self.from, &settings));
        }
        Ok(links)
    }
}

impl LinkEntry {
    fn distribution(&self) -> Result<Distribution> {
        let Some(name) = &self.distribution else {
            return Ok(Distribution::default());
        };
        Distribution::named(name).with_context(|| {
            format!(
                "the distribution of the link from {} to {} is fixed, uniform, normal or pareto",
                self.from, self.to
            )
        })
    }
}

/// Links must lead between regions that some account has.
pub fn check_links(links: &[LinkConfig], accounts: &[AccountConfig]) -> Result<()> {
    let has_both = |account: &AccountConfig, link: &LinkConfig| {
        Topology::new(&account.regions).is_ok_and(|topology| {
            let ends = (topology.find(&link.from), topology.find(&link.to));
            matches!(ends, (Some(from), Some(to)) if from.id != to.id)
        })
    };
    for link in links {
        ensure!(
            accounts.iter().any(|account| has_both(account, link)),
            "no account has a link from '{}' to '{}'",
            link.from,
            link.to
        );
    }
    Ok(())
}

fn check_id(id: &str) -> Result<()> {
    let fits = (1..=ACCOUNT_ID_BYTES_MAX).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    ensure!(
        fits,
        "'{id}' is not an account's name: 1 to 50 lower-case letters, digits and dashes"
    );
    Ok(())
}

/// The same rules that hold for a topology, before anything is opened.
fn check_regions(regions: &[String]) -> Result<()> {
    match Topology::new(regions) {
        Ok(_) => Ok(()),
        Err(error) => bail!("regions: {}", error.message()),
    }
}

fn key(text: &str) -> Result<Secret> {
    let key = STANDARD.decode(text).ok().filter(|key| key.len() >= 16);
    Ok(Secret(key.context("the key must be base64 of at least 16 bytes")?))
}

/// A consistency level by its name, in any spelling.
pub fn consistency(text: &str) -> Result<Consistency> {
    Ok(match text.to_ascii_lowercase().replace([' ', '-', '_'], "").as_str() {
        "strong" => Consistency::Strong,
        "boundedstaleness" => Consistency::BoundedStaleness,
        "session" => Consistency::Session,
        "consistentprefix" => Consistency::ConsistentPrefix,
        "eventual" => Consistency::Eventual,
        _ => bail!(
            "'{text}' is not a consistency level: Strong, BoundedStaleness, Session, ConsistentPrefix or Eventual"
        ),
    })
}
