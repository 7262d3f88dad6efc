//! What a transaction means for the view. Pure, and the only place that knows: the live path, replay, followers and
//! splits all come here, so they cannot disagree.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use orrery_model::id::ChainHash;
use orrery_model::json::{self, Value};
use orrery_model::log::{DeleteItem, Opened, Operation, PutItem, Transaction};
use orrery_model::{ContainerDefinition, Epk, Lsn, Timestamp};
use orrery_query::index::Indexing;

use crate::definition::IndexedDefinition;
use crate::expiry::own_expiry;
use crate::history::{self, Moment};
use crate::index;
use crate::keys::{self, EpkForm};
use crate::overlay::Overlay;
use crate::state::PartitionState;
use crate::storage::{Project, Result, StorageError, View, ViewWrite};
use crate::stored::StoredItem;

/// The changes a whole transaction makes to the view it meets.
pub fn project(
    definition: Option<&IndexedDefinition>,
    before: &dyn View,
    transaction: &Transaction,
) -> Result<Vec<ViewWrite>> {
    let Transaction {
        operations, lsn, at, ..
    } = transaction;
    if operations
        .iter()
        .all(|operation| matches!(operation, Operation::Record { .. }))
    {
        return Ok(operations.iter().filter_map(record).collect());
    }
    let opened = operations.iter().find_map(|operation| match operation {
        Operation::Opened(opened) => Some(&opened.definition),
        Operation::Defined { definition, .. } => Some(definition),
        _ => None,
    });
    let parsed = opened.map(|stored| parse_definition(stored)).transpose()?;
    let definition = parsed
        .as_ref()
        .or(definition)
        .ok_or_else(|| corrupt("a partition's first entry does not open it"))?;
    self::operations(definition, before, operations, *lsn, *at, 0)
}

/// What a later operation of the same transaction can see of earlier ones: [`operations`] without the index, which nothing
/// is decided on.
pub fn visible(
    definition: &ContainerDefinition,
    before: &dyn View,
    operations: &[Operation],
    lsn: Lsn,
    at: Timestamp,
    first_index: usize,
) -> Result<Vec<ViewWrite>> {
    Projection::new(definition, None, before, lsn, at)?.run(operations, first_index)
}

/// The changes of operations that stand from `first_index` on in the transaction `lsn`.
pub fn operations(
    definition: &IndexedDefinition,
    before: &dyn View,
    operations: &[Operation],
    lsn: Lsn,
    at: Timestamp,
    first_index: usize,
) -> Result<Vec<ViewWrite>> {
    Projection::new(definition, Some(definition.indexing()), before, lsn, at)?.run(operations, first_index)
}

/// The least version of session tokens in an epoch. Epochs start at ever higher multiples of 2^32, so a restored view,
/// whatever version it was saved with, supersedes the tokens of all earlier epochs; merges count up in between.
pub fn version_of_epoch(start: Lsn) -> u64 {
    (start.0 >> 32) << 16
}

fn record(operation: &Operation) -> Option<ViewWrite> {
    match operation {
        Operation::Record { key, value } => Some((keys::record(key), value.clone())),
        _ => None,
    }
}

struct Projection<'a> {
    definition: &'a ContainerDefinition,
    /// `None`: the index is left as it is.
    indexing: Option<&'a Indexing>,
    form: EpkForm,
    view: Overlay<'a>,
    state: Option<PartitionState>,
    lsn: Lsn,
    at: Timestamp,
}

