//! A store whose logs NATS JetStream keeps: replicated by its servers, shared by every node that opens them.
//!
//! Each log is a subject in one of a few streams. An append is one message; the servers' acknowledgement makes it durable,
//! then it goes into this node's own copy, an embedded store that holds the view and the recent log, then `head` moves, then
//! the caller hears of it. A node that lost its directory makes the copy anew from a saved snapshot and the messages behind
//! it. Formats are in `docs/formats/nats.md`.
//!
//! **How an old owner is fenced.** Whoever opens a log to own it adds a message that says so, and every message is stored
//! only if the log still ends with the one its writer saw last. The leader of the stream checks that as it takes the message,
//! for one message of a log at a time. So between a new owner's claim and an old owner's append one comes first: if the
//! append does, the claim is refused, the new owner reads the append and claims again; if the claim does, the append is
//! refused, however long its writer stood still and whatever clocks say, and the old owner reads the claim and knows. A
//! claim names the open store that made it, so even a process that comes back with its old epoch is another owner.
//! [`Log::barrier`] proves ownership by a write under the same condition, not by a read: a leader that was deposed without
//! knowing can answer reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::BuildHasher as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::jetstream::object_store::ObjectStore;
use futures::StreamExt as _;
use orrery_model::{Epoch, LogId, Position};
use orrery_partition::storage::{
    BoxFuture, Health, Log, LogInfo, Mark, Project, Result, Role, Seed, StorageError, Store, StoreStats,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::embedded::EmbeddedStore;
use crate::fence::Claim;

use bus::Bus;
use following::Line;
use log::NatsLog;
use message::{Change, Owner, Standing};
use publish::Outcome;
use seed::NatsSeed;
use tail::{Known, Tail};

pub mod calls;
pub mod mirrors;
pub mod roster;
pub mod servers;
pub mod streams;
pub mod watchdog;

mod settings;

mod bus;
mod lane;
mod message;
mod patience;
mod publish;

mod following;
mod local;
mod tail;

mod log;
mod saved;
mod seed;
mod spool;

pub use async_nats::Client;
pub use following::Following;
pub use settings::NatsSettings;

const LOCAL_DIR: &str = "copy";
const SPOOL_DIR: &str = "spool";
/// Logs caught up with at once when a store is opened.
const CATCH_UP_AT_ONCE: usize = 32;
/// Times another's message may come first before we give up.
const CONFLICTS_MAX: usize = 100;

/// A store on JetStream.
#[derive(Debug)]
pub struct NatsStore {
    shared: Arc<Shared>,
}

/// What the store, its logs and its tasks share.
struct Shared {
    bus: Bus,
    objects: ObjectStore,
    local: Arc<EmbeddedStore>,
    project: Arc<dyn Project>,
    settings: NatsSettings,
    spool_dir: PathBuf,
    /// Tells this open store from every other.
    instance: u64,
    /// Are the streams mirrors of another region's? Then nothing is added to them, and they may be behind what is known.
    mirrored: AtomicBool,
    tails: Mutex<BTreeMap<LogId, Arc<Tail>>>,
    /// Logs that this store owns. Whoever follows the others is told also when there is another log.
    owned: watch::Sender<BTreeSet<LogId>>,
    /// What is followed of each stream, once it is.
    lines: watch::Sender<BTreeMap<u64, Line>>,
    seeding: Mutex<BTreeSet<LogId>>,
    /// Counts what has been taken in of what others added.
    arrivals: watch::Sender<u64>,
    tasks: TaskTracker,
    /// Cancelled when the store is closed.
    closing: CancellationToken,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("name", &self.settings.name)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

impl NatsStore {
    /// Opens the store that the servers keep under the settings' name, making it when there is none, and brings the copy in
    /// this directory up to it.
    pub async fn open(
        client: Client,
        dir: &Path,
        settings: NatsSettings,
        project: Arc<dyn Project>,
    ) -> Result<Arc<NatsStore>> {
        settings.check()?;
        let bus = Bus::open(client, &settings).await?;
        let objects = bus.saved(settings.replicas).await?;
        NatsStore::open_on(bus, objects, dir, settings, project, false).await
    }

    /// Opens a store whose streams are mirrors of another region's and exist already. Its logs can be followed, not owned.
    pub async fn open_mirrored(
        client: Client,
        dir: &Path,
        settings: NatsSettings,
        project: Arc<dyn Project>,
    ) -> Result<Arc<NatsStore>> {
        settings.check()?;
        let bus = Bus::find(client, &settings).await?;
        let objects = bus.find_saved().await?;
        NatsStore::open_on(bus, objects, dir, settings, project, true).await
    }

    async fn open_on(
        bus: Bus,
        objects: ObjectStore,
        dir: &Path,
        settings: NatsSettings,
        project: Arc<dyn Project>,
        mirrored: bool,
    ) -> Result<Arc<NatsStore>> {
        let spool_dir = dir.join(SPOOL_DIR);
        let local = open_local(dir, &spool_dir, &settings, &project).await?;
        let shared = Arc::new(Shared {
            bus,
            objects,
            local,
            project,
            settings,
            spool_dir,
            instance: nonce(),
            mirrored: AtomicBool::new(mirrored),
            tails: Mutex::default(),
            owned: watch::Sender::default(),
            lines: watch::Sender::default(),
            seeding: Mutex::default(),
            arrivals: watch::Sender::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
        });
        match shared.catch_up_all().await {
            // A mirror that is still being filled is followed from wherever it stands.
            Err(StorageError::Unavailable(why)) if mirrored => tracing::info!(why, "the mirrors are not complete"),
            caught_up => caught_up?,
        }
        Ok(Arc::new(NatsStore { shared }))
    }

    /// Says whether the streams are mirrors from now on. Whoever calls this has changed them, or is about to.
    pub fn set_mirrored(&self, mirrored: bool) {
        self.shared.mirrored.store(mirrored, Ordering::Release);
    }

    pub fn is_mirrored(&self) -> bool {
        self.shared.is_mirrored()
    }

    /// Changes whenever something has been taken in that others added.
    pub fn arrivals(&self) -> watch::Receiver<u64> {
        self.shared.arrivals.subscribe()
    }

    /// Gives up this node's copy of every log and takes in what the streams hold now: they tell another history.
    pub async fn start_anew(&self) -> Result<()> {
        let shared = self.shared.clone();
        self.shared.complete(async move { shared.start_anew().await }).await
    }

    /// Takes in what other nodes have added to any log since, and learns of logs they have made or dropped.
    pub async fn refresh(&self) -> Result<()> {
        self.shared.catch_up_all().await
    }

    /// Flushes the view of this node, so that everything acknowledged before the call is in its tables.
    pub async fn checkpoint(&self) -> Result<()> {
        self.shared.local.checkpoint().await
    }

    /// Saves a snapshot of a log's view to the servers and trims their log behind it. A store does so by itself as logs
    /// grow.
    pub async fn save(&self, log: LogId) -> Result<()> {
        let shared = self.shared.clone();
        self.shared
            .complete(async move {
                let tail = shared.tail(log).await?;
                shared.save(&tail).await
            })
            .await
    }
}

async fn open_local(
    dir: &Path,
    spool_dir: &Path,
    settings: &NatsSettings,
    project: &Arc<dyn Project>,
) -> Result<Arc<EmbeddedStore>> {
    let (copy_dir, spool_dir) = (dir.join(LOCAL_DIR), spool_dir.to_owned());
    let (settings, project) = (settings.local.clone(), project.clone());
    let opened = tokio::task::spawn_blocking(move || {
        let local = local::open(&copy_dir, &settings, &project)?;
        // What an earlier process left half way. The copy's lock makes sure that it is gone.
        let emptied = match std::fs::remove_dir_all(&spool_dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => std::fs::create_dir_all(&spool_dir),
        };
        emptied.map_err(|error| bus::cannot("make the store's directory", &error))?;
        Ok(local)
    });
    opened
        .await
        .unwrap_or_else(|_| Err(StorageError::Unavailable("opening the store was cut off".into())))
}

/// A number that nobody else has, for all we will ever notice.
fn nonce() -> u64 {
    std::hash::RandomState::new().hash_one(std::process::id())
}

impl Shared {
    fn check_open(&self) -> Result<()> {
        match self.closing.is_cancelled() {
            true => Err(StorageError::Unavailable("the store is closed".into())),
            false => Ok(()),
        }
    }

    fn is_mirrored(&self) -> bool {
        self.mirrored.load(Ordering::Acquire)
    }

    /// Refuses to add anything to streams that are mirrors.
    fn check_writable(&self) -> Result<()> {
        match self.is_mirrored() {
            true => Err(StorageError::Unavailable("another region writes these logs".into())),
            false => Ok(()),
        }
    }

    async fn start_anew(self: &Arc<Self>) -> Result<()> {
        for info in self.local.list()? {
            let tail = self.tail(info.log).await?;
            let mut known = tail.known.lock().await;
            self.local.drop_log(info.log).await?;
            tail.forget(&mut known);
        }
        self.catch_up_all().await
    }

    /// Runs work to its end, also when whoever waits for it goes away.
    async fn complete<T: Send + 'static>(&self, work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
        self.check_open()?;
        let done = self.tasks.spawn(work).await;
        done.unwrap_or_else(|_| Err(StorageError::Unknown("the store ended before it answered".into())))
    }

    async fn tail(&self, log: LogId) -> Result<Arc<Tail>> {
        if let Some(known) = self.tails().get(&log) {
            return Ok(known.clone());
        }
        let made = Arc::new(Tail::new(self.bus.lane(log).await?));
        Ok(self.tails().entry(log).or_insert(made).clone())
    }

    fn tails(&self) -> MutexGuard<'_, BTreeMap<LogId, Arc<Tail>>> {
        self.tails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seeding(&self) -> MutexGuard<'_, BTreeSet<LogId>> {
        self.seeding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_not_seeding(&self, log: LogId) -> Result<()> {
        match self.seeding().contains(&log) {
            true => Err(StorageError::Unavailable(format!("log {log} is being seeded"))),
            false => Ok(()),
        }
    }

    /// Brings the copy of every log up to the streams.
    async fn catch_up_all(self: &Arc<Self>) -> Result<()> {
        for idx in 0..self.bus.n_streams() {
            self.catch_up_stream(idx).await?;
        }
        Ok(())
    }

    /// Brings the copy of every log of one stream up to it.
    async fn catch_up_stream(self: &Arc<Self>, idx: u64) -> Result<()> {
        let mut logs: BTreeSet<LogId> = self.bus.logs(idx).await?.into_iter().collect();
        let held = self.local.list()?.into_iter().map(|info| info.log);
        logs.extend(held.filter(|log| self.bus.stream_of(*log) == idx));
        self.catch_up_logs(logs).await
    }

    /// Brings the copies of these logs up to the streams.
    async fn catch_up_logs(self: &Arc<Self>, logs: impl IntoIterator<Item = LogId>) -> Result<()> {
        let caught_up = futures::stream::iter(logs.into_iter().map(|log| {
            let shared = self.clone();
            // A log half taken in must not be left so when whoever waits goes away.
            async move { self.complete(async move { shared.catch_up(log).await }).await }
        }));
        let mut caught_up = caught_up.buffer_unordered(CATCH_UP_AT_ONCE);
        while let Some(result) = caught_up.next().await {
            result?;
        }
        self.tell_arrival();
        Ok(())
    }

    fn tell_arrival(&self) {
        self.arrivals.send_modify(|n_arrived| *n_arrived += 1);
    }

    async fn catch_up(&self, log: LogId) -> Result<()> {
        let tail = self.tail(log).await?;
        let mut known = tail.known.lock().await;
        self.catch_up_tail(&tail, &mut known).await.map(drop)
    }

    /// Whether the log was not held here before, or no longer is.
    async fn catch_up_tail(&self, tail: &Tail, known: &mut Known) -> Result<bool> {
        let was_held = self.local.info(tail.id).is_some();
        tail.catch_up(self, known).await?;
        let is_news = self.local.info(tail.id).is_some() != was_held;
        if is_news {
            self.owned.send_modify(|_| ());
        }
        Ok(is_news)
    }

    async fn open(self: Arc<Self>, log: LogId, role: Role) -> Result<NatsLog> {
        let tail = self.tail(log).await?;
        let mut known = tail.known.lock().await;
        self.check_not_seeding(log)?;
        self.claim(&tail, &mut known, role).await?;
        let local = self.local.open_log(log, role).await?;
        // While nobody else can open it: the last one to do so says whose it is.
        self.owned.send_modify(|owned| match role {
            Role::Own { .. } => drop(owned.insert(log)),
            Role::Follow => drop(owned.remove(&log)),
        });
        drop(known);
        Ok(NatsLog::new(self, tail, Arc::new(local), role))
    }

    /// Makes the log exist, and ours if we are to own it.
    async fn claim(&self, tail: &Tail, known: &mut Known, role: Role) -> Result<()> {
        for _ in 0..CONFLICTS_MAX {
            tail.catch_up(self, known).await?;
            if self.is_mirrored() {
                return self.check_arrived(tail, known, role);
            }
            let before = known.standing.unwrap_or(Standing {
                life: nonce(),
                owner: Owner::default(),
                position: Position::default(),
            });
            Claim::new(role, before.owner.epoch, before.position)?;
            let owner = match role {
                Role::Follow => before.owner,
                Role::Own { epoch } => self.owner(epoch),
            };
            let change = known.standing.is_none().then_some(Change::Begun { saved: None });
            if change.is_none() && owner == before.owner {
                return Ok(());
            }
            match tail.add(known, Standing { owner, ..before }, change).await {
                Outcome::Stored(_) => return Ok(()),
                Outcome::Conflict => {}
                Outcome::Unknown(why) => return Err(StorageError::Unknown(why)),
                Outcome::Refused(error) => return Err(error),
            }
        }
        Err(StorageError::Unavailable(format!("log {} is fought over", tail.id)))
    }

    /// A log of a mirror is there when it has arrived, and nobody's to own.
    fn check_arrived(&self, tail: &Tail, known: &Known, role: Role) -> Result<()> {
        match role {
            Role::Own { .. } => self.check_writable(),
            Role::Follow if known.standing.is_none() => {
                Err(StorageError::Unavailable(format!("log {} has not arrived", tail.id)))
            }
            Role::Follow => Ok(()),
        }
    }

    fn owner(&self, epoch: Epoch) -> Owner {
        Owner {
            epoch,
            instance: self.instance,
        }
    }

    async fn mark(&self, log: LogId) -> Result<Option<Mark>> {
        let tail = self.tail(log).await?;
        let mut known = tail.known.lock().await;
        let is_news = self.catch_up_tail(&tail, &mut known).await?;
        let mark = known.standing.map(|standing| standing.mark());
        drop(known);
        if is_news && mark.is_some() {
            self.is_followed(log).await;
        }
        Ok(mark)
    }

    /// Drops a log as it was when this process last looked.
    async fn drop_log(&self, log: LogId) -> Result<()> {
        let tail = self.tail(log).await?;
        let mut known = tail.known.lock().await;
        let seen = match known.standing {
            Some(standing) => Some(standing.mark()),
            None => {
                tail.catch_up(self, &mut known).await?;
                known.standing.map(|standing| standing.mark())
            }
        };
        self.drop_known(&tail, &mut known, seen).await
    }

    async fn drop_marked(&self, log: LogId, mark: Option<Mark>) -> Result<()> {
        let tail = self.tail(log).await?;
        let mut known = tail.known.lock().await;
        self.drop_known(&tail, &mut known, mark).await
    }

    async fn drop_known(&self, tail: &Tail, known: &mut Known, mark: Option<Mark>) -> Result<()> {
        self.check_writable()?;
        for _ in 0..CONFLICTS_MAX {
            tail.catch_up(self, known).await?;
            let Some(standing) = known.standing else { return Ok(()) };
            if mark != Some(standing.mark()) {
                // Another has begun to own it, or has made it anew: whoever stood still between a decision and this must decide
                // again.
                let actual = standing.position;
                return Err(StorageError::Fenced { actual });
            }
            let begun_from = saved::seeded_from(&tail.lane).await?;
            match tail.add(known, standing, Some(Change::Dropped)).await {
                Outcome::Stored(_) => {
                    self.local.drop_log(tail.id).await?;
                    self.owned.send_if_modified(|owned| owned.remove(&tail.id));
                    // What stays behind is not found again, but does no harm either.
                    return self.forget_saved(&tail.lane, begun_from).await;
                }
                Outcome::Conflict => {}
                Outcome::Unknown(why) => return Err(StorageError::Unknown(why)),
                Outcome::Refused(error) => return Err(error),
            }
        }
        Err(StorageError::Unavailable(format!("log {} is fought over", tail.id)))
    }
}

impl Store for NatsStore {
    fn open(&self, log: LogId, role: Role) -> BoxFuture<'_, Result<Arc<dyn Log>>> {
        Box::pin(async move {
            let opened = self.shared.complete(self.shared.clone().open(log, role)).await?;
            Ok(Arc::new(opened) as Arc<dyn Log>)
        })
    }

    /// The logs this node knows of: those there were when the store was opened or last refreshed, and those opened since.
    fn list(&self) -> Result<Vec<LogInfo>> {
        self.shared.local.list()
    }

    fn seed(&self, log: LogId) -> BoxFuture<'_, Result<Box<dyn Seed>>> {
        Box::pin(async move {
            let seed = self.shared.complete(NatsSeed::begin(self.shared.clone(), log)).await?;
            Ok(Box::new(seed) as Box<dyn Seed>)
        })
    }

    fn drop_log(&self, log: LogId) -> BoxFuture<'_, Result<()>> {
        let shared = self.shared.clone();
        Box::pin(self.shared.complete(async move { shared.drop_log(log).await }))
    }

    fn mark(&self, log: LogId) -> BoxFuture<'_, Result<Option<Mark>>> {
        let shared = self.shared.clone();
        Box::pin(self.shared.complete(async move { shared.mark(log).await }))
    }

    fn drop_marked(&self, log: LogId, mark: Option<Mark>) -> BoxFuture<'_, Result<()>> {
        let shared = self.shared.clone();
        Box::pin(self.shared.complete(async move { shared.drop_marked(log, mark).await }))
    }

    fn health(&self) -> Health {
        match self.shared.check_open() {
            Ok(()) => self.shared.local.health(),
            Err(_) => Health::Closed,
        }
    }

    fn reopen(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.shared.check_open()?;
            self.shared.local.reopen().await?;
            self.shared.catch_up_all().await
        })
    }

    fn size_bytes(&self) -> u64 {
        self.shared.local.size_bytes()
    }

    fn stats(&self) -> StoreStats {
        self.shared.local.stats()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.shared.closing.cancel();
            self.shared.tasks.close();
            self.shared.tasks.wait().await;
            self.shared.local.close().await
        })
    }
}
