//! Where leases live: documents under one prefix, with entity tags and the server's clock.
//!
//! The trait knows documents, not leases, because a unit also keeps its lock, its mark of being initialised and requests
//! between hosts there. Invariants every store promises: a create of an id that exists changes nothing; a replace happens
//! only if the entity tag is the current one; a listing shows every write that was confirmed before it was asked for.

mod container;
mod file;
mod memory;

use futures::future::BoxFuture;
use serde_json::Value;

pub use container::ContainerLeases;
pub(crate) use container::store_error;
pub use file::FileLeases;
pub use memory::MemoryLeases;

use crate::error::StoreError;

/// The documents of a unit at one moment.
#[derive(Clone, Debug, Default)]
pub struct Documents {
    pub documents: Vec<Value>,
    /// The server's clock when it answered; absent where a store has no clock of its own.
    pub server_now_ms: Option<u64>,
    pub charge: f64,
}

/// A confirmed write.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    pub etag: String,
    pub charge: f64,
}

/// What a create came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Created {
    New(Written),
    /// The id is taken; nothing was changed.
    Exists,
}

/// A place for lease documents.
pub trait LeaseStore: Send + Sync + 'static {
    /// Checks once that documents can be kept here; the error names what is wrong with the store.
    fn check(&self) -> BoxFuture<'_, Result<(), CheckError>>;

    /// Every document whose id begins with `prefix`.
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Documents, StoreError>>;

    /// `like` is any version of the document: its id and, where the store is keyed by it, its partition key.
    fn read<'a>(&'a self, like: &'a Value) -> BoxFuture<'a, Result<Option<Value>, StoreError>>;

    fn create<'a>(&'a self, document: &'a Value) -> BoxFuture<'a, Result<Created, StoreError>>;

    fn replace<'a>(&'a self, document: &'a Value, etag: &'a str) -> BoxFuture<'a, Result<Written, StoreError>>;

    /// Deleting what does not exist is `NotFound`.
    fn delete<'a>(&'a self, like: &'a Value, etag: Option<&'a str>) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// A store that cannot keep leases.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("the lease container is keyed by `{0}`")]
    KeyPath(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Id of a document; empty text where it has none, which no store holds.
pub(crate) fn id_of(document: &Value) -> &str {
    text_of(document, "id").unwrap_or_default()
}

pub(crate) fn text_of<'a>(document: &'a Value, field: &str) -> Option<&'a str> {
    document.get(field).and_then(Value::as_str)
}
