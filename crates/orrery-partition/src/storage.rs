//! What the rules need of a store: few verbs, each with a promise that the contract suite checks.
//!
//! A *store* holds one region's data of all accounts. It hands out *logs*: one per physical partition and one *system*
//! log. A log is an ordered list of transactions and, derived from it, a *view*: an ordered map from bytes to bytes. The
//! store knows neither what a transaction means nor what a view key says; the pure [`Project`] it is handed does.
//!
//! Keys of a view are relative to their log; how logs share files is the store's business.

use std::fmt;
use std::future::Future;
use std::ops::Bound;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use orrery_model::log::Transaction;
use orrery_model::{Epoch, LogId, Lsn, Position};

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
pub type Result<T, E = StorageError> = std::result::Result<T, E>;

/// What went wrong, by what the caller must do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// A higher epoch owns the log, or the log is not at the expected position: step down, nothing happened.
    #[error("fenced: the log stands at {actual:?}")]
    Fenced { actual: Position },
    /// It may have happened. Answer neither success nor failure.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// No room; refused before anything was written. Reads go on.
    #[error("no space left")]
    Full,
    /// Cannot serve now; nothing happened. A store that failed to sync is unavailable for writing until reopened.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The log no longer reaches back to `from`; it starts after `start`.
    #[error("trimmed: the log starts after {start}")]
    Trimmed { start: Lsn },
    /// What was read is not what was written. Do not serve it.
    #[error("corrupt: {0}")]
    Corrupt(String),
}

/// How a log is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Appends transactions decided elsewhere, unchanged.
    Follow,
    /// Decides. Fences every owner of a lower epoch; an equal epoch is the same owner coming back.
    Own { epoch: Epoch },
}

/// A log that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogInfo {
    pub log: LogId,
    pub position: Position,
    /// The highest epoch that has opened it to own it.
    pub owner: Epoch,
}

/// What a log was when someone looked: told apart from itself under another owner, and from one made anew under its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Every log that is made has another.
    pub life: u64,
    pub owner: Epoch,
    /// The open store that owns it; one that comes back with its old epoch is another.
    pub instance: u64,
}

/// One change of a view: a value, or `None` to remove the key.
pub type ViewWrite = (Bytes, Option<Bytes>);

/// A transaction and the changes of the view it implies. The writer has projected it already to decide what followed;
/// handing the result over saves doing it twice. Replay projects anew and must reach the same view.
#[derive(Clone, Debug)]
pub struct Staged {
    pub transaction: Arc<Transaction>,
    pub writes: Vec<ViewWrite>,
}

/// Turns a transaction into changes of the view it meets. Pure: replay of a log gives the same view on every machine.
pub trait Project: Send + Sync + 'static {
    fn project(&self, before: &dyn View, transaction: &Transaction) -> Result<Vec<ViewWrite>>;
}

/// An immutable ordered map from bytes to bytes.
pub trait View: Send + Sync {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>>;

    /// Entries within the bounds, ascending, or descending when `reverse`.
    fn scan<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> Scan<'a>;
}

pub type Scan<'a> = Box<dyn Iterator<Item = Result<(Bytes, Bytes)>> + Send + 'a>;

/// A view at one position. It holds resources of the store; drop it soon.
pub trait Snapshot: View + fmt::Debug {
    /// The position this view reflects: every transaction up to it, none after.
    fn position(&self) -> Position;
}

