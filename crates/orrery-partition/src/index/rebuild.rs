//! One step of applying a changed policy.

use std::ops::Bound;

use bytes::Bytes;
use orrery_query::index::Indexing;

use super::maintain::changes;
use super::progress::IndexProgress;
use crate::keys::{self, EpkForm, KeySpace};
use crate::storage::{Result, StorageError, View, ViewWrite};
use crate::stored::StoredItem;

/// Entries removed for each item a step may take: a step that removes is about as large as one that builds.
const REMOVED_PER_ITEM: usize = 16;

/// Goes on from `progress` with about `n_items_max` items; gives the changes and how far it has come.
pub(crate) fn step(
    indexing: &Indexing,
    view: &dyn View,
    form: EpkForm,
    progress: &IndexProgress,
    n_items_max: usize,
) -> Result<(Vec<ViewWrite>, IndexProgress)> {
    match progress {
        IndexProgress::Ready => Ok((Vec::new(), IndexProgress::Ready)),
        IndexProgress::Clearing => clear(view, n_items_max * REMOVED_PER_ITEM),
        IndexProgress::Building { reached } => build(indexing, view, form, reached, n_items_max),
    }
}

fn clear(view: &dyn View, n_max: usize) -> Result<(Vec<ViewWrite>, IndexProgress)> {
    let (from, _) = keys::bounds(KeySpace::Term);
    let (_, to) = keys::bounds(KeySpace::Composite);
    let mut writes = Vec::new();
    for entry in view
        .scan(Bound::Included(&from), Bound::Excluded(&to), false)
        .take(n_max)
    {
        writes.push((entry?.0, None));
    }
    let progress = match writes.len() < n_max {
        true => IndexProgress::Building { reached: Bytes::new() },
        false => IndexProgress::Clearing,
    };
    Ok((writes, progress))
}

fn build(
    indexing: &Indexing,
    view: &dyn View,
    form: EpkForm,
    reached: &Bytes,
    n_max: usize,
) -> Result<(Vec<ViewWrite>, IndexProgress)> {
    let (first, to) = keys::bounds(KeySpace::Item);
    let from = match reached.is_empty() {
        true => Bound::Included(first.as_ref()),
        false => Bound::Excluded(reached.as_ref()),
    };
    let mut writes = Vec::new();
    let (mut n_items, mut last) = (0, reached.clone());
    for entry in view.scan(from, Bound::Excluded(&to), false).take(n_max) {
        let (key, value) = entry?;
        let (epk, number) = keys::read_item(form, &key)
            .ok_or_else(|| StorageError::Corrupt("the key of an item is malformed".to_owned()))?;
        let item = StoredItem::decode(&value)?;
        writes.extend(changes(indexing, view, form, (&epk, number), None, Some(&item))?);
        n_items += 1;
        last = key;
    }
    let progress = match n_items < n_max {
        true => IndexProgress::Ready,
        // A copy, so that the state never keeps a whole block of the store alive.
        false => IndexProgress::Building {
            reached: Bytes::copy_from_slice(&last),
        },
    };
    Ok((writes, progress))
}