impl<'a> Projection<'a> {
    fn new(
        definition: &'a ContainerDefinition,
        indexing: Option<&'a Indexing>,
        before: &'a dyn View,
        lsn: Lsn,
        at: Timestamp,
    ) -> Result<Projection<'a>> {
        Ok(Projection {
            definition,
            indexing,
            form: EpkForm::of(definition.partition_key()),
            view: Overlay::new(before),
            state: PartitionState::load(before)?,
            lsn,
            at,
        })
    }

    /// The changes of operations that stand from `first_index` on in the transaction.
    fn run(mut self, operations: &[Operation], first_index: usize) -> Result<Vec<ViewWrite>> {
        for (offset, operation) in operations.iter().enumerate() {
            self.operation(operation, (first_index + offset) as u16)?;
        }
        if let Some(state) = &mut self.state {
            state.head_at = state.head_at.max(self.at);
        }
        self.view
            .apply(self.state.map(|state| (keys::state(), Some(state.encode()))));
        Ok(self.view.into_writes())
    }

    fn operation(&mut self, operation: &Operation, index: u16) -> Result<()> {
        match operation {
            Operation::Put(put) => self.put(put, index),
            Operation::Delete(delete) => self.delete(delete, index),
            Operation::Renamed(renamed) => {
                self.view
                    .apply([(keys::id(self.form, &renamed.epk, &renamed.from), None)]);
                Ok(())
            }
            Operation::Record { .. } => {
                self.view.apply(record(operation));
                Ok(())
            }
            Operation::Defined { version, definition } => {
                let floor = history::floor_of_definition(definition, &self.view, self.moment(0))?;
                self.view.apply(floor);
                let policy = parse_definition(definition)?.index_rules().fingerprint();
                let state = self.state()?;
                state.definition_version = *version;
                state.follow_index_policy(policy);
                self.view.apply([(keys::definition(), Some(definition.clone()))]);
                Ok(())
            }
            Operation::EpochStarted { .. } => {
                let lsn = self.lsn;
                let state = self.state()?;
                state.session_version = version_of_epoch(lsn).max(state.session_version + 1);
                // A seal that this entry follows belongs to a split or merge that the new epoch knows nothing of.
                state.children = Vec::new();
                Ok(())
            }
            Operation::Opened(opened) => self.open(opened),
            Operation::Reindexed { n_items_max } => self.reindex(*n_items_max as usize),
            Operation::Sealed { children } => {
                self.state()?.children = children.clone();
                Ok(())
            }
            Operation::HistoryTrimmed { through } => {
                let trimmed = history::trim(self.form, &self.view, *through)?;
                self.view.apply(trimmed);
                Ok(())
            }
        }
    }

    fn state(&mut self) -> Result<&mut PartitionState> {
        self.state
            .as_mut()
            .ok_or_else(|| corrupt("a partition's first entry does not open it"))
    }

    /// A seeded child has a state already, with its counts; a new partition begins empty.
    fn open(&mut self, opened: &Opened) -> Result<()> {
        let policy = parse_definition(&opened.definition)?.index_rules().fingerprint();
        let fresh = || PartitionState::new(opened.partition, opened.range.clone());
        let lsn = self.lsn;
        let state = self.state.get_or_insert_with(fresh);
        state.partition = opened.partition;
        state.range = opened.range.clone();
        state.session_version = opened.session_version;
        state.definition_version = opened.definition_version;
        state.children = Vec::new();
        if opened.parents.len() > 1 {
            // LSNs of different parents say nothing about which change came first.
            state.ordered_after = lsn;
        }
        state.follow_index_policy(policy);
        self.view.apply([(keys::definition(), Some(opened.definition.clone()))]);
        Ok(())
    }

    /// One step towards the index that the definition asks for.
    fn reindex(&mut self, n_items_max: usize) -> Result<()> {
        let Some(indexing) = self.indexing else { return Ok(()) };
        let policy = indexing.rules().fingerprint();
        let state = self.state()?;
        // Entries of an earlier version may have been made under the same policy by another name.
        state.follow_index_policy(policy);
        let progress = state.index.clone();
        let (writes, progress) = index::step(indexing, &self.view, self.form, &progress, n_items_max)?;
        self.view.apply(writes);
        self.state()?.index = progress;
        Ok(())
    }

    /// Brings the index from one version of an item to the next.
    fn index(&mut self, epk: &Epk, number: u64, before: Option<&StoredItem>, after: Option<&StoredItem>) -> Result<()> {
        let key = keys::item(self.form, epk, number);
        if let Some(indexing) = self.indexing
            && self.state()?.index.covers(&key)
        {
            let writes = index::changes(indexing, &self.view, self.form, (epk, number), before, after)?;
            self.view.apply(writes);
        }
        Ok(())
    }

    fn put(&mut self, put: &PutItem, index: u16) -> Result<()> {
        let item = StoredItem::at(put, self.lsn, self.at, usize::from(index));
        let before = match self.state()?.has_numbered(put.number) {
            true => self.forget(&put.epk, put.number)?,
            false => None,
        };
        let (form, pointer) = (self.form, keys::pointer(self.form, &put.epk));
        let encoded = item.encode();
        let size_bytes = encoded.len() as u64;
        self.view.apply([
            (keys::item(form, &put.epk, put.number), Some(encoded)),
            (
                keys::change(self.lsn, index, put.number),
                Some(keys::change_pointer(form, &put.epk, item.ts)),
            ),
        ]);
        self.view.apply(history::of_put(
            self.definition,
            self.moment(index),
            put,
            before.as_ref(),
        ));
        if before.as_ref().is_none_or(|(before, _)| before.id != item.id) {
            self.view
                .apply([(keys::id(form, &put.epk, &put.id), Some(number(put.number)))]);
        }
        self.view
            .apply(own_expiry(&item).map(|at| (keys::expiry(at, put.number), Some(pointer))));
        for key in self.unique_keys(put, &item)? {
            self.view.apply([(key, Some(number(put.number)))]);
        }
        let item_before = before.as_ref().map(|(before, _)| before);
        self.index(&put.epk, put.number, item_before, Some(&item))?;
        let state = self.state()?;
        state.n_items += u64::from(before.is_none());
        state.size_bytes = state.size_bytes + size_bytes - before.map_or(0, |(_, size_bytes)| size_bytes);
        state.next_counter = state.next_counter.max((put.number >> 16) + 1);
        Ok(())
    }

    fn delete(&mut self, delete: &DeleteItem, index: u16) -> Result<()> {
        let Some((before, size_bytes)) = self.forget(&delete.epk, delete.number)? else {
            return Err(corrupt("a log entry deletes an item that is not there"));
        };
        self.index(&delete.epk, delete.number, Some(&before), None)?;
        self.view.apply([
            (keys::item(self.form, &delete.epk, delete.number), None),
            (keys::id(self.form, &delete.epk, &delete.id), None),
        ]);
        self.view
            .apply(history::of_delete(self.definition, self.moment(index), delete, &before));
        let state = self.state()?;
        state.n_items = state.n_items.saturating_sub(1);
        state.size_bytes = state.size_bytes.saturating_sub(size_bytes);
        Ok(())
    }

    /// The place of operation `index` in the log.
    fn moment(&self, index: u16) -> Moment {
        Moment {
            form: self.form,
            lsn: self.lsn,
            index,
            at: self.at,
        }
    }

    /// Removes what was derived from the current version and answers that version and its size; `None` when there is none.
    fn forget(&mut self, epk: &Epk, item_number: u64) -> Result<Option<(StoredItem, u64)>> {
        let Some(bytes) = self.view.get(&keys::item(self.form, epk, item_number))? else {
            return Ok(None);
        };
        let item = StoredItem::decode(&bytes)?;
        self.view
            .apply([(keys::change(item.lsn, item.index, item_number), None)]);
        self.view
            .apply(own_expiry(&item).map(|at| (keys::expiry(at, item_number), None)));
        if !self.definition.unique_keys().is_empty() {
            let value = parse(&item.body)?;
            for (constraint, values) in unique_hashes(self.definition, &value) {
                self.view
                    .apply([(keys::unique(self.form, epk, constraint, values), None)]);
            }
        }
        Ok(Some((item, bytes.len() as u64)))
    }

    fn unique_keys(&self, put: &PutItem, item: &StoredItem) -> Result<Vec<Bytes>> {
        if self.definition.unique_keys().is_empty() {
            return Ok(Vec::new());
        }
        let hashes = unique_hashes(self.definition, &parse(&item.body)?);
        Ok(hashes
            .into_iter()
            .map(|(constraint, values)| keys::unique(self.form, &put.epk, constraint, values))
            .collect())
    }
}

