//! A store that stops taking changes at a chosen call, as if the process had been cut off there.
//!
//! Reads go on, so that whatever was under way notices the failure and not the silence. What the store behind it holds is
//! what a crash at that call would leave.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use orrery_model::log::Transaction;
use orrery_model::{LogId, Lsn, Position};
use orrery_partition::storage::{
    BoxFuture, Health, Hold, Log, LogInfo, Result, Role, Seed, Snapshot, Staged, StorageError, Store, ViewWrite,
};

/// What happens to the call at which the store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing: the process died before it.
    Before,
    /// All of it, but nobody hears of it.
    After,
    /// Nothing, and it was a passing trouble: everything after it works.
    Once,
}

#[derive(Debug)]
pub struct FailingStore {
    inner: RwLock<Option<Arc<dyn Store>>>,
    fuse: Arc<Fuse>,
    reopens: AtomicBool,
}

/// Counts changes and fails from one of them on.
#[derive(Debug)]
struct Fuse {
    left: AtomicI64,
    cut: Mutex<Cut>,
    reads_hang: AtomicBool,
    blown: tokio::sync::watch::Sender<bool>,
    /// Whether appends that have happened are told of only later.
    is_late: tokio::sync::watch::Sender<bool>,
}

impl Fuse {
    /// Runs a change, or fails in its place.
    async fn change<T>(&self, change: impl Future<Output = Result<T>>) -> Result<T> {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        let cut = *self.cut.lock().unwrap();
        if left > 0 || (left < 0 && cut == Cut::Once) {
            return change.await;
        }
        if left == 0 && cut == Cut::After {
            // Whatever it answers, nobody hears it.
            let _ = change.await;
        }
        self.blown.send_replace(true);
        Err(if left == 0 && cut != Cut::Once {
            StorageError::Unknown("cut off".into())
        } else {
            StorageError::Unavailable("cut off".into())
        })
    }
}

impl FailingStore {
    pub fn new(inner: Arc<dyn Store>) -> Arc<FailingStore> {
        let fuse = Fuse {
            left: AtomicI64::new(i64::MAX),
            cut: Mutex::new(Cut::Before),
            reads_hang: AtomicBool::new(false),
            blown: tokio::sync::watch::Sender::new(false),
            is_late: tokio::sync::watch::Sender::new(false),
        };
        Arc::new(FailingStore {
            inner: RwLock::new(Some(inner)),
            fuse: Arc::new(fuse),
            reopens: AtomicBool::new(false),
        })
    }

    /// From now on a failure is one of syncing: the store is read-only until it is reopened.
    #[allow(dead_code, reason = "not every crate that includes this file reopens")]
    pub fn allow_reopening(&self) {
        self.reopens.store(true, Ordering::SeqCst);
    }

    /// From now on whoever reads a log waits for ever, as on a disk that does not answer.
    #[allow(dead_code, reason = "not every crate that includes this file has disks that hang")]
    pub fn hang_reads(&self) {
        self.fuse.reads_hang.store(true, Ordering::SeqCst);
    }

    /// From now on appends happen at once, and whoever waits for one hears of it only after the opposite has been said.
    #[allow(
        dead_code,
        reason = "not every crate that includes this file has disks that are slow to answer"
    )]
    pub fn answer_late(&self, late: bool) {
        self.fuse.is_late.send_replace(late);
    }

    /// Lets `n` changes happen from now on; the next one is cut off, and all after it fail.
    pub fn fail_after(&self, n: i64, cut: Cut) {
        *self.fuse.cut.lock().unwrap() = cut;
        self.fuse.left.store(n, Ordering::SeqCst);
    }

    /// Completes when a change was cut off.
    pub async fn failed(&self) {
        let mut blown = self.fuse.blown.subscribe();
        blown
            .wait_for(|blown| *blown)
            .await
            .expect("the fuse lives as long as the store");
    }

    /// Takes the store behind away: whoever still holds this one can do nothing any more.
    pub fn cut_off(&self) -> Arc<dyn Store> {
        self.fail_after(-1, Cut::Before);
        self.inner.write().unwrap().take().expect("a store is cut off once")
    }

    fn inner(&self) -> Result<Arc<dyn Store>> {
        let inner = self.inner.read().unwrap().clone();
        inner.ok_or_else(|| StorageError::Unavailable("cut off".into()))
    }
}

