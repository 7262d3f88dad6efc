//! A node of a cluster on NATS JetStream: several processes serve one account, and each log is owned by one of them.
//!
//! [`settings`] says what is wanted; [`member`] holds leases, [`coordinating`] says who owns what, [`owning`] takes logs and gives
//! them up; [`station`] is what they tell the rest; [`handler`] executes requests ([`task`]) or passes them on, [`home`] brings logs
//! together for what needs that; [`records`] and [`questions`] are what nodes tell each other. [`regions`] joins several such
//! clusters. This module opens a node and closes it.

mod coordinating;
mod handler;
mod home;
mod member;
mod owning;
mod questions;
pub mod records;
pub mod regions;
pub mod settings;
mod station;
mod task;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery_gateway::account::Addresses;
use orrery_gateway::{Gateway, Handler, Parts, Pipeline};
use orrery_node::cluster::lease::{Step, Tenancy};
use orrery_node::{Clock, Node, NodeSettings, SystemClock};
use orrery_partition::project::Projector;
use orrery_partition::storage::Store;
use orrery_storage::nats::calls::{self, Answerer, Caller};
use orrery_storage::nats::roster::{Entry, Roster, Written};
use orrery_storage::nats::{Client, servers};
use orrery_storage::{EmbeddedSettings, NatsSettings, NatsStore, ViewCache};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::AccountConfig;
use crate::host::{
    ACCOUNTS_FILE, AccountEndpoints, Door, Frame, RegionEndpoint, STOP_DEADLINE, frame, fresh_secret, node_settings,
    serve_door,
};
use handler::ClusterHandler;
use member::Member;
use questions::Questions;
use records::{ACCOUNT, AccountRecord, LEASE, NodeRecord};
use regions::{Beginning, Geography, Joining, Mode};
use settings::{ClusterConfig, ServersConfig};
use station::Station;

/// Requests of other nodes that are executed at a time.
const RELAYED_MAX: usize = 1024;
/// How soon to look again while another node founds the account.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long a request waits for an owner besides the time in which a lease expires: opening everything takes a while.
const OPENING: Duration = Duration::from_secs(10);
/// How long a node that starts waits for servers that have just been started.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// One try to read or write the lease; shorter than most leases, so that there are several.
const ROSTER_TIMEOUT: Duration = Duration::from_secs(2);

/// A node that is served, or about to be.
pub struct ClusterNode {
    account: AccountConfig,
    endpoint: String,
    station: Arc<Station>,
    frame: Frame,
    pipeline: Arc<Pipeline>,
    door: Door,
    membership: TaskTracker,
    leave: CancellationToken,
    end: CancellationToken,
    answering: TaskTracker,
    drain: CancellationToken,
    /// Where the account has several regions.
    geography: Option<Arc<Geography>>,
}

/// Connects to the servers and refuses those that are not fit.
pub async fn connect(config: &ServersConfig) -> Result<Client> {
    let client = calls::connect(&config.urls).await?;
    servers::check_all(&client, &config.monitors, config.trust).await?;
    Ok(client)
}

/// The bucket in which the nodes of a store find each other.
pub async fn roster(client: &Client, settings: &NatsSettings, timeout: Duration) -> Result<Roster> {
    Ok(Roster::open(client.clone(), settings, timeout).await?)
}

