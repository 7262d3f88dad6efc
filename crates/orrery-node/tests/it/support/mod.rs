//! A node to talk to, and short ways of saying things to it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use orrery_model::etag::Precondition;
use orrery_model::json::{self, Value};
use orrery_model::limits::LOGICAL_PARTITION_BYTES_MAX;
use orrery_model::{IndexingDirective, PartitionKey, Timestamp};
use orrery_node::account::{Account, Secret};
use orrery_node::api::{
    BatchOperation, BatchStep, Consistency, ContainerRef, Feed, FeedTarget, ItemBody, ItemOperation, ItemSelector,
    ItemVerb, MetadataOperation, MetadataVerb, Operation, Options, Outcome, Page, Principal, QueryDiagnostics,
    QueryText, ResourceKind, Selector, StepResult,
};
use orrery_node::geo::bounds::Staleness;
use orrery_node::{ConflictLimits, Failure, ManualClock, Node, NodeSettings, Reply, Request};
use orrery_partition::storage::Store;
use orrery_storage::MemoryStore;

pub fn settings() -> NodeSettings {
    NodeSettings {
        account: Account {
            id: "test".into(),
            consistency: Consistency::Session,
            staleness: Staleness::default(),
            regions: vec!["Here".into()],
        },
        primary_key: Secret(vec![1; 64]),
        fresh_secret: || [2; 64],
        partitions: 1,
        enforce_throughput: false,
        logical_partition_bytes_max: LOGICAL_PARTITION_BYTES_MAX,
        cache_bytes: 1 << 20,
        purge_interval: Duration::from_millis(20),
        query_time_max: Duration::from_secs(30),
        conflicts: ConflictLimits::default(),
        feed_entries_max: NodeSettings::FEED_ENTRIES_MAX,
    }
}

pub struct World {
    pub node: Arc<Node>,
    pub clock: Arc<ManualClock>,
    pub store: Arc<dyn Store>,
}

impl World {
    pub async fn new() -> World {
        World::with(settings()).await
    }

    pub async fn with(settings: NodeSettings) -> World {
        let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
        let store: Arc<dyn Store> = MemoryStore::new();
        let node = Node::start(settings, Arc::clone(&store), clock.clone()).await.unwrap();
        World { node, clock, store }
    }

    pub async fn execute(&self, operation: Operation) -> Result<Reply, Failure> {
        let principal = Principal::Account { read_only: false };
        self.node
            .execute(Request {
                principal,
                options: Options::default(),
                operation,
            })
            .await
    }

