//! Which index has the order that a query asks for.

use orrery_model::Value;
use orrery_model::container::index_rules::{CompositeIndex, IndexRules};
use orrery_model::json::{PathPart, Wanted};

use super::condition::{Analysis, covers};
use super::encode::{encode, read_code};
use super::path::{PathHash, Segment, TermPath};
use super::terms::composite_hash;
use crate::parse::ast::Direction;
use crate::plan::{Input, Ordering, Plan, SortKey};
use crate::run::Resume;
use crate::values::compare_for_order;

/// An index whose entries come in the order of a query's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexOrder {
    pub source: OrderSource,
    /// Walk it from its end.
    pub reverse: bool,
    /// The paths sorted by, each with whether its codes are inverted in the index.
    parts: Vec<(TermPath, bool)>,
}

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
        let path = |key: &SortKey| analysis.path(&key.expr).filter(TermPath::is_single);
        let paths = keys.iter().map(path).collect::<Option<Vec<_>>>()?;
        let descending = |key: &SortKey| key.direction == Direction::Descending;
        match (paths.as_slice(), keys.as_slice()) {
            ([path], [key]) => covers(rules, path).then(|| IndexOrder {
                source: OrderSource::Path(path.hash()),
                reverse: descending(key),
                parts: vec![(path.clone(), false)],
            }),
            _ => {
                let wanted: Vec<bool> = keys.iter().map(descending).collect();
                let served = |index: &CompositeIndex| composite(index, &paths, &wanted);
                rules.composites().iter().find_map(served)
            }
        }
    }

    /// The path of an index of one path.
    pub fn path(&self) -> Option<&TermPath> {
        match (self.source, self.parts.as_slice()) {
            (OrderSource::Path(_), [(path, _)]) => Some(path),
            _ => None,
        }
    }

    /// The paths of the index with their directions in it.
    pub(super) fn specs(&self) -> Vec<String> {
        let spec = |(path, inverted): &(TermPath, bool)| format!("{path} {}", if *inverted { "DESC" } else { "ASC" });
        self.parts.iter().map(spec).collect()
    }

    /// The parts of an item that its place depends on.
    pub fn wanted(&self) -> Wanted {
        let mut wanted = Wanted::default();
        for (path, _) in &self.parts {
            let part = |segment: &Segment| match segment {
                Segment::Name(name) => PathPart::Member(name.clone()),
                Segment::Elements => PathPart::Element,
            };
            wanted.add(&path.segments.iter().map(part).collect::<Vec<_>>(), true);
        }
        wanted
    }

    /// The code of an item's values, as its entry must have it.
    pub fn code(&self, item: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        for (path, inverted) in &self.parts {
            append_code(find(item, path), *inverted, &mut out);
        }
        out
    }

    /// The order of two items whose codes have the same place.
    pub fn compare(&self, a: &Value, b: &Value) -> std::cmp::Ordering {
        for (path, inverted) in &self.parts {
            let order = compare_for_order(find(a, path), find(b, path));
            if order.is_ne() {
                return if *inverted != self.reverse {
                    order.reverse()
                } else {
                    order
                };
            }
        }
        std::cmp::Ordering::Equal
    }

    /// Whether an item has no value at the path sorted by.
    pub fn is_undefined(&self, item: &Value) -> bool {
        self.parts.iter().all(|(path, _)| find(item, path).is_none())
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
        for ((_, inverted), key) in self.parts.iter().zip(keys) {
            append_code(key.as_ref(), *inverted, &mut out);
        }
        Some((Some(out), rank))
    }

    /// How many bytes of an entry's codes decide its place, how long they are, and whether different values may have that
    /// place. `None` for bytes that are no codes.
    pub fn place(&self, bytes: &[u8]) -> Option<(usize, usize, bool)> {
        let mut place: Option<usize> = None;
        let mut at = 0;
        for (_, inverted) in &self.parts {
            let code = read_code(bytes.get(at..)?, *inverted)?;
            if code.is_loose {
                // What follows a loose code is sorted by it only among equals.
                place = place.or(Some(at + code.ordered));
            }
            at += code.length;
        }
        Some((place.unwrap_or(at), at, place.is_some()))
    }
}

fn composite(index: &CompositeIndex, paths: &[TermPath], wanted: &[bool]) -> Option<IndexOrder> {
    let same_paths = index.parts.len() == paths.len()
        && index
            .parts
            .iter()
            .zip(paths)
            .all(|(part, path)| path.names().is_some_and(|names| names.iter().eq(part.path.iter())));
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
        parts: paths
            .iter()
            .cloned()
            .zip(index.parts.iter().map(|part| part.descending))
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

fn find<'v>(item: &'v Value, path: &TermPath) -> Option<&'v Value> {
    path.names()?.into_iter().try_fold(item, |value, name| value.get(name))
}
