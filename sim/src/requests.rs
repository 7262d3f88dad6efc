//! Requests of a simulation: one database, one container, items with a partition key and a value.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use orrery_model::etag::Precondition;
use orrery_model::key::{KeyKind, KeyVersion, PropertyPath};
use orrery_model::limits::LOGICAL_PARTITION_BYTES_MAX;
use orrery_model::{Epk, IndexingDirective, PartitionKey, PartitionKeyDefinition, json};
use orrery_node::account::{Account, Secret};
use orrery_node::api::{
    Consistency, ContainerRef, ItemBody, ItemOperation, ItemVerb, MetadataOperation, MetadataVerb, Operation, Options,
    Principal, ResourceKind, Selector,
};
use orrery_node::geo::bounds::Staleness;
use orrery_node::{ConflictLimits, Node, NodeSettings, Request};

/// A node whose secrets are no secrets.
pub fn settings(consistency: Consistency, regions: Vec<String>) -> NodeSettings {
    NodeSettings {
        account: Account {
            id: "sim".into(),
            consistency,
            staleness: Staleness::default(),
            regions,
        },
        primary_key: Secret(vec![1; 64]),
        fresh_secret: || [2; 64],
        partitions: 1,
        enforce_throughput: false,
        logical_partition_bytes_max: LOGICAL_PARTITION_BYTES_MAX,
        cache_bytes: 1 << 20,
        purge_interval: Duration::from_secs(3600),
        query_time_max: Duration::from_secs(30),
        conflicts: ConflictLimits::default(),
        feed_entries_max: NodeSettings::FEED_ENTRIES_MAX,
    }
}

/// By the owner of the account.
pub fn request(operation: Operation, options: Options) -> Request {
    Request {
        principal: Principal::Account { read_only: false },
        options,
        operation,
    }
}

/// Creates the database and the container.
pub async fn create_container(node: &Arc<Node>) {
    let container_text = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    for (kind, path, body) in [
        (ResourceKind::Database, vec![], r#"{"id":"db"}"#),
        (ResourceKind::Container, vec![named("db")], container_text),
    ] {
        let verb = MetadataVerb::Create {
            body: json::parse_value(body.as_bytes()).expect("the body is JSON"),
            upsert: false,
            throughput: None,
            precondition: Precondition::None,
        };
        let operation = Operation::Metadata(MetadataOperation { kind, path, verb });
        let created = node.execute(request(operation, Options::default())).await;
        created.expect("nothing is wrong yet");
    }
}

/// A function of the container, whose text is a number: something of the catalogue that can be written and read.
pub fn script_operation(verb: MetadataVerb) -> Operation {
    Operation::Metadata(MetadataOperation {
        kind: ResourceKind::UserDefinedFunction,
        path: vec![named("db"), named("c")],
        verb,
    })
}

pub fn write_script(value: u64) -> MetadataVerb {
    let text = format!(r#"{{"id":"f","body":"{value}"}}"#);
    MetadataVerb::Create {
        body: json::parse_value(text.as_bytes()).expect("the body is JSON"),
        upsert: true,
        throughput: None,
        precondition: Precondition::None,
    }
}

pub fn read_script() -> MetadataVerb {
    MetadataVerb::Read {
        target: named("f"),
        precondition: Precondition::None,
    }
}

pub fn item_operation(key: &str, verb: ItemVerb, precondition: Precondition) -> Operation {
    Operation::Item(ItemOperation {
        container: container(),
        partition_key: Some(partition_key(key)),
        precondition,
        directive: IndexingDirective::Default,
        verb,
    })
}

pub fn body(key: &str, id: &str, value: u64) -> ItemBody {
    let text = format!(r#"{{"id":"{id}","pk":"{key}","n":{value}}}"#);
    let parsed = json::parse(text.as_bytes()).expect("the item is JSON");
    ItemBody {
        text: Bytes::from(text),
        parsed,
    }
}

pub fn text(body: &[u8], name: &str) -> String {
    let value = json::parse_value(body).expect("an item is JSON");
    value
        .get(name)
        .and_then(|value| value.as_str())
        .expect("a string")
        .to_owned()
}

pub fn value_of(body: &[u8]) -> u64 {
    let value = json::parse_value(body).expect("an item is JSON");
    let number = value.get("n").expect("every item has a value").to_text();
    number.parse().expect("a number")
}

fn named(name: &str) -> Selector {
    Selector::Name(name.into())
}

pub fn container() -> ContainerRef {
    ContainerRef {
        database: named("db"),
        container: named("c"),
    }
}

/// Where a key lies in the container.
pub fn epk(key: &str) -> Epk {
    let path = PropertyPath::parse("/pk").expect("a path");
    let definition = PartitionKeyDefinition::new(vec![path], KeyKind::Hash, KeyVersion::V2, false);
    Epk::of(&definition, &partition_key(key))
}

pub fn partition_key(key: &str) -> PartitionKey {
    PartitionKey::parse(&format!("[{key:?}]")).expect("a string is a key")
}
