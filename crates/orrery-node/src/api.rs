//! What can be asked of a node, and what it answers. The gateway speaks HTTP on one side and these types on the other;
//! nothing here knows a header, a path or an envelope.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use orrery_model::etag::Precondition;
use orrery_model::json::{Parsed, Value};
use orrery_model::offer::{Migration, Throughput};
use orrery_model::patch::Patch;
use orrery_model::session::SessionProgress;
use orrery_model::{
    Charge, Epk, Error, Etag, IndexingDirective, Lsn, PartitionId, PartitionKey, ResourceId, SessionToken, Timestamp,
};
pub use orrery_partition::history::ChangeKind;
pub use orrery_query::index::IndexUse;

/// A request whose sender is known.
#[derive(Clone, Debug)]
pub struct Request {
    pub principal: Principal,
    pub options: Options,
    pub operation: Operation,
}

/// Who asks, and what they may do.
#[derive(Clone, Debug, PartialEq)]
pub enum Principal {
    /// A holder of one of the account's keys.
    Account { read_only: bool },
    /// A holder of a resource token.
    Grant(Grant),
}

/// What a resource token allows.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// What it is for; of an item, the container that holds it.
    pub resource: ResourceId,
    pub read_only: bool,
    /// Nothing but this logical partition of it.
    pub partition_key: Option<PartitionKey>,
    /// Nothing but items of this id: one, or one in each logical partition.
    pub item: Option<String>,
}

/// What any request may carry.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What the client has seen; reads at Session and above wait for it or fail with 404/1002.
    pub session: Option<SessionToken>,
    /// Weaker than the account's default, or absent.
    pub consistency: Option<Consistency>,
    /// The container the client believes it is talking to; 400/1024 when it has been recreated.
    pub intended_container: Option<ResourceId>,
    /// Only the region that takes writes may answer; others refuse with 403/3.
    pub hub_only: bool,
}

impl Options {
    /// The consistency of a read by an account with this default.
    pub fn level(&self, default: Consistency) -> Consistency {
        self.consistency.unwrap_or(default)
    }

    /// What a read by an account with this default must have seen: nothing at the levels that promise less than a session.
    pub fn session(&self, default: Consistency) -> Option<&SessionToken> {
        self.session
            .as_ref()
            .filter(|_| self.level(default) >= Consistency::Session)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consistency {
    Eventual,
    ConsistentPrefix,
    Session,
    BoundedStaleness,
    Strong,
}

/// A resource by its name or by its resource id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    Name(String),
    Rid(ResourceId),
}

/// A container. With a resource id the database's part is implied by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRef {
    pub database: Selector,
    pub container: Selector,
}

#[derive(Clone, Debug)]
pub enum Operation {
    Metadata(MetadataOperation),
    /// The physical partitions of a container, all or those new since a tag this feed gave out earlier.
    PartitionRanges {
        container: ContainerRef,
        since: Option<String>,
    },
    Item(ItemOperation),
    Batch(BatchOperation),
    /// A page of a container's items in no particular order, without a query.
    ReadFeed {
        container: ContainerRef,
        target: FeedTarget,
        page: Page,
    },
    /// A query over a container's items.
    Query {
        container: ContainerRef,
        target: FeedTarget,
        query: QueryText,
        page: Page,
        cross_partition: bool,
        diagnostics: QueryDiagnostics,
    },
    /// How a client should run a query over several partitions.
    QueryPlan {
        container: ContainerRef,
        query: QueryText,
        features: Vec<String>,
        partition_key: Option<PartitionKey>,
    },
    /// A page of changes.
    ChangeFeed(ChangeFeedRead),
    /// Removes every item of one logical partition.
    DeletePartitionKey {
        container: ContainerRef,
        partition_key: PartitionKey,
    },
}

impl Operation {
    /// Does it change anything?
    pub fn is_write(&self) -> bool {
        crate::authorize::is_write(self)
    }
}

