//! Letters in a container of any shape, through the official SDK.
//!
//! The container may be keyed by whatever its owner likes. A key that the letter does not have by itself is filled with the
//! processor's name and the source's key, so that one key's letters lie together.

use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::{FeedScope, Query};
use azure_data_cosmos::models::PartitionKey;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::OnceCell;

use super::{DeadLetter, DeadLetterStore, place, sort};
use crate::error::StoreError;
use crate::store::store_error;

const KEYS: &str = "SELECT VALUE c.key FROM c WHERE c.processor = @processor";
const OF_KEY: &str = "SELECT * FROM c WHERE c.processor = @processor AND c.key = @key ORDER BY c.lsn";
const OF_KEY_FROM: &str =
    "SELECT * FROM c WHERE c.processor = @processor AND c.key = @key AND c.lsn >= @lsn ORDER BY c.lsn";

/// A container that takes letters.
#[derive(Clone)]
pub struct ContainerDeadLetters {
    client: ContainerClient,
    key_paths: std::sync::Arc<OnceCell<Vec<String>>>,
}

impl std::fmt::Debug for ContainerDeadLetters {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ContainerDeadLetters").finish_non_exhaustive()
    }
}

impl ContainerDeadLetters {
    pub fn new(client: ContainerClient) -> ContainerDeadLetters {
        ContainerDeadLetters {
            client,
            key_paths: std::sync::Arc::default(),
        }
    }

    async fn key_paths(&self) -> Result<&[String], StoreError> {
        let read = || async {
            let properties = self.client.read(None).await.map_err(store_error)?;
            let properties = properties.into_model().map_err(store_error)?;
            let paths = properties.partition_key.paths().iter();
            Ok(paths.map(|path| path.to_string()).collect())
        };
        self.key_paths.get_or_try_init(read).await.map(Vec::as_slice)
    }

    async fn put_one(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let (key, document) = keyed(letter, self.key_paths().await?)?;
        let written = self.client.upsert_item(key, &letter.id, &document, None).await;
        written.map(drop).map_err(store_error)
    }

    async fn delete_one(&self, letter: &DeadLetter) -> Result<(), StoreError> {
        let (key, _) = keyed(letter, self.key_paths().await?)?;
        match self.client.delete_item(key, &letter.id, None).await {
            Ok(_) => Ok(()),
            Err(error) if error.status().is_not_found() => Ok(()),
            Err(error) => Err(store_error(error)),
        }
    }

    /// Gives the items of a query to `take`, until it has had enough.
    async fn query<T>(&self, query: Query, mut take: impl FnMut(T) -> bool) -> Result<(), StoreError>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let found = self
            .client
            .query_items::<T>(query, FeedScope::full_container(), None)
            .await;
        let mut pages = found.map_err(store_error)?.into_pages();
        while let Some(page) = pages.next().await {
            for item in page.map_err(store_error)?.into_items() {
                if !take(item) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn list_key(
        &self,
        processor: &str,
        key: &str,
        after: Option<&DeadLetter>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let from = after.and_then(|after| after.lsn);
        let query = Query::from(if from.is_some() { OF_KEY_FROM } else { OF_KEY });
        let query = query.with_parameter("@processor", processor).map_err(store_error)?;
        let mut query = query.with_parameter("@key", key).map_err(store_error)?;
        if let Some(lsn) = from {
            query = query.with_parameter("@lsn", lsn).map_err(store_error)?;
        }
        let mut letters: Vec<DeadLetter> = Vec::new();
        let take = |letter: DeadLetter| {
            // The server's order says nothing about those of one transaction, so all of them are needed.
            if letters.len() >= limit && letters.last().is_some_and(|last| last.lsn != letter.lsn) {
                return false;
            }
            if after.is_none_or(|after| place(&letter) > place(after)) {
                letters.push(letter);
            }
            true
        };
        self.query(query, take).await?;
        sort(&mut letters);
        Ok(letters)
    }

    async fn list_keys(&self, processor: &str) -> Result<Vec<String>, StoreError> {
        let query = Query::from(KEYS).with_parameter("@processor", processor);
        let mut keys: Vec<String> = Vec::new();
        let take = |key| {
            keys.push(key);
            true
        };
        self.query(query.map_err(store_error)?, take).await?;
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }
}

/// The letter as a document that has every key the container asks for, and that key.
fn keyed(letter: &DeadLetter, paths: &[String]) -> Result<(PartitionKey, Value), StoreError> {
    let mut document = serde_json::to_value(letter).map_err(|error| StoreError::Refused(error.into()))?;
    let mut values = Vec::new();
    for path in paths {
        let names: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let value = match document.pointer(path).and_then(Value::as_str) {
            Some(value) => value.to_owned(),
            None => format!("{} {}", letter.processor, letter.key),
        };
        set(&mut document, &names, Value::from(value.as_str()));
        values.push(value);
    }
    let mut values = values.into_iter();
    let key = match (values.next(), values.next(), values.next()) {
        (Some(one), None, _) => PartitionKey::from(one),
        (Some(one), Some(two), None) => PartitionKey::from((one, two)),
        (Some(one), Some(two), Some(three)) => PartitionKey::from((one, two, three)),
        (None, ..) => {
            return Err(StoreError::Refused(
                "the dead-letter container has no partition key".into(),
            ));
        }
    };
    Ok((key, document))
}

fn set(document: &mut Value, names: &[&str], value: Value) {
    let Some((name, rest)) = names.split_first() else {
        return;
    };
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    if rest.is_empty() {
        document[*name] = value;
    } else {
        set(&mut document[*name], rest, value);
    }
}

impl DeadLetterStore for ContainerDeadLetters {
    fn put<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), StoreError>> {
        self.put_one(letter).boxed()
    }

    fn of_key<'a>(
        &'a self,
        processor: &'a str,
        key: &'a str,
        after: Option<&'a DeadLetter>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>, StoreError>> {
        self.list_key(processor, key, after, limit).boxed()
    }

    fn keys<'a>(&'a self, processor: &'a str) -> BoxFuture<'a, Result<Vec<String>, StoreError>> {
        self.list_keys(processor).boxed()
    }

    fn delete<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), StoreError>> {
        self.delete_one(letter).boxed()
    }
}
