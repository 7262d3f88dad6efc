//! The publishing platform in one process: the accounts that [`Host`] serves, and for each region its publishing service,
//! which is a client of those accounts like any other and would serve Azure accounts the same way.
//!
//! [`world`] shows and moves what only this process knows: links, roles, regions. [`outage`] fails accounts over that take no
//! changes. [`moves`] tells the roles when writes have moved. [`assets`] are the pages. [`demo`] makes content and users.
//! [`region`] serves one region on accounts that are elsewhere.

mod assets;
mod demo;
mod moves;
mod outage;
pub mod region;
mod world;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use orrery_platform::token::DevelopmentTokens;
use orrery_platform::{Platform, PlatformSettings, RegionUrl};
use orrery_publishing::database::PageRequest;
use orrery_publishing::fanout::FanoutSettings;
use orrery_publishing::processor::{InstanceName, LeaseTiming};
use orrery_publishing::topology::{AccountEntry, AccountKey, AccountTable};
use orrery_publishing::{AccountSettings, ContentPublishDatabase};
use ring::hmac;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::commands::serve::ready_line;
use crate::config::ServerConfig;
use crate::host::{AccountEndpoints, Host};
use crate::runtime::stop_signal;
use world::World;

/// From the first region's service to the second's; the ports in between are left to emulators.
const PORTS_BETWEEN: u16 = 10;

/// Somebody watches: after a failover the next region takes over within half a minute, also from one that could not let go. Whoever
/// waits for a lease looks often, so that whoever has it may renew it seldom.
const LEASES: LeaseTiming = LeaseTiming {
    acquire: Duration::from_secs(4),
    renew: Duration::from_secs(16),
    expiry: Duration::from_secs(26),
    lock: Duration::from_secs(30),
};

/// How often roles look at leases that nobody else can want: what matters of them is noticed when they are renewed.
const LOOK_WHEN_ALONE: Duration = Duration::from_secs(60);

/// How often roles ask where their accounts take writes, although they are told of moves.
const PLACE_EVERY: Duration = Duration::from_secs(300);

/// Connections within this process do not break unnoticed.
const KEEP_ALIVE: Duration = Duration::from_secs(600);

/// How long a new platform waits for its regions to hear of each other.
const START_MAX: Duration = Duration::from_secs(10);

/// What the platform is asked to do besides serving.
#[derive(Clone, Debug)]
pub struct UpSettings {
    /// Of the first region's service; 0 takes any free ones.
    pub port: u16,
    pub demo: bool,
    /// Made-up requests per second.
    pub traffic: f64,
}

/// Serves accounts and platform until the process is told to stop.
pub async fn run(config: &ServerConfig, settings: &UpSettings) -> Result<()> {
    // Bound before anything is opened, so that a taken port is known at once.
    let mut listeners = Vec::new();
    for at in 0..config.accounts.len() {
        listeners.push(bind(config.listen, service_port(settings.port, at)?)?);
    }
    let host = Host::open(config).await?;
    host.serve();
    let table = AccountTable::new(entries(&host.endpoints())?)?;
    let urls = urls(config, &table, &listeners)?;
    let account_settings = AccountSettings {
        outage: outage::policy(&config.outage, &host, &host.endpoints()),
        keep_alive: Some(KEEP_ALIVE),
        ..AccountSettings::default()
    };
    let databases = databases(&table, &account_settings).await?;
    let world = Arc::new(World::new(&host, &table, &urls));
    let (stopping, tasks) = (CancellationToken::new(), TaskTracker::new());
    let (moved, moves) = watch::channel(());
    let fleets = host.fleets().into_iter().map(|(fleet, _)| fleet).collect();
    tasks.spawn(moves::tell(fleets, moved, stopping.clone()));
    let platforms = platforms(config, databases.clone(), &urls, &world, &host.endpoints(), &moves)?;
    world.know(platforms.clone());
    for (platform, listeners) in platforms.into_iter().zip(listeners) {
        tasks.spawn(platform.serve(listeners, stopping.clone().cancelled_owned()));
    }
    if settings.demo {
        demo::load(&databases).await.context("cannot load the demo")?;
    }
    if settings.traffic > 0.0 {
        tasks.spawn(demo::traffic(databases, settings.traffic, stopping.clone()));
    }
    tasks.close();
    let stop = stop_signal()?;
    println!("{}", platform_line(&host, &urls));
    tell_people(&urls);
    stop.await;
    stopping.cancel();
    tasks.wait().await;
    // Its tasks hold the accounts.
    drop(world);
    host.stop().await
}

