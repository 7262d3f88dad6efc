//! The settings of a node in a cluster, checked.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use orrery_node::cluster::lease::Times;
use orrery_storage::nats::servers::Trust;
use orrery_storage::{EmbeddedSettings, NatsSettings};

use crate::config::{AccountConfig, Raw, ServerConfig};
use crate::host::region_name;

/// A lease must not expire because two renewals were slow.
const RENEWALS_PER_LEASE_MIN: u32 = 3;
const RENEW_MS_MIN: u64 = 100;

/// Valid settings of a node.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    pub server: ServerConfig,
    /// The one there is.
    pub account: AccountConfig,
    pub data_dir: PathBuf,
    pub servers: ServersConfig,
    pub times: Times,
}

/// The NATS servers, and what is kept on them.
#[derive(Clone, Debug)]
pub struct ServersConfig {
    pub urls: Vec<String>,
    /// Monitoring ports, as `host:port`.
    pub monitors: Vec<String>,
    pub trust: Trust,
    pub store: NatsSettings,
}

impl ClusterConfig {
    pub fn new(raw: &Raw) -> Result<ClusterConfig> {
        let mut server = ServerConfig::new(raw)?;
        server.development = is_development(raw);
        let data_dir = server.data_dir.clone();
        let data_dir = data_dir.context("a node of a cluster keeps a copy of the data: leave --memory out")?;
        ensure!(
            server.accounts.len() == 1 && server.links.is_empty(),
            "a cluster serves one account: leave [[accounts]] and [[links]] out"
        );
        ensure!(
            server.host_suffix.is_none(),
            "nodes of a cluster have names of their own: leave host-suffix out and give each its --advertise"
        );
        let account = server.accounts[0].clone();
        ensure!(
            account.regions.len() == 1,
            "a cluster serves one region: name one with --region"
        );
        Ok(ClusterConfig {
            servers: ServersConfig::new(raw)?,
            times: times(raw)?,
            server,
            account,
            data_dir,
        })
    }
}

impl ServersConfig {
    pub fn new(raw: &Raw) -> Result<ServersConfig> {
        let urls = list(raw.text("nats"));
        ensure!(
            !urls.is_empty(),
            "a cluster needs NATS servers: name them with --nats nats://HOST:PORT,…"
        );
        let replicas: usize = raw.parse("replicas")?;
        ensure!(
            [1, 3, 5].contains(&replicas),
            "replicas must be 1, 3 or 5: servers that hold a copy of everything"
        );
        let monitors = list(raw.text("monitor"));
        let regions = list(raw.text("regions"));
        ensure!(
            regions.len() == 1,
            "a cluster serves one region: name one with --region"
        );
        Ok(ServersConfig {
            urls,
            monitors: monitors.iter().map(|monitor| host_and_port(monitor)).collect(),
            trust: match is_development(raw) {
                true => Trust::Development,
                false => Trust::Production,
            },
            store: NatsSettings {
                replicas,
                local: EmbeddedSettings::default(),
                ..NatsSettings::new(&region_name(&regions[0]))
            },
        })
    }
}

/// Unlike an emulator, a cluster is for production unless it is told otherwise.
fn is_development(raw: &Raw) -> bool {
    !raw.is_default("profile") && raw.text("profile") == "dev"
}

fn times(raw: &Raw) -> Result<Times> {
    let renew_ms: u64 = raw.parse("lease-renew-ms")?;
    let expiry_ms: u64 = raw.parse("lease-expiry-ms")?;
    let times = Times {
        renew: Duration::from_millis(renew_ms),
        expiry: Duration::from_millis(expiry_ms),
    };
    ensure!(
        renew_ms >= RENEW_MS_MIN,
        "lease-renew-ms must be {RENEW_MS_MIN} or more"
    );
    ensure!(
        times.expiry >= times.renew * RENEWALS_PER_LEASE_MIN,
        "lease-expiry-ms must be at least {RENEWALS_PER_LEASE_MIN} times lease-renew-ms"
    );
    Ok(times)
}

fn list(text: &str) -> Vec<String> {
    let parts = text.split(',').map(str::trim);
    parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// A monitoring port may be given as the URL under which people look at it.
fn host_and_port(monitor: &str) -> String {
    let plain = monitor.strip_prefix("http://").unwrap_or(monitor);
    plain.trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(flags: &[(&'static str, &str)]) -> Result<ClusterConfig> {
        let flags = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        ClusterConfig::new(&Raw::layered(None, Some(""), std::iter::empty(), flags)?)
    }

    fn refusal(flags: &[(&'static str, &str)]) -> String {
        config(flags).unwrap_err().to_string()
    }

    const NATS: (&str, &str) = ("nats", "nats://a:4222, nats://b:4222");

    #[test]
    fn servers_and_monitoring_ports_are_lists() {
        let config = config(&[NATS, ("monitor", "http://a:8222/,b:8222"), ("regions", "West US 2")]).unwrap();
        assert_eq!(config.servers.urls, ["nats://a:4222", "nats://b:4222"]);
        assert_eq!(config.servers.monitors, ["a:8222", "b:8222"]);
        assert_eq!(config.servers.store.name, "westus2");
        assert_eq!(config.servers.trust, Trust::Production);
    }

    #[test]
    fn what_a_cluster_cannot_do_is_refused_in_one_sentence() {
        assert!(refusal(&[]).contains("--nats"));
        assert!(refusal(&[NATS, ("memory", "true")]).contains("--memory"));
        assert!(refusal(&[NATS, ("regions", "A,B")]).contains("one region"));
        assert!(refusal(&[NATS, ("replicas", "2")]).contains("replicas"));
        assert!(refusal(&[NATS, ("lease-renew-ms", "2000"), ("lease-expiry-ms", "4000")]).contains("lease-expiry-ms"));
    }

    #[test]
    fn servers_that_do_not_sync_are_for_development_only() {
        let config = config(&[NATS, ("profile", "dev")]).unwrap();
        assert_eq!(config.servers.trust, Trust::Development);
    }
}
