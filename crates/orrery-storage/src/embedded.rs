//! A store in one directory: segment files that hold every log, and a tree that holds every view.
//!
//! A write is durable in the segments, then visible in the view, then acknowledged. The view keeps no journal: what it had
//! not flushed before a crash is rebuilt from the segments by the [`Project`] the store was opened with. One thread, the
//! committer, writes; `docs/adr/001-embedded-log.md` says why.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use orrery_model::LogId;
use orrery_partition::storage::{
    BoxFuture, Health, Log, LogInfo, Project, Result, Role, Seed, StorageError, Store, StoreStats,
};

use tokio::sync::Notify;

#[cfg(feature = "nats")]
use crate::fence::Claim;
use crate::frame;

use catalog::{Catalog, LogState};
use committer::{Committer, PendingGroup};
use damage::Damage;
use keeper::Keeper;
pub(crate) use log::EmbeddedLog;
use queue::{Command, Queue};
use record::ViewId;
use replay::Replay;
use seed::EmbeddedSeed;
use segments::{Readers, Segments, Trust};
use stats::Stats;
use view::ViewStore;

mod damage;
mod settings;
mod stats;

mod committer;
mod effect;
mod queue;
mod upkeep;

mod record;
mod segments;

mod keeper;
mod view;

mod catalog;
mod layers;
mod log;
mod replay;
mod seed;
mod snapshot;

pub mod files;

pub use files::{DiskFiles, Files, LogFile};
pub use settings::{EmbeddedSettings, ViewCache};

const LOCK_FILE: &str = "lock";
const LOG_DIR: &str = "log";
const VIEW_DIR: &str = "view";

/// A durable store in one directory.
#[derive(Debug)]
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    committer: Mutex<Option<JoinHandle<()>>>,
}

/// What the committer, the handles and the store share.
#[derive(Debug)]
struct Shared {
    queue: Arc<Queue>,
    catalog: Catalog,
    view: Arc<ViewStore>,
    keeper: Keeper,
    readers: Readers,
    files: Arc<dyn Files>,
    settings: EmbeddedSettings,
    condition: Mutex<Condition>,
    /// Told whenever something keeps writes from being taken.
    ails: Arc<Notify>,
    damage: Arc<Damage>,
    log_bytes: AtomicU64,
    stats: Stats,
}

#[derive(Debug)]
enum Condition {
    Writable,
    ReadOnly(String),
    Closed,
}

impl EmbeddedStore {
    /// Opens the store in a directory, creating it when it is missing. Blocks while it reads what is there.
    pub fn open(dir: &Path, settings: EmbeddedSettings, project: Arc<dyn Project>) -> Result<Arc<EmbeddedStore>> {
        let files = DiskFiles::new(&dir.join(LOG_DIR)).map_err(|error| cannot("make the store's directory", error))?;
        EmbeddedStore::open_with(dir, settings, project, Arc::new(files))
    }

    /// Opens a store whose log lives in files of the caller's choice; its view stays in the directory.
    pub fn open_with(
        dir: &Path,
        settings: EmbeddedSettings,
        project: Arc<dyn Project>,
        files: Arc<dyn Files>,
    ) -> Result<Arc<EmbeddedStore>> {
        let lock_file = lock(dir)?;
        let damage = Arc::new(Damage::default());
        let view = Arc::new(ViewStore::open(&dir.join(VIEW_DIR), &settings.cache, damage.clone())?);
        let flushed = view.applied()?;
        let catalog = Catalog::default();
        for (log, meta) in view.logs()? {
            catalog.insert(Arc::new(LogState::new(log, meta)));
        }
        let mut replay = Replay::new(&view, &catalog, project.as_ref(), settings.write_buffer_bytes)?;
        let visit = &mut |segment, group: &frame::Group| replay.group(segment, group);
        let segments = Segments::recover(files.clone(), settings.segment_bytes, Trust::Sync, visit)?;
        replay.finish(segments.last())?;
        let (applied, view_max) = (replay.applied, replay.view_max);

        let queue = Arc::new(Queue::default());
        let keeper = start_keeper(&view, flushed, &queue)?;
        let shared = Arc::new(Shared {
            queue,
            catalog,
            view,
            keeper,
            readers: segments.readers(),
            files,
            settings,
            condition: Mutex::new(Condition::Writable),
            ails: Arc::default(),
            damage,
            log_bytes: AtomicU64::new(segments.size_bytes()),
            stats: Stats::default(),
        });
        let next_view = shared.sweep_leftovers(view_max)?;
        let committer = Committer {
            shared: shared.clone(),
            segments,
            project,
            applied,
            next_view,
            seeding: Default::default(),
            sweeps: Default::default(),
            unsealed_log_bytes: 0,
            group: PendingGroup::default(),
            lock_file,
        };
        let builder = std::thread::Builder::new().name("orrery-commit".into());
        let thread = builder
            .spawn(move || committer.run())
            .map_err(|error| cannot("start a thread", error))?;
        Ok(Arc::new(EmbeddedStore {
            shared,
            committer: Mutex::new(Some(thread)),
        }))
    }

