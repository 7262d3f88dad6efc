//! A place for changes that cannot be handled, so that one of them does not hold up its range for ever.
//!
//! A letter holds the change as it came and why it could not be handled. Its id is a hash of what it is about, so writing
//! it again changes nothing. With key parking, later changes of the same key follow it here, in order, until they are
//! replayed. Invariant: a letter is stored before the position moves past its change.

mod container;
mod memory;
mod replay;

use futures::future::BoxFuture;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use container::ContainerDeadLetters;
pub use memory::MemoryDeadLetters;
pub use replay::{Replay, ReplayError, replay};

use crate::error::StoreError;
use crate::feed::{Change, ChangeMetadata, Operation};
use crate::range::EpkRange;

/// One change that was not handled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    pub id: String,
    pub processor: String,
    /// Resource id of the monitored container.
    pub source: String,
    pub lease_token: String,
    /// Keys that the lease covered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<EpkRange>,
    /// The item's partition key as JSON text.
    pub key: String,
    pub item_id: Option<String>,
    pub lsn: Option<u64>,
    pub committed_at: Option<u64>,
    pub operation: Option<String>,
    /// Not tried at all: an earlier change of its key was dead-lettered.
    pub parked: bool,
    /// Failed calls of the delegate that had it in their batch.
    pub attempts: u32,
    /// When the first of them failed, by the host's clock, RFC 3339. Absent where nothing was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failed_at: Option<String>,
    /// When it was given up.
    pub failed_at: String,
    pub error: String,
    pub current: Option<Value>,
    pub previous: Option<Value>,
}

impl DeadLetter {
    /// What a letter is about decides its id. Two versions of one item differ in their LSN.
    pub fn id_of(source: &str, key: &str, change: &Change) -> String {
        let lsn = change.metadata.lsn.unwrap_or_default().to_string();
        let parts = [source, change.id().unwrap_or_default(), key, &lsn];
        let hash = digest(&SHA256, parts.join("\n").as_bytes());
        hash.as_ref()
            .iter()
            .take(20)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    /// The change, as it will be handled again.
    pub fn change(&self) -> Change {
        let operation = self.operation.as_deref().map(|name| match name {
            "create" => Operation::Create,
            "replace" => Operation::Replace,
            "delete" => Operation::Delete,
            _ => Operation::Unknown,
        });
        Change {
            current: self.current.clone(),
            previous: self.previous.clone(),
            metadata: ChangeMetadata {
                lsn: self.lsn,
                committed_at_s: self.committed_at,
                operation,
                id: self.item_id.clone(),
                partition_key: serde_json::from_str(&self.key).ok(),
                ..ChangeMetadata::default()
            },
        }
    }
}

pub(crate) fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "create",
        Operation::Replace => "replace",
        Operation::Delete => "delete",
        Operation::Unknown => "unknown",
    }
}

/// Where letters go.
pub trait DeadLetterStore: Send + Sync + 'static {
    /// Stores a letter, over an earlier one with its id.
    fn put<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), StoreError>>;

    /// A processor's letters, at most `limit`, those of one key in the order of their LSNs.
    fn list<'a>(&'a self, processor: &'a str, limit: usize) -> BoxFuture<'a, Result<Vec<DeadLetter>, StoreError>>;

    /// Keys of a processor that have letters.
    fn keys<'a>(&'a self, processor: &'a str) -> BoxFuture<'a, Result<Vec<String>, StoreError>>;

    fn delete<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// The order in which letters are replayed: by key, then as the changes happened.
pub(crate) fn sort(letters: &mut [DeadLetter]) {
    letters.sort_by(|one, other| (&one.key, one.lsn, &one.id).cmp(&(&other.key, other.lsn, &other.id)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_change_has_the_same_letter_and_another_version_another() {
        let change = |lsn| Change {
            current: Some(json!({"id": "a"})),
            previous: None,
            metadata: ChangeMetadata {
                lsn: Some(lsn),
                ..Default::default()
            },
        };
        let id = |source, key, lsn| DeadLetter::id_of(source, key, &change(lsn));
        assert_eq!(id("c", "[1]", 7), id("c", "[1]", 7));
        let others = [id("c", "[1]", 8), id("c", "[2]", 7), id("d", "[1]", 7)];
        assert!(!others.contains(&id("c", "[1]", 7)));
    }
}
