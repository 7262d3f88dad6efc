//! How a node finds its place among several regions before it opens anything.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use orrery_gateway::account::Addresses;
use orrery_node::geo::topology::Topology;
use orrery_node::{Clock, Node, NodeSettings, SystemClock};
use orrery_partition::project::Projector;
use orrery_partition::storage::Store;
use orrery_storage::nats::Client;
use orrery_storage::nats::calls::{Answerer, Caller};
use orrery_storage::nats::mirrors::{Mirrors, Standing};
use orrery_storage::nats::roster::Roster;
use orrery_storage::nats::watchdog::Watchdog;
use orrery_storage::{NatsSettings, NatsStore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::far::Far;
use super::geography::Geography;
use super::handler::RegionalHandler;
use super::init::{check_domain, load};
use super::keep;
use super::office::{Office, STALL_MAX};
use super::progress;
use super::records::{GENERATION, TOPOLOGY, replaces, store_of};
use super::steward::Steward;
use crate::cluster::handler::ClusterHandler;
use crate::cluster::records::AccountRecord;
use crate::cluster::station::Station;
use crate::config::AccountConfig;

/// How soon to look again whether the account has arrived.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How long a node that starts waits until another region answers.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// What a node knows of its account's regions when it starts.
#[derive(Debug)]
pub struct Beginning {
    pub geography: Arc<Geography>,
    pub mirrors: Mirrors,
    /// The history that its copy must be of.
    pub generation: u64,
    /// Do the streams take messages, and is the region the one that writes?
    pub writes: bool,
}

/// Finds out about the regions. `None` when the cluster has no others.
pub async fn find(
    client: &Client,
    roster: &Roster,
    settings: &NatsSettings,
    account: &AccountConfig,
) -> Result<Option<Beginning>> {
    let Some(known) = load(roster).await? else {
        return Ok(None);
    };
    let region = account.regions[0].as_str();
    check_domain(client, region)?;
    let names: Vec<String> = known.present().map(|region| region.name.clone()).collect();
    if let Err(error) = account.staleness.check(names.len()) {
        bail!("max-staleness-prefix, max-staleness-interval-s: {}", error.message());
    }
    let far = Far::new(client.clone());
    let topology = latest(&far, roster, known, region).await?;
    check_promise(&far, &topology, account).await?;
    let own = topology.find(region);
    let name = own
        .with_context(|| format!("{region} is not one of the account's regions"))?
        .name
        .clone();
    let geography = Arc::new(Geography::new(&name, topology));
    let mirrors = Mirrors::new(client.clone(), settings)?;
    let standing = mirrors.standing().await?;
    ensure!(
        standing != Standing::Missing,
        "the streams of {region} are missing: run orrery cluster init for it"
    );
    let generation = roster.get(GENERATION).await?;
    let generation = generation.and_then(|entry| std::str::from_utf8(&entry.value).ok()?.parse().ok());
    Ok(Some(Beginning {
        writes: geography.is_writer() && standing == Standing::Own,
        geography,
        mirrors,
        generation: generation.unwrap_or(0),
    }))
}

/// A region that was away learns what the others have decided before it does anything. Links come up a moment after servers:
/// it waits until some other region answers, but not for ever.
async fn latest(far: &Far, roster: &Roster, known: Topology, region: &str) -> Result<Topology> {
    let mut latest = known.clone();
    let own = known.find(region);
    let others: Vec<&str> = known
        .present()
        .filter(|other| own != Some(other))
        .map(|other| other.name.as_str())
        .collect();
    let asked_at = Instant::now();
    let mut is_alone = !others.is_empty();
    while is_alone && asked_at.elapsed() < ANSWER_MAX {
        let heard = futures::future::join_all(others.iter().map(|other| far.hear(other))).await;
        for heard in heard.into_iter().flatten() {
            is_alone = false;
            let later = heard.topology.filter(|theirs| replaces(theirs, &latest));
            latest = later.unwrap_or(latest);
        }
        if is_alone {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
    if is_alone {
        tracing::warn!("no other region answers; this one goes on with what it knows");
    }
    if latest != known {
        // Another node of the region may be faster; what it writes is the same or later.
        let over = roster.get(TOPOLOGY).await?.map(|entry| entry.revision);
        roster.write(TOPOLOGY, Bytes::from(latest.to_text()), over).await;
    }
    Ok(latest)
}

/// Regions that promise different things keep none of it. One that cannot be asked is not in the way: it asks when it starts.
async fn check_promise(far: &Far, topology: &Topology, account: &AccountConfig) -> Result<()> {
    let own = AccountRecord::of(account);
    for region in topology
        .present()
        .filter(|region| store_of(&region.name) != store_of(&own.region))
    {
        let Ok(Some(theirs)) = far.account(&region.name).await else {
            continue;
        };
        ensure!(
            own.promises_as(&theirs),
            "{} serves the account {} with {}, and this node was told {} with {}",
            region.name,
            theirs.id,
            theirs.promise(),
            own.id,
            own.promise()
        );
    }
    Ok(())
}

/// What a node brings along when it joins the regions.
#[derive(Debug)]
pub struct Joining {
    pub station: Arc<Station>,
    pub store: Arc<NatsStore>,
    pub roster: Roster,
    pub client: Client,
    /// For requests that may be large.
    pub calls: Client,
    /// Of the node.
    pub id: String,
    pub endpoint: String,
    pub addresses: Addresses,
    pub end: CancellationToken,
}

impl Beginning {
    /// Begins to keep in step with the other regions.
    pub async fn join(self, joining: Joining, inner: ClusterHandler, tasks: &TaskTracker) -> Result<RegionalHandler> {
        let Joining { station, store, .. } = joining;
        let epoch = self.geography.topology().epoch;
        station.set_charge(self.writes.then_some(epoch));
        let subject = keep::subject(&store_of(&self.geography.name), &joining.id);
        let answerer = Answerer::listen(joining.calls.clone(), &subject).await?;
        let (node, ended) = (Arc::clone(&station.node), joining.end.clone());
        tasks.spawn(async move {
            tokio::select! {
                // Whoever is not answered asks again.
                () = ended.cancelled() => {}
                () = keep::serve(answerer, node) => {}
            }
        });
        let office = Arc::new(Office {
            geography: self.geography,
            station,
            store,
            mirrors: self.mirrors,
            roster: joining.roster,
            far: Far::new(joining.client),
            caller: Caller::new(joining.calls.clone()).await?,
            questions: inner.questions.clone(),
            abdicated: Mutex::default(),
            id: joining.id,
            endpoint: joining.endpoint,
            changing: tokio::sync::Mutex::default(),
            following: AtomicU32::default(),
            watchdog: Mutex::new(Watchdog::new(STALL_MAX)),
        });
        office.station.node.set_follows(!self.writes);
        if self.writes {
            office.begin_reign(epoch);
        }
        progress::begin(&office, &joining.calls, &joining.end, tasks).await?;
        let steward = Steward::new(Arc::clone(&office), joining.addresses, self.generation, joining.end);
        tasks.spawn(steward.run());
        Ok(RegionalHandler::new(inner, office))
    }

    /// Where the copy of this history is kept. Copies of earlier ones are removed.
    pub fn directory(&self, parent: &Path, store: &str) -> Result<PathBuf> {
        let name = |generation: u64| match generation {
            0 => store.to_owned(),
            later => format!("{store}-{later}"),
        };
        for earlier in (0..self.generation).map(|generation| parent.join(name(generation))) {
            if earlier.exists() {
                std::fs::remove_dir_all(&earlier).with_context(|| format!("cannot remove {}", earlier.display()))?;
            }
        }
        Ok(parent.join(name(self.generation)))
    }

    /// Opens the streams as what they are.
    pub async fn open_store(&self, client: Client, directory: &Path, settings: NatsSettings) -> Result<Arc<NatsStore>> {
        let project = Arc::new(Projector::default());
        Ok(match self.writes {
            true => NatsStore::open(client, directory, settings, project).await?,
            false => NatsStore::open_mirrored(client, directory, settings, project).await?,
        })
    }

    /// Opens the account in a region that follows, once it has arrived there.
    pub async fn follow(
        &self,
        settings: NodeSettings,
        store: &Arc<NatsStore>,
        clock: &Arc<SystemClock>,
    ) -> Result<Arc<Node>> {
        let (opened, clock) = (Arc::clone(store) as Arc<dyn Store>, Arc::clone(clock) as Arc<dyn Clock>);
        while !Node::is_founded(&*opened).await? {
            tokio::time::sleep(LOOK_AGAIN).await;
            // A mirror that is being filled says that it is behind.
            let _ = store.refresh().await;
        }
        Ok(Node::follow_among_regions(settings, opened, clock).await?)
    }
}