impl ClusterNode {
    /// Opens everything and joins the cluster. Nothing is accepted yet.
    pub async fn open(config: &ClusterConfig) -> Result<ClusterNode> {
        let clock = Arc::new(SystemClock::default());
        let door = Door::bind(&config.server, config.account.port)?;
        let endpoint = config.account.advertise.clone().unwrap_or_else(|| door.url());
        let client = connect(&config.servers).await?;
        let timeout = ROSTER_TIMEOUT.min(config.times.expiry / 4);
        let roster = roster(&client, &config.servers.store, timeout).await?;
        let beginning = find_regions(&client, &roster, config).await?;
        agree(&roster, &config.account).await?;
        let store = open_store(config, client.clone(), beginning.as_ref()).await?;
        let settings = node_settings(&config.server, &config.account, 1);
        let name = node_name();
        let node = match &beginning {
            Some(beginning) if !beginning.writes => beginning.follow(settings, &store, &clock).await?,
            _ => {
                found_account(&settings, &store, &clock, &roster, &name, config).await?;
                let (store, clock) = (
                    Arc::clone(&store) as Arc<dyn Store>,
                    Arc::clone(&clock) as Arc<dyn Clock>,
                );
                match &beginning {
                    Some(_) => Node::follow_among_regions(settings, store, clock).await?,
                    None => Node::follow(settings, store, clock).await?,
                }
            }
        };
        let station = Arc::new(Station::new(node, &name, config.times.expiry * 2));
        let frame = frame(&config.server, Arc::clone(&clock))?;
        // Apart from the logs: a large answer must not hold them up.
        let calls = calls::connect(&config.servers.urls).await?;
        let subjects = format!("orrery.{}.call", config.servers.store.name);
        let caller = Arc::new(Caller::new(calls.clone()).await?);
        let questions = Questions::new(Arc::clone(&caller), &config.servers.store.name);
        let hold = config.times.expiry + OPENING;
        let handler = ClusterHandler::new(Arc::clone(&station), caller, questions.clone(), subjects.clone(), hold);
        let (addresses, end) = (Addresses::default(), CancellationToken::new());
        let membership = TaskTracker::new();
        let mut geography = None;
        let handler: Arc<dyn Handler> = match beginning {
            None => Arc::new(handler),
            Some(beginning) => {
                geography = Some(Arc::clone(&beginning.geography));
                let joining = Joining {
                    station: Arc::clone(&station),
                    store: Arc::clone(&store),
                    roster: roster.clone(),
                    client,
                    calls: calls.clone(),
                    id: name.clone(),
                    endpoint: endpoint.clone(),
                    addresses: addresses.clone(),
                    end: end.clone(),
                };
                Arc::new(beginning.join(joining, handler, &membership).await?)
            }
        };
        let mut parts = Parts::new(handler, frame.settings.clone());
        parts.ca_pem = frame.ca_pem.clone();
        parts.addresses = addresses;
        if let Some(url) = &config.account.advertise {
            let address = orrery_gateway::account::Address::Url(url.clone());
            parts.addresses.set(&config.account.regions[0], address);
        }
        let opened = ClusterNode {
            account: config.account.clone(),
            endpoint: endpoint.clone(),
            frame,
            pipeline: Arc::new(Pipeline::new(parts)),
            door,
            membership,
            leave: CancellationToken::new(),
            end,
            geography,
            answering: TaskTracker::new(),
            drain: CancellationToken::new(),
            station: Arc::clone(&station),
        };
        let answerer = Answerer::listen(calls.clone(), &format!("{subjects}.{name}")).await?;
        let pipeline = Arc::clone(&opened.pipeline);
        opened.answering.spawn(answer(answerer, pipeline, opened.drain.clone()));
        let asked = questions::subject(&config.servers.store.name, &name);
        let answerer = Answerer::listen(calls, &asked).await?;
        let answering = questions::answer_all(answerer, questions, Arc::clone(&station), opened.drain.clone());
        opened.answering.spawn(answering);
        opened.answering.close();
        let member = Member {
            station,
            store,
            roster,
            record: NodeRecord {
                id: name,
                endpoint,
                pid: std::process::id(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                role: String::new(),
                logs: Default::default(),
            },
            times: config.times,
            leave: opened.leave.clone(),
            end: opened.end.clone(),
        };
        opened.membership.spawn(member.run());
        opened.membership.close();
        Ok(opened)
    }

    /// Waits until somebody coordinates, unless another region takes writes.
    pub async fn ready(&self) {
        if let Some(geography) = &self.geography
            && geography.mode() != Mode::Writes
        {
            return;
        }
        let mut routes = self.station.watch();
        // The sender lives in the station.
        let _ = routes.wait_for(|routes| routes.coordinator.is_some()).await;
    }

    /// Lets the endpoint accept.
    pub fn serve(&mut self) {
        let gateway = Gateway::new(Arc::clone(&self.pipeline), Some(self.frame.acceptor.clone()));
        serve_door(&self.frame, &mut self.door, gateway);
    }

    pub fn endpoints(&self) -> AccountEndpoints {
        AccountEndpoints {
            id: self.account.id.clone(),
            key: STANDARD.encode(&self.station.node.keys().primary.0),
            endpoint: self.endpoint.clone(),
            regions: vec![RegionEndpoint {
                name: self.account.regions[0].clone(),
                endpoint: self.endpoint.clone(),
                role: match &self.geography {
                    Some(geography) if !geography.is_writer() => "read",
                    _ => "write",
                },
            }],
        }
    }

    /// Hands over, passes on what still comes, and closes.
    pub async fn stop(self) -> Result<()> {
        self.leave.cancel();
        self.frame.stopping.cancel();
        self.frame.serving.close();
        self.frame.serving.wait().await;
        self.end.cancel();
        // Without servers there is nobody to hand over to, and nobody to answer: then all of this takes as long as it may.
        let left = tokio::time::timeout(STOP_DEADLINE, self.membership.wait()).await;
        // Only now: who passes requests on has learned by then where to.
        self.drain.cancel();
        let answered = tokio::time::timeout(STOP_DEADLINE, self.answering.wait()).await;
        if left.is_err() || answered.is_err() {
            tracing::warn!("this node left without saying so; another takes over when its lease expires");
        }
        let stopped = self.station.node.stop(STOP_DEADLINE).await;
        stopped.context("cannot close the node's copy")
    }
}

/// Answers what other nodes pass on, until it is told to take no more and has answered what was on its way.
async fn answer(mut answerer: Answerer, pipeline: Arc<Pipeline>, drain: CancellationToken) {
    let places = Arc::new(Semaphore::new(RELAYED_MAX));
    let tasks = TaskTracker::new();
    let mut draining = false;
    loop {
        let call = tokio::select! {
            // Both are safe to drop: a request that was not taken stays in the subscription.
            call = answerer.next() => call,
            () = drain.cancelled(), if !draining => {
                draining = true;
                answerer.drain().await;
                continue;
            }
        };
        let Some(call) = call else { break };
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            break;
        };
        let pipeline = Arc::clone(&pipeline);
        tasks.spawn(async move {
            let _place = place;
            let answer = pipeline.answer_relayed(call.request.clone()).await;
            call.answer(answer).await;
        });
    }
    tasks.close();
    // Nothing waits for an owner here; what takes long is a reader who waits for changes.
    let _ = tokio::time::timeout(STOP_DEADLINE, tasks.wait()).await;
    answerer.flush().await;
}

