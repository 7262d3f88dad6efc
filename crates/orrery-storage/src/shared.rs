//! One store for several accounts: each sees its own logs and nothing of the others'.
//!
//! The upper bits of a log's id are the account's number, so that all accounts of a region share files, one committer and
//! one sync. Account 0 sees the logs of a store that was never shared.
//!
//! Invariant: after a failed sync no account writes before it has reopened the store itself, whoever did so first; what it
//! knows may be older than what the files hold.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use orrery_model::{LogId, Lsn, Position};
use orrery_partition::storage::{
    BoxFuture, Health, Hold, Log, LogInfo, Mark, Result, Role, Seed, Snapshot, Staged, StorageError, Store, StoreStats,
};
use tokio::sync::Mutex;

/// Where in a log's id the account's number begins.
const ACCOUNT_SHIFT: u32 = 48;

/// A store and the accounts that share it.
#[derive(Debug)]
pub struct SharedStore {
    inner: Arc<dyn Store>,
    /// Counts the times the store was reopened, also in vain.
    reopened: AtomicU64,
    reopening: Mutex<()>,
    n_open: AtomicUsize,
    parts: std::sync::Mutex<Vec<Weak<Account>>>,
}

impl SharedStore {
    pub fn new(inner: Arc<dyn Store>) -> Arc<SharedStore> {
        Arc::new(SharedStore {
            inner,
            reopened: AtomicU64::new(0),
            reopening: Mutex::new(()),
            n_open: AtomicUsize::new(0),
            parts: std::sync::Mutex::default(),
        })
    }

    /// Whether writes are taken, all accounts apart.
    pub fn health(&self) -> Health {
        self.inner.health()
    }

    /// What is known not to be as it was written.
    pub fn damage(&self) -> Option<String> {
        self.inner.damage()
    }

    /// The part of one account. The store is closed when every part is.
    pub fn account(self: &Arc<Self>, number: u16) -> Arc<dyn Store> {
        self.n_open.fetch_add(1, Ordering::AcqRel);
        let account = Arc::new(Account {
            store: Arc::clone(self),
            number,
            seen: AtomicU64::new(self.reopened.load(Ordering::Acquire)),
            closed: AtomicBool::new(false),
        });
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.retain(|part| part.strong_count() > 0);
        parts.push(Arc::downgrade(&account));
        Arc::new(Part(account))
    }

    /// Ends an account's part at once: what it has not asked for yet is refused. `true` when no part is left, and whoever made
    /// the store is to end it as well.
    pub fn abandon(&self, number: u16) -> bool {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let own = parts
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|part| part.number == number);
        own.for_each(|part| {
            part.leave();
        });
        self.n_open.load(Ordering::Acquire) == 0
    }
}

/// What the store and the logs of one account have in common.
#[derive(Debug)]
struct Account {
    store: Arc<SharedStore>,
    number: u16,
    /// The reopening this account has learned of.
    seen: AtomicU64,
    closed: AtomicBool,
}

impl Account {
    fn outer(&self, log: LogId) -> LogId {
        LogId((u64::from(self.number) << ACCOUNT_SHIFT) | log.0)
    }

    /// The id as the account knows it, if the log is its own.
    fn inner(&self, log: LogId) -> Option<LogId> {
        (log.0 >> ACCOUNT_SHIFT == u64::from(self.number)).then_some(LogId(log.0 & ((1 << ACCOUNT_SHIFT) - 1)))
    }

    /// Takes no part any more; `true` for the last one who does.
    fn leave(&self) -> bool {
        let first_time = !self.closed.swap(true, Ordering::AcqRel);
        first_time && self.store.n_open.fetch_sub(1, Ordering::AcqRel) == 1
    }

    fn is_behind(&self) -> bool {
        self.seen.load(Ordering::Acquire) != self.store.reopened.load(Ordering::Acquire)
    }

    fn check_open(&self) -> Result<()> {
        match self.closed.load(Ordering::Acquire) {
            true => Err(StorageError::Unavailable("the store is closed".into())),
            false => Ok(()),
        }
    }

    fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        match self.is_behind() {
            true => Err(StorageError::Unavailable("the store has to be reopened".into())),
            false => Ok(()),
        }
    }
}

