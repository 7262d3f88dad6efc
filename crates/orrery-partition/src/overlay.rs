//! A view with changes laid over it: what a batch of commands decides on, and what project sees of a transaction's
//! earlier operations.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Bound;

use bytes::Bytes;

use crate::storage::{Result, Scan, View, ViewWrite};

/// Changes over a base that stays untouched.
pub struct Overlay<'a> {
    base: &'a dyn View,
    changes: BTreeMap<Bytes, Option<Bytes>>,
}

impl<'a> Overlay<'a> {
    pub fn new(base: &'a dyn View) -> Overlay<'a> {
        Overlay {
            base,
            changes: BTreeMap::new(),
        }
    }

    pub fn apply(&mut self, writes: impl IntoIterator<Item = ViewWrite>) {
        self.changes.extend(writes);
    }

    /// The changes in key order.
    pub fn into_writes(self) -> Vec<ViewWrite> {
        self.changes.into_iter().collect()
    }
}

impl std::fmt::Debug for Overlay<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Overlay")
            .field("n_changes", &self.changes.len())
            .finish_non_exhaustive()
    }
}

impl View for Overlay<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.changes.get(key) {
            Some(change) => Ok(change.clone()),
            None => self.base.get(key),
        }
    }

    fn scan<'b>(&'b self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> Scan<'b> {
        let changes = self
            .changes
            .range::<[u8], _>((from, to))
            .map(|(key, value)| (key.clone(), value.clone()));
        let base = self.base.scan(from, to, reverse);
        if reverse {
            Box::new(Merge {
                base: base.peekable(),
                changes: changes.rev().peekable(),
                reverse,
            })
        } else {
            Box::new(Merge {
                base: base.peekable(),
                changes: changes.peekable(),
                reverse,
            })
        }
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
