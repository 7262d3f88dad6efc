//! A lease store that remembers what is created, and refuses, holds back or panics at what a test wants it to.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use orrery_processor::error::StoreError;
use orrery_processor::store::{CheckError, Created, Documents, LeaseStore, MemoryLeases, Written};
use serde_json::Value;

#[derive(Clone)]
pub struct Door {
    store: MemoryLeases,
    refuses_deletes: Arc<AtomicBool>,
    hangs_reads: Arc<AtomicBool>,
    hangs_lists: Arc<AtomicBool>,
    hangs_writes: Arc<AtomicBool>,
    throttles_writes: Arc<AtomicBool>,
    panics_at_list: Arc<AtomicBool>,
    n_listed: Arc<AtomicUsize>,
    n_refused: Arc<AtomicUsize>,
    /// How many leases may still be created.
    n_leases_left: Arc<AtomicUsize>,
    created: Arc<Mutex<Vec<Value>>>,
}

impl Door {
    pub fn new(store: &MemoryLeases) -> Door {
        Door {
            store: store.clone(),
            refuses_deletes: Arc::default(),
            hangs_reads: Arc::default(),
            hangs_lists: Arc::default(),
            hangs_writes: Arc::default(),
            throttles_writes: Arc::default(),
            panics_at_list: Arc::default(),
            n_listed: Arc::default(),
            n_refused: Arc::default(),
            n_leases_left: Arc::new(AtomicUsize::new(usize::MAX)),
            created: Arc::default(),
        }
    }

    pub fn refuse_deletes(&self, refuses: bool) {
        self.refuses_deletes.store(refuses, Ordering::SeqCst);
    }

    /// Reads of single documents are never answered.
    pub fn hang_reads(&self) {
        self.hangs_reads.store(true, Ordering::SeqCst);
    }

    /// Listings are never answered.
    pub fn hang_lists(&self) {
        self.hangs_lists.store(true, Ordering::SeqCst);
    }

    /// Documents are never replaced.
    pub fn hang_writes(&self) {
        self.hangs_writes.store(true, Ordering::SeqCst);
    }

    /// Documents are not replaced for now; whoever tries is told to come back later.
    pub fn throttle_writes(&self, throttles: bool) {
        self.throttles_writes.store(throttles, Ordering::SeqCst);
    }

    /// The next listing ends in a panic.
    pub fn panic_at_list(&self) {
        self.panics_at_list.store(true, Ordering::SeqCst);
    }

    pub fn n_listed(&self) -> usize {
        self.n_listed.load(Ordering::SeqCst)
    }

    /// After so many more leases, creating one is never answered.
    pub fn hang_after_leases(&self, n_leases: usize) {
        self.n_leases_left.store(n_leases, Ordering::SeqCst);
    }

    pub fn n_refused(&self) -> usize {
        self.n_refused.load(Ordering::SeqCst)
    }

    /// Every document that was created, as it was sent.
    pub fn created(&self) -> Vec<Value> {
        self.created.lock().unwrap().clone()
    }
}

impl LeaseStore for Door {
    fn check(&self) -> BoxFuture<'_, Result<(), CheckError>> {
        self.store.check()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Documents, StoreError>> {
        assert!(!self.panics_at_list.swap(false, Ordering::SeqCst), "told to panic");
        self.n_listed.fetch_add(1, Ordering::SeqCst);
        if self.hangs_lists.load(Ordering::SeqCst) {
            return std::future::pending().boxed();
        }
        self.store.list(prefix)
    }

    fn read<'a>(&'a self, like: &'a Value) -> BoxFuture<'a, Result<Option<Value>, StoreError>> {
        if self.hangs_reads.load(Ordering::SeqCst) {
            return std::future::pending().boxed();
        }
        self.store.read(like)
    }

    fn create<'a>(&'a self, document: &'a Value) -> BoxFuture<'a, Result<Created, StoreError>> {
        let is_lease = document["id"].as_str().unwrap().contains("..");
        let left = &self.n_leases_left;
        let less = |n_left: usize| n_left.checked_sub(1);
        if is_lease && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_err() {
            return std::future::pending().boxed();
        }
        self.created.lock().unwrap().push(document.clone());
        self.store.create(document)
    }

    fn replace<'a>(&'a self, document: &'a Value, etag: &'a str) -> BoxFuture<'a, Result<Written, StoreError>> {
        if self.hangs_writes.load(Ordering::SeqCst) {
            return std::future::pending().boxed();
        }
        if self.throttles_writes.load(Ordering::SeqCst) {
            self.n_refused.fetch_add(1, Ordering::SeqCst);
            let retry_after = Some(Duration::from_millis(500));
            return async move { Err(StoreError::Throttled { retry_after }) }.boxed();
        }
        self.store.replace(document, etag)
    }

    fn delete<'a>(&'a self, like: &'a Value, etag: Option<&'a str>) -> BoxFuture<'a, Result<(), StoreError>> {
        if self.refuses_deletes.load(Ordering::SeqCst) {
            self.n_refused.fetch_add(1, Ordering::SeqCst);
            return async { Err(StoreError::Refused("forbidden".into())) }.boxed();
        }
        self.store.delete(like, etag)
    }
}
