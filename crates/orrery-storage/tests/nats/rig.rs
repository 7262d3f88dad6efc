use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use orrery_model::log::Operation;
use orrery_model::{Epoch, LogId, Lsn, Position};
use orrery_partition::storage::{Log, Role, StorageError, Store};
use orrery_storage::{EmbeddedSettings, NatsSettings, NatsStore};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::support::{Model, TestProject, content, text, write};

/// Nothing here takes longer unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(90);

pub fn settings(name: &str, replicas: usize) -> NatsSettings {
    NatsSettings {
        replicas,
        n_streams: 2,
        local: EmbeddedSettings {
            free_reserve_bytes: 0,
            // Only what is asked for is trimmed, so that whole logs can be read back.
            log_keep_bytes: u64::MAX,
            ..EmbeddedSettings::default()
        },
        ..NatsSettings::new(name)
    }
}

pub async fn open(urls: &[String], dir: &Path, settings: NatsSettings) -> Arc<NatsStore> {
    try_open(urls, dir, settings).await.unwrap()
}

pub async fn client(urls: &[String]) -> async_nats::Client {
    let options = async_nats::ConnectOptions::new().retry_on_initial_connect();
    let client = options.connect(urls.to_vec()).await.unwrap();
    client.flush().await.unwrap();
    client
}

pub async fn try_open(urls: &[String], dir: &Path, settings: NatsSettings) -> Result<Arc<NatsStore>, StorageError> {
    NatsStore::open(client(urls).await, dir, settings, Arc::new(TestProject)).await
}

pub async fn own(store: &NatsStore, log: LogId, epoch: u32) -> Arc<dyn Log> {
    store.open(log, Role::Own { epoch: Epoch(epoch) }).await.unwrap()
}

/// Whether the long versions are wanted.
pub fn is_soak() -> bool {
    std::env::var_os("ORRERY_SOAK").is_some()
}

/// Tasks that append to logs without pause, and what was acknowledged to them.
pub struct Writers {
    tasks: JoinSet<(LogId, BTreeSet<String>)>,
    stop: Arc<AtomicBool>,
    n_acknowledged: watch::Sender<usize>,
}

impl Writers {
    pub async fn start(store: &NatsStore, n_logs: u64) -> Writers {
        let mut writers = Writers {
            tasks: JoinSet::new(),
            stop: Arc::default(),
            n_acknowledged: watch::Sender::new(0),
        };
        for id in 1..=n_logs {
            let log = own(store, LogId(id), 1).await;
            let (stop, n_acknowledged) = (writers.stop.clone(), writers.n_acknowledged.clone());
            writers.tasks.spawn(async move {
                let acknowledged = write_until(&*log, &stop, &n_acknowledged).await;
                (LogId(id), acknowledged)
            });
        }
        writers
    }

    /// Waits until so many more appends were acknowledged.
    pub async fn progress(&self, n_more: usize) {
        let goal = *self.n_acknowledged.borrow() + n_more;
        let mut counted = self.n_acknowledged.subscribe();
        let reached = counted.wait_for(|n| *n >= goal);
        tokio::time::timeout(PATIENCE, reached)
            .await
            .expect("appends go on")
            .unwrap();
    }

    pub async fn stop(self) -> Vec<(LogId, BTreeSet<String>)> {
        self.stop.store(true, Ordering::Release);
        self.tasks.join_all().await
    }
}

/// Appends a new key each time; goes on from wherever the log stands after a failure.
async fn write_until(log: &dyn Log, stop: &AtomicBool, n_acknowledged: &watch::Sender<usize>) -> BTreeSet<String> {
    static N_KEYS: AtomicUsize = AtomicUsize::new(0);
    let mut acknowledged = BTreeSet::new();
    while !stop.load(Ordering::Acquire) {
        let key = format!("key {}", N_KEYS.fetch_add(1, Ordering::Relaxed));
        match write(log, &[(&key, Some("value"))]).await {
            Ok(_) => {
                acknowledged.insert(key);
                n_acknowledged.send_modify(|n| *n += 1);
            }
            Err(StorageError::Corrupt(problem)) => panic!("{problem}"),
            Err(_) => {}
        }
    }
    acknowledged
}

/// Reads a whole log from its beginning, checks that every transaction follows the one before, and answers the keys.
pub async fn verified_keys(log: &dyn Log) -> Vec<String> {
    let transactions = log.read_log(Lsn::ZERO, usize::MAX).await.unwrap();
    let mut position = Position::default();
    let mut keys = Vec::new();
    for transaction in &transactions {
        assert!(
            transaction.follows(position),
            "{} does not follow {position:?}",
            transaction.lsn
        );
        position = transaction.position();
        for operation in &transaction.operations {
            if let Operation::Record { key, .. } = operation {
                keys.push(text(key).to_owned());
            }
        }
    }
    assert_eq!(position, log.head());
    let view = content(log.snapshot().unwrap().as_ref());
    assert!(
        view == Model::replay(&transactions).0,
        "the view of log {} is not what its log says",
        log.id()
    );
    keys
}

/// Everything acknowledged is in the streams, once, for a node that has nothing else.
pub async fn verify(urls: &[String], settings: NatsSettings, acknowledged: Vec<(LogId, BTreeSet<String>)>) {
    let dir = tempfile::tempdir().unwrap();
    let store = open(urls, dir.path(), settings).await;
    for (id, acknowledged) in acknowledged {
        assert!(!acknowledged.is_empty(), "log {id} made no progress");
        let log = store.open(id, Role::Follow).await.unwrap();
        let keys = verified_keys(&*log).await;
        let found: BTreeSet<String> = keys.iter().cloned().collect();
        assert_eq!(found.len(), keys.len(), "an append was stored twice");
        let lost: Vec<_> = acknowledged.difference(&found).collect();
        assert!(lost.is_empty(), "log {id} lost {lost:?}");
    }
    store.close().await.unwrap();
}