impl Store for FailingStore {
    fn open(&self, log: LogId, role: Role) -> BoxFuture<'_, Result<Arc<dyn Log>>> {
        Box::pin(async move {
            let inner = self.inner()?;
            let inner = self.fuse.change(inner.open(log, role)).await?;
            Ok(Arc::new(FailingLog {
                inner,
                fuse: Arc::clone(&self.fuse),
            }) as Arc<dyn Log>)
        })
    }

    fn list(&self) -> Result<Vec<LogInfo>> {
        self.inner()?.list()
    }

    fn seed(&self, log: LogId) -> BoxFuture<'_, Result<Box<dyn Seed>>> {
        Box::pin(async move {
            let inner = self.inner()?;
            let inner = self.fuse.change(inner.seed(log)).await?;
            Ok(Box::new(FailingSeed {
                inner,
                fuse: Arc::clone(&self.fuse),
            }) as Box<dyn Seed>)
        })
    }

    fn drop_log(&self, log: LogId) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let inner = self.inner()?;
            self.fuse.change(inner.drop_log(log)).await
        })
    }

    fn health(&self) -> Health {
        if self.reopens.load(Ordering::SeqCst) && *self.fuse.blown.borrow() {
            return Health::ReadOnly("a sync failed".into());
        }
        self.inner().map_or(Health::Closed, |inner| inner.health())
    }

    fn reopen(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            if !self.reopens.load(Ordering::SeqCst) {
                return Err(StorageError::Unavailable("cut off".into()));
            }
            self.fail_after(i64::MAX, Cut::Before);
            self.fuse.blown.send_replace(false);
            Ok(())
        })
    }

    fn size_bytes(&self) -> u64 {
        self.inner().map_or(0, |inner| inner.size_bytes())
    }

    /// A process that dies closes nothing.
    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

struct FailingSeed {
    inner: Box<dyn Seed>,
    fuse: Arc<Fuse>,
}

impl Seed for FailingSeed {
    fn write(&mut self, writes: Vec<ViewWrite>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.fuse.change(self.inner.write(writes)).await })
    }

    fn finish(self: Box<Self>, position: Position) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let FailingSeed { inner, fuse } = *self;
            fuse.change(inner.finish(position)).await
        })
    }
}

#[derive(Debug)]
struct FailingLog {
    inner: Arc<dyn Log>,
    fuse: Arc<Fuse>,
}

impl Log for FailingLog {
    fn id(&self) -> LogId {
        self.inner.id()
    }

    fn head(&self) -> Position {
        self.inner.head()
    }

    fn append(&self, expected: Position, staged: Vec<Staged>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let appended = self.fuse.change(self.inner.append(expected, staged)).await;
            let mut is_late = self.fuse.is_late.subscribe();
            let told = is_late.wait_for(|is_late| !is_late).await;
            told.expect("the fuse lives as long as the log");
            appended
        })
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.inner.snapshot()
    }

    fn read_log(&self, after: Lsn, limit_bytes: usize) -> BoxFuture<'_, Result<Vec<Transaction>>> {
        if self.fuse.reads_hang.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        self.inner.read_log(after, limit_bytes)
    }

    fn wait_past(&self, after: Lsn) -> BoxFuture<'_, Position> {
        self.inner.wait_past(after)
    }

    fn hold(&self, after: Lsn) -> Box<dyn Hold> {
        self.inner.hold(after)
    }

    fn trim(&self, below: Lsn) -> BoxFuture<'_, Result<Lsn>> {
        self.inner.trim(below)
    }

    fn barrier(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.barrier()
    }
}