fn service_port(first: u16, at: usize) -> Result<u16> {
    let offset = if at == 0 { 0 } else { usize::from(PORTS_BETWEEN) + at };
    match first {
        0 => Ok(0),
        first => u16::try_from(usize::from(first) + offset).context("there are not so many ports"),
    }
}

fn bind(listen: Option<IpAddr>, port: u16) -> Result<Vec<TcpListener>> {
    let bound = match listen {
        None => orrery_gateway::bind_loopback(port),
        Some(address) => orrery_gateway::bind((address, port).into()).map(|listener| vec![listener]),
    };
    bound.with_context(|| format!("cannot listen on port {port}"))
}

/// The accounts as the platform's clients know them. Where an account takes its writes at home is where it was founded,
/// whoever takes them now.
fn entries(accounts: &[AccountEndpoints]) -> Result<Vec<AccountEntry>> {
    let tags = tags(accounts);
    let entry = |(account, tag): (&AccountEndpoints, String)| {
        let mut regions = account.regions.iter().map(|region| region.name.clone());
        Ok(AccountEntry {
            name: account.id.clone(),
            tag,
            endpoint: account.endpoint.clone(),
            key: AccountKey(account.key.clone()),
            write_region: regions.next().context("an account has no region")?,
            read_regions: regions.collect(),
        })
    };
    accounts.iter().zip(tags).map(entry).collect()
}

/// The last word of each account's name, or the whole name where that is not enough.
fn tags(accounts: &[AccountEndpoints]) -> Vec<String> {
    let last = |account: &AccountEndpoints| account.id.rsplit('-').next().unwrap_or_default().to_owned();
    let is_clear = |tag: &String| accounts.iter().filter(|account| last(account) == *tag).count() == 1;
    accounts
        .iter()
        .map(|account| {
            Some(last(account))
                .filter(is_clear)
                .unwrap_or_else(|| account.id.clone())
        })
        .collect()
}

fn urls(config: &ServerConfig, table: &AccountTable, listeners: &[Vec<TcpListener>]) -> Result<Vec<RegionUrl>> {
    let host = match config.listen.filter(|address| !address.is_unspecified()) {
        None => "localhost".to_owned(),
        Some(IpAddr::V6(address)) => format!("[{address}]"),
        Some(address) => address.to_string(),
    };
    let url = |(entry, listeners): (&AccountEntry, &Vec<TcpListener>)| {
        let port = listeners.first().context("no listener")?.local_addr()?.port();
        Ok(RegionUrl {
            region: entry.write_region.clone(),
            url: format!("http://{host}:{port}/"),
        })
    };
    table.accounts().iter().zip(listeners).map(url).collect()
}

/// The data access layer of every region, with what it needs in its account.
async fn databases(table: &AccountTable, settings: &AccountSettings) -> Result<Vec<ContentPublishDatabase>> {
    let mut databases = Vec::new();
    for entry in table.accounts() {
        let database = ContentPublishDatabase::new(table.clone(), &entry.write_region, settings)?;
        let prepared = database.prepare().await;
        prepared.with_context(|| format!("cannot prepare the account {}", entry.name))?;
        databases.push(database);
    }
    for database in &databases {
        wait_for_all(database).await;
    }
    Ok(databases)
}

