//! A store that keeps nothing: everything in memory, nothing to open, gone with the process.
//!
//! It keeps every other promise of a store, so whatever runs on it runs on the durable ones.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orrery_model::{LogId, Position};
use orrery_partition::storage::{BoxFuture, Health, Log, LogInfo, Result, Role, Seed, StorageError, Store, ViewWrite};

use log::LogState;

mod log;
mod map;
mod snapshot;

/// A store in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    logs: Arc<Mutex<Logs>>,
}

#[derive(Debug, Default)]
struct Logs {
    by_id: BTreeMap<LogId, Arc<LogState>>,
    seeding: BTreeSet<LogId>,
    is_closed: bool,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Arc<MemoryStore> {
        Arc::default()
    }

    fn lock(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Logs {
    fn check_open(&self) -> Result<()> {
        if self.is_closed { Err(closed()) } else { Ok(()) }
    }

    fn check_not_seeding(&self, log: LogId) -> Result<()> {
        if self.seeding.contains(&log) {
            return Err(StorageError::Unavailable(format!("log {log} is being seeded")));
        }
        Ok(())
    }

    fn check_absent(&self, log: LogId) -> Result<()> {
        match self.by_id.get(&log) {
            Some(state) => Err(StorageError::Fenced {
                actual: state.info().position,
            }),
            None => Ok(()),
        }
    }
}

fn closed() -> StorageError {
    StorageError::Unavailable("the store is closed".into())
}

impl Store for MemoryStore {
    fn open(&self, log: LogId, role: Role) -> BoxFuture<'_, Result<Arc<dyn Log>>> {
        Box::pin(async move {
            let mut logs = self.lock();
            logs.check_open()?;
            logs.check_not_seeding(log)?;
            match logs.by_id.entry(log) {
                Entry::Occupied(existing) => existing.get().open(role),
                Entry::Vacant(vacant) => vacant
                    .insert(Arc::new(LogState::new(log, Position::default(), Vec::new())))
                    .open(role),
            }
        })
    }

    fn list(&self) -> Result<Vec<LogInfo>> {
        Ok(self.lock().by_id.values().map(|state| state.info()).collect())
    }

    fn seed(&self, log: LogId) -> BoxFuture<'_, Result<Box<dyn Seed>>> {
        Box::pin(async move {
            let mut logs = self.lock();
            logs.check_open()?;
            logs.check_absent(log)?;
            logs.check_not_seeding(log)?;
            logs.seeding.insert(log);
            Ok(Box::new(MemorySeed {
                store: self.clone(),
                log,
                writes: Vec::new(),
            }) as Box<dyn Seed>)
        })
    }

    fn drop_log(&self, log: LogId) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut logs = self.lock();
            logs.check_open()?;
            if let Some(state) = logs.by_id.remove(&log) {
                state.end(StorageError::Fenced {
                    actual: Position::default(),
                });
            }
            Ok(())
        })
    }

    fn health(&self) -> Health {
        if self.lock().is_closed {
            Health::Closed
        } else {
            Health::Writable
        }
    }

    /// Nothing can happen to it but to be closed, which ends whoever looks after it as well.
    fn ails(&self) -> BoxFuture<'static, ()> {
        match self.health() {
            Health::Writable => Box::pin(std::future::pending()),
            _ => Box::pin(std::future::ready(())),
        }
    }

    fn reopen(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.lock().check_open() })
    }

    fn size_bytes(&self) -> u64 {
        self.lock().by_id.values().map(|state| state.size_bytes()).sum()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut logs = self.lock();
            logs.is_closed = true;
            logs.by_id.values().for_each(|state| state.end(closed()));
            Ok(())
        })
    }
}

/// Collects a view; nobody sees it before it is finished.
struct MemorySeed {
    store: MemoryStore,
    log: LogId,
    writes: Vec<ViewWrite>,
}

impl Seed for MemorySeed {
    fn write(&mut self, writes: Vec<ViewWrite>) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.writes.extend(writes);
            Ok(())
        })
    }

    fn finish(mut self: Box<Self>, position: Position) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let writes = std::mem::take(&mut self.writes);
            let mut logs = self.store.lock();
            logs.check_open()?;
            logs.by_id
                .insert(self.log, Arc::new(LogState::new(self.log, position, writes)));
            Ok(())
        })
    }
}

impl Drop for MemorySeed {
    fn drop(&mut self) {
        self.store.lock().seeding.remove(&self.log);
    }
}