/// Resources that live in the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResourceKind {
    Database,
    Container,
    User,
    Permission,
    Offer,
    StoredProcedure,
    Trigger,
    /// What lost: kept by the service, read and deleted by clients.
    Conflict,
    UserDefinedFunction,
}

/// An operation on the catalogue. `path` names the resource's ancestors from the outside in: nothing for databases and
/// offers, the database for containers and users, database and user for permissions, database and container for scripts.
#[derive(Clone, Debug)]
pub struct MetadataOperation {
    pub kind: ResourceKind,
    pub path: Vec<Selector>,
    pub verb: MetadataVerb,
}

#[derive(Clone, Debug)]
pub enum MetadataVerb {
    Create {
        body: Value,
        upsert: bool,
        throughput: Option<Throughput>,
        precondition: Precondition,
    },
    Read {
        target: Selector,
        precondition: Precondition,
    },
    Replace {
        target: Selector,
        body: Value,
        precondition: Precondition,
        migration: Migration,
    },
    Delete {
        target: Selector,
        precondition: Precondition,
    },
    List {
        page: Page,
    },
    Query {
        query: QueryText,
        page: Page,
    },
}

/// What a client wants to know about how its query ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryDiagnostics {
    pub metrics: bool,
    pub index_use: bool,
}

/// An item by its id, or by its resource id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemSelector {
    Id(String),
    Rid(ResourceId),
}

#[derive(Clone, Debug)]
pub struct ItemOperation {
    pub container: ContainerRef,
    /// From the header. Creates and upserts may leave it to the body.
    pub partition_key: Option<PartitionKey>,
    pub precondition: Precondition,
    /// How what it writes is indexed.
    pub directive: IndexingDirective,
    pub verb: ItemVerb,
}

#[derive(Clone, Debug)]
pub enum ItemVerb {
    Create { body: ItemBody },
    Upsert { body: ItemBody },
    Read { item: ItemSelector },
    Replace { item: ItemSelector, body: ItemBody },
    Patch { item: ItemSelector, patch: Patch },
    Delete { item: ItemSelector },
}

impl ItemVerb {
    /// The item that it names; creating one names none.
    pub fn item(&self) -> Option<&ItemSelector> {
        match self {
            ItemVerb::Create { .. } | ItemVerb::Upsert { .. } => None,
            ItemVerb::Read { item }
            | ItemVerb::Replace { item, .. }
            | ItemVerb::Patch { item, .. }
            | ItemVerb::Delete { item } => Some(item),
        }
    }
}

/// An item as the client sent it: its text and what parsing it gave.
#[derive(Clone, Debug)]
pub struct ItemBody {
    /// The text that was parsed, or the canonical text of an item that came in binary or inside something larger.
    pub text: Bytes,
    pub parsed: Parsed,
}

/// Several item operations in one request.
#[derive(Clone, Debug)]
pub struct BatchOperation {
    pub container: ContainerRef,
    /// The one key of a transactional batch.
    pub partition_key: Option<PartitionKey>,
    /// The physical partition a bulk request is for.
    pub partition: Option<PartitionId>,
    /// All or nothing.
    pub atomic: bool,
    /// Of a request that is not atomic: go on after a failure.
    pub continue_on_error: bool,
    pub steps: Vec<BatchStep>,
}

#[derive(Clone, Debug)]
pub struct BatchStep {
    /// Bulk only: each step has its own key.
    pub partition_key: Option<PartitionKey>,
    pub precondition: Precondition,
    pub directive: IndexingDirective,
    pub verb: ItemVerb,
}

/// Which part of a container a feed or query is about.
#[derive(Clone, Debug, Default)]
pub struct FeedTarget {
    /// One logical partition, or a prefix of a hierarchical key.
    pub partition_key: Option<PartitionKey>,
    pub partition: Option<PartitionId>,
    pub epk_min: Option<Epk>,
    pub epk_max: Option<Epk>,
}

