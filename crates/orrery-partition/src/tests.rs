//! A partition without a store: its view in a map, its log in a vector, its clock in a field.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use orrery_model::etag::Precondition;
use orrery_model::json;
use orrery_model::log::{Opened, Operation, Transaction};
use orrery_model::{
    ContainerDefinition, Epk, EpkRange, IndexingDirective, PartitionId, PartitionKey, Position, ResourceId, Result,
    Timestamp,
};

use crate::IndexedDefinition;
use crate::command::{Action, Command, Decision, Step};
use crate::decide::{Context, decide};
use crate::draft::{Identity, ItemDraft};
use crate::keys::EpkForm;
use crate::project::project;
use crate::quota::FullKeys;
use crate::storage::{self, Scan, View, ViewWrite};

mod decisions;
mod index;
mod keys;
mod overlay;
mod quota;
mod replay;
mod reshard;

/// A view in memory.
#[derive(Clone, Debug, Default, PartialEq)]
struct MapView(BTreeMap<Bytes, Bytes>);

impl MapView {
    fn apply(&mut self, writes: impl IntoIterator<Item = ViewWrite>) {
        for (key, value) in writes {
            match value {
                Some(value) => drop(self.0.insert(key, value)),
                None => drop(self.0.remove(&key)),
            }
        }
    }
}

impl View for MapView {
    fn get(&self, key: &[u8]) -> storage::Result<Option<Bytes>> {
        Ok(self.0.get(key).cloned())
    }

    fn scan<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> Scan<'a> {
        let range = self
            .0
            .range::<[u8], _>((from, to))
            .map(|(key, value)| Ok((key.clone(), value.clone())));
        if reverse {
            Box::new(range.rev())
        } else {
            Box::new(range)
        }
    }
}

/// One partition: the whole range of one container.
#[derive(Clone, Debug)]
struct Bench {
    definition: IndexedDefinition,
    identity: Identity,
    view: MapView,
    log: Vec<Transaction>,
    position: Position,
    now: Timestamp,
    full: FullKeys,
}

const PARTITION: PartitionId = PartitionId(7);

fn definition(extra: &str) -> ContainerDefinition {
    let text = format!(r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}{extra}}}"#);
    ContainerDefinition::create(&json::parse_value(text.as_bytes()).unwrap()).unwrap()
}

impl Bench {
    fn new(definition: ContainerDefinition) -> Bench {
        let container = ResourceId::container(&ResourceId::database(1), 1);
        let mut bench = Bench {
            identity: Identity::new(container),
            view: MapView::default(),
            log: Vec::new(),
            position: Position::default(),
            now: Timestamp(1_700_000_000_000),
            full: FullKeys::default(),
            definition: IndexedDefinition::new(definition),
        };
        let opened = Opened {
            partition: PARTITION,
            range: EpkRange::full(),
            parents: Vec::new(),
            session_version: 0,
            definition_version: 1,
            definition: bench.definition.to_stored().into(),
        };
        bench.append(vec![Operation::Opened(opened)]);
        bench
    }

    fn form(&self) -> EpkForm {
        EpkForm::of(self.definition.partition_key())
    }

    fn epk(&self, key: &str) -> Epk {
        Epk::of(self.definition.partition_key(), &partition_key(key))
    }

    fn step(&self, key: &str, precondition: Precondition, action: Action) -> Step {
        Step {
            epk: self.epk(key),
            key: partition_key(key),
            precondition,
            directive: IndexingDirective::Default,
            action,
        }
    }

    /// An item with the given fields after its id and key.
    fn draft(&self, key: &str, id: &str, fields: &str) -> Result<ItemDraft> {
        let comma = if fields.is_empty() { "" } else { "," };
        let text = format!(r#"{{"id":"{id}","pk":"{key}"{comma}{fields}}}"#);
        let parsed = json::parse(text.as_bytes()).unwrap();
        ItemDraft::new(&self.definition, &Bytes::from(text), parsed)
    }

    /// Decides a command and, if it changes anything, appends and projects it, as a writer would.
    fn run(&mut self, command: &Command) -> Result<Decision> {
        let context = Context {
            now: self.now,
            lsn: self.position.lsn.next(),
            partition: PARTITION,
            identity: &self.identity,
            definition: &self.definition,
            full: &self.full,
        };
        let decision = decide(&self.view, command, &context)?;
        if !decision.operations.is_empty() {
            self.append(decision.operations.clone());
        }
        if let Command::Define { definition, .. } = command {
            self.definition = IndexedDefinition::from_stored(definition).unwrap();
        }
        Ok(decision)
    }

    fn append(&mut self, operations: Vec<Operation>) {
        let transaction = Transaction::following(self.position, self.now, operations);
        let writes = project(Some(&self.definition), &self.view, &transaction).unwrap();
        self.view.apply(writes);
        self.position = transaction.position();
        self.log.push(transaction);
    }
}

fn partition_key(key: &str) -> PartitionKey {
    PartitionKey::parse(&format!("[{key:?}]")).unwrap()
}