    /// Opens a log for a store that is built on this one.
    #[cfg(feature = "nats")]
    pub(crate) async fn open_log(&self, log: LogId, role: Role) -> Result<EmbeddedLog> {
        open_log(&self.shared, log, role).await
    }

    /// Follows a log that exists, as it is owned now. Asks nobody: whoever calls this makes sure that no other owner is being
    /// recorded meanwhile.
    #[cfg(feature = "nats")]
    pub(crate) fn follow_log(&self, log: LogId) -> Option<EmbeddedLog> {
        let state = self.shared.catalog.get(log)?;
        let owner = state.lock().owner;
        let claim = Claim::new(Role::Follow, owner, state.position()).ok()?;
        Some(EmbeddedLog {
            shared: self.shared.clone(),
            state,
            claim,
        })
    }

    /// A log, if it exists.
    pub fn info(&self, log: LogId) -> Option<LogInfo> {
        self.shared.catalog.get(log).map(|state| state.info())
    }

    /// Flushes the view, so that everything acknowledged before the call needs no replay any more.
    pub async fn checkpoint(&self) -> Result<()> {
        self.shared.checkpoint().await
    }

    /// Ends at once, as if the process had been killed: nothing is flushed, and the next open finds what the log has. Blocks
    /// until nobody uses the directory any more.
    pub fn abandon(&self) {
        self.shared.queue.push(Command::Stop);
        self.join();
    }

    fn join(&self) {
        let thread = self.committer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the committer panicked");
        }
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl Shared {
    async fn checkpoint(&self) -> Result<()> {
        let ticket = self.queue.ask(|answer| Command::Checkpoint { answer }).await?;
        let mut flushed = self.keeper.watch();
        let reached = flushed
            .wait_for(|flushed| flushed.ticket >= ticket || flushed.failure.is_some())
            .await;
        match reached {
            Ok(flushed) if flushed.ticket >= ticket => Ok(()),
            Ok(flushed) => Err(flushed.failure.clone().unwrap_or(StorageError::Full)),
            Err(_) => Err(StorageError::Unavailable("the store is closed".into())),
        }
    }

    fn health(&self) -> Health {
        match &*self.condition() {
            Condition::Closed => return Health::Closed,
            Condition::ReadOnly(why) => return Health::ReadOnly(why.clone()),
            Condition::Writable => {}
        }
        match self.files.free_bytes() {
            Ok(free) if free < self.settings.free_reserve_bytes => Health::Full,
            _ => Health::Writable,
        }
    }

    fn read_only(&self) -> Option<String> {
        match &*self.condition() {
            Condition::ReadOnly(why) => Some(why.clone()),
            _ => None,
        }
    }

    fn set_read_only(&self, why: String) {
        tracing::error!(reason = why, "the store is read-only until it is reopened");
        *self.condition() = Condition::ReadOnly(why);
        self.ails.notify_waiters();
    }

    fn set_writable(&self) {
        *self.condition() = Condition::Writable;
    }

    fn set_closed(&self) {
        *self.condition() = Condition::Closed;
        self.ails.notify_waiters();
    }

    fn set_log_bytes(&self, bytes: u64) {
        self.log_bytes.store(bytes, Ordering::Relaxed);
    }

    fn condition(&self) -> MutexGuard<'_, Condition> {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has views swept that belong to no log: leftovers of unfinished seeds and drops. Answers the next free view.
    fn sweep_leftovers(&self, view_max: ViewId) -> Result<ViewId> {
        let logs = self.catalog.all();
        let mut highest = view_max;
        for view in self.view.views()? {
            highest = highest.max(view);
            if !logs.iter().any(|log| log.layers().contains(view)) {
                self.keeper.drop_tables(view);
            }
        }
        let named = logs.iter().flat_map(|log| log.layers().all().collect::<Vec<_>>());
        let highest = named.fold(highest, ViewId::max);
        Ok(ViewId(highest.0 + 1))
    }
}

async fn open_log(shared: &Arc<Shared>, log: LogId, role: Role) -> Result<EmbeddedLog> {
    let (state, claim) = shared.queue.ask(|answer| Command::Open { log, role, answer }).await?;
    Ok(EmbeddedLog {
        shared: shared.clone(),
        state,
        claim,
    })
}

fn start_keeper(view: &Arc<ViewStore>, flushed: frame::Sequence, queue: &Arc<Queue>) -> Result<Keeper> {
    let (tidy, sweep) = (queue.clone(), queue.clone());
    Keeper::start(
        view.clone(),
        flushed,
        Box::new(move || tidy.push(Command::Tidy)),
        Box::new(move |view| sweep.push(Command::Sweep { view })),
    )
}

/// Makes the directory ours until the file is dropped.
fn lock(dir: &Path) -> Result<File> {
    std::fs::create_dir_all(dir).map_err(|error| cannot("make the store's directory", error))?;
    let path = dir.join(LOCK_FILE);
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|error| cannot("open the store's lock", error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StorageError::Unavailable(format!(
            "{} is in use by another process",
            dir.display()
        ))),
        Err(TryLockError::Error(error)) => Err(cannot("lock the store", error)),
    }
}

