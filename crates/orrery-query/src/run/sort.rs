//! Sorting, with memory for no more rows than can matter.

use std::cmp::Ordering;

use orrery_model::Value;

use super::item::Row;
use super::resume::{SortPosition, SortStart, Ties};
use crate::parse::ast::Direction;
use crate::plan::SortKey;
use crate::values::{order_key_cmp, size_bytes};

#[derive(Debug)]
pub(super) struct SortedRow {
    pub position: SortPosition,
    pub row: Row,
}

impl SortedRow {
    /// The memory it holds, what it is sorted by included.
    pub fn size_bytes(&self) -> usize {
        let keys = self.position.keys.iter().flatten().map(size_bytes).sum::<usize>();
        size_of::<SortedRow>() + keys + self.row.size_bytes()
    }
}

/// How the values of one key are sorted.
#[derive(Clone, Copy)]
struct KeyOrder {
    direction: Direction,
    undefined_last: bool,
}

/// Collects rows and gives back the first ones in order.
pub(super) struct SortBuffer {
    orders: Vec<KeyOrder>,
    /// Rows wanted; `None` for all.
    wanted: Option<usize>,
    rows: Vec<SortedRow>,
    /// Rows after this one cannot matter any more.
    worst: Option<SortPosition>,
}

impl SortBuffer {
    pub fn new(keys: &[SortKey], wanted: Option<usize>) -> SortBuffer {
        let order = |key: &SortKey| KeyOrder {
            direction: key.direction,
            undefined_last: key.puts_undefined_last(),
        };
        SortBuffer {
            orders: keys.iter().map(order).collect(),
            wanted,
            rows: Vec::new(),
            worst: None,
        }
    }

    /// By the keys in their directions, then by rank, then by the row within its item.
    pub fn compare(&self, a: &SortPosition, b: &SortPosition) -> Ordering {
        compare(&self.orders, a, b)
    }

    /// Whether a row stands before the place where the client wants to begin.
    pub fn is_before(&self, position: &SortPosition, start: &SortStart) -> bool {
        match compare_keys(&self.orders, &position.keys, &start.keys) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => match start.ties {
                Ties::All => false,
                Ties::None => true,
                Ties::From(rank) => position.rank < rank,
            },
        }
    }

    pub fn has_room_for(&self, position: &SortPosition) -> bool {
        self.wanted != Some(0)
            && self
                .worst
                .as_ref()
                .is_none_or(|worst| self.compare(position, worst).is_lt())
    }

    /// Takes a row. Gives the bytes of rows that were dropped for it.
    pub fn add(&mut self, row: SortedRow) -> usize {
        self.rows.push(row);
        match self.wanted {
            // Cutting back only now and then makes it cheap per row.
            Some(wanted) if self.rows.len() >= wanted.saturating_mul(2).max(64) => self.cut_back(wanted),
            _ => 0,
        }
    }

    fn cut_back(&mut self, wanted: usize) -> usize {
        let orders = &self.orders;
        let by_position = |a: &SortedRow, b: &SortedRow| compare(orders, &a.position, &b.position);
        if wanted > 0 && wanted < self.rows.len() {
            self.rows.select_nth_unstable_by(wanted - 1, by_position);
            self.worst = Some(self.rows[wanted - 1].position.clone());
        }
        self.rows
            .drain(wanted.min(self.rows.len())..)
            .map(|row| row.size_bytes())
            .sum()
    }

    pub fn finish(mut self) -> Vec<SortedRow> {
        let orders = self.orders;
        self.rows.sort_by(|a, b| compare(&orders, &a.position, &b.position));
        self.rows.truncate(self.wanted.unwrap_or(usize::MAX));
        self.rows
    }
}

fn compare(orders: &[KeyOrder], a: &SortPosition, b: &SortPosition) -> Ordering {
    compare_keys(orders, &a.keys, &b.keys).then_with(|| (a.rank, a.row).cmp(&(b.rank, b.row)))
}

fn compare_keys(orders: &[KeyOrder], a: &[Option<Value>], b: &[Option<Value>]) -> Ordering {
    for ((a, b), key) in a.iter().zip(b).zip(orders) {
        let order = match (key.undefined_last, key.direction) {
            (true, _) if a.is_none() != b.is_none() => a.is_none().cmp(&b.is_none()),
            (_, Direction::Ascending) => order_key_cmp(a, b),
            (_, Direction::Descending) => order_key_cmp(b, a),
        };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}
