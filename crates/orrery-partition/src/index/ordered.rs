//! Items in the order of an index, over several partitions at once.
//!
//! Items come in *groups* that have the same place in the order: equal values, ordered among themselves by number, or
//! values of which the index knows no more than that they stand together (long strings, arrays, objects), which the
//! caller orders. A large group of equal values comes in pieces, so that memory stays bounded.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Bound;

use bytes::Bytes;
use orrery_query::index::{IndexOrder, OrderSource, PathHash, successor};

use super::entries::{self, HEAD_BYTES};
use super::search::Scope;
use super::shapes;
use crate::keys::KeySpace;
use crate::storage::{Result, Scan, StorageError, View};

/// Items of equal values given at once.
const PIECE_MAX: usize = 4_096;
/// Items without a value given at first; each further piece is larger.
const PIECE_FIRST: usize = 64;
/// Items of a place whose order only the values tell. More are not sorted here.
pub const LOOSE_MAX: usize = 10_000;

/// An item by its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    pub number: u64,
    /// Which of the scopes it is in.
    pub scope: usize,
    /// The item's key.
    pub key: Bytes,
    /// The code its entry has; `None` for an item without a value.
    pub code: Option<Bytes>,
}

/// Items with the same place.
#[derive(Debug, PartialEq, Eq)]
pub enum Group {
    /// In their order.
    Sorted(Vec<Found>),
    /// To be sorted by their values.
    Loose(Vec<Found>),
    /// More of them than can be sorted here: the index cannot serve this query.
    TooLarge,
}

pub struct Ordered<'v> {
    order: IndexOrder,
    scopes: Vec<Scope<'v>>,
    walks: Vec<Walk<'v>>,
    phases: Vec<Phase>,
    /// A group of which only a part was given: its place, and the number the rest begins at.
    rest: Option<(Vec<u8>, u64)>,
    /// Where the first group begins: the place, and the number.
    start: Option<(Vec<u8>, u64)>,
}

impl std::fmt::Debug for Ordered<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ordered")
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

/// What is still to come.
#[derive(Debug)]
enum Phase {
    Values,
    /// Items without a value, per scope the shapes they have; the number to go on from and the size of the next piece.
    Undefined {
        shapes: Vec<Vec<u64>>,
        from: u64,
        piece: usize,
    },
}