fn cannot(what: &str, error: std::io::Error) -> StorageError {
    StorageError::Unavailable(format!("cannot {what}: {error}"))
}

impl Store for EmbeddedStore {
    fn open(&self, log: LogId, role: Role) -> BoxFuture<'_, Result<Arc<dyn Log>>> {
        Box::pin(async move {
            let opened = open_log(&self.shared, log, role).await?;
            Ok(Arc::new(opened) as Arc<dyn Log>)
        })
    }

    fn list(&self) -> Result<Vec<LogInfo>> {
        Ok(self.shared.catalog.all().iter().map(|log| log.info()).collect())
    }

    fn seed(&self, log: LogId) -> BoxFuture<'_, Result<Box<dyn Seed>>> {
        Box::pin(async move {
            let seed = EmbeddedSeed::begin(self.shared.clone(), log).await?;
            Ok(Box::new(seed) as Box<dyn Seed>)
        })
    }

    fn branch(&self, from: LogId, to: LogId) -> BoxFuture<'_, Result<bool>> {
        Box::pin(
            self.shared
                .queue
                .ask(move |answer| Command::Branch { from, to, answer }),
        )
    }

    fn drop_log(&self, log: LogId) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.shared.queue.ask(move |answer| Command::Drop { log, answer }))
    }

    fn health(&self) -> Health {
        self.shared.health()
    }

    fn ails(&self) -> BoxFuture<'static, ()> {
        // Made before the look, so that nothing in between goes unnoticed.
        let ailing = Arc::clone(&self.shared.ails).notified_owned();
        match self.shared.health() {
            Health::Writable => Box::pin(ailing),
            _ => Box::pin(std::future::ready(())),
        }
    }

    fn damage(&self) -> Option<String> {
        self.shared.damage.found()
    }

    fn harmed(&self) -> BoxFuture<'static, ()> {
        let damage = Arc::clone(&self.shared.damage);
        Box::pin(async move { damage.wait().await })
    }

    fn reopen(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.shared.queue.ask(|answer| Command::Reopen { answer }))
    }

    fn size_bytes(&self) -> u64 {
        self.shared.view.size_bytes() + self.shared.log_bytes.load(Ordering::Relaxed)
    }

    fn stats(&self) -> StoreStats {
        let shared = &self.shared;
        StoreStats {
            log_bytes: shared.log_bytes.load(Ordering::Relaxed),
            view_bytes: shared.view.disk_bytes(),
            unflushed_bytes: shared.view.unsealed_bytes(),
            n_flushes: shared.keeper.n_flushes(),
            n_merges: shared.keeper.n_merges(),
            ..shared.stats.read()
        }
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if self.health() == Health::Closed {
                return Ok(());
            }
            self.shared.queue.ask(|answer| Command::Close { answer }).await
        })
    }
}
