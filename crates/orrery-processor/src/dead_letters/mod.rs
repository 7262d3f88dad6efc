//! A place for changes that cannot be handled, so that one of them does not hold up its range for ever.
//!
//! A letter holds the change as it came and why it could not be handled. Its id is a hash of what it is about, so writing
//! it again changes nothing. With key parking, later changes of the same key follow it here, in order, until they are
//! replayed. Invariant: a letter is stored before the position moves past its change.

mod container;
mod memory;
mod replay;

use futures::FutureExt as _;
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
    /// The lease's epoch when the change was given up: what went before it in its key came under this one or a lower one.
    #[serde(default)]
    pub epoch: u64,
    /// Keys that the lease covered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<EpkRange>,
    /// The item's partition key as JSON text.
    pub key: String,
    pub item_id: Option<String>,
    pub lsn: Option<u64>,
    /// Place within its transaction, among the changes of its key.
    #[serde(default)]
    pub index: u32,
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
    /// What a letter is about decides its id. Two versions of one item differ in their LSN or, if one transaction made both, in
    /// the number of versions before them in it.
    pub fn id_of(source: &str, key: &str, change: &Change, n_before: u32) -> String {
        let lsn = change.metadata.lsn.unwrap_or_default().to_string();
        let mut parts = vec![source, change.id().unwrap_or_default(), key, &lsn];
        let n_before = n_before.to_string();
        if n_before != "0" {
            parts.push(&n_before);
        }
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

/// Where a change stands within its transaction. Latest versions have one change per item there; what of a transaction was
/// overwritten since is not told any more, so only the item's own versions are counted for what has to stay the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Within {
    /// Among the changes of its key.
    pub index: u32,
    /// How many changes of the same item come before it.
    pub n_before: u32,
}

impl Within {
    /// Of a change among others, those of its key in order.
    pub fn of(changes: &[Change], at: usize, key_paths: &[String]) -> Within {
        let (change, key) = (&changes[at], changes[at].key(key_paths));
        let is_beside = |other: &&Change| other.metadata.lsn == change.metadata.lsn && other.key(key_paths) == key;
        let before = || changes[..at].iter().filter(is_beside);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Within {
            index: count(before().count()),
            n_before: count(before().filter(|other| other.id() == change.id()).count()),
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

    /// Keys of a processor that have letters.
    fn keys<'a>(&'a self, processor: &'a str) -> BoxFuture<'a, Result<Vec<String>, StoreError>>;

    /// Letters of one key in the order of their LSNs, those of one transaction in the order of its operations, that come after a
    /// letter; all that come before the last one given are among them. About `limit`: a transaction is not cut.
    fn of_key<'a>(
        &'a self,
        processor: &'a str,
        key: &'a str,
        after: Option<&'a DeadLetter>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>, StoreError>>;

    /// A processor's letters, at most `limit`, key by key.
    fn list<'a>(&'a self, processor: &'a str, limit: usize) -> BoxFuture<'a, Result<Vec<DeadLetter>, StoreError>> {
        let listing = async move {
            let mut letters = Vec::new();
            for key in self.keys(processor).await? {
                while letters.len() < limit {
                    let after = letters.last().filter(|last: &&DeadLetter| last.key == key);
                    let more = self.of_key(processor, &key, after, limit - letters.len()).await?;
                    if more.is_empty() {
                        break;
                    }
                    letters.extend(more);
                }
            }
            letters.truncate(limit);
            Ok(letters)
        };
        listing.boxed()
    }

    fn delete<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// A letter's place in the order in which letters are replayed: by key, then as the changes happened.
fn place(letter: &DeadLetter) -> (&str, Option<u64>, u32, &str) {
    (&letter.key, letter.lsn, letter.index, &letter.id)
}

pub(crate) fn sort(letters: &mut [DeadLetter]) {
    letters.sort_by(|one, other| place(one).cmp(&place(other)));
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
        let id = |source, key, lsn, n_before| DeadLetter::id_of(source, key, &change(lsn), n_before);
        assert_eq!(id("c", "[1]", 7, 0), id("c", "[1]", 7, 0));
        let others = [
            id("c", "[1]", 8, 0),
            id("c", "[2]", 7, 0),
            id("d", "[1]", 7, 0),
            id("c", "[1]", 7, 1),
        ];
        assert!(!others.contains(&id("c", "[1]", 7, 0)));
    }
}