impl FeedTarget {
    /// No part of the container is named: it is about the whole.
    pub fn names_nothing(&self) -> bool {
        self.partition_key.is_none() && self.partition.is_none() && self.epk_min.is_none() && self.epk_max.is_none()
    }
}

#[derive(Clone, Debug, Default)]
pub struct Page {
    /// `None`: the default of the operation.
    pub n_items_max: Option<usize>,
    pub continuation: Option<String>,
    /// Largest continuation the client takes, in bytes.
    pub continuation_bytes_max: Option<usize>,
}

#[derive(Clone, Debug)]
pub struct QueryText {
    pub text: String,
    /// Name with its `@`, and the value; a parameter without a value is undefined.
    pub parameters: Vec<(String, Option<Value>)>,
    /// Where a client wants an ORDER BY query to go on, as it sent it.
    pub resume_filter: Option<Value>,
}

/// What a reader of changes wants.
#[derive(Clone, Debug)]
pub struct ChangeFeedRead {
    pub container: ContainerRef,
    pub target: FeedTarget,
    pub mode: FeedMode,
    pub start: FeedStart,
    /// Besides a start after a tag: leave out what is not newer than this, in seconds since 1970. Partitions that were merged
    /// bring changes together whose times are not in their order.
    pub newer_than: Option<u64>,
    pub n_items_max: Option<usize>,
    /// A condition over the change as clients see it: `current`, `previous` and `metadata`.
    pub filter: Option<String>,
    /// How long to wait for a change when there is none.
    pub wait_ms: u64,
    pub from_history: FromHistory,
    /// Only what is known about the changes, without the items.
    pub facts_only: bool,
    /// Only what every region of the account has: nothing that a forced failover could take back.
    pub committed_only: bool,
    /// Answer a tag that outlives splits and merges, also when a plain position would do.
    pub lasting_tag: bool,
}

/// Where a read of all versions may begin, beyond what the service allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FromHistory {
    /// Now, and where an earlier page ended, as long as nothing after it has left the window.
    #[default]
    No,
    /// Also at the oldest version that is kept, and at a time.
    Yes,
    /// And also where an earlier page ended whose following versions are gone: it goes on at the oldest that is kept.
    Oldest,
}

/// The two kinds of change feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedMode {
    /// Every item that exists, once, where its latest change was.
    LatestVersions,
    /// Every change, deletes among them, for as long as the container keeps them.
    AllVersions,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FeedStart {
    Beginning,
    Now,
    /// Seconds since 1970.
    Time(u64),
    /// After this tag, which an earlier page gave out.
    After(String),
}

/// What a node answers.
#[derive(Clone, Debug)]
pub struct Reply {
    pub outcome: Outcome,
    pub facts: Facts,
}

#[derive(Clone, Debug)]
pub enum Outcome {
    /// The resource came into being.
    Created(Resource),
    /// The resource as it is now.
    Found(Resource),
    /// The resource is gone.
    Deleted,
    /// The client's version is current.
    NotModified {
        etag: String,
    },
    Feed(Feed),
    Changes(Changes),
    Batch(Vec<StepResult>),
    /// A query plan, as JSON.
    Plan(Value),
}

#[derive(Clone, Debug)]
pub struct Resource {
    /// Canonical JSON with system properties.
    pub body: Bytes,
    /// With quotes.
    pub etag: String,
}

/// A page.
#[derive(Clone, Debug)]
pub struct Feed {
    pub of: FeedOf,
    /// The parent's resource id; empty for databases and offers.
    pub parent: Option<ResourceId>,
    pub entries: Vec<Bytes>,
    pub continuation: Option<String>,
    /// Feeds that are polled: where to go on, with quotes.
    pub etag: Option<String>,
}

/// A page of changes, whole transactions of them.
#[derive(Clone, Debug)]
pub struct Changes {
    pub container: ResourceId,
    pub changes: Vec<Change>,
    /// Where to go on, with quotes.
    pub etag: String,
}

