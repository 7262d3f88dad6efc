//! From a condition to the items that can meet it, in the order of the items' keys: the order in which a scan gives them.
//!
//! Nothing is guessed: the sizes of what the terms lead to are found by looking, up to a bound, and what exceeds it is not
//! used. The answer may hold items that do not meet the condition; it never lacks one that does.

use std::borrow::Cow;
use std::ops::Bound;

use bytes::Bytes;
use orrery_model::{Epk, EpkRange};
use orrery_query::index::{Condition, TermRange};

use super::entries::{self, HEAD_BYTES};
use super::shapes;
use crate::keys::{self, EpkForm, KeySpace};
use crate::state::PartitionState;
use crate::storage::{Result, StorageError, View};

/// Entries looked at before a condition counts as too wide, tried from the first on.
const LIMITS: [usize; 3] = [128, 2_048, 16_384];
/// What a search for the items of a filter may look at.
pub const EFFORT: usize = LIMITS[2];
/// A target of so few items is read whole.
const SMALL_SCOPE: usize = 8;
/// So few items are read without asking how many others there are.
const FEW: usize = 4;
/// Up to so many items of a logical partition are counted.
const SCOPE_COUNT_MAX: usize = 1_024;

/// The part of a partition that a search is about.
#[derive(Clone, Copy)]
pub struct Scope<'v> {
    pub view: &'v dyn View,
    pub form: EpkForm,
    pub range: &'v EpkRange,
    /// Names the policy that the search relies on. A partition whose index follows another one cannot serve it.
    pub policy: u64,
    /// The partition's state, where somebody has read it.
    pub state: Option<&'v PartitionState>,
    /// The number of items in it, where somebody has counted them.
    pub n_items: Option<usize>,
}

impl std::fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope")
            .field("range", self.range)
            .finish_non_exhaustive()
    }
}

/// Which items to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// All of the scope.
    Scan,
    /// These, by their keys, ascending.
    Listed(Vec<Bytes>),
    /// Those that have one term, and those that are always considered.
    Term { head: Vec<u8>, always: Vec<Bytes> },
}

impl Access {
    /// Finds out how to come by the items that can meet a condition, looking at about `effort` entries at most.
    pub fn choose(scope: Scope<'_>, condition: &Condition, effort: usize) -> Result<Access> {
        match condition {
            Condition::Any => return Ok(Access::Scan),
            Condition::Never => return Ok(Access::Listed(Vec::new())),
            _ => {}
        }
        // Ids have an index of their own, complete whatever the policy says; a lookup there beats any walk.
        if let (Some(epk), Some(id)) = (scope.only_epk(), condition.only_id()) {
            return scope
                .item_with_id(epk, &id)
                .map(|key| Access::Listed(key.into_iter().collect()));
        }
        let Some(state) = scope.indexed()? else {
            return Ok(Access::Scan);
        };
        let Some(always) = shapes::overfull_keys(&scope, LIMITS[1])? else {
            return Ok(Access::Scan);
        };
        // Counting the items of a logical partition may take longer than finding the few that are asked for.
        let first_limit = LIMITS[0].min(effort);
        let mut found = scope.gather(condition, first_limit)?;
        if let Some(found) = found.take_if(|found| found.len() <= FEW) {
            return Ok(Access::listed(found, always));
        }
        let n_items = scope.n_items(&state)?.unwrap_or(state.n_items as usize);
        if n_items <= SMALL_SCOPE {
            return Ok(Access::Scan);
        }
        // Looking at as many entries as there are items costs as much as reading them.
        let limit_max = n_items.min(effort);
        let mut limit = first_limit;
        for next in LIMITS {
            if found.is_some() || limit >= limit_max {
                break;
            }
            if next > limit {
                limit = next.min(limit_max);
                found = scope.gather(condition, limit)?;
            }
        }
        if let Some(found) = found {
            return Ok(match found.len() * 2 > n_items {
                true => Access::Scan,
                false => Access::listed(found, always),
            });
        }
        Ok(match exact_range(condition) {
            Some(range) => Access::Term {
                head: term_key(&range.from),
                always,
            },
            None => Access::Scan,
        })
    }