    pub async fn create_database(&self, name: &str) {
        self.metadata(ResourceKind::Database, vec![], create(&format!(r#"{{"id":"{name}"}}"#)))
            .await
            .unwrap();
    }

    /// A database `db` with a container `c` partitioned by `/pk`.
    pub async fn with_container(&self, extra: &str) {
        self.create_database("db").await;
        self.create_container("c", extra).await.unwrap();
    }

    /// A container in the database `db`, partitioned by `/pk`.
    pub async fn create_container(&self, name: &str, extra: &str) -> Result<Reply, Failure> {
        let body = format!(r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}{extra}}}"#);
        self.metadata(ResourceKind::Container, vec![named("db")], create(&body))
            .await
    }

    pub async fn metadata(
        &self,
        kind: ResourceKind,
        path: Vec<Selector>,
        verb: MetadataVerb,
    ) -> Result<Reply, Failure> {
        self.execute(Operation::Metadata(MetadataOperation { kind, path, verb }))
            .await
    }

    pub async fn item(&self, key: &str, verb: ItemVerb) -> Result<Reply, Failure> {
        self.item_if(key, verb, Precondition::None).await
    }

    pub async fn item_if(&self, key: &str, verb: ItemVerb, precondition: Precondition) -> Result<Reply, Failure> {
        let partition_key = Some(PartitionKey::parse(&format!("[{key:?}]")).unwrap());
        self.execute(Operation::Item(ItemOperation {
            container: container(),
            partition_key,
            precondition,
            directive: IndexingDirective::Default,
            verb,
        }))
        .await
    }

    pub async fn create(&self, key: &str, body: &str) -> Result<Reply, Failure> {
        self.item(key, ItemVerb::Create { body: item(body) }).await
    }

    pub async fn read(&self, key: &str, id: &str) -> Result<Reply, Failure> {
        self.item(
            key,
            ItemVerb::Read {
                item: ItemSelector::Id(id.into()),
            },
        )
        .await
    }

    pub async fn batch(&self, key: &str, steps: Vec<ItemVerb>) -> Vec<StepResult> {
        let steps = steps.into_iter().map(|verb| BatchStep {
            partition_key: None,
            precondition: Precondition::None,
            directive: IndexingDirective::Default,
            verb,
        });
        let operation = BatchOperation {
            container: container(),
            partition_key: Some(PartitionKey::parse(&format!("[{key:?}]")).unwrap()),
            partition: None,
            atomic: true,
            continue_on_error: false,
            steps: steps.collect(),
        };
        match self.execute(Operation::Batch(operation)).await.unwrap().outcome {
            Outcome::Batch(results) => results,
            other => panic!("{other:?}"),
        }
    }

    /// One page of a query over all of `db/c`.
    pub async fn query_page(&self, sql: &str, n_rows: usize, continuation: Option<String>) -> Result<Feed, Failure> {
        self.query_page_of(FeedTarget::default(), sql, n_rows, continuation)
            .await
    }

    /// The operation that asks for one page of a query over a part of `db/c`.
    pub fn page_query(&self, target: FeedTarget, sql: &str, n_rows: usize, continuation: Option<String>) -> Operation {
        Operation::Query {
            container: container(),
            target,
            query: QueryText {
                text: sql.to_owned(),
                parameters: Vec::new(),
                resume_filter: None,
            },
            page: Page {
                n_items_max: Some(n_rows),
                continuation,
                continuation_bytes_max: None,
            },
            cross_partition: true,
            diagnostics: QueryDiagnostics::default(),
        }
    }

    /// One page of a query over a part of `db/c`.
    pub async fn query_page_of(
        &self,
        target: FeedTarget,
        sql: &str,
        n_rows: usize,
        continuation: Option<String>,
    ) -> Result<Feed, Failure> {
        let operation = self.page_query(target, sql, n_rows, continuation);
        match self.execute(operation).await?.outcome {
            Outcome::Feed(feed) => Ok(feed),
            other => panic!("{other:?}"),
        }
    }

    /// The rows of a query as they are sent.
    pub async fn query(&self, sql: &str) -> Result<Vec<String>, Failure> {
        let feed = self.query_page(sql, 10_000, None).await?;
        assert_eq!(feed.continuation, None, "{sql} has more rows than a page holds");
        Ok(texts(&feed))
    }

    /// All items of `db/c`, page by page.
    pub async fn all(&self, n_items_max: usize) -> Vec<Value> {
        let mut found = Vec::new();
        let mut continuation = None;
        loop {
            let page = Page {
                n_items_max: Some(n_items_max),
                continuation,
                continuation_bytes_max: None,
            };
            let operation = Operation::ReadFeed {
                container: container(),
                target: FeedTarget::default(),
                page,
            };
            let Outcome::Feed(feed) = self.execute(operation).await.unwrap().outcome else {
                panic!("not a feed")
            };
            assert!(feed.entries.len() <= n_items_max);
            found.extend(feed.entries.iter().map(|entry| json::parse_value(entry).unwrap()));
            continuation = feed.continuation;
            if continuation.is_none() {
                return found;
            }
        }
    }
}

/// The entries of a page.
pub fn texts(feed: &Feed) -> Vec<String> {
    let text = |entry: &Bytes| String::from_utf8(entry.to_vec()).unwrap();
    feed.entries.iter().map(text).collect()
}

pub fn named(name: &str) -> Selector {
    Selector::Name(name.into())
}

pub fn container() -> ContainerRef {
    ContainerRef {
        database: named("db"),
        container: named("c"),
    }
}

pub fn create(body: &str) -> MetadataVerb {
    let body = json::parse_value(body.as_bytes()).unwrap();
    MetadataVerb::Create {
        body,
        upsert: false,
        throughput: None,
        precondition: Precondition::None,
    }
}

pub fn item(text: &str) -> ItemBody {
    ItemBody {
        text: Bytes::copy_from_slice(text.as_bytes()),
        parsed: json::parse(text.as_bytes()).unwrap(),
    }
}

pub fn body_of(reply: Reply) -> Value {
    match reply.outcome {
        Outcome::Created(resource) | Outcome::Found(resource) => json::parse_value(&resource.body).unwrap(),
        other => panic!("{other:?}"),
    }
}

pub fn code(result: Result<Reply, Failure>) -> u16 {
    match result {
        Ok(reply) => match reply.outcome {
            Outcome::Created(_) => 201,
            Outcome::Deleted => 204,
            Outcome::NotModified { .. } => 304,
            _ => 200,
        },
        Err(failure) => failure.error.status().code,
    }
}
