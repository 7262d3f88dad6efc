//! What a unit promises in numbers, held to it exactly: the clock is paused, and every write of a lease is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use orrery_processor::error::StoreError;
use orrery_processor::store::{CheckError, Created, Documents, LeaseStore, MemoryLeases, Written};
use serde_json::Value;

use crate::scene::{Scene, TIMING};

const GRACE: Duration = Duration::from_secs(30);

/// A store that counts what is asked of it.
#[derive(Clone)]
struct Counting {
    inner: MemoryLeases,
    reads: Arc<AtomicUsize>,
    replaces: Arc<AtomicUsize>,
}

impl Counting {
    fn over(inner: &MemoryLeases) -> Counting {
        Counting {
            inner: inner.clone(),
            reads: Arc::default(),
            replaces: Arc::default(),
        }
    }

    fn counts(&self) -> (usize, usize) {
        (self.reads.load(Ordering::SeqCst), self.replaces.load(Ordering::SeqCst))
    }
}

impl LeaseStore for Counting {
    fn check(&self) -> BoxFuture<'_, Result<(), CheckError>> {
        self.inner.check()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Documents, StoreError>> {
        self.inner.list(prefix)
    }

    fn read<'a>(&'a self, like: &'a Value) -> BoxFuture<'a, Result<Option<Value>, StoreError>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.inner.read(like)
    }

    fn create<'a>(&'a self, document: &'a Value) -> BoxFuture<'a, Result<Created, StoreError>> {
        self.inner.create(document)
    }

    fn replace<'a>(&'a self, document: &'a Value, etag: &'a str) -> BoxFuture<'a, Result<Written, StoreError>> {
        self.replaces.fetch_add(1, Ordering::SeqCst);
        self.inner.replace(document, etag).boxed()
    }

    fn delete<'a>(&'a self, like: &'a Value, etag: Option<&'a str>) -> BoxFuture<'a, Result<(), StoreError>> {
        self.inner.delete(like, etag)
    }
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_is_one_write_and_no_read() {
    let scene = Scene::new(1);
    let store = Counting::over(&scene.leases);
    let host = scene.host("a").leases(store.clone()).max_items(1);
    let running = scene.try_start(host, "a").await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (reads, replaces) = store.counts();
    scene.write(50);
    scene.until_complete().await;
    assert_eq!(store.counts(), (reads, replaces + 50), "fifty batches");
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_with_changes_is_not_renewed_besides_and_an_idle_one_once_per_interval() {
    let scene = Scene::new(1);
    let store = Counting::over(&scene.leases);
    let host = scene.host("a").leases(store.clone());
    let running = scene.try_start(host, "a").await.unwrap();
    let (reads, before) = store.counts();
    for _ in 0..60 {
        scene.write(1);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let (_, busy) = store.counts();
    assert_eq!(busy - before, 60, "each batch renews the lease by itself");
    tokio::time::sleep(TIMING.renew * 20).await;
    let (n_reads, idle) = store.counts();
    assert!((19..=21).contains(&(idle - busy)), "{}", idle - busy);
    assert_eq!(n_reads, reads, "the entity tag comes with the answer to the write");
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_and_twenty_eight_leases_are_shared_by_four_hosts_within_three_cycles() {
    let scene = Scene::new(128);
    let mut hosts = vec![scene.start("host0").await];
    assert_eq!(scene.shares().get("host0"), Some(&128));
    scene.write(200);
    scene.until_complete().await;
    // Wherever in the cycle of the first one they come.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let began = tokio::time::Instant::now();
    for number in 1..4 {
        hosts.push(scene.start(&format!("host{number}")).await);
    }
    scene
        .until("equal shares", || {
            scene.shares().len() == 4 && scene.shares().values().all(|share| *share == 32)
        })
        .await;
    assert!(began.elapsed() <= 3 * TIMING.acquire, "{:?}", began.elapsed());
    scene.write(200);
    scene.until_complete().await;
    scene.assert_complete();
    assert!(scene.ledger.repeated().is_empty(), "leases were given, not taken");
    for host in hosts {
        host.stop(GRACE).await;
    }
}
