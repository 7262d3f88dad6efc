//! What every store promises. Each promise is checked against every implementation; a behaviour that is not here is not in
//! the traits.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use orrery_model::{Epoch, LogId};
use orrery_nats_server::{Server, Settings};
use orrery_partition::storage::{Log, Role, Store};
use orrery_storage::{EmbeddedSettings, EmbeddedStore, MemoryStore, NatsSettings, NatsStore, SharedStore};
use tempfile::TempDir;

#[path = "../support/mod.rs"]
mod support;

/// Checks one promise against every store.
macro_rules! promise {
    (async fn $name:ident($harness:ident) $check:block) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            async fn check($harness: crate::Harness) $check

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn memory() {
                check(crate::Harness::memory()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn embedded() {
                check(crate::Harness::embedded()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn shared() {
                check(crate::Harness::shared()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn nats() {
                check(crate::Harness::nats().await).await;
            }
        }
    };
}

/// Durable and visible on return, all or nothing, at the expected position.
mod append;
/// Two logs made of one.
mod branch;
/// Closing, and what a store says about itself.
mod close;
/// Removing a log.
mod drop_log;
/// Who may append.
mod ownership;
/// Reading, awaiting, holding and trimming the log.
mod read_log;
/// Installing a whole view.
mod seed;
/// Several accounts in one store.
mod shared;
/// Immutable views.
mod snapshot;

const LOG: LogId = LogId(7);
const OTHER: LogId = LogId(8);

/// A store to check, empty.
struct Harness {
    store: Arc<dyn Store>,
    embedded: Option<Arc<EmbeddedStore>>,
    nats: Option<Arc<NatsStore>>,
    _dir: Option<TempDir>,
}

/// One server for all tests; each has a store of its own name on it.
static NATS: LazyLock<Server> = LazyLock::new(|| Server::start(&Settings::default()).unwrap());

impl Harness {
    fn memory() -> Harness {
        Harness {
            store: MemoryStore::new(),
            embedded: None,
            nats: None,
            _dir: None,
        }
    }

    fn embedded() -> Harness {
        let dir = tempfile::tempdir().unwrap();
        let settings = EmbeddedSettings {
            free_reserve_bytes: 0,
            ..EmbeddedSettings::default()
        };
        let store = EmbeddedStore::open(dir.path(), settings, Arc::new(support::TestProject)).unwrap();
        Harness {
            store: store.clone(),
            embedded: Some(store),
            nats: None,
            _dir: Some(dir),
        }
    }

    async fn nats() -> Harness {
        static N_STORES: AtomicUsize = AtomicUsize::new(0);
        let dir = tempfile::tempdir().unwrap();
        let settings = NatsSettings {
            replicas: 1,
            n_streams: 2,
            local: EmbeddedSettings {
                free_reserve_bytes: 0,
                ..EmbeddedSettings::default()
            },
            ..NatsSettings::new(&format!("test-{}", N_STORES.fetch_add(1, Ordering::Relaxed)))
        };
        let client = async_nats::connect(NATS.url()).await.unwrap();
        let store = NatsStore::open(client, dir.path(), settings, Arc::new(support::TestProject));
        let store = store.await.unwrap();
        Harness {
            store: store.clone(),
            embedded: None,
            nats: Some(store),
            _dir: Some(dir),
        }
    }

    /// One account's part of a store that has others.
    fn shared() -> Harness {
        let store = SharedStore::new(MemoryStore::new());
        Harness {
            store: store.account(3),
            embedded: None,
            nats: None,
            _dir: None,
        }
    }

    /// A log this test owns.
    async fn own(&self, log: LogId) -> Arc<dyn Log> {
        self.store.open(log, Role::Own { epoch: Epoch(1) }).await.unwrap()
    }

    /// Makes the view durable where it is not always so, because trimming goes no further.
    async fn checkpoint(&self) {
        if let Some(store) = &self.embedded {
            store.checkpoint().await.unwrap();
        }
        if let Some(store) = &self.nats {
            store.checkpoint().await.unwrap();
        }
    }
}
