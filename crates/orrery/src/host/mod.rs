//! Accounts served by this process: every region of every account with its node, and endpoints for all of them.
//!
//! [`Host::open`] binds the sockets first, so that a taken port is known at once, then opens the data; [`Host::serve`] lets
//! the sockets accept. The kept register of accounts says which regions an account has; settings only found accounts and
//! name further regions.

mod doors;
mod register;
mod sites;
mod stores;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
#[cfg(feature = "platform")]
use orrery_gateway::Pipeline;
use orrery_gateway::names::Directory;
use orrery_gateway::tls::{self, Authority};
use orrery_node::account::{Account, Secret};
use orrery_node::geo::fleet::{Fleet, RegionParts};
use orrery_node::geo::topology::Topology;
use orrery_node::{Clock, ConflictLimits, NodeSettings, SystemClock};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{AccountConfig, ServerConfig};
use doors::Doors;
pub use doors::{Door, Frame, serve_door};
pub use register::FILE as ACCOUNTS_FILE;
use register::Register;
use sites::AccountSites;
use stores::Stores;
pub use stores::directory_name as region_name;

/// How long requests and writers may take to finish when the server is told to stop.
pub const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// Everything that is served.
#[derive(Debug)]
pub struct Host {
    frame: Arc<Frame>,
    accounts: Vec<Served>,
}

#[derive(Debug)]
struct Served {
    id: String,
    key: Secret,
    fleet: Arc<Fleet>,
    doors: Arc<Doors>,
}

/// Where an account is found, as the ready line tells it.
#[derive(Clone, Debug, Serialize)]
pub struct AccountEndpoints {
    pub id: String,
    /// Its primary key, in base64.
    pub key: String,
    pub endpoint: String,
    pub regions: Vec<RegionEndpoint>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RegionEndpoint {
    pub name: String,
    pub endpoint: String,
    /// `write` or `read`.
    pub role: &'static str,
}

/// What the regions of one account have answered.
#[cfg(feature = "platform")]
#[derive(Clone, Debug)]
pub struct RegionTraffic {
    pipelines: Vec<(String, Arc<Pipeline>)>,
}

#[cfg(feature = "platform")]
impl RegionTraffic {
    /// Reads and writes of items since the start.
    pub fn of(&self, region: &str) -> (u64, u64) {
        let found = self.pipelines.iter().find(|(name, _)| name == region);
        found.map_or((0, 0), |(_, pipeline)| pipeline.metrics().item_requests())
    }
}

impl Host {
    /// Binds every endpoint and opens every account. Nothing is accepted yet.
    pub async fn open(config: &ServerConfig) -> Result<Host> {
        let clock = Arc::new(SystemClock::default());
        let register = Register::open(config.data_dir.as_deref())?;
        let ids: Vec<&str> = config.accounts.iter().map(|account| account.id.as_str()).collect();
        register.refuse_others(&ids)?;
        let mut founded = Vec::new();
        for account in &config.accounts {
            let topology = founding(account, register.topology(&account.id)?)?;
            let doors = Doors::bind(config, account, &topology)?;
            founded.push((account, topology, doors));
        }
        let frame = Arc::new(frame(config, Arc::clone(&clock))?);
        let stores = Arc::new(Stores::new(config.data_dir.clone(), config.caches.block_bytes));
        let n_nodes: usize = founded.iter().map(|(_, topology, _)| topology.present().count()).sum();
        let opening: Vec<_> = founded
            .iter()
            .map(|(account, topology, _)| (node_settings(config, account, n_nodes), topology.clone()))
            .collect();
        let fleets = open_whole(&opening, &register, &stores, &clock).await?;
        let mut accounts = Vec::new();
        for ((account, _, doors), fleet) in founded.into_iter().zip(fleets) {
            for link in &config.links {
                // An account that has not both ends has no such link.
                let _ = fleet.set_link(&link.from, &link.to, link.settings.clone());
            }
            fleet.set_managed_failover(account.failover_after);
            let doors = Arc::new(doors);
            fleet.settle(Arc::new(AccountSites {
                number: register.number(&account.id)?,
                stores: Arc::clone(&stores),
                clock: Arc::clone(&clock),
                frame: Arc::clone(&frame),
                doors: Arc::clone(&doors),
                fleet: Arc::downgrade(&fleet),
            }));
            accounts.push(Served {
                id: account.id.clone(),
                key: fleet.writer().keys().primary.clone(),
                fleet,
                doors,
            });
        }
        Ok(Host { frame, accounts })
    }