/// One account's part of a store.
#[derive(Debug)]
struct Part(Arc<Account>);

impl Part {
    fn store(&self) -> &dyn Store {
        &*self.0.store.inner
    }

    async fn reopen_once(&self) -> Result<()> {
        let shared = &self.0.store;
        let _one_at_a_time = shared.reopening.lock().await;
        if matches!(shared.inner.health(), Health::ReadOnly(_)) {
            // Before the store takes writes again: from here on the other accounts are behind.
            shared.reopened.fetch_add(1, Ordering::AcqRel);
            shared.inner.reopen().await?;
        }
        self.0
            .seen
            .store(shared.reopened.load(Ordering::Acquire), Ordering::Release);
        Ok(())
    }
}

impl Store for Part {
    fn open(&self, log: LogId, role: Role) -> BoxFuture<'_, Result<Arc<dyn Log>>> {
        Box::pin(async move {
            self.0.check_open()?;
            let inner = self.store().open(self.0.outer(log), role).await?;
            Ok(Arc::new(PartLog {
                account: Arc::clone(&self.0),
                id: log,
                inner,
            }) as Arc<dyn Log>)
        })
    }

    fn list(&self) -> Result<Vec<LogInfo>> {
        let own = |info: LogInfo| {
            let log = self.0.inner(info.log)?;
            Some(LogInfo { log, ..info })
        };
        Ok(self.store().list()?.into_iter().filter_map(own).collect())
    }

    fn seed(&self, log: LogId) -> BoxFuture<'_, Result<Box<dyn Seed>>> {
        Box::pin(async move {
            self.0.check_writable()?;
            self.store().seed(self.0.outer(log)).await
        })
    }

    fn branch(&self, from: LogId, to: LogId) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            self.0.check_writable()?;
            self.store().branch(self.0.outer(from), self.0.outer(to)).await
        })
    }

    fn drop_log(&self, log: LogId) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.0.check_open()?;
            self.store().drop_log(self.0.outer(log)).await
        })
    }

    fn mark(&self, log: LogId) -> BoxFuture<'_, Result<Option<Mark>>> {
        self.store().mark(self.0.outer(log))
    }

    fn drop_marked(&self, log: LogId, mark: Option<Mark>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.0.check_open()?;
            self.store().drop_marked(self.0.outer(log), mark).await
        })
    }

    fn health(&self) -> Health {
        if self.0.closed.load(Ordering::Acquire) {
            return Health::Closed;
        }
        match self.store().health() {
            Health::Writable | Health::Full if self.0.is_behind() => {
                Health::ReadOnly("another account has reopened the store".into())
            }
            health => health,
        }
    }

    fn ails(&self) -> BoxFuture<'static, ()> {
        // In this order: whoever reopens the store leaves this account behind before the store takes writes again.
        let ailing = self.store().ails();
        match self.health() {
            Health::Writable => ailing,
            _ => Box::pin(std::future::ready(())),
        }
    }

    fn damage(&self) -> Option<String> {
        self.store().damage()
    }

    fn harmed(&self) -> BoxFuture<'static, ()> {
        self.store().harmed()
    }

    fn reopen(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.reopen_once())
    }

    fn size_bytes(&self) -> u64 {
        self.store().size_bytes()
    }

    fn stats(&self) -> StoreStats {
        self.store().stats()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            match self.0.leave() {
                true => self.store().close().await,
                false => Ok(()),
            }
        })
    }
}

/// A log under the id its account knows.
#[derive(Debug)]
struct PartLog {
    account: Arc<Account>,
    id: LogId,
    inner: Arc<dyn Log>,
}

impl Log for PartLog {
    fn id(&self) -> LogId {
        self.id
    }

    fn head(&self) -> Position {
        self.inner.head()
    }

    fn append(&self, expected: Position, staged: Vec<Staged>) -> BoxFuture<'_, Result<()>> {
        match self.account.check_writable() {
            Ok(()) => self.inner.append(expected, staged),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.inner.snapshot()
    }

    fn read_log(&self, after: Lsn, limit_bytes: usize) -> BoxFuture<'_, Result<Vec<orrery_model::log::Transaction>>> {
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
