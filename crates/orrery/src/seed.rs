//! `--seed FILE`: items that an emulator has from the start.
//!
//! Each entry says where its item belongs; what is missing is created. Entries are applied in their order, straight to the
//! node, before anything is served. An item that is there already is replaced, so starting twice gives the same data.

use std::collections::HashSet;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use orrery_model::IndexingDirective;
use orrery_model::etag::Precondition;
use orrery_model::json;
use orrery_node::api::{
    ContainerRef, ItemBody, ItemOperation, ItemVerb, MetadataOperation, MetadataVerb, Operation, Options, Principal,
    ResourceKind, Selector,
};
use orrery_node::{Node, Request};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json_items::JsonItems;

/// Partition key of a container when no entry says.
const DEFAULT_PARTITION_KEY: &str = "/id";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry<'a> {
    database: String,
    container: String,
    /// Of the container, should it have to be created.
    partition_key: Option<KeyPaths>,
    #[serde(borrow)]
    item: &'a RawValue,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum KeyPaths {
    One(String),
    Several(Vec<String>),
}

/// Loads a file; gives the number of items.
pub async fn load(node: &Arc<Node>, path: &Path) -> Result<usize> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut seeder = Seeder {
        node,
        known: HashSet::new(),
    };
    let mut n_items = 0;
    for found in JsonItems::new(BufReader::new(file)) {
        let found = found.with_context(|| format!("cannot read {}", path.display()))?;
        let applied = seeder.apply(&found.text).await;
        applied.with_context(|| format!("entry {} of {}", n_items + 1, path.display()))?;
        n_items += 1;
    }
    Ok(n_items)
}

struct Seeder<'a> {
    node: &'a Arc<Node>,
    /// Databases and containers that are there.
    known: HashSet<(String, Option<String>)>,
}

impl Seeder<'_> {
    async fn apply(&mut self, text: &[u8]) -> Result<()> {
        let Entry {
            database,
            container,
            partition_key,
            item,
        } = serde_json::from_slice(text)?;
        self.ensure_database(&database).await?;
        self.ensure_container(&database, &container, partition_key).await?;
        let text = Bytes::copy_from_slice(item.get().as_bytes());
        let parsed = json::parse(&text).context("the item is not valid JSON")?;
        let operation = ItemOperation {
            container: ContainerRef {
                database: Selector::Name(database),
                container: Selector::Name(container),
            },
            partition_key: None,
            precondition: Precondition::None,
            directive: IndexingDirective::Default,
            verb: ItemVerb::Upsert {
                body: ItemBody { text, parsed },
            },
        };
        self.execute(Operation::Item(operation))
            .await
            .map(drop)
            .context("the item is refused")
    }

    async fn ensure_database(&mut self, database: &str) -> Result<()> {
        if self.known.insert((database.to_owned(), None)) {
            self.create(ResourceKind::Database, vec![], serde_json::json!({ "id": database }))
                .await?;
        }
        Ok(())
    }

    async fn ensure_container(&mut self, database: &str, container: &str, key: Option<KeyPaths>) -> Result<()> {
        if !self.known.insert((database.to_owned(), Some(container.to_owned()))) {
            return Ok(());
        }
        let paths = match key {
            None => vec![DEFAULT_PARTITION_KEY.to_owned()],
            Some(KeyPaths::One(path)) => vec![path],
            Some(KeyPaths::Several(paths)) => paths,
        };
        let kind = if paths.len() == 1 { "Hash" } else { "MultiHash" };
        let definition =
            serde_json::json!({ "id": container, "partitionKey": { "paths": paths, "kind": kind, "version": 2 } });
        self.create(
            ResourceKind::Container,
            vec![Selector::Name(database.to_owned())],
            definition,
        )
        .await
    }

    /// Creates a resource unless it is there.
    async fn create(&self, kind: ResourceKind, path: Vec<Selector>, body: serde_json::Value) -> Result<()> {
        let body = json::parse_value(body.to_string().as_bytes()).context("a definition is valid JSON")?;
        let verb = MetadataVerb::Create {
            body,
            upsert: false,
            throughput: None,
            precondition: Precondition::None,
        };
        match self
            .execute(Operation::Metadata(MetadataOperation { kind, path, verb }))
            .await
        {
            Err(error) if error.status().code == 409 => Ok(()),
            Err(error) => bail!("cannot create what is missing: {error}"),
            Ok(()) => Ok(()),
        }
    }

    async fn execute(&self, operation: Operation) -> Result<(), orrery_model::Error> {
        let principal = Principal::Account { read_only: false };
        let request = Request {
            principal,
            options: Options::default(),
            operation,
        };
        self.node
            .execute(request)
            .await
            .map(drop)
            .map_err(|failure| failure.error)
    }
}
