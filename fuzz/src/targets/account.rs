//! A node in memory with one small container, for targets that go all the way down.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use orrery_gateway::wire;
use orrery_gateway::wire::headers::Headers;
use orrery_model::Timestamp;
use orrery_model::limits::LOGICAL_PARTITION_BYTES_MAX;
use orrery_node::account::{Account, Secret};
use orrery_node::api::{Consistency, Principal};
use orrery_node::geo::bounds::Staleness;
use orrery_node::{ConflictLimits, Failure, ManualClock, Node, NodeSettings, Reply, Request};
use orrery_storage::MemoryStore;
use tokio::runtime::Runtime;

/// What every secret of the account is made of.
pub(super) const SECRET: [u8; 64] = [7; 64];

#[derive(Debug)]
pub(super) struct Served {
    runtime: Runtime,
    node: Arc<Node>,
}

/// The one account of this process: database `db`, container `c` by `/pk`, an item or two.
pub(super) fn served() -> &'static Served {
    static SERVED: OnceLock<Served> = OnceLock::new();
    SERVED.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .expect("a runtime can be built");
        let node = runtime.block_on(start());
        let served = Served { runtime, node };
        served.fill();
        served
    })
}

async fn start() -> Arc<Node> {
    let settings = NodeSettings {
        account: Account {
            id: "fuzz".into(),
            consistency: Consistency::Session,
            staleness: Staleness::default(),
            regions: vec!["Here".into()],
        },
        primary_key: Secret(SECRET.to_vec()),
        fresh_secret: || SECRET,
        partitions: 2,
        enforce_throughput: false,
        logical_partition_bytes_max: LOGICAL_PARTITION_BYTES_MAX,
        cache_bytes: 1 << 20,
        purge_interval: Duration::from_secs(3600),
        query_time_max: Duration::from_secs(30),
        conflicts: ConflictLimits::default(),
        feed_entries_max: NodeSettings::FEED_ENTRIES_MAX,
    };
    let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
    Node::start(settings, MemoryStore::new(), clock)
        .await
        .expect("a node starts over memory")
}

impl Served {
    fn fill(&self) {
        let json = [("content-type", "application/json")];
        self.expect("/dbs", &json, r#"{"id":"db"}"#);
        let container = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":-1}"#;
        self.expect("/dbs/db/colls", &json, container);
        for n in 0..4 {
            let key = format!("[\"{n}\"]");
            let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
            let item = format!(r#"{{"id":"{n}","pk":"{n}","n":{n},"tags":[1,"a"]}}"#);
            self.expect("/dbs/db/colls/c/docs", &headers, &item);
        }
    }

    fn expect(&self, path: &str, headers: &[(&str, &str)], body: &str) {
        let mut head = http::Request::post(path);
        for (name, value) in headers {
            head = head.header(*name, *value);
        }
        let (head, ()) = head.body(()).expect("the head is well-formed").into_parts();
        let decoded = wire::route(&head.uri)
            .and_then(|route| {
                wire::decode(
                    route,
                    &head.method,
                    Headers::of(&head.headers),
                    body.to_owned().into(),
                    Consistency::Session,
                )
            })
            .expect("the request is well-formed");
        self.execute(decoded).expect("nothing is there yet");
    }

    /// Executes what a request means and waits for the answer.
    pub(super) fn execute(&self, decoded: wire::Decoded) -> Result<Reply, Failure> {
        self.runtime.block_on(self.node.execute(Request {
            principal: Principal::Account { read_only: false },
            options: decoded.options,
            operation: decoded.operation,
        }))
    }
}
