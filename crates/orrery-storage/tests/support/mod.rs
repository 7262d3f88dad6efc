//! What the tests of all stores share: a small projection whose result depends on what was there before, and ways to
//! write through it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use orrery_model::log::{Operation, Transaction};
use orrery_model::{Position, Timestamp};
use orrery_partition::storage::{Log, Project, Result, Scan, Snapshot, Staged, View, ViewWrite};

/// Everything in a view.
pub type Content = BTreeMap<Bytes, Bytes>;

/// Projects records: `k/<key>` is the value, `n/<key>` counts how often it was written, `l/<lsn>` names the last key
/// written by that transaction. The count shows a transaction that was applied twice or not at all.
#[derive(Debug)]
pub struct TestProject;

impl Project for TestProject {
    fn project(&self, before: &dyn View, transaction: &Transaction) -> Result<Vec<ViewWrite>> {
        let mut overlay = Overlay {
            base: before,
            changes: BTreeMap::new(),
        };
        for operation in &transaction.operations {
            let Operation::Record { key, value } = operation else {
                continue;
            };
            let count_key = name("n/", key);
            let count = overlay
                .get(&count_key)?
                .map_or(0, |count| text(&count).parse::<u64>().unwrap());
            overlay.changes.insert(name("k/", key), value.clone());
            overlay
                .changes
                .insert(count_key, Some(Bytes::from((count + 1).to_string())));
            overlay
                .changes
                .insert(name("l/", &transaction.lsn.0.to_be_bytes()), Some(key.clone()));
        }
        Ok(overlay.changes.into_iter().collect())
    }
}

/// A view with changes on top. Scans see the base only.
pub struct Overlay<'a> {
    pub base: &'a dyn View,
    pub changes: BTreeMap<Bytes, Option<Bytes>>,
}

impl View for Overlay<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.changes.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.base.get(key),
        }
    }

    fn scan<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> Scan<'a> {
        self.base.scan(from, to, reverse)
    }
}

/// A view in a plain map, the model that stores are compared with.
#[derive(Default)]
pub struct Model(pub Content);

impl View for Model {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
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

impl Model {
    /// The view that these transactions imply from zero.
    pub fn replay<'a>(transactions: impl IntoIterator<Item = &'a Transaction>) -> Model {
        let mut model = Model::default();
        for transaction in transactions {
            for (key, value) in TestProject.project(&model, transaction).unwrap() {
                match value {
                    Some(value) => drop(model.0.insert(key, value)),
                    None => drop(model.0.remove(&key)),
                }
            }
        }
        model
    }
}

/// One transaction: keys with their new values.
pub type Writes<'a> = &'a [(&'a str, Option<&'a str>)];

pub fn transaction(previous: Position, writes: Writes<'_>) -> Transaction {
    let record = |(key, value): &(&str, Option<&str>)| Operation::Record {
        key: bytes(key),
        value: value.map(bytes),
    };
    Transaction::following(previous, Timestamp(1), writes.iter().map(record).collect())
}

/// Projects transactions on top of what the log holds.
pub fn stage(log: &dyn Log, transactions: Vec<Transaction>) -> Vec<Staged> {
    let snapshot = log.snapshot().unwrap();
    let mut overlay = Overlay {
        base: snapshot.as_ref(),
        changes: BTreeMap::new(),
    };
    transactions
        .into_iter()
        .map(|transaction| {
            let writes = TestProject.project(&overlay, &transaction).unwrap();
            overlay.changes.extend(writes.iter().cloned());
            Staged {
                transaction: Arc::new(transaction),
                writes,
            }
        })
        .collect()
}

/// The transactions that follow `previous`, one per element.
pub fn chain(previous: Position, writes: &[Writes<'_>]) -> Vec<Transaction> {
    let mut position = previous;
    writes
        .iter()
        .map(|writes| {
            let next = transaction(position, writes);
            position = next.position();
            next
        })
        .collect()
}

/// Appends one transaction where the log stands and answers where it stands then.
pub async fn write(log: &dyn Log, writes: Writes<'_>) -> Result<Position> {
    write_all(log, &[writes]).await
}

/// Appends several transactions in one step.
pub async fn write_all(log: &dyn Log, writes: &[Writes<'_>]) -> Result<Position> {
    let head = log.head();
    let transactions = chain(head, writes);
    let last = transactions.last().map_or(head, Transaction::position);
    log.append(head, stage(log, transactions)).await?;
    Ok(last)
}

/// The value written under a key.
pub fn value(log: &dyn Log, key: &str) -> Option<String> {
    let value = log.snapshot().unwrap().get(&name("k/", key.as_bytes())).unwrap();
    value.map(|value| text(&value).to_owned())
}

pub fn content(snapshot: &dyn Snapshot) -> Content {
    snapshot
        .scan(Bound::Unbounded, Bound::Unbounded, false)
        .map(|entry| entry.unwrap())
        .collect()
}

pub fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn name(prefix: &str, key: &[u8]) -> Bytes {
    [prefix.as_bytes(), key].concat().into()
}
