//! Where items come from.

use bytes::Bytes;
use orrery_model::Value;

/// One item and its place among equals.
#[derive(Clone, Copy, Debug)]
pub struct Item<'c> {
    pub content: Content<'c>,
    /// Breaks ties of ORDER BY, ascending; different for every item of a cursor.
    pub rank: u64,
}

/// What an item is given as.
#[derive(Clone, Copy, Debug)]
pub enum Content<'c> {
    Value(&'c Value),
    /// Canonical text, of which only the parts that a plan needs are read.
    Text(&'c Bytes),
    /// Only for a query without FROM, which runs once without an item.
    Nothing,
}

impl Item<'_> {
    /// Of its text; zero for an item that has none.
    pub(super) fn size_bytes(&self) -> usize {
        match self.content {
            Content::Text(text) => text.len(),
            Content::Value(_) | Content::Nothing => 0,
        }
    }
}

/// Yields items one after the other; each is looked at before the next is asked for.
pub trait Cursor {
    fn next(&mut self) -> orrery_model::Result<Option<Item<'_>>>;

    /// What is yielded from here on is only looked at: the next page goes on as if it had not been.
    fn look_ahead(&mut self);
}

/// The items of a list.
#[derive(Debug)]
pub struct ListCursor<'a> {
    items: std::iter::Enumerate<std::slice::Iter<'a, Value>>,
}

impl<'a> ListCursor<'a> {
    pub fn new(items: &'a [Value]) -> ListCursor<'a> {
        ListCursor {
            items: items.iter().enumerate(),
        }
    }
}

impl Cursor for ListCursor<'_> {
    fn next(&mut self) -> orrery_model::Result<Option<Item<'_>>> {
        Ok(self.items.next().map(|(index, value)| Item {
            content: Content::Value(value),
            rank: index as u64,
        }))
    }

    // Whoever goes on with a list says where.
    fn look_ahead(&mut self) {}
}

/// The rows of an inner query as items of the outer one.
#[derive(Debug)]
pub(super) struct OwnedList {
    rows: Vec<Value>,
    at: usize,
}

impl OwnedList {
    pub fn new(rows: Vec<Value>) -> OwnedList {
        OwnedList { rows, at: 0 }
    }
}

impl Cursor for OwnedList {
    fn next(&mut self) -> orrery_model::Result<Option<Item<'_>>> {
        self.at += 1;
        Ok(self.rows.get(self.at - 1).map(|value| Item {
            content: Content::Value(value),
            rank: self.at as u64,
        }))
    }

    fn look_ahead(&mut self) {}
}

/// The single, empty item of a query without FROM.
#[derive(Debug, Default)]
pub(super) struct Nothing {
    done: bool,
}

impl Cursor for Nothing {
    fn next(&mut self) -> orrery_model::Result<Option<Item<'_>>> {
        let first = !std::mem::replace(&mut self.done, true);
        Ok(first.then_some(Item {
            content: Content::Nothing,
            rank: 0,
        }))
    }

    fn look_ahead(&mut self) {}
}
