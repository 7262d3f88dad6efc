//! A store on a simulated disk, with a record of what was asked of it and what it acknowledged.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use orrery_model::log::Transaction;
use orrery_model::{Epoch, LogId, Lsn, Position};
use orrery_partition::storage::{Log, Result, Role, StorageError, Store};
use orrery_storage::embedded::DiskFiles;
use orrery_storage::{EmbeddedSettings, EmbeddedStore};
use tempfile::TempDir;

use crate::disk::Disk;
use crate::support::{Model, TestProject, Writes, chain, content, stage};

/// Settings that make everything happen early.
pub fn small() -> EmbeddedSettings {
    EmbeddedSettings {
        write_buffer_bytes: 16 << 10,
        segment_bytes: 2 << 10,
        replay_bytes_max: 8 << 10,
        log_keep_bytes: 0,
        free_reserve_bytes: 1000,
        ..EmbeddedSettings::default()
    }
}

/// Settings under which the log is never trimmed.
pub fn keeping() -> EmbeddedSettings {
    EmbeddedSettings {
        log_keep_bytes: u64::MAX,
        ..small()
    }
}

pub fn open(dir: &Path, settings: EmbeddedSettings, disk: &Disk) -> Result<Arc<EmbeddedStore>> {
    EmbeddedStore::open_with(dir, settings, Arc::new(TestProject), Arc::new(disk.clone()))
}

/// Opens a store on real files.
pub fn open_on_disk(dir: &Path, settings: EmbeddedSettings) -> Result<Arc<EmbeddedStore>> {
    let files = DiskFiles::new(&dir.join("log")).unwrap();
    EmbeddedStore::open_with(dir, settings, Arc::new(TestProject), Arc::new(files))
}

/// A store with a directory of its own.
pub struct Rig {
    pub dir: TempDir,
    pub disk: Disk,
    pub store: Arc<EmbeddedStore>,
}

impl Rig {
    pub fn new(settings: EmbeddedSettings) -> Rig {
        let (dir, disk) = (tempfile::tempdir().unwrap(), Disk::default());
        let store = open(dir.path(), settings, &disk).unwrap();
        Rig { dir, disk, store }
    }

    pub async fn own(&self, log: LogId) -> Arc<dyn Log> {
        self.store.open(log, Role::Own { epoch: Epoch(1) }).await.unwrap()
    }

    /// Gives the store up as a crash of the process would, and opens it again.
    pub fn crash(self, settings: EmbeddedSettings) -> Result<Rig> {
        let Rig { dir, disk, store } = self;
        drop(store);
        let store = open(dir.path(), settings, &disk)?;
        Ok(Rig { dir, disk, store })
    }
}

/// What was asked of one log.
#[derive(Default)]
pub struct Asked {
    /// Every transaction that may be in the log, in order.
    pub transactions: Vec<Transaction>,
    /// Where each append would leave the log.
    pub ends: Vec<Position>,
    /// The last position that was acknowledged.
    pub acknowledged: Position,
}

/// What was asked of all logs.
#[derive(Default)]
pub struct History {
    pub logs: BTreeMap<LogId, Asked>,
}

impl History {
    /// Appends and remembers what came of it.
    pub async fn append(&mut self, log: &dyn Log, writes: &[Writes<'_>]) -> Result<()> {
        let asked = self.logs.entry(log.id()).or_default();
        let head = log.head();
        let transactions = chain(head, writes);
        let staged = stage(log, transactions.clone());
        let end = transactions.last().unwrap().position();
        asked.transactions.extend(transactions);
        asked.ends.push(end);
        let result = log.append(head, staged).await;
        match &result {
            Ok(()) => asked.acknowledged = end,
            Err(StorageError::Unknown(_)) => {}
            Err(_) => {
                asked.ends.pop();
                asked.transactions.truncate(asked.transactions.len() - writes.len());
            }
        }
        result
    }

    /// Every acknowledged append is there, none is there in part, and the views are what the logs imply.
    pub async fn check(&self, store: &dyn Store) {
        for (id, asked) in &self.logs {
            let log = store.open(*id, Role::Follow).await.unwrap();
            let head = log.head();
            assert!(
                head.lsn >= asked.acknowledged.lsn,
                "log {id}: acknowledged {:?}, found {head:?}",
                asked.acknowledged
            );
            assert!(
                head == Position::default() || asked.ends.contains(&head),
                "log {id} ends inside an append"
            );
            let expected: Vec<_> = asked.transactions.iter().filter(|one| one.lsn <= head.lsn).collect();
            let snapshot = log.snapshot().unwrap();
            assert_eq!(snapshot.position(), head);
            assert_eq!(
                content(snapshot.as_ref()),
                Model::replay(expected.iter().copied()).0,
                "the view of log {id}"
            );
            // The store trims by itself; without a hold its log could start higher from one read to the next.
            let _hold = log.hold(Lsn::ZERO);
            let start = match log.read_log(Lsn::ZERO, 1).await {
                Err(StorageError::Trimmed { start }) => start,
                other => other.map(|_| Lsn::ZERO).unwrap(),
            };
            let read = log.read_log(start, usize::MAX).await.unwrap();
            let kept: Vec<_> = expected.into_iter().filter(|one| one.lsn > start).cloned().collect();
            assert_eq!(read, kept, "log {id} from {start}");
        }
    }
}
