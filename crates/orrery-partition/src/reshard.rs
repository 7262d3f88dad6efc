//! Splits and merges: which entries of a parent's view belong to a child, and what the tail of the parent's log adds.
//!
//! Items keep their LSNs, numbers and history, so a token of the parent stays valid on its children.

use bytes::Bytes;
use orrery_model::log::{Operation, Transaction};
use orrery_model::{EpkRange, Lsn, PartitionId, Timestamp};

use crate::definition::IndexedDefinition;
use crate::history;
use crate::index::{self, IndexProgress};
use crate::keys::{self, EpkForm, KeySpace};
use crate::overlay::Overlay;
use crate::project;
use crate::state::PartitionState;
use crate::storage::{Result, View, ViewWrite};

/// Does this entry of a parent's view go to a child with `range`? State and definition are the child's own; shapes go to
/// every child.
pub fn belongs(form: EpkForm, key: &[u8], value: &[u8], range: &EpkRange) -> bool {
    KeySpace::of(key) == Some(KeySpace::Shape) || keys::epk_of(form, key, value).is_some_and(|epk| range.contains(&epk))
}

/// Counts an entry that goes to a child.
pub fn count(state: &mut PartitionState, key: &[u8], value: &[u8]) {
    if KeySpace::of(key) == Some(KeySpace::Item) {
        state.n_items += 1;
        state.size_bytes += value.len() as u64;
    }
}

/// The state a child begins with, before its entries are counted.
pub fn child_state(child: PartitionId, range: EpkRange, parents: &[PartitionState]) -> PartitionState {
    let mut state = PartitionState::new(child, range);
    let greatest = |pick: fn(&PartitionState) -> u64| parents.iter().map(pick).max().unwrap_or(0);
    state.next_counter = greatest(|parent| parent.next_counter).max(1);
    state.definition_version = greatest(|parent| parent.definition_version);
    state.head_at = Timestamp(greatest(|parent| parent.head_at.0));
    state.ordered_after = Lsn(greatest(|parent| parent.ordered_after.0));
    (state.index_policy, state.index) = child_index(parents);
    state.session_version = greatest(|parent| parent.session_version) + u64::from(parents.len() > 1);
    state
}

/// Up to where a child has no versions in the part of it that comes from `parent`.
pub fn floors(parent: &dyn View, range: &EpkRange) -> Result<Vec<ViewWrite>> {
    history::floors_for(parent, range)
}

/// A child goes on with its parents' index when all have a complete one under one policy, and makes its own otherwise.
fn child_index(parents: &[PartitionState]) -> (u64, IndexProgress) {
    match parents {
        [first, rest @ ..]
            if first.index.is_ready()
                && rest
                    .iter()
                    .all(|other| (other.index_policy, &other.index) == (first.index_policy, &first.index)) =>
        {
            (first.index_policy, IndexProgress::Ready)
        }
        _ => (0, IndexProgress::Clearing),
    }
}

/// What a transaction of the parent changes in a child's view. `child` is the child's view as far as it is known: the
/// parent's base snapshot seen through `state` and everything the tail has changed so far.
pub fn tail(
    definition: &IndexedDefinition,
    child: &ChildView<'_>,
    transaction: &Transaction,
    range: &EpkRange,
) -> Result<Vec<ViewWrite>> {
    let mut writes = Vec::new();
    let mut overlay = Overlay::new(child);
    // Versions that the parent has forgotten in the meantime stay with the child until it forgets them itself.
    // Operations keep their place in the transaction, so each is projected on its own.
    for (index, operation) in transaction.operations.iter().enumerate() {
        let concerns_child = match operation {
            Operation::Put(put) => range.contains(&put.epk),
            Operation::Delete(delete) => range.contains(&delete.epk),
            Operation::Renamed(renamed) => range.contains(&renamed.epk),
            Operation::Defined { .. } => true,
            _ => false,
        };
        if concerns_child {
            let one = std::slice::from_ref(operation);
            let changes = project::operations(definition, &overlay, one, transaction.lsn, transaction.at, index)?;
            let shapes = shapes_of(&overlay, &changes)?;
            overlay.apply(changes.iter().cloned());
            writes.extend(changes);
            writes.extend(shapes);
        }
    }
    Ok(writes)
}

/// The shapes that changed items have. The parent may know one since the child was copied, from an item of another child.
fn shapes_of(view: &dyn View, changes: &[ViewWrite]) -> Result<Vec<ViewWrite>> {
    let mut shapes = Vec::new();
    for (key, value) in changes {
        if value.is_some()
            && let Some(shape) = index::shape_of_posting(key)
            && let Some(paths) = view.get(&shape)?
        {
            shapes.push((shape, Some(paths)));
        }
    }
    Ok(shapes)
}

/// A child's view while it is being built: changes so far over the parent's base snapshot, with the child's own state.
#[derive(Debug)]
pub struct ChildView<'a> {
    overlay: Overlay<'a>,
}

impl<'a> ChildView<'a> {
    pub fn new(base: &'a dyn View, state: &PartitionState) -> ChildView<'a> {
        let mut overlay = Overlay::new(base);
        overlay.apply([(keys::state(), Some(state.encode()))]);
        ChildView { overlay }
    }

    pub fn apply(&mut self, writes: Vec<ViewWrite>) {
        self.overlay.apply(writes);
    }

    /// All changes over the base, the state among them.
    pub fn into_writes(self) -> Vec<ViewWrite> {
        self.overlay.into_writes()
    }
}

impl View for ChildView<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.overlay.get(key)
    }

    fn scan<'b>(
        &'b self,
        from: std::ops::Bound<&[u8]>,
        to: std::ops::Bound<&[u8]>,
        reverse: bool,
    ) -> crate::storage::Scan<'b> {
        self.overlay.scan(from, to, reverse)
    }
}
