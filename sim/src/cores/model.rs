//! What one log must hold: every transaction that was acknowledged, and all or none of the one append that is unknown.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use orrery_model::log::Transaction;
use orrery_model::{ContainerDefinition, Epk, Lsn, Position};
use orrery_partition::keys::{self, EpkForm, KeySpace};
use orrery_partition::project::Projector;
use orrery_partition::state::PartitionState;
use orrery_partition::storage::{Log, Project as _, Result, Scan, StorageError, View, ViewWrite};

#[derive(Default)]
pub(super) struct Model {
    acknowledged: Vec<Arc<Transaction>>,
    /// An append whose outcome nobody knows until the log is looked at again.
    unknown: Vec<Arc<Transaction>>,
    /// The view that the acknowledged transactions imply, projected one after the other from nothing.
    view: Entries,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Entries(BTreeMap<Bytes, Bytes>);

impl Entries {
    fn apply(&mut self, writes: Vec<ViewWrite>) {
        for (key, value) in writes {
            match value {
                Some(value) => drop(self.0.insert(key, value)),
                None => drop(self.0.remove(&key)),
            }
        }
    }
}

impl View for Entries {
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
    /// Takes in what an append answered.
    pub(super) fn appended(&mut self, transactions: &[Arc<Transaction>], result: &Result<()>) {
        assert!(
            self.unknown.is_empty(),
            "nothing is appended before the unknown is known"
        );
        match result {
            Ok(()) => self.acknowledge(transactions),
            Err(StorageError::Unknown(_)) => self.unknown = transactions.to_vec(),
            Err(_) => {}
        }
    }

    fn acknowledge(&mut self, transactions: &[Arc<Transaction>]) {
        let projector = Projector::default();
        for transaction in transactions {
            let writes = projector.project(&self.view, transaction).expect("replay never fails");
            self.view.apply(writes);
        }
        self.acknowledged.extend_from_slice(transactions);
    }

    fn end(&self) -> Position {
        self.acknowledged.last().map(|last| last.position()).unwrap_or_default()
    }

    /// Looks at a log that is open again, learns what became of the unknown, and compares everything.
    pub(super) async fn check(&mut self, log: &dyn Log) {
        let unknown = std::mem::take(&mut self.unknown);
        let head = log.head();
        if let Some(last) = unknown.last()
            && head == last.position()
        {
            self.acknowledge(&unknown);
        }
        assert_eq!(
            head,
            self.end(),
            "log {}: acknowledged is there, unknown whole or not at all",
            log.id()
        );
        let snapshot = log.snapshot().expect("a view can be read");
        assert_eq!(snapshot.position(), head);
        let found: BTreeMap<Bytes, Bytes> = snapshot
            .scan(Bound::Unbounded, Bound::Unbounded, false)
            .map(|entry| entry.expect("an entry can be read"))
            .collect();
        assert!(
            found == self.view.0,
            "log {}: the view is what its log implies",
            log.id()
        );
        let read = log.read_log(Lsn::ZERO, usize::MAX).await.expect("nothing is trimmed");
        let wanted: Vec<Transaction> = self.acknowledged.iter().map(|one| Transaction::clone(one)).collect();
        assert!(read == wanted, "log {}: the log is what was appended", log.id());
        assert!(
            read.windows(2).all(|pair| pair[1].follows(pair[0].position())),
            "LSNs go on without a gap"
        );
    }

    pub(super) fn definition(&self) -> ContainerDefinition {
        let stored = self.view.0.get(&keys::definition()).expect("the partition was opened");
        ContainerDefinition::from_stored(stored).expect("a definition that was made here")
    }

    pub(super) fn next_definition_version(&self) -> u64 {
        let state = PartitionState::load(&self.view).expect("the state can be read");
        state.map_or(1, |state| state.definition_version + 1)
    }

    /// All items, as candidates for purging.
    pub(super) fn items(&self) -> Vec<(Epk, u64)> {
        let form = EpkForm::of(self.definition().partition_key());
        let (from, to) = keys::bounds(KeySpace::Item);
        self.view
            .0
            .range(from..to)
            .filter_map(|(key, _)| keys::read_item(form, key))
            .collect()
    }
}
