//! A view with changes laid over it: what a batch of commands decides on, and what project sees of a transaction's
//! earlier operations.
//!
//! Changes of the index, most of what a write changes, are only gathered: deciding never reads them, so they are put in
//! order when someone does scan them, and once at the end.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use crate::keys::KeySpace;
use crate::storage::{Result, Scan, View, ViewWrite};

/// Changes over a base that stays untouched.
pub struct Overlay<'a> {
    base: &'a dyn View,
    changes: BTreeMap<Bytes, Option<Bytes>>,
    /// Entries of the index in the order they were changed; of several changes of one, the last holds.
    gathered: Vec<ViewWrite>,
    /// Shapes of the base that were asked for: items alike ask for the same one again and again.
    shapes: Mutex<BTreeMap<Bytes, Option<Bytes>>>,
}

impl<'a> Overlay<'a> {
    pub fn new(base: &'a dyn View) -> Overlay<'a> {
        Overlay {
            base,
            changes: BTreeMap::new(),
            gathered: Vec::new(),
            shapes: Mutex::default(),
        }
    }

    pub fn apply(&mut self, writes: impl IntoIterator<Item = ViewWrite>) {
        for (key, value) in writes {
            match is_gathered(&key) {
                true => self.gathered.push((key, value)),
                false => drop(self.changes.insert(key, value)),
            }
        }
    }

    /// The changes in key order, one of each key.
    pub fn into_writes(self) -> Vec<ViewWrite> {
        let mut writes: Vec<ViewWrite> = self.changes.into_iter().collect();
        writes.extend(self.gathered);
        keep_last(&mut writes);
        writes
    }

    /// The changes within bounds.
    fn changes_in(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> BTreeMap<Bytes, Option<Bytes>> {
        let range = (from, to);
        let ordered = self.changes.range::<[u8], _>(range);
        let mut changes: BTreeMap<_, _> = ordered.map(|(key, value)| (key.clone(), value.clone())).collect();
        let gathered = self.gathered.iter();
        changes.extend(
            gathered
                .filter(|(key, _)| std::ops::RangeBounds::<[u8]>::contains(&range, key.as_ref()))
                .cloned(),
        );
        changes
    }

    fn base_shape(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let mut shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shapes.get(key) {
            return Ok(known.clone());
        }
        let shape = self.base.get(key)?;
        shapes.insert(Bytes::copy_from_slice(key), shape.clone());
        Ok(shape)
    }
}

/// Whether changes of a key are gathered instead of kept in order.
fn is_gathered(key: &[u8]) -> bool {
    matches!(
        KeySpace::of(key),
        Some(KeySpace::Term | KeySpace::Posting | KeySpace::Composite)
    )
}

/// Puts writes in the order of their keys and keeps the last of each.
fn keep_last(writes: &mut Vec<ViewWrite>) {
    if writes.is_sorted_by(|(a, _), (b, _)| a < b) {
        return;
    }
    // A stable sort leaves writes of one key in their order.
    writes.sort_by(|(a, _), (b, _)| a.cmp(b));
    writes.dedup_by(|later, earlier| {
        let is_same = later.0 == earlier.0;
        if is_same {
            std::mem::swap(later, earlier);
        }
        is_same
    });
}

impl std::fmt::Debug for Overlay<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Overlay")
            .field("n_changes", &(self.changes.len() + self.gathered.len()))
            .finish_non_exhaustive()
    }
}

impl View for Overlay<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        if let Some(change) = self.changes.get(key) {
            return Ok(change.clone());
        }
        match KeySpace::of(key) {
            Some(KeySpace::Shape) => self.base_shape(key),
            Some(KeySpace::Term | KeySpace::Posting | KeySpace::Composite) => {
                match self.gathered.iter().rev().find(|(changed, _)| changed == key) {
                    Some((_, change)) => Ok(change.clone()),
                    None => self.base.get(key),
                }
            }
            _ => self.base.get(key),
        }
    }

    fn scan<'b>(&'b self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> Scan<'b> {
        let base = self.base.scan(from, to, reverse).peekable();
        if !self.gathered.is_empty() {
            return merge(base, self.changes_in(from, to).into_iter(), reverse);
        }
        let changes = self.changes.range::<[u8], _>((from, to));
        merge(base, changes.map(|(key, value)| (key.clone(), value.clone())), reverse)
    }
}

fn merge<'b, B, C>(base: Peekable<B>, changes: C, reverse: bool) -> Scan<'b>
where
    B: Iterator<Item = Result<(Bytes, Bytes)>> + Send + 'b,
    C: DoubleEndedIterator<Item = ViewWrite> + Send + 'b,
{
    match reverse {
        true => Box::new(Merge {
            base,
            changes: changes.rev().peekable(),
            reverse,
        }),
        false => Box::new(Merge {
            base,
            changes: changes.peekable(),
            reverse,
        }),
    }
}

/// Two ordered streams as one; a change hides the base entry of its key.
struct Merge<B: Iterator, C: Iterator> {
    base: Peekable<B>,
    changes: Peekable<C>,
    reverse: bool,
}

impl<B, C> Iterator for Merge<B, C>
where
    B: Iterator<Item = Result<(Bytes, Bytes)>>,
    C: Iterator<Item = ViewWrite>,
{
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let order = match (self.base.peek(), self.changes.peek()) {
                (Some(Err(_)), _) | (Some(_), None) => return self.base.next(),
                (None, None) => return None,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(Ok((base, _))), Some((change, _))) => {
                    let order = base.cmp(change);
                    if self.reverse { order.reverse() } else { order }
                }
            };
            if order.is_lt() {
                return self.base.next();
            }
            if order.is_eq() {
                self.base.next();
            }
            if let (key, Some(value)) = self.changes.next()? {
                return Some(Ok((key, value)));
            }
        }
    }
}