/// Waits until every account answers a region: what was made in one region takes its time to the others. A region that does not
/// hear of it for long serves what it has.
async fn wait_for_all(database: &ContentPublishDatabase) {
    let known = async || {
        let page = database.read_reviews("none", &PageRequest::default()).await;
        page.is_ok_and(|page| page.missing.is_empty())
    };
    let all = async {
        while !known().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let _ = tokio::time::timeout(START_MAX, all).await;
}

fn platforms(
    config: &ServerConfig,
    databases: Vec<ContentPublishDatabase>,
    urls: &[RegionUrl],
    world: &Arc<World>,
    accounts: &[AccountEndpoints],
    moves: &watch::Receiver<()>,
) -> Result<Vec<Arc<Platform>>> {
    ensure!(
        config.development,
        "the platform gives out tokens for development only: run it with the dev profile"
    );
    let secret = token_secret(accounts)?;
    let started = tokio::time::Instant::now();
    let mut platforms = Vec::new();
    for database in databases {
        let settings = PlatformSettings {
            regions: urls.to_vec(),
            development: true,
            ..PlatformSettings::default()
        };
        let instance = InstanceName::new(format!("fanout-{}", database.local().tag()))?;
        let tokens = Arc::new(DevelopmentTokens::new(&secret));
        let roles = FanoutSettings {
            lease_timing: LEASES,
            look_when_alone: Some(LOOK_WHEN_ALONE),
            in_step_since: Some(started),
            place_every: PLACE_EVERY,
            moves: Some(moves.clone()),
            ..FanoutSettings::new(instance)
        };
        let platform = Platform::start(database, settings, roles, tokens)
            .with_assets(Arc::new(assets::WebApplication))
            .with_extension(Arc::clone(world) as Arc<dyn orrery_platform::Extension>);
        platforms.push(Arc::new(platform));
    }
    Ok(platforms)
}

/// The same in all regions and after a restart, and of no use for anything else.
fn token_secret(accounts: &[AccountEndpoints]) -> Result<Vec<u8>> {
    let first = accounts.first().context("there is no account")?;
    Ok(secret_of(&first.key))
}

fn secret_of(account_key: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, account_key.as_bytes());
    hmac::sign(&key, b"tokens of users").as_ref().to_vec()
}

fn platform_line(host: &Host, urls: &[RegionUrl]) -> serde_json::Value {
    let mut line = ready_line(host.endpoints());
    let regions: Vec<_> = urls
        .iter()
        .map(|known| serde_json::json!({"name": known.region, "url": known.url}))
        .collect();
    line["platform"] = serde_json::json!({"url": urls.first().map(|known| &known.url), "regions": regions});
    line
}

/// Where to click, for whoever reads the terminal.
fn tell_people(urls: &[RegionUrl]) {
    eprintln!();
    for known in urls {
        eprintln!("  {:<22} {}", known.region, known.url);
    }
    eprintln!("\n  Open one of these. Ctrl-C stops everything.\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(id: &str) -> AccountEndpoints {
        AccountEndpoints {
            id: id.to_owned(),
            key: String::new(),
            endpoint: String::new(),
            regions: Vec::new(),
        }
    }

    #[test]
    fn an_account_is_called_by_the_last_word_of_its_name_unless_two_share_it() {
        assert_eq!(
            tags(&[account("content-usa"), account("content-asia")]),
            ["usa", "asia"]
        );
        assert_eq!(tags(&[account("a-usa"), account("b-usa")]), ["a-usa", "b-usa"]);
    }

    #[test]
    fn services_keep_away_from_the_port_of_emulators() {
        let ports: Vec<u16> = (0..3).map(|at| service_port(8080, at).unwrap()).collect();
        assert_eq!(ports, [8080, 8091, 8092]);
        assert_eq!(service_port(0, 2).unwrap(), 0);
        assert!(service_port(65_535, 1).is_err());
    }
}
