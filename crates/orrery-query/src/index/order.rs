//! Which index has the order that a query asks for.

use std::cell::Cell;
use std::sync::Arc;

use orrery_model::Value;
use orrery_model::container::index_rules::{CompositeIndex, IndexRules};
use orrery_model::json::{PathPart, Wanted};

use super::condition::{Analysis, covers};
use super::encode::{encode, read_code};
use super::path::{PathHash, TermPath};
use super::terms::composite_hash;
use crate::computed::{COMPUTING_WORK_MAX, ComputedProperty, Indexable};
use crate::parse::ast::Direction;
use crate::plan::{Expr, Input, Ordering, Plan, SortKey};
use crate::run::Resume;
use crate::values::compare_for_order;

/// An index whose entries come in the order of a query's rows.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexOrder {
    pub source: OrderSource,
    /// Walk it from its end.
    pub reverse: bool,
    parts: Vec<Part>,
}

/// One of the values sorted by.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    path: TermPath,
    /// The property that the path begins with, if that is computed.
    computed: Option<Arc<ComputedProperty>>,
    /// Its codes are inverted in the index.
    inverted: bool,
}

/// Of an item, the values that its place depends on.
#[derive(Clone, Debug)]
pub struct SortedBy(Vec<Option<Value>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderSource {
    /// Terms of one path; items without a value there have none.
    Path(PathHash),
    /// Entries of a composite index; every item has one.
    Composite(PathHash),
}

impl IndexOrder {
    /// The index for a plan that sorts items by their properties and does nothing else that needs all of them.
    pub fn of(plan: &Plan, rules: &IndexRules) -> Option<IndexOrder> {
        let Ordering::Keys(keys) = &plan.ordering else {
            return None;
        };
        let block = &plan.block;
        if !matches!(plan.input, Input::Items) || block.grouping.is_some() || block.distinct {
            return None;
        }
        let mut analysis = Analysis::new(plan, rules);
        analysis.bind(block);
        let descending = |key: &SortKey| key.direction == Direction::Descending;
        if let [key] = keys.as_slice() {
            let part = Part::of(key, analysis.path(&key.expr)?)?;
            return covers(rules, &part.path).then(|| IndexOrder {
                source: OrderSource::Path(part.path.hash()),
                reverse: descending(key),
                parts: vec![part],
            });
        }
        // A composite index holds what it names.
        let part = |key: &SortKey| Part::of(key, analysis.own_path(&key.expr)?);
        let parts = keys.iter().map(part).collect::<Option<Vec<_>>>()?;
        let wanted: Vec<bool> = keys.iter().map(descending).collect();
        let served = |index: &CompositeIndex| composite(index, &parts, &wanted);
        rules.composites().iter().find_map(served)
    }

    /// The path of an index of one path.
    pub fn path(&self) -> Option<&TermPath> {
        match (self.source, self.parts.as_slice()) {
            (OrderSource::Path(_), [part]) => Some(&part.path),
            _ => None,
        }
    }

    /// The paths of the index with their directions in it.
    pub(super) fn specs(&self) -> Vec<String> {
        let spec = |part: &Part| format!("{} {}", part.path, if part.inverted { "DESC" } else { "ASC" });
        self.parts.iter().map(spec).collect()
    }

    /// The parts of an item that its place depends on.
    pub fn wanted(&self) -> Wanted {
        let mut wanted = Wanted::default();
        for part in &self.parts {
            match &part.computed {
                Some(property) => property.survey(&mut wanted),
                None => {
                    let names = part.path.names().unwrap_or_default();
                    let path: Vec<PathPart> = names.into_iter().map(|name| PathPart::Member(name.into())).collect();
                    wanted.add(&path, true);
                }
            }
        }
        wanted
    }

    /// What an item is sorted by, given the parts of it that are wanted; `None` when a computed value cannot be in an index.
    pub fn values(&self, item: &Value) -> Option<SortedBy> {
        self.parts
            .iter()
            .map(|part| part.value(item))
            .collect::<Option<_>>()
            .map(SortedBy)
    }

    /// The code of an item's values, as its entry must have it.
    pub fn code(&self, item: &SortedBy) -> Vec<u8> {
        let mut out = Vec::new();
        for (part, value) in self.parts.iter().zip(&item.0) {
            append_code(value.as_ref(), part.inverted, &mut out);
        }
        out
    }

    /// The order of two items whose codes have the same place.
    pub fn compare(&self, a: &SortedBy, b: &SortedBy) -> std::cmp::Ordering {
        for (part, (a, b)) in self.parts.iter().zip(a.0.iter().zip(&b.0)) {
            let order = compare_for_order(a.as_ref(), b.as_ref());
            if order.is_ne() {
                return if part.inverted != self.reverse {
                    order.reverse()
                } else {
                    order
                };
            }
        }
        std::cmp::Ordering::Equal
    }

    /// Whether an item has no value at the path sorted by.
    pub fn is_undefined(&self, item: &SortedBy) -> bool {
        item.0.iter().all(Option::is_none)
    }

    /// Where a result goes on: the code of its last values, `None` for undefined in the index of one path, and the lowest
    /// rank that may still come among equals.
    pub fn start(&self, resume: &Resume) -> Option<(Option<Vec<u8>>, u64)> {
        let (keys, rank) = resume.sort_start()?;
        if keys.len() != self.parts.len() {
            return None;
        }
        if let (OrderSource::Path(_), [None]) = (self.source, keys) {
            return Some((None, rank));
        }
        let mut out = Vec::new();
        for (part, key) in self.parts.iter().zip(keys) {
            append_code(key.as_ref(), part.inverted, &mut out);
        }
        Some((Some(out), rank))
    }

    /// How many bytes of an entry's codes decide its place, how long they are, and whether different values may have that
    /// place. `None` for bytes that are no codes.
    pub fn place(&self, bytes: &[u8]) -> Option<(usize, usize, bool)> {
        let mut place: Option<usize> = None;
        let mut at = 0;
        for part in &self.parts {
            let code = read_code(bytes.get(at..)?, part.inverted)?;
            if code.is_loose {
                // What follows a loose code is sorted by it only among equals.
                place = place.or(Some(at + code.ordered));
            }
            at += code.length;
        }
        Some((place.unwrap_or(at), at, place.is_some()))
    }
}

impl Part {
    /// `None` for a path where an item may have several values, and for one below a source that is a computed property: the key
    /// does not say which.
    fn of(key: &SortKey, path: TermPath) -> Option<Part> {
        let computed = computed_in(&key.expr).filter(|_| path.is_computed()).cloned();
        (path.is_single() && path.is_computed() == computed.is_some()).then_some(Part {
            path,
            computed,
            inverted: false,
        })
    }

    /// The inner `None` is undefined; the outer means that no index can hold the value.
    fn value(&self, item: &Value) -> Option<Option<Value>> {
        let names = self.path.names()?;
        let Some(property) = &self.computed else {
            return Some(follow(item, &names).cloned());
        };
        match property.of(item, &Cell::new(COMPUTING_WORK_MAX)) {
            Indexable::Value(value) => Some(follow(&value, &names[1..]).cloned()),
            Indexable::Undefined => Some(None),
            Indexable::Unknown => None,
        }
    }
}

/// The computed property that an expression begins with.
pub(super) fn computed_in(expr: &Expr) -> Option<&Arc<ComputedProperty>> {
    match expr {
        Expr::Computed(property) => Some(property),
        Expr::Access { base, .. } => computed_in(base),
        _ => None,
    }
}

fn composite(index: &CompositeIndex, parts: &[Part], wanted: &[bool]) -> Option<IndexOrder> {
    let same_paths = index.parts.len() == parts.len()
        && index.parts.iter().zip(parts).all(|(part, asked)| {
            asked
                .path
                .names()
                .is_some_and(|names| names.iter().eq(part.path.iter()))
        });
    if !same_paths {
        return None;
    }
    let reverse = index.parts[0].descending != wanted[0];
    let fits = index
        .parts
        .iter()
        .zip(wanted)
        .all(|(part, wanted)| (part.descending != *wanted) == reverse);
    fits.then(|| IndexOrder {
        source: OrderSource::Composite(composite_hash(index)),
        reverse,
        parts: parts
            .iter()
            .zip(&index.parts)
            .map(|(asked, part)| Part {
                inverted: part.descending,
                ..asked.clone()
            })
            .collect(),
    })
}

fn append_code(value: Option<&Value>, inverted: bool, out: &mut Vec<u8>) {
    let from = out.len();
    encode(value, out);
    if inverted {
        out[from..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

fn follow<'v>(value: &'v Value, names: &[&str]) -> Option<&'v Value> {
    names.iter().try_fold(value, |value, name| value.get(name))
}
