//! One host's way to the lease store: its wall clock may be off, and the way may end as if the process had died.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use orrery_processor::error::StoreError;
use orrery_processor::store::{CheckError, Created, Documents, LeaseStore, MemoryLeases, Written};
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::Instant;

#[derive(Clone)]
pub struct Way {
    store: MemoryLeases,
    /// What the host's clock says at `since`.
    clock: OffsetDateTime,
    since: Instant,
    is_cut: Arc<AtomicBool>,
}

impl Way {
    /// A host whose clock is off by so many seconds.
    pub fn new(store: &MemoryLeases, skew_s: i64) -> Way {
        Way {
            store: store.clone(),
            clock: OffsetDateTime::from_unix_timestamp(1_800_000_000 + skew_s).unwrap(),
            since: Instant::now(),
            is_cut: Arc::default(),
        }
    }

    /// The host writes and reads nothing any more.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::SeqCst);
    }

    /// The host's own clock, which the machine's cannot stand for: it does not move with a paused one.
    pub fn now(&self) -> OffsetDateTime {
        self.clock + self.since.elapsed()
    }

    async fn pass(&self) {
        if self.is_cut.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }

    fn stamped(&self, document: &Value) -> Value {
        let mut document = document.clone();
        if document.get("timestamp").is_some_and(Value::is_string) {
            document["timestamp"] = Value::from(self.now().format(&Rfc3339).unwrap());
        }
        document
    }
}

impl LeaseStore for Way {
    fn check(&self) -> BoxFuture<'_, Result<(), CheckError>> {
        self.store.check()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Documents, StoreError>> {
        async move {
            self.pass().await;
            self.store.list(prefix).await
        }
        .boxed()
    }

    fn read<'a>(&'a self, like: &'a Value) -> BoxFuture<'a, Result<Option<Value>, StoreError>> {
        async move {
            self.pass().await;
            self.store.read(like).await
        }
        .boxed()
    }

    fn create<'a>(&'a self, document: &'a Value) -> BoxFuture<'a, Result<Created, StoreError>> {
        async move {
            self.pass().await;
            self.store.create(&self.stamped(document)).await
        }
        .boxed()
    }

    fn replace<'a>(&'a self, document: &'a Value, etag: &'a str) -> BoxFuture<'a, Result<Written, StoreError>> {
        async move {
            self.pass().await;
            self.store.replace(&self.stamped(document), etag).await
        }
        .boxed()
    }

    fn delete<'a>(&'a self, like: &'a Value, etag: Option<&'a str>) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            self.pass().await;
            self.store.delete(like, etag).await
        }
        .boxed()
    }
}