impl<'v> Ordered<'v> {
    /// Begins at `start`, as [`IndexOrder::start`] gives it, or at the beginning. `within` are the terms between which all
    /// items in question lie. `None` when the index cannot serve: it is not complete, or does not know all items.
    pub fn open(
        order: IndexOrder,
        scopes: Vec<Scope<'v>>,
        start: Option<(Option<Vec<u8>>, u64)>,
        within: Option<(Vec<u8>, Vec<u8>)>,
    ) -> Result<Option<Ordered<'v>>> {
        for scope in &scopes {
            if scope.indexed()?.is_none() {
                return Ok(None);
            }
        }
        let undefined_from = match &start {
            Some((None, number)) => *number,
            _ => 0,
        };
        let mut phases = vec![Phase::Values];
        if let (OrderSource::Path(path), None) = (order.source, &within) {
            let Some(undefined) = undefined(&scopes, path, undefined_from)? else {
                return Ok(None);
            };
            phases.push(undefined);
        } else {
            for scope in &scopes {
                if shapes::overfull_keys(scope, 0)?.is_none() {
                    return Ok(None);
                }
            }
        }
        // The last phase comes first. One that lies before the start is over.
        if order.reverse {
            phases.reverse();
        }
        let starts_at_values = start.as_ref().map(|(code, _)| code.is_some());
        phases.retain(|phase| match (starts_at_values, phase) {
            (Some(false), Phase::Values) => !order.reverse,
            (Some(true), Phase::Undefined { .. }) => order.reverse,
            _ => true,
        });
        let start = start.and_then(|(code, number)| {
            let code = code?;
            let (place, _, is_loose) = order.place(&code)?;
            let head = head(&order);
            Some(([&head, &code[..place]].concat(), if is_loose { 0 } else { number }))
        });
        let walks = scopes
            .iter()
            .map(|scope| {
                let start = start.as_ref().map(|(place, _)| place.as_slice());
                Walk::open(&order, *scope, start, within.as_ref())
            })
            .collect();
        Ok(Some(Ordered {
            order,
            scopes,
            walks,
            phases,
            rest: None,
            start,
        }))
    }

    pub(super) fn order(&self) -> &IndexOrder {
        &self.order
    }

    pub(super) fn view(&self, scope: usize) -> &'v dyn View {
        self.scopes[scope].view
    }

    /// The next items.
    pub fn next_group(&mut self) -> Result<Option<Group>> {
        loop {
            let group = match self.phases.last_mut() {
                None => return Ok(None),
                Some(Phase::Values) => self.next_values()?,
                Some(Phase::Undefined { shapes, from, piece }) => {
                    let found = undefined_piece(&self.scopes, shapes, *from, *piece)?;
                    if let Some(last) = found.last() {
                        *from = last.number + 1;
                        *piece = (*piece * 4).min(PIECE_MAX);
                    }
                    (!found.is_empty()).then_some(Group::Sorted(found))
                }
            };
            match group {
                Some(group) => return Ok(Some(group)),
                None => drop(self.phases.pop()),
            }
        }
    }

    fn next_values(&mut self) -> Result<Option<Group>> {
        if let Some((place, from)) = self.rest.take() {
            return self.rest_of_group(place, from).map(Some);
        }
        let mut next: Option<(Vec<u8>, bool)> = None;
        for walk in &mut self.walks {
            let Some(entry) = walk.peek(&self.order)? else {
                continue;
            };
            let comes_first = next.as_ref().is_none_or(|(place, _)| {
                let order = entry.place().cmp(place);
                order
                    == if self.order.reverse {
                        Ordering::Greater
                    } else {
                        Ordering::Less
                    }
            });
            if comes_first {
                next = Some((entry.place().to_vec(), entry.is_loose));
            }
        }
        let Some((place, is_loose)) = next else { return Ok(None) };
        let from = match self.start.take() {
            Some((start, number)) if start == place => number,
            _ => 0,
        };
        let mut group = Collected::new(is_loose, from);
        for (index, walk) in self.walks.iter_mut().enumerate() {
            while let Some(entry) = walk.peek(&self.order)? {
                if entry.place() != place {
                    break;
                }
                group.add(entry.found(index));
                walk.next();
            }
        }
        Ok(Some(self.give(group, place)))
    }

    /// Goes over a large group again for the items that have not been given.
    fn rest_of_group(&mut self, place: Vec<u8>, from: u64) -> Result<Group> {
        let mut group = Collected::new(false, from);
        for (index, scope) in self.scopes.iter().enumerate() {
            let mut walk = Walk::over(*scope, place.clone(), successor(place.clone()), false);
            while let Some(entry) = walk.peek(&self.order)? {
                group.add(entry.found(index));
                walk.next();
            }
        }
        Ok(self.give(group, place))
    }

    fn give(&mut self, group: Collected, place: Vec<u8>) -> Group {
        if group.is_loose {
            return match group.n_seen > LOOSE_MAX {
                true => Group::TooLarge,
                false => Group::Loose(group.found.into_vec()),
            };
        }
        let is_cut = group.n_seen > group.found.len();
        let found = group.found.into_sorted_vec();
        if let (true, Some(last)) = (is_cut, found.last()) {
            self.rest = Some((place, last.number + 1));
        }
        Group::Sorted(found)
    }
}

/// A group being collected: the items with the smallest numbers, or all where only the values tell the order.
struct Collected {
    is_loose: bool,
    from: u64,
    n_seen: usize,
    found: BinaryHeap<Found>,
}

impl Collected {
    fn new(is_loose: bool, from: u64) -> Collected {
        Collected {
            is_loose,
            from,
            n_seen: 0,
            found: BinaryHeap::new(),
        }
    }

    fn add(&mut self, found: Found) {
        if found.number < self.from {
            return;
        }
        self.n_seen += 1;
        let full = self.found.len() == if self.is_loose { LOOSE_MAX } else { PIECE_MAX };
        if !full {
            self.found.push(found);
        } else if !self.is_loose
            && let Some(mut greatest) = self.found.peek_mut()
            && found < *greatest
        {
            *greatest = found;
        }
    }
}

fn head(order: &IndexOrder) -> Vec<u8> {
    match order.source {
        OrderSource::Path(path) => entries::head(KeySpace::Term, path.0),
        OrderSource::Composite(index) => entries::head(KeySpace::Composite, index.0),
    }
}