/// Numbers are compared as doubles: integers beyond 2^53 that are the same double are the same value.
fn as_unique_keys_see_it(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::Number(json::Number::from_f64(number.to_f64())),
        other => other.clone(),
    }
}

/// A hash per unique key constraint over the item's values at its paths. A missing value counts as null.
pub fn unique_hashes(definition: &ContainerDefinition, item: &Value) -> Vec<(u8, [u8; 16])> {
    let hash = |(constraint, key): (usize, &orrery_model::container::UniqueKey)| {
        let values = key
            .paths
            .iter()
            .map(|path| path.find(item).map_or(Value::Null, as_unique_keys_see_it))
            .collect();
        let mut text = Vec::new();
        json::print(&Value::Array(values), &mut text);
        (constraint as u8, ChainHash::ZERO.chain(&text).0)
    };
    definition.unique_keys().iter().enumerate().map(hash).collect()
}

/// Number of scalar values in an item: what an indexer that includes everything would index.
pub fn n_leaves(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(n_leaves).sum(),
        Value::Object(object) => object.iter().map(|(_, value)| n_leaves(value)).sum(),
        _ => 1,
    }
}

fn number(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn parse(body: &[u8]) -> Result<Value> {
    json::parse_value(body).map_err(|_| corrupt("a stored item is not JSON"))
}

fn parse_definition(stored: &[u8]) -> Result<IndexedDefinition> {
    IndexedDefinition::from_stored(stored).map_err(|_| corrupt("a stored container definition is not valid"))
}

fn corrupt(reason: &str) -> StorageError {
    StorageError::Corrupt(reason.to_owned())
}

/// [`project`] for stores: finds the definition in the view itself, as replay must. The last few parsed definitions are
/// kept, because replay meets the same one again and again.
#[derive(Debug, Default)]
pub struct Projector {
    parsed: Mutex<Vec<(Bytes, Arc<IndexedDefinition>)>>,
}

const PARSED_MAX: usize = 64;

impl Projector {
    /// The definition a view holds; `None` before the partition was opened.
    pub fn definition_in(&self, view: &dyn View) -> Result<Option<Arc<IndexedDefinition>>> {
        let stored = view.get(&keys::definition())?;
        stored.map(|stored| self.definition(stored)).transpose()
    }

    fn definition(&self, stored: Bytes) -> Result<Arc<IndexedDefinition>> {
        let mut parsed = self.parsed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, definition)) = parsed.iter().find(|(text, _)| *text == stored) {
            return Ok(Arc::clone(definition));
        }
        let definition = Arc::new(parse_definition(&stored)?);
        if parsed.len() == PARSED_MAX {
            parsed.remove(0);
        }
        // A copy, so that a definition never keeps a whole block of the store alive.
        parsed.push((Bytes::copy_from_slice(&stored), Arc::clone(&definition)));
        Ok(definition)
    }
}

impl Project for Projector {
    fn project(&self, before: &dyn View, transaction: &Transaction) -> Result<Vec<ViewWrite>> {
        let definition = self.definition_in(before)?;
        project(definition.as_deref(), before, transaction)
    }
}