/// All nodes of a cluster must say the same of the account.
async fn agree(roster: &Roster, account: &AccountConfig) -> Result<()> {
    let own = AccountRecord::of(account);
    let deadline = Instant::now() + START_PATIENCE;
    loop {
        if let Some(entry) = read_patiently(roster, ACCOUNT).await? {
            let found: AccountRecord =
                serde_json::from_slice(&entry.value).context("the cluster's account cannot be understood")?;
            ensure!(
                found == own,
                "the cluster serves the account {} in {} with {}, and this node was told {} in {} with {}",
                found.id,
                found.region,
                found.promise(),
                own.id,
                own.region,
                own.promise()
            );
            return Ok(());
        }
        let written = roster.write(ACCOUNT, records::to_bytes(&own), None).await;
        if matches!(written, Written::Unsure) && Instant::now() >= deadline {
            bail!("the cluster's bucket cannot be written; are enough NATS servers up?");
        }
    }
}

/// A record, asked for again while the servers do not answer: where they have just been started, streams are still electing
/// their leaders.
async fn read_patiently(roster: &Roster, key: &str) -> Result<Option<Entry>> {
    let deadline = Instant::now() + START_PATIENCE;
    loop {
        match roster.get(key).await {
            Err(error) if Instant::now() < deadline => {
                tracing::debug!(%error, key, "the servers are asked again");
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            found => return Ok(found?),
        }
    }
}

/// What there is to know of other regions, if the account has any.
async fn find_regions(client: &Client, roster: &Roster, config: &ClusterConfig) -> Result<Option<Beginning>> {
    let account = &config.account;
    regions::find(client, roster, &config.servers.store, account).await
}

async fn open_store(config: &ClusterConfig, client: Client, beginning: Option<&Beginning>) -> Result<Arc<NatsStore>> {
    ensure!(
        !config.data_dir.join(ACCOUNTS_FILE).exists(),
        "{} holds the data of an emulator: name another directory, and move the data with orrery export and import",
        config.data_dir.display()
    );
    let (parent, name) = (config.data_dir.join("cluster"), &config.servers.store.name);
    let directory = match beginning {
        Some(beginning) => beginning.directory(&parent, name)?,
        None => parent.join(name),
    };
    std::fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let settings = NatsSettings {
        local: EmbeddedSettings {
            cache: ViewCache::new(config.server.caches.block_bytes),
            ..EmbeddedSettings::default()
        },
        ..config.servers.store.clone()
    };
    let opened = match beginning {
        Some(beginning) => beginning.open_store(client, &directory, settings).await,
        None => NatsStore::open(client, &directory, settings, Arc::new(Projector::default()))
            .await
            .map_err(Into::into),
    };
    opened.with_context(|| format!("cannot open the logs of {}", config.account.regions[0]))
}

/// Makes the account if there is none and no other node does.
async fn found_account(
    settings: &NodeSettings,
    store: &Arc<NatsStore>,
    clock: &Arc<SystemClock>,
    roster: &Roster,
    name: &str,
    config: &ClusterConfig,
) -> Result<()> {
    let started = Instant::now();
    let mut tenancy = Tenancy::new(name, config.times);
    let (store_, clock_) = (Arc::clone(store) as Arc<dyn Store>, Arc::clone(clock) as Arc<dyn Clock>);
    while !Node::is_founded(&*store_).await? {
        let now = started.elapsed();
        let found = read_patiently(roster, LEASE).await?;
        let lease = found.and_then(|entry| Some((records::lease_from_bytes(&entry.value)?, entry.revision)));
        tenancy.observe(lease, now);
        if let Step::Write { lease, over } = tenancy.next(now)
            && let Written::Stored(revision) = roster.write(LEASE, records::lease_to_bytes(&lease), over).await
        {
            tenancy.wrote(lease, revision, now);
            Node::found(settings.clone(), Arc::clone(&store_), Arc::clone(&clock_)).await?;
            break;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        store.refresh().await?;
    }
    if let Some((lease, over)) = tenancy.release() {
        // Whoever comes first takes it; if this is lost, it expires.
        roster.write(LEASE, records::lease_to_bytes(&lease), Some(over)).await;
    }
    Ok(())
}

/// A name that no other node has, and no earlier life of this one.
fn node_name() -> String {
    let secret = fresh_secret();
    secret[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}