    /// Lets every endpoint accept.
    pub fn serve(&self) {
        for account in &self.accounts {
            account.doors.open(&self.frame, &account.fleet);
        }
    }

    /// The regions of the account that was named first.
    pub fn first_account(&self) -> Result<&Arc<Fleet>> {
        let first = self.accounts.first().context("there is no account")?;
        Ok(&first.fleet)
    }

    /// Every account's regions and what they have answered, in the order in which accounts were named. Complete once everything
    /// is served.
    #[cfg(feature = "platform")]
    pub fn fleets(&self) -> Vec<(Arc<Fleet>, RegionTraffic)> {
        self.accounts.iter().map(Served::fleet).collect()
    }

    /// Where everything is found, in the order in which accounts were named.
    pub fn endpoints(&self) -> Vec<AccountEndpoints> {
        self.accounts.iter().map(Served::endpoints).collect()
    }

    /// Finishes what is under way and closes the data.
    pub async fn stop(self) -> Result<()> {
        self.frame.stopping.cancel();
        self.frame.serving.close();
        self.frame.serving.wait().await;
        for account in &self.accounts {
            let stopped = account.fleet.stop(STOP_DEADLINE).await;
            stopped.with_context(|| format!("cannot close the account {}", account.id))?;
        }
        Ok(())
    }
}

impl Served {
    #[cfg(feature = "platform")]
    fn fleet(&self) -> (Arc<Fleet>, RegionTraffic) {
        let topology = self.fleet.topology();
        let of =
            |region: &orrery_node::geo::topology::Region| Some((region.name.clone(), self.doors.pipeline(region.id)?));
        let pipelines = topology.regions.iter().filter_map(of).collect();
        (Arc::clone(&self.fleet), RegionTraffic { pipelines })
    }

