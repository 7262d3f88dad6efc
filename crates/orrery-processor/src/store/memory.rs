//! Leases in the memory of one process: every start begins anew, and every process sees everything.
//!
//! Also what the tests share between hosts: it keeps the promises of a store, entity tags included.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use super::{CheckError, Created, Documents, LeaseStore, Written, id_of};
use crate::error::StoreError;

/// A store that ends with the process. Clones share it.
#[derive(Clone, Debug)]
pub struct MemoryLeases {
    held: Arc<Mutex<Held>>,
    /// The store's clock: monotonic, from an arbitrary start.
    epoch: Instant,
}

#[derive(Debug, Default)]
struct Held {
    documents: BTreeMap<String, Value>,
    n_writes: u64,
}

impl Default for MemoryLeases {
    fn default() -> MemoryLeases {
        MemoryLeases::new()
    }
}

impl MemoryLeases {
    pub fn new() -> MemoryLeases {
        MemoryLeases {
            held: Arc::default(),
            epoch: Instant::now(),
        }
    }

    /// Everything held, for saving elsewhere.
    pub fn documents(&self) -> Vec<Value> {
        self.with(|held| held.documents.values().cloned().collect())
    }

    /// Holds these instead, as they were saved.
    pub fn restore(&self, documents: Vec<Value>) {
        self.with(|held| {
            held.documents.clear();
            for document in documents {
                let (id, now) = (id_of(&document).to_owned(), self.now());
                held.put(id, document, now);
            }
        });
    }

    fn with<T>(&self, work: impl FnOnce(&mut Held) -> T) -> T {
        work(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn now(&self) -> Duration {
        // A day ahead of the start, so that ages can be subtracted.
        self.epoch.elapsed() + Duration::from_secs(86_400)
    }

    fn listed(&self, prefix: &str) -> Documents {
        let now = self.now();
        let documents = self.with(|held| {
            held.expire(now);
            let matching = held.documents.range(prefix.to_owned()..);
            let matching = matching.take_while(|(id, _)| id.starts_with(prefix));
            matching.map(|(_, document)| document.clone()).collect()
        });
        Documents {
            documents,
            server_now_ms: Some(now.as_millis() as u64),
            charge: 0.0,
        }
    }

    fn created(&self, document: &Value) -> Created {
        let now = self.now();
        self.with(|held| {
            held.expire(now);
            if held.documents.contains_key(id_of(document)) {
                return Created::Exists;
            }
            Created::New(held.put(id_of(document).to_owned(), document.clone(), now))
        })
    }

    fn replaced(&self, document: &Value, etag: &str) -> Result<Written, StoreError> {
        let now = self.now();
        self.with(|held| {
            held.check(id_of(document), Some(etag))?;
            Ok(held.put(id_of(document).to_owned(), document.clone(), now))
        })
    }

    fn deleted(&self, like: &Value, etag: Option<&str>) -> Result<(), StoreError> {
        self.with(|held| {
            held.check(id_of(like), etag)?;
            held.documents.remove(id_of(like));
            Ok(())
        })
    }
}

impl Held {
    fn put(&mut self, id: String, mut document: Value, now: Duration) -> Written {
        self.n_writes += 1;
        let etag = format!("\"{:x}\"", self.n_writes);
        document["_etag"] = Value::from(etag.as_str());
        document["_ts"] = Value::from(now.as_secs());
        self.documents.insert(id, document);
        Written { etag, charge: 0.0 }
    }

    fn check(&self, id: &str, etag: Option<&str>) -> Result<(), StoreError> {
        let stored = self.documents.get(id).ok_or(StoreError::NotFound)?;
        match etag {
            Some(etag) if super::text_of(stored, "_etag") != Some(etag) => Err(StoreError::Changed),
            _ => Ok(()),
        }
    }

    /// Forgets documents whose `ttl` has passed.
    fn expire(&mut self, now: Duration) {
        self.documents.retain(|_, document| {
            let ttl = document.get("ttl").and_then(Value::as_u64);
            let written = document.get("_ts").and_then(Value::as_u64).unwrap_or(0);
            ttl.is_none_or(|ttl| now.as_secs() < written + ttl)
        });
    }
}

impl LeaseStore for MemoryLeases {
    fn check(&self) -> BoxFuture<'_, Result<(), CheckError>> {
        async { Ok(()) }.boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Documents, StoreError>> {
        async move { Ok(self.listed(prefix)) }.boxed()
    }

    fn read<'a>(&'a self, like: &'a Value) -> BoxFuture<'a, Result<Option<Value>, StoreError>> {
        async move {
            let now = self.now();
            Ok(self.with(|held| {
                held.expire(now);
                held.documents.get(id_of(like)).cloned()
            }))
        }
        .boxed()
    }

    fn create<'a>(&'a self, document: &'a Value) -> BoxFuture<'a, Result<Created, StoreError>> {
        async move { Ok(self.created(document)) }.boxed()
    }

    fn replace<'a>(&'a self, document: &'a Value, etag: &'a str) -> BoxFuture<'a, Result<Written, StoreError>> {
        async move { self.replaced(document, etag) }.boxed()
    }

    fn delete<'a>(&'a self, like: &'a Value, etag: Option<&'a str>) -> BoxFuture<'a, Result<(), StoreError>> {
        async move { self.deleted(like, etag) }.boxed()
    }
}
