use std::sync::Arc;

use orrery_model::Epoch;
use orrery_partition::storage::{Health, Log, Role, Store};
use orrery_storage::{MemoryStore, SharedStore};

use crate::LOG;
use crate::support::{value, write};

async fn own(store: &Arc<dyn Store>) -> Arc<dyn Log> {
    store.open(LOG, Role::Own { epoch: Epoch(1) }).await.unwrap()
}

#[tokio::test]
async fn accounts_see_their_own_logs_only() {
    let inner = MemoryStore::new();
    let shared = SharedStore::new(inner.clone());
    let (first, second) = (shared.account(0), shared.account(1));
    let (a, b) = (own(&first).await, own(&second).await);
    write(a.as_ref(), &[("k", Some("first"))]).await.unwrap();
    write(b.as_ref(), &[("k", Some("second"))]).await.unwrap();
    assert_eq!(value(a.as_ref(), "k").as_deref(), Some("first"));
    assert_eq!(b.id(), LOG);
    let listed: Vec<_> = second.list().unwrap().iter().map(|info| info.log).collect();
    assert_eq!(listed, [LOG]);
    assert_eq!(inner.list().unwrap().len(), 2);
    second.drop_log(LOG).await.unwrap();
    assert_eq!(first.list().unwrap().len(), 1);
}

#[tokio::test]
async fn the_store_is_closed_with_its_last_account() {
    let inner = MemoryStore::new();
    let shared = SharedStore::new(inner.clone());
    let (first, second) = (shared.account(0), shared.account(1));
    let log = own(&second).await;
    first.close().await.unwrap();
    assert_eq!((first.health(), inner.health()), (Health::Closed, Health::Writable));
    write(log.as_ref(), &[("k", Some("v"))]).await.unwrap();
    second.close().await.unwrap();
    assert_eq!(inner.health(), Health::Closed);
}
