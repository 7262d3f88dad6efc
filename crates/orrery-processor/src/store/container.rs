//! Leases in a container, through the official SDK.
//!
//! The container is keyed by `/id`, or by `/partitionKey` with the document's id as its value. The listing query also asks
//! for the server's time, which is the only clock by which expiry is judged. Entity tags come from the answers' headers, so
//! that a write needs no read after it.

use azure_core::http::Etag;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::{FeedScope, Query};
use azure_data_cosmos::options::{ItemWriteOptions, Precondition};
use azure_data_cosmos::{CosmosError, PartitionKey};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::OnceCell;

use super::{CheckError, Created, Documents, LeaseStore, Written, id_of, text_of};
use crate::error::StoreError;

const LIST: &str = "SELECT c AS document, GetCurrentTimestamp() AS now FROM c WHERE STARTSWITH(c.id, @prefix)";

/// A container that holds leases; it may be in another account than the monitored one.
#[derive(Clone)]
pub struct ContainerLeases {
    client: ContainerClient,
    key: std::sync::Arc<OnceCell<Key>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Id,
    PartitionKey,
}

#[derive(Deserialize)]
struct Listed {
    document: Value,
    now: u64,
}

impl std::fmt::Debug for ContainerLeases {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ContainerLeases")
            .field("key", &self.key.get())
            .finish_non_exhaustive()
    }
}

impl ContainerLeases {
    pub fn new(client: ContainerClient) -> ContainerLeases {
        ContainerLeases {
            client,
            key: std::sync::Arc::default(),
        }
    }

    async fn key(&self) -> Result<Key, CheckError> {
        self.key.get_or_try_init(|| self.read_key()).await.copied()
    }

    async fn read_key(&self) -> Result<Key, CheckError> {
        let answer = self.client.read(None).await.map_err(store_error)?;
        let properties = answer.into_model().map_err(store_error)?;
        let paths = properties.partition_key.paths();
        match paths {
            [path] if path == "/id" => Ok(Key::Id),
            [path] if path == "/partitionKey" => Ok(Key::PartitionKey),
            paths => Err(CheckError::KeyPath(
                paths.iter().map(|path| path.as_ref()).collect::<Vec<_>>().join(", "),
            )),
        }
    }

    /// The partition key of a document, which is added where the container wants it and the document has none.
    async fn keyed(&self, document: &Value) -> Result<(PartitionKey, Value), StoreError> {
        let key = match self.key().await {
            Ok(key) => key,
            Err(CheckError::Store(error)) => return Err(error),
            Err(error) => return Err(StoreError::Refused(error.into())),
        };
        let mut document = document.clone();
        let id = id_of(&document).to_owned();
        let value = match key {
            Key::Id => id,
            Key::PartitionKey => text_of(&document, "partitionKey").map_or(id, str::to_owned),
        };
        if key == Key::PartitionKey {
            document["partitionKey"] = Value::from(value.as_str());
        }
        Ok((PartitionKey::from(value), document))
    }

    async fn listed(&self, prefix: &str) -> Result<Documents, StoreError> {
        let query = Query::from(LIST)
            .with_parameter("@prefix", prefix)
            .map_err(store_error)?;
        let pages = self
            .client
            .query_items::<Listed>(query, FeedScope::full_container(), None)
            .await;
        let mut pages = pages.map_err(store_error)?.into_pages();
        let mut found = Documents::default();
        while let Some(page) = pages.next().await {
            let page = page.map_err(store_error)?;
            found.charge += page.headers().request_charge().map_or(0.0, |charge| charge.value());
            for listed in page.into_items() {
                // The earliest, so that nothing looks older than it is.
                found.server_now_ms = Some(found.server_now_ms.map_or(listed.now, |now| now.min(listed.now)));
                found.documents.push(listed.document);
            }
        }
        Ok(found)
    }

    async fn read_one(&self, like: &Value) -> Result<Option<Value>, StoreError> {
        let (key, _) = self.keyed(like).await?;
        match self.client.read_item(key, id_of(like), None).await {
            Ok(answer) => Ok(Some(answer.into_model().map_err(store_error)?)),
            Err(error) if error.status().is_not_found() => Ok(None),
            Err(error) => Err(store_error(error)),
        }
    }

    async fn create_one(&self, document: &Value) -> Result<Created, StoreError> {
        let (key, document) = self.keyed(document).await?;
        match self.client.create_item(key, id_of(&document), &document, None).await {
            Ok(answer) => Ok(Created::New(written(answer.headers())?)),
            Err(error) if error.status().is_conflict() => Ok(Created::Exists),
            Err(error) => Err(store_error(error)),
        }
    }

    async fn replace_one(&self, document: &Value, etag: &str) -> Result<Written, StoreError> {
        let (key, document) = self.keyed(document).await?;
        let options = Some(if_match(etag));
        let answer = self
            .client
            .replace_item(key, id_of(&document), &document, options)
            .await;
        written(answer.map_err(store_error)?.headers())
    }

    async fn delete_one(&self, like: &Value, etag: Option<&str>) -> Result<(), StoreError> {
        let (key, _) = self.keyed(like).await?;
        let deleted = self.client.delete_item(key, id_of(like), etag.map(if_match)).await;
        deleted.map(drop).map_err(store_error)
    }
}

fn if_match(etag: &str) -> ItemWriteOptions {
    ItemWriteOptions::default().with_precondition(Precondition::if_match(Etag::from(etag.to_owned())))
}

fn written(headers: &azure_data_cosmos::models::ResponseHeaders) -> Result<Written, StoreError> {
    let etag = headers.etag().map(|etag| AsRef::<str>::as_ref(etag).to_owned());
    Ok(Written {
        etag: etag.ok_or_else(|| StoreError::Refused("the answer to a write carries no entity tag".into()))?,
        charge: headers.request_charge().map_or(0.0, |charge| charge.value()),
    })
}

/// What a failure of the SDK means for whoever holds a lease.
pub(crate) fn store_error(error: CosmosError) -> StoreError {
    let status = error.status();
    if status.is_precondition_failed() {
        StoreError::Changed
    } else if status.is_not_found() && !status.is_read_session_not_available() {
        StoreError::NotFound
    } else if status.is_throttled() {
        let retry_after = error.response().and_then(|response| response.headers().retry_after_ms);
        let retry_after = retry_after.map(std::time::Duration::from_millis);
        StoreError::Throttled { retry_after }
    } else if status.is_unauthorized() || status.is_forbidden() || status.is_bad_request() {
        StoreError::Refused(error.into())
    } else {
        StoreError::Unavailable(error.into())
    }
}

impl LeaseStore for ContainerLeases {
    fn check(&self) -> BoxFuture<'_, Result<(), CheckError>> {
        async { self.key().await.map(drop) }.boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Documents, StoreError>> {
        self.listed(prefix).boxed()
    }

    fn read<'a>(&'a self, like: &'a Value) -> BoxFuture<'a, Result<Option<Value>, StoreError>> {
        self.read_one(like).boxed()
    }

    fn create<'a>(&'a self, document: &'a Value) -> BoxFuture<'a, Result<Created, StoreError>> {
        self.create_one(document).boxed()
    }

    fn replace<'a>(&'a self, document: &'a Value, etag: &'a str) -> BoxFuture<'a, Result<Written, StoreError>> {
        self.replace_one(document, etag).boxed()
    }

    fn delete<'a>(&'a self, like: &'a Value, etag: Option<&'a str>) -> BoxFuture<'a, Result<(), StoreError>> {
        self.delete_one(like, etag).boxed()
    }
}
