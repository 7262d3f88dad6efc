//! The change feed through the official SDK: one range and one raw token per read.
//!
//! The SDK hides splits: it follows them and returns the first child's page. The intervals of its next token give that
//! away, and the page is then dropped, because what stands in it is not the answer for the whole range. Every other rule of
//! resuming is in [`super::resume`].

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use azure_core::http::StatusCode;
use azure_core::http::headers::{HeaderName, HeaderValue};
use azure_data_cosmos::CosmosError;
use azure_data_cosmos::clients::{ContainerClient, CosmosClient};
use azure_data_cosmos::feed::{ContinuationToken, FeedRange, FeedScope};
use azure_data_cosmos::models::{
    ChangeFeedItem, ChangeFeedOperationType, PartitionKey, PartitionKeyValue, ResponseHeaders,
};
use azure_data_cosmos::options::{
    ChangeFeedMode, ChangeFeedOptions, ChangeFeedStartFrom, MaxItemCountHint, OperationOptions, ReadFeedRangesOptions,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::{Change, ChangeMetadata, FeedPage, FeedRead, FeedSource, Operation, SourceDescription, resume};
use crate::error::FeedError;
use crate::lease::FeedMode;
use crate::names::SourceIdentity;
use crate::range::EpkRange;
use crate::reshard::Partition;
use crate::start::{Position, StartFrom};
use crate::token::FeedToken;

/// Wishes that an Orrery server fulfils and others ignore: to hold an empty answer back until something changes, to leave
/// items out, to go on at the oldest change that is kept.
const WAIT: HeaderName = HeaderName::from_static("x-orrery-feed-wait-ms");
const FACTS_ONLY: HeaderName = HeaderName::from_static("x-orrery-feed-facts-only");
const FROM_HISTORY: HeaderName = HeaderName::from_static("x-orrery-feed-from-history");

/// A monitored container.
pub struct SdkFeed {
    container: ContainerClient,
    host: String,
    description: OnceCell<SourceDescription>,
}

impl std::fmt::Debug for SdkFeed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SdkFeed")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

impl SdkFeed {
    /// The host of the account endpoint is part of every lease's id: a unit that connects by another name is another unit.
    pub fn new(client: &CosmosClient, container: ContainerClient) -> SdkFeed {
        let host = client.endpoint().host_str().unwrap_or_default().to_owned();
        SdkFeed::with_host(host, container)
    }

    /// For a unit whose leases were made under another host name than the one it connects by.
    pub fn with_host(host: impl Into<String>, container: ContainerClient) -> SdkFeed {
        SdkFeed {
            container,
            host: host.into(),
            description: OnceCell::new(),
        }
    }

    async fn description(&self) -> Result<&SourceDescription, FeedError> {
        self.description.get_or_try_init(|| self.read_description()).await
    }

    async fn read_description(&self) -> Result<SourceDescription, FeedError> {
        let answer = self
            .container
            .read(None)
            .await
            .map_err(|error| feed_error(error, None))?;
        let properties: Value = answer
            .into_body()
            .into_single()
            .map_err(|error| feed_error(error, None))?;
        let container_rid = properties.get("_rid").and_then(Value::as_str).unwrap_or_default();
        let paths = properties.pointer("/partitionKey/paths").and_then(Value::as_array);
        let paths = paths.into_iter().flatten().filter_map(Value::as_str);
        Ok(SourceDescription {
            identity: SourceIdentity {
                host: self.host.clone(),
                database_rid: database_of(container_rid)
                    .ok_or_else(|| FeedError::Fatal("the container's resource id makes no sense".into()))?,
                container_rid: container_rid.to_owned(),
            },
            key_paths: paths.map(str::to_owned).collect(),
        })
    }

    async fn read_page(&self, read: FeedRead<'_>) -> Result<FeedPage, FeedError> {
        let rid = &self.description().await?.identity.container_rid;
        let resumed = (read.from.token().is_some() || goes_back(&read)).then_some(read.mode);
        let failed = |error| feed_error(error, resumed);
        let (start, options) = request(rid, &read);
        let scope = match read.key {
            Some(key) => FeedScope::partition(partition_key(key)?),
            None => FeedScope::range(feed_range(read.range).map_err(failed)?),
        };
        let pages = self
            .container
            .query_change_feed::<Value>(scope, start, Some(options))
            .await;
        let mut pages = pages.map_err(failed)?;
        let page = pages
            .next()
            .await
            .ok_or_else(|| FeedError::Fatal("the feed ended".into()))?;
        let page = page.map_err(failed)?;
        let token = match read.key {
            // A key is in one partition, wherever that is, and the SDK takes its raw token.
            Some(_) => page.headers().etag().map(|etag| FeedToken::new(etag.to_string())),
            None => token_of_range(&pages.to_continuation_token().map_err(failed)?)?,
        };
        let token = token.ok_or(FeedError::Gone)?;
        let diagnostics = page.diagnostics();
        let headers = page.headers();
        Ok(FeedPage {
            token,
            is_last: diagnostics
                .effective_status()
                .is_none_or(|status| status.status_code() == StatusCode::NotModified),
            charge: headers.request_charge().map_or(0.0, |charge| charge.value()),
            head_lsn: head_lsn(headers),
            session: headers
                .session_token()
                .map(|token| AsRef::<str>::as_ref(token).to_owned()),
            activity_id: headers.activity_id().map(|id| id.to_string()),
            region: diagnostics.responded_regions().last().map(|region| region.to_string()),
            partition_id: headers.partition_key_range_id().map(str::to_owned),
            changes: page.into_items().into_iter().map(change).collect(),
        })
    }

    async fn read_partitions(&self) -> Result<Vec<Partition>, FeedError> {
        let options = ReadFeedRangesOptions::default().with_force_refresh(true);
        let ranges = self.container.read_feed_ranges(Some(options)).await;
        let partition = |range: FeedRange| {
            let (min, max) = (range.min_inclusive().to_string(), range.max_exclusive().to_string());
            let range = EpkRange::new(min, max).map_err(|error| FeedError::Fatal(error.into()))?;
            Ok(Partition { range, id: None })
        };
        let ranges = ranges.map_err(|error| feed_error(error, None))?;
        ranges.into_iter().map(partition).collect()
    }
}

/// The SDK does not name partitions; the server does, with every answer.
impl SdkFeed {
    async fn read_named_partitions(&self) -> Result<Vec<Partition>, FeedError> {
        let mut partitions = self.read_partitions().await?;
        for partition in &mut partitions {
            partition.id = self.id_of(&partition.range).await?;
        }
        Ok(partitions)
    }

    async fn id_of(&self, range: &EpkRange) -> Result<Option<String>, FeedError> {
        let failed = |error| feed_error(error, None);
        let scope = FeedScope::range(feed_range(range).map_err(failed)?);
        // Latest versions can be read of any container, and from now on there is nothing to send.
        let options = ChangeFeedOptions::default().with_mode(ChangeFeedMode::LatestVersion);
        let pages = self
            .container
            .query_change_feed::<Value>(scope, ChangeFeedStartFrom::Now, Some(options))
            .await;
        let page = pages.map_err(failed)?.next().await;
        let page = page.transpose().map_err(failed)?;
        Ok(page.and_then(|page| page.headers().partition_key_range_id().map(str::to_owned)))
    }
}

/// The database's resource id is the first four bytes of the container's.
fn database_of(container_rid: &str) -> Option<String> {
    let bytes = STANDARD.decode(container_rid.replace('-', "/")).ok()?;
    Some(STANDARD.encode(bytes.get(..4)?).replace('/', "-"))
}

fn feed_range(range: &EpkRange) -> Result<FeedRange, CosmosError> {
    FeedRange::new(range.start().try_into()?, range.end().try_into()?)
}

fn request(rid: &str, read: &FeedRead<'_>) -> (ChangeFeedStartFrom, ChangeFeedOptions) {
    let mode = match read.mode {
        FeedMode::LatestVersion => ChangeFeedMode::LatestVersion,
        FeedMode::AllVersionsAndDeletes => ChangeFeedMode::AllVersionsAndDeletes,
    };
    let mut options = ChangeFeedOptions::default().with_mode(mode);
    if let Some(limit) = read.items_max.and_then(NonZeroU32::new) {
        options = options.with_max_item_count(MaxItemCountHint::Limit(limit));
    }
    let wishes = wishes(read);
    if !wishes.is_empty() {
        let mut operation = OperationOptions::default();
        operation.custom_headers = Some(wishes);
        options = options.with_operation_options(operation);
    }
    if let Some(text) = resume_text(rid, read) {
        let options = options.with_continuation_token(ContinuationToken::from_string(text));
        return (ChangeFeedStartFrom::Beginning, options);
    }
    let start = match read.from {
        // Resumed above.
        Position::After(_) | Position::AfterSince(..) => ChangeFeedStartFrom::Beginning,
        Position::From(StartFrom::Beginning) => ChangeFeedStartFrom::Beginning,
        Position::From(StartFrom::Now) => ChangeFeedStartFrom::Now,
        Position::From(StartFrom::Time(time)) => ChangeFeedStartFrom::PointInTime((*time).into()),
    };
    (start, options)
}

/// Whether a read asks for kept versions from before now, which only some servers give.
fn goes_back(read: &FeedRead<'_>) -> bool {
    let in_the_past = matches!(read.from, Position::From(StartFrom::Beginning | StartFrom::Time(_)));
    in_the_past && read.mode == FeedMode::AllVersionsAndDeletes
}

/// The token that the SDK resumes from, if it is to resume. The time of a start goes along with it, except for a single key,
/// for which the SDK takes a raw token: its changes keep their order through every merge. Kept versions from before now are read as if from before the
/// first one: the SDK throws the first page of a fresh start in this mode away.
fn resume_text(rid: &str, read: &FeedRead<'_>) -> Option<String> {
    let first = FeedToken::at(0);
    let (token, newer_than) = match read.from {
        Position::After(token) => (token, None),
        Position::AfterSince(token, time) => (token, Some(*time)),
        Position::From(_) if !goes_back(read) => return None,
        Position::From(StartFrom::Time(time)) => (&first, Some(*time)),
        Position::From(_) => (&first, None),
    };
    if read.key.is_some() {
        return Some(token.as_str().to_owned());
    }
    Some(resume::write(rid, read.range, token, newer_than, read.mode))
}

/// The raw token within one of the SDK's; nothing if the range has become several.
fn token_of_range(token: &ContinuationToken) -> Result<Option<FeedToken>, FeedError> {
    let intervals = resume::read(token.as_str()).ok_or_else(|| {
        FeedError::Fatal("the SDK writes resume tokens in a layout this version does not know".into())
    })?;
    Ok(match intervals.as_slice() {
        [(_, token)] => token.clone(),
        _ => None,
    })
}

/// A key as the SDK takes it.
fn partition_key(values: &[Value]) -> Result<PartitionKey, FeedError> {
    let bad =
        || FeedError::Fatal("a partition key has one to three values, each text, a number, true, false or null".into());
    let value = |value: &Value| match value {
        Value::Null => Some(PartitionKeyValue::from(None::<String>)),
        Value::Bool(is) => Some((*is).into()),
        Value::String(text) => Some(text.clone().into()),
        Value::Number(number) => PartitionKeyValue::try_from(number.as_f64()?).ok(),
        Value::Array(_) | Value::Object(_) => None,
    };
    let values: Option<Vec<PartitionKeyValue>> = values.iter().map(value).collect();
    PartitionKey::try_from(values.ok_or_else(bad)?).map_err(|_| bad())
}

/// Headers for a server that can do more than the service.
fn wishes(read: &FeedRead<'_>) -> HashMap<HeaderName, HeaderValue> {
    let mut headers = HashMap::new();
    if let Some(wait) = read.wait {
        headers.insert(WAIT, HeaderValue::from(wait.as_millis().to_string()));
    }
    if read.facts_only {
        headers.insert(FACTS_ONLY, HeaderValue::from_static("true"));
    }
    if read.from_oldest || goes_back(read) {
        headers.insert(FROM_HISTORY, HeaderValue::from_static("oldest"));
    }
    headers
}

/// The partition's newest LSN: the global one of the session token, which every server sends.
fn head_lsn(headers: &ResponseHeaders) -> Option<u64> {
    let token = headers.session_token()?;
    let text: &str = token.as_ref();
    let value = text.rsplit(':').next()?;
    let mut fields = value.split('#');
    let (first, second) = (fields.next()?, fields.next());
    second.unwrap_or(first).parse().ok()
}

fn change(item: ChangeFeedItem<Value>) -> Change {
    let told = item.metadata();
    let mut metadata = ChangeMetadata {
        lsn: told
            .and_then(|told| told.lsn())
            .and_then(|lsn| u64::try_from(lsn.value()).ok()),
        committed_at_s: told
            .and_then(|told| told.conflict_resolution_timestamp())
            .map(|time| time.as_secs()),
        operation: item.operation_type().map(operation),
        previous_lsn: told
            .and_then(|told| told.previous_image_lsn())
            .and_then(|lsn| u64::try_from(lsn.value()).ok()),
        expired: told.and_then(|told| told.time_to_live_expired()).unwrap_or(false),
        id: told.and_then(|told| told.id()).map(str::to_owned),
        partition_key: told.and_then(|told| told.partition_key()).cloned(),
    };
    let (current, previous) = (item.current().cloned(), item.previous().cloned());
    if let Some(item) = &current {
        // Servers without an envelope put the position into the item.
        let number = |name: &str| item.get(name).and_then(Value::as_u64);
        metadata.lsn = metadata.lsn.or_else(|| number("_lsn"));
        metadata.committed_at_s = metadata.committed_at_s.or_else(|| number("_ts"));
    }
    Change {
        current,
        previous,
        metadata,
    }
}

fn operation(kind: ChangeFeedOperationType) -> Operation {
    match kind {
        ChangeFeedOperationType::Create => Operation::Create,
        ChangeFeedOperationType::Replace => Operation::Replace,
        ChangeFeedOperationType::Delete => Operation::Delete,
        _ => Operation::Unknown,
    }
}

/// What a failure of the SDK means for a reader. `resumed` is the mode of a read that went on from a token.
fn feed_error(error: CosmosError, resumed: Option<FeedMode>) -> FeedError {
    let status = error.status();
    if status.is_gone() {
        FeedError::Gone
    } else if status.is_throttled() {
        let retry_after: Option<Duration> = error
            .response()
            .and_then(|response| response.headers().retry_after_ms)
            .map(Duration::from_millis);
        FeedError::Throttled { retry_after }
    } else if status.is_read_session_not_available() {
        FeedError::Transient(error.into())
    } else if status.is_not_found() {
        FeedError::NotFound(error.to_string())
    } else if status.is_bad_request() && error.is_from_wire() && resumed == Some(FeedMode::AllVersionsAndDeletes) {
        FeedError::WindowExceeded(error.to_string())
    } else if status.is_bad_request() || status.is_unauthorized() || status.is_forbidden() {
        FeedError::Fatal(error.into())
    } else {
        FeedError::Transient(error.into())
    }
}

impl FeedSource for SdkFeed {
    fn describe(&self) -> BoxFuture<'_, Result<SourceDescription, FeedError>> {
        async { self.description().await.cloned() }.boxed()
    }

    fn container_rid(&self) -> BoxFuture<'_, Result<String, FeedError>> {
        async { Ok(self.read_description().await?.identity.container_rid) }.boxed()
    }

    fn partitions(&self) -> BoxFuture<'_, Result<Vec<Partition>, FeedError>> {
        self.read_partitions().boxed()
    }

    fn named_partitions(&self) -> BoxFuture<'_, Result<Vec<Partition>, FeedError>> {
        self.read_named_partitions().boxed()
    }

    fn read<'a>(&'a self, read: FeedRead<'a>) -> BoxFuture<'a, Result<FeedPage, FeedError>> {
        self.read_page(read).boxed()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_kind_of_change_that_is_not_known_does_not_fail_its_page() {
        let item = json!({"current": {"id": "a"}, "metadata": {"operationType": "teleport", "lsn": 7, "crts": 1}});
        let item: ChangeFeedItem<Value> = serde_json::from_value(item).unwrap();
        let change = change(item);
        assert_eq!(change.metadata.operation, Some(Operation::Unknown));
        assert_eq!((change.id(), change.metadata.lsn), (Some("a"), Some(7)));
    }

    #[test]
    fn the_database_is_part_of_the_containers_resource_id() {
        assert_eq!(database_of("hK0QAJf7nW4=").as_deref(), Some("hK0QAA=="));
        assert_eq!(database_of("hK0"), None);
    }
}