    fn endpoints(&self) -> AccountEndpoints {
        let topology = self.fleet.topology();
        let writer = topology.writer().id;
        // As they were added: the order of priority changes with every failover.
        let mut regions: Vec<_> = topology.present().collect();
        regions.sort_by_key(|region| region.id);
        let region = |region: &&orrery_node::geo::topology::Region| RegionEndpoint {
            name: region.name.clone(),
            endpoint: self.doors.region_url(region.id),
            role: if region.id == writer { "write" } else { "read" },
        };
        AccountEndpoints {
            id: self.id.clone(),
            key: STANDARD.encode(&self.key.0),
            endpoint: self.doors.global_url(),
            regions: regions.iter().map(region).collect(),
        }
    }
}

/// The regions an account has: as it is kept, with those that are named for the first time.
fn founding(account: &AccountConfig, kept: Option<Topology>) -> Result<Topology> {
    let topology = match kept {
        Some(kept) if account.regions_named => kept.grown_to(&account.regions)?,
        Some(kept) => kept,
        None => Topology::new(&account.regions)?,
    };
    ensure!(
        account.advertise.is_none() || topology.present().count() == 1,
        "advertise names one URL, and the account {} has several regions: leave it out",
        account.id
    );
    Ok(topology)
}

/// Opens every account. Stores that turn out to be damaged are set aside, if every account has the region's data elsewhere, and
/// everything is opened again: those regions are made anew.
async fn open_whole(
    opening: &[(NodeSettings, Topology)],
    register: &Arc<Register>,
    stores: &Stores,
    clock: &Arc<SystemClock>,
) -> Result<Vec<Arc<Fleet>>> {
    let mut aside = BTreeSet::new();
    loop {
        let mut fleets = Vec::new();
        let error = match open_all(opening, register, stores, clock, &mut fleets).await {
            Ok(()) => return Ok(fleets),
            Err(error) => error,
        };
        for fleet in fleets {
            if let Err(error) = fleet.stop(STOP_DEADLINE).await {
                tracing::debug!(%error, "an account that was opened beside a damaged one is closed");
            }
        }
        let damaged = stores.give_up().await?;
        // One that is damaged again at once is not to be helped.
        if damaged.is_empty() || damaged.keys().any(|name| aside.contains(name)) {
            return Err(error);
        }
        for (name, reason) in &damaged {
            tracing::error!(region = name, reason, "the data of a region is damaged");
        }
        if !register.note_damaged(&damaged.keys().cloned().collect())? {
            return Err(error);
        }
        for name in damaged.into_keys() {
            stores.set_aside(&name)?;
            aside.insert(name);
        }
    }
}

async fn open_all(
    opening: &[(NodeSettings, Topology)],
    register: &Arc<Register>,
    stores: &Stores,
    clock: &Arc<SystemClock>,
    fleets: &mut Vec<Arc<Fleet>>,
) -> Result<()> {
    for (settings, topology) in opening {
        let fleet = open_account(settings.clone(), topology, register, stores, clock)
            .await
            .with_context(|| format!("cannot open the account {}", settings.account.id))?;
        fleets.push(fleet);
    }
    Ok(())
}

async fn open_account(
    settings: NodeSettings,
    topology: &Topology,
    register: &Arc<Register>,
    stores: &Stores,
    clock: &Arc<SystemClock>,
) -> Result<Arc<Fleet>> {
    let id = settings.account.id.clone();
    let number = register.number(&id)?;
    let mut parts = Vec::new();
    for region in topology.present() {
        parts.push(RegionParts {
            name: region.name.clone(),
            store: stores.open(&region.name, number).await?,
            clock: Arc::clone(clock) as Arc<dyn Clock>,
        });
    }
    Ok(Fleet::start(settings, parts, register.keeper(&id)).await?)
}

pub fn frame(config: &ServerConfig, clock: Arc<SystemClock>) -> Result<Frame> {
    let (acceptor, ca_pem) = transport_security(config, Arc::clone(&clock) as Arc<dyn Clock>)?;
    Ok(Frame {
        settings: orrery_gateway::Settings {
            shutdown_deadline: STOP_DEADLINE,
            development: config.development,
            plain_http: config.plain_http,
            ..orrery_gateway::Settings::default()
        },
        acceptor,
        ca_pem: ca_pem.map(Into::into),
        names: config
            .host_suffix
            .clone()
            .map(|suffix| Arc::new(Directory::new(suffix))),
        clock,
        serving: TaskTracker::new(),
        stopping: CancellationToken::new(),
    })
}

type Secured = (tokio_rustls::TlsAcceptor, Option<String>);

fn transport_security(config: &ServerConfig, clock: Arc<dyn Clock>) -> Result<Secured> {
    if let Some((chain, key)) = &config.tls {
        let acceptor = tls::acceptor_from_files(chain, key).context("cannot use the given certificate")?;
        return Ok((acceptor, None));
    }
    let authority = match &config.data_dir {
        Some(directory) => Authority::in_directory(&directory.join("tls"), clock.now()),
        None => Authority::in_memory(clock.now()),
    };
    let authority = Arc::new(authority.context("cannot make a certificate authority")?);
    let pem = authority.pem().to_owned();
    let acceptor = tls::acceptor(authority, clock).context("cannot use the certificate authority")?;
    Ok((acceptor, Some(pem)))
}

pub fn node_settings(config: &ServerConfig, account: &AccountConfig, n_nodes: usize) -> NodeSettings {
    NodeSettings {
        account: Account {
            id: account.id.clone(),
            consistency: account.consistency,
            staleness: account.staleness,
            regions: account.regions.clone(),
        },
        primary_key: account.key.clone(),
        fresh_secret,
        partitions: config.partitions,
        enforce_throughput: config.enforce_throughput,
        logical_partition_bytes_max: config.logical_partition_bytes_max,
        cache_bytes: config.caches.hot_item_bytes / n_nodes.max(1),
        purge_interval: Duration::from_secs(1),
        query_time_max: Duration::from_secs(30),
        conflicts: ConflictLimits::default(),
        feed_entries_max: NodeSettings::FEED_ENTRIES_MAX,
    }
}

/// Bytes for a key that nobody chose.
pub fn fresh_secret() -> [u8; 64] {
    let mut secret = [0; 64];
    SystemRandom::new()
        .fill(&mut secret)
        .expect("the operating system gives random bytes");
    secret
}