/// The items without a value; `None` where there are items that the index does not know, or too many shapes.
fn undefined(scopes: &[Scope<'_>], path: PathHash, from: u64) -> Result<Option<Phase>> {
    let mut shapes = Vec::new();
    for scope in scopes {
        let Some(read) = shapes::read(scope.view, path)? else {
            return Ok(None);
        };
        if read.has_overfull && shapes::keys_of_shape(scope, shapes::OVERFULL, 0)?.is_none() {
            return Ok(None);
        }
        shapes.push(read.lacking);
    }
    Ok(Some(Phase::Undefined {
        shapes,
        from,
        piece: PIECE_FIRST,
    }))
}

/// The items with the smallest numbers from `from` on, among those of the given shapes.
fn undefined_piece(scopes: &[Scope<'_>], shapes: &[Vec<u64>], from: u64, n_max: usize) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for (index, (scope, shapes)) in scopes.iter().zip(shapes).enumerate() {
        for shape in shapes {
            let mut n_of_shape = 0;
            for item in shapes::postings(scope, *shape, from) {
                let Some((number, key)) = item? else { continue };
                found.push(Found {
                    number,
                    scope: index,
                    key,
                    code: None,
                });
                n_of_shape += 1;
                if n_of_shape == n_max {
                    break;
                }
            }
        }
    }
    found.sort_unstable();
    found.truncate(n_max);
    Ok(found)
}

/// The entries of one partition in order.
struct Walk<'v> {
    entries: Scan<'v>,
    bounds: (Vec<u8>, Vec<u8>),
    /// The entry the walk stands at.
    head: Option<Entry>,
}

struct Entry {
    key: Bytes,
    /// Bytes of the key that are its place.
    place: usize,
    code_end: usize,
    is_loose: bool,
    number: u64,
    pointer: Vec<u8>,
}

impl Entry {
    fn place(&self) -> &[u8] {
        &self.key[..self.place]
    }

    fn found(&self, scope: usize) -> Found {
        Found {
            number: self.number,
            scope,
            key: entries::item_key(&self.pointer),
            code: Some(self.key.slice(HEAD_BYTES..self.code_end)),
        }
    }

    fn read(order: &IndexOrder, key: Bytes, value: &[u8]) -> Option<Entry> {
        let rest = key.get(HEAD_BYTES..)?;
        let (place, code_length, is_loose) = order.place(rest)?;
        let number = u64::from_be_bytes(*key.last_chunk()?);
        let pointer = match order.source {
            OrderSource::Path(_) => rest[code_length..].to_vec(),
            OrderSource::Composite(_) => [value, &number.to_be_bytes()].concat(),
        };
        Some(Entry {
            place: HEAD_BYTES + place,
            code_end: HEAD_BYTES + code_length,
            is_loose,
            number,
            pointer,
            key,
        })
    }
}

impl<'v> Walk<'v> {
    /// Over the whole index or some terms of it, or from a place on.
    fn open(
        order: &IndexOrder,
        scope: Scope<'v>,
        start: Option<&[u8]>,
        within: Option<&(Vec<u8>, Vec<u8>)>,
    ) -> Walk<'v> {
        let (mut from, mut to) = (head(order), successor(head(order)));
        if let Some((first, end)) = within {
            let space = &head(order)[..1];
            (from, to) = ([space, first].concat(), [space, end].concat());
        }
        match (start, order.reverse) {
            (Some(place), false) => from = from.max(place.to_vec()),
            (Some(place), true) => to = to.min(successor(place.to_vec())),
            (None, _) => {}
        }
        to = to.max(from.clone());
        Walk::over(scope, from, to, order.reverse)
    }

    fn over(scope: Scope<'v>, from: Vec<u8>, to: Vec<u8>, reverse: bool) -> Walk<'v> {
        let entries = scope.view.scan(Bound::Included(&from), Bound::Excluded(&to), reverse);
        Walk {
            entries,
            bounds: scope.pointer_bounds(),
            head: None,
        }
    }

    /// The entry the walk stands at, those out of scope passed over.
    fn peek(&mut self, order: &IndexOrder) -> Result<Option<&Entry>> {
        while self.head.is_none() {
            let Some(entry) = self.entries.next() else {
                return Ok(None);
            };
            let (key, value) = entry?;
            let entry = Entry::read(order, key, &value)
                .ok_or_else(|| StorageError::Corrupt("an index entry is malformed".to_owned()))?;
            let (first, end) = &self.bounds;
            if (first.as_slice()..end.as_slice()).contains(&entry.pointer.as_slice()) {
                self.head = Some(entry);
            }
        }
        Ok(self.head.as_ref())
    }

    fn next(&mut self) {
        self.head = None;
    }
}
