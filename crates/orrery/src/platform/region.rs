//! The service of one region on accounts that this process does not host: those of Azure, or of other processes. What `orrery up`
//! does for all regions at once, without a world to show.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use orrery_platform::token::DevelopmentTokens;
use orrery_platform::{Platform, PlatformSettings, RegionUrl};
use orrery_publishing::fanout::FanoutSettings;
use orrery_publishing::processor::InstanceName;
use orrery_publishing::topology::{AccountEntry, AccountTable};
use orrery_publishing::{AccountSettings, ContentPublishDatabase};
use serde::Deserialize;

use super::assets::WebApplication;
use super::{bind, secret_of};
use crate::runtime::stop_signal;

/// Shorter secrets can be guessed.
const SECRET_BYTES_MIN: usize = 32;

/// How a region's service runs.
#[derive(Clone, Debug)]
pub struct RegionSettings {
    pub region: String,
    pub listen: Option<IpAddr>,
    pub port: u16,
    /// Anybody may ask for a token of any user.
    pub development: bool,
    /// Signs the tokens of users; the same in all regions.
    pub token_secret: Option<String>,
    /// Name of this process among those that share the region's fan-out.
    pub instance: Option<String>,
    /// Databases and containers that are missing are made.
    pub prepare: bool,
}

/// The accounts, and where the services of other regions are.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct AccountsFile {
    accounts: Vec<AccountEntry>,
    #[serde(default)]
    services: Vec<ServiceEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ServiceEntry {
    region: String,
    url: String,
}

impl AccountsFile {
    fn read(path: &Path) -> Result<AccountsFile> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        // Without the line itself, which may hold a key.
        let parsed = toml::from_str(&text).map_err(|error: toml::de::Error| anyhow::anyhow!("{}", error.message()));
        parsed.with_context(|| format!("cannot understand {}", path.display()))
    }
}

/// Serves until the process is told to stop.
pub async fn run(accounts: &Path, settings: &RegionSettings) -> Result<()> {
    let listeners = bind(settings.listen, settings.port)?;
    let file = AccountsFile::read(accounts)?;
    let table = AccountTable::new(file.accounts)?;
    let tokens = DevelopmentTokens::new(&secret(settings, &table)?);
    let database = ContentPublishDatabase::new(table, &settings.region, &AccountSettings::default())?;
    if settings.prepare {
        let prepared = database.prepare().await;
        prepared.with_context(|| format!("cannot prepare the account {}", database.local().entry().name))?;
    }
    let instance = match &settings.instance {
        Some(name) => InstanceName::new(name.clone())?,
        None => InstanceName::auto(),
    };
    let address = listeners.first().context("no listener")?.local_addr()?;
    let own_url = format!("http://localhost:{}/", address.port());
    let mut regions: Vec<RegionUrl> = file.services.into_iter().map(ServiceEntry::known).collect();
    let is_named = regions.iter().any(|known| known.region == database.region());
    if !is_named {
        regions.push(RegionUrl {
            region: database.region().to_owned(),
            url: own_url,
        });
    }
    let shown = line(&regions, database.region());
    let platform_settings = PlatformSettings {
        regions,
        development: settings.development,
        ..PlatformSettings::default()
    };
    let roles = FanoutSettings::new(instance);
    let platform = Platform::start(database, platform_settings, roles, Arc::new(tokens));
    let platform = Arc::new(platform.with_assets(Arc::new(WebApplication)));
    let stop = stop_signal()?;
    println!("{shown}");
    platform.serve(listeners, stop).await;
    Ok(())
}

impl ServiceEntry {
    fn known(self) -> RegionUrl {
        RegionUrl {
            region: self.region,
            url: self.url,
        }
    }
}

/// What tokens are signed with: given, or in development made of the first account's key, as all regions can.
fn secret(settings: &RegionSettings, table: &AccountTable) -> Result<Vec<u8>> {
    match (&settings.token_secret, table.accounts().first()) {
        (Some(secret), _) => {
            ensure!(
                secret.len() >= SECRET_BYTES_MIN,
                "the secret of tokens has {SECRET_BYTES_MIN} bytes at least"
            );
            Ok(secret.as_bytes().to_vec())
        }
        (None, Some(first)) if settings.development => Ok(secret_of(&first.key.0)),
        _ => anyhow::bail!(
            "tokens need a secret: set ORRERY_TOKEN_SECRET to the same in all regions, or use --development"
        ),
    }
}

fn line(regions: &[RegionUrl], own: &str) -> serde_json::Value {
    let url = regions.iter().find(|known| known.region == own).map(|known| &known.url);
    let regions: Vec<_> = regions
        .iter()
        .map(|known| serde_json::json!({"name": known.region, "url": known.url}))
        .collect();
    serde_json::json!({
        "event": "ready",
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "platform": {"url": url, "regions": regions},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> AccountTable {
        let file: AccountsFile = toml::from_str(
            r#"
            [[accounts]]
            name = "contentpubdatabase-usa"
            tag = "usa"
            endpoint = "https://contentpubdatabase-usa.documents.azure.com/"
            key = "c2VjcmV0"
            write-region = "West US"
            "#,
        )
        .unwrap();
        AccountTable::new(file.accounts).unwrap()
    }

    fn settings(development: bool, token_secret: Option<&str>) -> RegionSettings {
        RegionSettings {
            region: "West US".to_owned(),
            listen: None,
            port: 0,
            development,
            token_secret: token_secret.map(str::to_owned),
            instance: None,
            prepare: true,
        }
    }

    #[test]
    fn tokens_of_real_users_need_a_secret_that_cannot_be_guessed() {
        let long = "a secret that is long enough to be one";
        assert!(secret(&settings(false, None), &table()).is_err());
        assert!(secret(&settings(false, Some("short")), &table()).is_err());
        assert_eq!(secret(&settings(false, Some(long)), &table()).unwrap(), long.as_bytes());
        assert!(secret(&settings(true, None), &table()).is_ok());
    }
}