    fn listed(mut found: Vec<Bytes>, always: Vec<Bytes>) -> Access {
        found.extend(always);
        found.sort_unstable();
        found.dedup();
        Access::Listed(found)
    }

    /// Up to `limit` keys of items within `scope` and from `from` on; not for [`Access::Scan`].
    pub fn keys(&self, scope: Scope<'_>, from: Bound<&[u8]>, limit: usize) -> Result<Vec<Bytes>> {
        match self {
            Access::Scan => Ok(Vec::new()),
            Access::Listed(keys) => Ok(after(keys, from).iter().take(limit).cloned().collect()),
            Access::Term { head, always } => {
                let mut found = scope.term_keys(head, from, limit)?;
                let last = found.last().filter(|_| found.len() == limit).cloned();
                let always = after(always, from).iter().take(limit);
                found.extend(
                    always
                        .filter(|key| last.as_ref().is_none_or(|last| *key <= last))
                        .cloned(),
                );
                found.sort_unstable();
                found.dedup();
                Ok(found)
            }
        }
    }
}

/// The part of an ascending list that a bound leaves.
fn after<'k>(keys: &'k [Bytes], from: Bound<&[u8]>) -> &'k [Bytes] {
    let start = keys.partition_point(|key| match from {
        Bound::Included(from) => key.as_ref() < from,
        Bound::Excluded(from) => key.as_ref() <= from,
        Bound::Unbounded => false,
    });
    &keys[start..]
}

fn term_key(term: &[u8]) -> Vec<u8> {
    [&[keys::byte(KeySpace::Term)], term].concat()
}

/// A range with one term that every item in question must have.
fn exact_range(condition: &Condition) -> Option<&TermRange> {
    match condition {
        Condition::Range(range) if range.is_exact => Some(range),
        Condition::All(parts) => parts.iter().find_map(exact_range),
        _ => None,
    }
}

