//! The items of a target in the order that a sorted query asks for, as an index has it.

use bytes::Bytes;
use orrery_model::{Result, Timestamp};
use orrery_partition::decide::unreadable;
use orrery_partition::expiry::is_expired;
use orrery_partition::index::{Ordered, OrderedItems};
use orrery_query::run::{Content, Cursor, Item};

use crate::catalogue::ContainerEntry;

pub struct OrderedCursor<'a> {
    container: &'a ContainerEntry,
    now: Timestamp,
    items: OrderedItems<'a>,
    current: Bytes,
    pub bytes_read: usize,
}

impl<'a> OrderedCursor<'a> {
    pub fn new(container: &'a ContainerEntry, ordered: Ordered<'a>, now: Timestamp) -> OrderedCursor<'a> {
        OrderedCursor {
            container,
            now,
            items: OrderedItems::new(ordered),
            current: Bytes::new(),
            bytes_read: 0,
        }
    }

    /// Whether the index could not put all items in order, so that the page has to be made without it.
    pub fn gave_up(&self) -> bool {
        self.items.gave_up()
    }
}

impl Cursor for OrderedCursor<'_> {
    fn next(&mut self) -> Result<Option<Item<'_>>> {
        let (definition, now) = (&self.container.definition, self.now);
        let next = self
            .items
            .next(&|item| !is_expired(definition, item, now))
            .map_err(unreadable)?;
        let Some(item) = next else { return Ok(None) };
        self.bytes_read += item.stored.body.len();
        self.current = item.stored.body;
        Ok(Some(Item {
            content: Content::Text(&self.current),
            rank: item.number,
        }))
    }

    // The next page goes on after its last row, wherever this one has looked.
    fn look_ahead(&mut self) {}
}