/// One region's data of all accounts. All futures run to completion once polled, also when their caller goes away.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Opens a log in a role, creating it empty when it does not exist.
    fn open(&self, log: LogId, role: Role) -> BoxFuture<'_, Result<Arc<dyn Log>>>;

    /// The logs that exist, unfinished seeds left out.
    fn list(&self) -> Result<Vec<LogInfo>>;

    /// Begins to install a whole view. Until [`Seed::finish`] the log does not exist; a seed that is dropped, or cut off by
    /// a crash, leaves nothing behind. `Fenced` when the log exists, `Unavailable` while another seed of it lives.
    fn seed(&self, log: LogId) -> BoxFuture<'_, Result<Box<dyn Seed>>>;

    /// Makes `to` a log that stands where `from` stands and shows what it shows; from then on each goes its own way. Costs the
    /// same for any view. `false` when this store cannot do it, or not with this log: its view has to be copied then.
    /// `Fenced` when `to` exists. Keys of a view never begin with `FF`.
    fn branch(&self, _from: LogId, _to: LogId) -> BoxFuture<'_, Result<bool>> {
        Box::pin(std::future::ready(Ok(false)))
    }

    /// Removes a log and its view for good. Removing what does not exist is no error.
    fn drop_log(&self, log: LogId) -> BoxFuture<'_, Result<()>>;

    /// What a log is now; `None` when it does not exist, or when nobody but this store can make or own it.
    fn mark(&self, _log: LogId) -> BoxFuture<'_, Result<Option<Mark>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Removes a log as it was marked. `Fenced` when another has begun to own it, or has made it, since then.
    ///
    /// Whoever drops a log because of what it decides looks at the mark first, then makes sure that it still decides:
    /// whatever the next one has done by then is told apart.
    fn drop_marked(&self, log: LogId, _mark: Option<Mark>) -> BoxFuture<'_, Result<()>> {
        self.drop_log(log)
    }

    /// Whether writes are taken, and why not.
    fn health(&self) -> Health;

    /// Ends when the store is not, or has meanwhile not been, [`Health::Writable`]: whoever looks after it need not ask again and
    /// again. One that cannot tell says so at once. The future keeps nothing of the store open.
    fn ails(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// What is known not to be as it was written, since the store was opened; whoever met it was answered `Corrupt`. The rest is
    /// served as before.
    fn damage(&self) -> Option<String> {
        None
    }

    /// Ends when there is [`Store::damage`]; never where that cannot be told. The future keeps nothing of the store open.
    fn harmed(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    /// After a failed sync: reopens the files, verifies what they hold, and takes writes again.
    fn reopen(&self) -> BoxFuture<'_, Result<()>>;

    /// Bytes on disk (or in memory) used by all logs and views.
    fn size_bytes(&self) -> u64;

    /// What the store has done since it was opened, as far as it counts.
    fn stats(&self) -> StoreStats {
        StoreStats::default()
    }

    /// Finishes what is under way and makes a later open quick. Further appends are `Unavailable`.
    fn close(&self) -> BoxFuture<'_, Result<()>>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Writable,
    /// Below the reserve of free space: writes are `Full`, reads go on, and writing resumes by itself.
    Full,
    /// A sync failed: read-only until [`Store::reopen`] succeeds.
    ReadOnly(String),
    Closed,
}

/// What a store counts about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreStats {
    /// Groups of records that were made durable together.
    pub n_groups: u64,
    pub n_records: u64,
    pub group_bytes: u64,
    /// Time to write and sync one group.
    pub sync: LatencyCounts,
    pub log_bytes: u64,
    pub view_bytes: u64,
    /// View entries that are in memory only, because the log holds them.
    pub unflushed_bytes: u64,
    pub n_flushes: u64,
    pub n_merges: u64,
}

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LatencyCounts {
    /// Upper bounds in microseconds, ascending.
    pub bounds_us: Vec<u64>,
    /// How many took at most each bound but longer than the one before; one more for those above the last.
    pub counts: Vec<u64>,
    pub sum_us: u64,
}

/// A view being installed.
pub trait Seed: Send {
    /// Adds or removes entries. Later writes of one key win.
    fn write(&mut self, writes: Vec<ViewWrite>) -> BoxFuture<'_, Result<()>>;

    /// Makes the log exist with this view at this position, all or nothing, durable on return.
    fn finish(self: Box<Self>, position: Position) -> BoxFuture<'static, Result<()>>;
}

/// One log in the role it was opened in.
pub trait Log: Send + Sync + fmt::Debug {
    fn id(&self) -> LogId;

    /// The highest position that is both durable and visible.
    fn head(&self) -> Position;

    /// Appends transactions that follow `expected` and each other: all or nothing, durable and visible on return.
    /// `Fenced` when the log stands elsewhere or another epoch owns it.
    fn append(&self, expected: Position, staged: Vec<Staged>) -> BoxFuture<'_, Result<()>>;

    /// The view at `head` or later.
    fn snapshot(&self) -> Result<Arc<dyn Snapshot>>;

    /// Transactions after `after` in order, about `limit_bytes` of them but at least one, or `Trimmed`.
    fn read_log(&self, after: Lsn, limit_bytes: usize) -> BoxFuture<'_, Result<Vec<Transaction>>>;

    /// Waits until `head` is past `after`.
    fn wait_past(&self, after: Lsn) -> BoxFuture<'_, Position>;

    /// Forbids trimming transactions after `after` for as long as the hold lives. Whoever will read the log needs one: a
    /// store forgets by itself what its synced view no longer needs and no hold keeps, except for a recent part.
    fn hold(&self, after: Lsn) -> Box<dyn Hold>;

    /// Forgets transactions up to `below`, as far as the synced view and every hold allow. Never touches the view.
    /// Answers the LSN after which the log now starts.
    fn trim(&self, below: Lsn) -> BoxFuture<'_, Result<Lsn>>;

    /// Returns once ownership at call time is proven.
    fn barrier(&self) -> BoxFuture<'_, Result<()>>;
}

/// Keeps a part of a log from being trimmed while it lives.
pub trait Hold: Send + Sync + fmt::Debug {
    /// Lets go of transactions up to `after`. Never moves back.
    fn advance(&self, after: Lsn);
}