impl<'v> Scope<'v> {
    /// The partition's state, if its index is complete and follows the policy.
    pub(super) fn indexed(&self) -> Result<Option<Cow<'v, PartitionState>>> {
        let state = match self.state {
            Some(state) => Some(Cow::Borrowed(state)),
            None => PartitionState::load(self.view)?.map(Cow::Owned),
        };
        Ok(state.filter(|state| state.index.is_ready() && state.index_policy == self.policy))
    }

    /// The one EPK in scope, where that can be told.
    fn only_epk(&self) -> Option<&Epk> {
        match self.form {
            EpkForm::Fixed(epk_bytes) => self.range.only(epk_bytes),
            EpkForm::Escaped => None,
        }
    }

    fn item_with_id(&self, epk: &Epk, id: &str) -> Result<Option<Bytes>> {
        let number = self.view.get(&keys::id(self.form, epk, id))?;
        let number = number.and_then(|bytes| bytes.as_ref().try_into().ok());
        Ok(number.map(|number| keys::item(self.form, epk, u64::from_be_bytes(number))))
    }

    /// The first pointer of the range, and the first after it.
    pub(super) fn pointer_bounds(&self) -> (Vec<u8>, Vec<u8>) {
        let bound = |epk| {
            let mut out = Vec::new();
            self.form.write_bound(epk, &mut out);
            out
        };
        (bound(&self.range.min), bound(&self.range.max))
    }

    /// The number of items; `None` for many items in a part of the partition.
    pub fn n_items(&self, state: &PartitionState) -> Result<Option<usize>> {
        if self.n_items.is_some() {
            return Ok(self.n_items);
        }
        if self.range.covers(&state.range) {
            return Ok(Some(state.n_items as usize));
        }
        let space = keys::byte(KeySpace::Id);
        let (from, to) = self.pointer_bounds();
        let (from, to) = ([&[space], &*from].concat(), [&[space], &*to].concat());
        let entries = self.view.scan(Bound::Included(&from), Bound::Excluded(&to), false);
        let mut n_items = 0;
        for entry in entries.take(SCOPE_COUNT_MAX + 1) {
            entry?;
            n_items += 1;
        }
        Ok((n_items <= SCOPE_COUNT_MAX).then_some(n_items))
    }

    /// Keys of the items that can meet a condition, in no order, perhaps twice; `None` when more than `limit` entries would
    /// have to be looked at.
    fn gather(&self, condition: &Condition, limit: usize) -> Result<Option<Vec<Bytes>>> {
        match condition {
            Condition::Any => Ok(None),
            Condition::Never => Ok(Some(Vec::new())),
            Condition::Range(range) if range.is_exact => {
                let head = term_key(&range.from);
                let found = self.term_keys(&head, Bound::Unbounded, limit + 1)?;
                Ok((found.len() <= limit).then_some(found))
            }
            Condition::Range(range) => self.range_keys(range, limit),
            Condition::Lacks(path) => shapes::lacking_keys(self, path.hash(), limit),
            Condition::OneOf(parts) => {
                let mut all = Vec::new();
                for part in parts {
                    match self.gather(part, limit - limit.min(all.len()))? {
                        Some(found) => all.extend(found),
                        None => return Ok(None),
                    }
                }
                Ok(Some(all))
            }
            Condition::All(parts) => self.intersection(parts, limit),
        }
    }

    fn intersection(&self, parts: &[Condition], limit: usize) -> Result<Option<Vec<Bytes>>> {
        let mut kept: Option<Vec<Bytes>> = None;
        for part in parts {
            let Some(mut found) = self.gather(part, limit)? else {
                continue;
            };
            found.sort_unstable();
            found.dedup();
            if let Some(others) = &kept {
                found.retain(|key| others.binary_search(key).is_ok());
            }
            let few = found.len() < SMALL_SCOPE;
            kept = Some(found);
            if few {
                break;
            }
        }
        Ok(kept)
    }

    /// Keys of the items in scope that have a term, ascending, from a key on.
    fn term_keys(&self, head: &[u8], from: Bound<&[u8]>, limit: usize) -> Result<Vec<Bytes>> {
        let (first, end) = self.pointer_bounds();
        let low = [head, &*first].concat();
        let entry_of = |item_key: &[u8]| [head, &item_key[1..]].concat();
        let start = match from {
            Bound::Included(key) => Bound::Included(entry_of(key)),
            Bound::Excluded(key) => Bound::Excluded(entry_of(key)),
            Bound::Unbounded => Bound::Included(low.clone()),
        };
        let start = match &start {
            Bound::Included(key) | Bound::Excluded(key) if *key < low => Bound::Included(low.as_slice()),
            Bound::Included(key) => Bound::Included(key.as_slice()),
            Bound::Excluded(key) => Bound::Excluded(key.as_slice()),
            Bound::Unbounded => Bound::Included(low.as_slice()),
        };
        let end = [head, &*end].concat();
        let entries = self.view.scan(start, Bound::Excluded(&end), false).take(limit);
        entries
            .map(|entry| Ok(entries::item_key(&entry?.0[head.len()..])))
            .collect()
    }

    fn range_keys(&self, range: &TermRange, limit: usize) -> Result<Option<Vec<Bytes>>> {
        let (first, end) = self.pointer_bounds();
        let (from, to) = (term_key(&range.from), term_key(&range.to));
        let mut found = Vec::new();
        for (n_seen, entry) in self
            .view
            .scan(Bound::Included(&from), Bound::Excluded(&to), false)
            .enumerate()
        {
            let (key, _) = entry?;
            if n_seen == limit {
                return Ok(None);
            }
            let (code, pointer) = parts_of_term(&key)?;
            if (first.as_slice()..end.as_slice()).contains(&pointer) && range.admits(code) {
                found.push(entries::item_key(pointer));
            }
        }
        Ok(Some(found))
    }
}

/// The value's code and the pointer at the end of a term entry's key.
fn parts_of_term(key: &[u8]) -> Result<(&[u8], &[u8])> {
    let rest = key.get(HEAD_BYTES..).unwrap_or_default();
    let code = orrery_query::index::read_code(rest, false)
        .ok_or_else(|| StorageError::Corrupt("an index entry is malformed".to_owned()))?;
    Ok(rest.split_at(code.length))
}
