//! What a change of an item changes in the index: only the difference of its terms.

use bytes::Bytes;
use orrery_model::Epk;
use orrery_query::index::{Indexing, Terms};

use super::entries;
use crate::keys::{self, EpkForm, KeySpace};
use crate::storage::{Result, StorageError, View, ViewWrite};
use crate::stored::StoredItem;

/// The changes of the index when the item at a place changes from `before` to `after`.
pub(crate) fn changes(
    indexing: &Indexing,
    view: &dyn View,
    form: EpkForm,
    (epk, number): (&Epk, u64),
    before: Option<&StoredItem>,
    after: Option<&StoredItem>,
) -> Result<Vec<ViewWrite>> {
    if !indexing.rules().is_enabled() {
        return Ok(Vec::new());
    }
    let before = before.map(|item| terms(indexing, item)).transpose()?;
    let after = after.map(|item| terms(indexing, item)).transpose()?;
    let mut difference = Difference::new(form, epk, number);
    let none = Terms::default();
    let (old, new) = (before.as_ref().unwrap_or(&none), after.as_ref().unwrap_or(&none));
    difference.terms(KeySpace::Term, old.singles(), new.singles());
    difference.terms(KeySpace::Composite, old.composites(), new.composites());
    let mut writes = difference.into_writes();
    let (old, new) = (before.as_ref().map(Terms::shape), after.as_ref().map(Terms::shape));
    if old != new {
        writes.extend(old.map(|shape| (entries::posting(shape, number), None)));
        if let (Some(shape), Some(terms)) = (new, &after) {
            writes.push((entries::posting(shape, number), Some(keys::pointer(form, epk))));
            let key = entries::shape(shape);
            if view.get(&key)?.is_none() {
                writes.push((key, Some(entries::write_paths(terms.paths()))));
            }
        }
    }
    Ok(writes)
}

fn terms(indexing: &Indexing, item: &StoredItem) -> Result<Terms> {
    if !item.directive.is_indexed() {
        return Ok(Terms::unindexed());
    }
    Terms::of_text(indexing, &item.body).map_err(|_| StorageError::Corrupt("a stored item is not JSON".to_owned()))
}

/// Keys to remove and to add, laid out one after the other so that many keys need one allocation.
struct Difference {
    bytes: Vec<u8>,
    /// Where each key ends, and whether it is added.
    ends: Vec<(usize, bool)>,
    pointer: Vec<u8>,
    number: u64,
    /// What composite entries hold.
    epk: Bytes,
    /// The space of each run of keys, with the number of keys before it ends.
    n_terms: usize,
}

impl Difference {
    fn new(form: EpkForm, epk: &Epk, number: u64) -> Difference {
        Difference {
            bytes: Vec::with_capacity(1024),
            ends: Vec::with_capacity(32),
            pointer: entries::pointer(form, epk, number),
            number,
            epk: keys::pointer(form, epk),
            n_terms: 0,
        }
    }

    /// Walks two ascending lists side by side.
    fn terms<'t>(&mut self, space: KeySpace, old: impl Iterator<Item = &'t [u8]>, new: impl Iterator<Item = &'t [u8]>) {
        let (mut old, mut new) = (old.peekable(), new.peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => break,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(old), Some(new)) => old.cmp(new),
            };
            let removed = if order.is_le() { old.next() } else { None };
            let added = if order.is_ge() { new.next() } else { None };
            // Out of order, an entry that stays would be added and removed again.
            debug_assert!(removed.zip(old.peek()).is_none_or(|(term, next)| term < *next));
            debug_assert!(added.zip(new.peek()).is_none_or(|(term, next)| term < *next));
            match (removed, added) {
                (Some(term), None) => self.key(space, term, false),
                (None, Some(term)) => self.key(space, term, true),
                _ => {}
            }
        }
        if space == KeySpace::Term {
            self.n_terms = self.ends.len();
        }
    }

    fn key(&mut self, space: KeySpace, term: &[u8], added: bool) {
        self.bytes.push(keys::byte(space));
        self.bytes.extend_from_slice(term);
        match space {
            KeySpace::Term => self.bytes.extend_from_slice(&self.pointer),
            _ => self.bytes.extend_from_slice(&self.number.to_be_bytes()),
        }
        self.ends.push((self.bytes.len(), added));
    }

    fn into_writes(self) -> Vec<ViewWrite> {
        let bytes = Bytes::from(self.bytes);
        let mut start = 0;
        let mut writes = Vec::with_capacity(self.ends.len() + 3);
        for (index, (end, added)) in self.ends.into_iter().enumerate() {
            let value = if index < self.n_terms {
                Bytes::new()
            } else {
                self.epk.clone()
            };
            writes.push((bytes.slice(start..end), added.then_some(value)));
            start = end;
        }
        writes
    }
}
