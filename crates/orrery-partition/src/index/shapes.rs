//! Which items lack a path: those of every shape without it.

use std::ops::Bound;

use bytes::Bytes;
use orrery_query::index::PathHash;

use super::entries::{self, HEAD_BYTES};
use super::search::Scope;
use crate::keys::{self, KeySpace};
use crate::storage::{Result, StorageError, View};

/// The shape of items that have too many values to index.
pub(super) const OVERFULL: u64 = u64::MAX;
/// Shapes considered; a container with more is scanned.
const SHAPES_MAX: usize = 2_000;

/// The shapes of a partition, seen from a path.
pub(super) struct Shapes {
    /// Those without the path.
    pub lacking: Vec<u64>,
    /// Whether there are, or have been, items without terms, whatever their paths.
    pub has_overfull: bool,
}

/// One walk over the shapes; `None` when there are too many.
pub(super) fn read(view: &dyn View, path: PathHash) -> Result<Option<Shapes>> {
    let (from, to) = keys::bounds(KeySpace::Shape);
    let mut shapes = Shapes {
        lacking: Vec::new(),
        has_overfull: false,
    };
    let entries = view.scan(Bound::Included(&from), Bound::Excluded(&to), false);
    for (n_seen, entry) in entries.enumerate() {
        let (key, paths) = entry?;
        if n_seen == SHAPES_MAX {
            return Ok(None);
        }
        let (shape, has_path) = read_shape(&key, &paths, path)
            .ok_or_else(|| StorageError::Corrupt("a shape of the index is malformed".to_owned()))?;
        // Those are looked at whatever is asked for.
        if shape == OVERFULL {
            shapes.has_overfull = true;
        } else if !has_path {
            shapes.lacking.push(shape);
        }
    }
    Ok(Some(shapes))
}

/// The items in scope that have no terms; `None` when there are more than `limit`. Mostly there are none, which one lookup tells:
/// a shape is never forgotten.
pub(super) fn overfull_keys(scope: &Scope<'_>, limit: usize) -> Result<Option<Vec<Bytes>>> {
    match scope.view.get(&entries::shape(OVERFULL))? {
        Some(_) => keys_of_shape(scope, OVERFULL, limit),
        None => Ok(Some(Vec::new())),
    }
}

/// A shape and whether it has a path.
fn read_shape(key: &[u8], value: &[u8], path: PathHash) -> Option<(u64, bool)> {
    let shape = u64::from_be_bytes(key.get(1..HEAD_BYTES)?.try_into().ok()?);
    let (paths, []) = value.strip_prefix(&[1])?.as_chunks::<8>() else {
        return None;
    };
    Some((shape, paths.binary_search(&path.to_bytes()).is_ok()))
}

/// Keys of the items in scope that have a shape, by number; `None` when there are more than `limit`.
pub(super) fn keys_of_shape(scope: &Scope<'_>, shape: u64, limit: usize) -> Result<Option<Vec<Bytes>>> {
    let mut found = Vec::new();
    for (n_seen, item) in postings(scope, shape, 0).enumerate() {
        if n_seen == limit {
            return Ok(None);
        }
        found.extend(item?.map(|(_, key)| key));
    }
    Ok(Some(found))
}

/// Keys of the items in scope that lack a path; `None` when more than `limit` entries would have to be looked at.
pub(super) fn lacking_keys(scope: &Scope<'_>, path: PathHash, limit: usize) -> Result<Option<Vec<Bytes>>> {
    let Some(shapes) = read(scope.view, path)? else {
        return Ok(None);
    };
    let mut all = Vec::new();
    for shape in shapes.lacking {
        match keys_of_shape(scope, shape, limit - limit.min(all.len()))? {
            Some(found) => all.extend(found),
            None => return Ok(None),
        }
    }
    Ok(Some(all))
}

/// The items of a shape from a number on, each with its number and key; `None` for those out of scope.
pub(super) fn postings<'v>(
    scope: &Scope<'v>,
    shape: u64,
    from: u64,
) -> impl Iterator<Item = Result<Option<(u64, Bytes)>>> + use<'v> {
    let (first, end) = scope.pointer_bounds();
    let start = entries::posting(shape, from);
    let mut last = entries::posting(shape, u64::MAX).to_vec();
    last.push(0);
    let entries = scope.view.scan(Bound::Included(&start), Bound::Excluded(&last), false);
    entries.map(move |entry| {
        let (key, epk) = entry?;
        let number = key
            .last_chunk::<8>()
            .ok_or_else(|| StorageError::Corrupt("an index entry is malformed".to_owned()))?;
        let pointer = [&*epk, number].concat();
        let in_scope = (first.as_slice()..end.as_slice()).contains(&pointer.as_slice());
        Ok(in_scope.then(|| (u64::from_be_bytes(*number), entries::item_key(&pointer))))
    })
}