/// One change of one item.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub lsn: Lsn,
    /// Seconds since 1970.
    pub at: u64,
    /// The item now; empty after a delete.
    pub current: Bytes,
    /// What is known when all versions are read.
    pub version: Option<ChangeVersion>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ChangeVersion {
    pub kind: ChangeKind,
    /// Deleted because its time to live ran out.
    pub expired: bool,
    /// The item before; empty before a create.
    pub previous: Bytes,
    /// LSN of the version before; zero if there is none.
    pub previous_lsn: Lsn,
    /// Of a delete: the item's id, and its partition key by path.
    pub deleted: Option<(String, Value)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedOf {
    Items,
    PartitionRanges,
    Resources(ResourceKind),
}

/// The result of one step of a batch.
#[derive(Clone, Debug)]
pub struct StepResult {
    /// HTTP status and sub-status of the step.
    pub status: u16,
    pub sub_status: u32,
    pub charge: Charge,
    pub etag: Option<Etag>,
    pub body: Option<Bytes>,
    pub retry_after_ms: Option<u64>,
}

/// What is true of an answer besides its content, also of a failure.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub charge: Charge,
    /// Present once a container was found.
    pub container: Option<Arc<ContainerFacts>>,
    /// Present once a physical partition was reached.
    pub partition: Option<PartitionFacts>,
    /// Change feeds: where the partition's log stands.
    pub head: Option<HeadFacts>,
    /// Container reads: percent of the index that follows the current policy.
    pub index_progress: Option<u8>,
    /// Container reads: items and kilobytes held.
    pub usage: Option<Usage>,
    /// Queries: what making the page took, if the client asked.
    pub query_metrics: Option<QueryMetrics>,
    /// First pages of queries: which indexes there are for it, if the client asked.
    pub index_use: Option<IndexUse>,
    /// Offer operations: least throughput the resource may have.
    pub min_throughput: Option<u32>,
}

/// What making a page of a query took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryMetrics {
    pub n_items_read: u64,
    pub bytes_read: usize,
    pub n_rows: u64,
    pub bytes_given: usize,
    /// Parsing and planning.
    pub prepare: Duration,
    pub index_lookup: Duration,
    /// Reading items and making rows.
    pub execute: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub n_items: u64,
    pub size_kib: u64,
}

#[derive(Clone, Debug)]
pub struct ContainerFacts {
    pub database_name: String,
    pub name: String,
    pub rid: ResourceId,
    /// The text of `rid`.
    pub rid_text: String,
}

impl ContainerFacts {
    pub fn new(database_name: String, name: String, rid: ResourceId) -> ContainerFacts {
        ContainerFacts {
            rid_text: rid.to_string(),
            database_name,
            name,
            rid,
        }
    }
}

#[derive(Clone, Debug)]
pub struct PartitionFacts {
    pub partition: PartitionId,
    pub lsn: Lsn,
    /// LSN of the item's version, for item operations.
    pub item_lsn: Option<Lsn>,
    /// With the partition and the LSN, all that a session token says of it.
    pub session_version: i64,
    /// Up to where every region that serves has the partition, as far as this one knows.
    pub committed: Option<Lsn>,
    /// When this region began to serve the partition in the role it has.
    pub since: Timestamp,
}

impl PartitionFacts {
    /// What a client has seen once it has seen this answer.
    pub fn session(&self) -> SessionToken {
        let progress = SessionProgress {
            version: self.session_version,
            lsn: self.lsn,
        };
        SessionToken::single(self.partition, progress)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadFacts {
    pub lsn: Lsn,
    /// Of the last transaction, in milliseconds since 1970.
    pub at_ms: u64,
}

/// A failed request: the error, and what was known when it failed.
#[derive(Debug)]
pub struct Failure {
    pub error: Error,
    pub facts: Box<Facts>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            error,
            facts: Box::default(),
        }
    }
}
