//! The view of one log at one position.

use std::fmt;
use std::ops::Bound;

use bytes::Bytes;
use orrery_model::Position;
use orrery_partition::storage::{Result, Scan, Snapshot, View};

use super::record::ViewId;
use super::view::{Reader, entry_key};
use crate::range::is_empty;

pub(super) struct EmbeddedSnapshot {
    pub(super) reader: Reader,
    pub(super) view: ViewId,
    pub(super) position: Position,
}

impl fmt::Debug for EmbeddedSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedSnapshot")
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl Snapshot for EmbeddedSnapshot {
    fn position(&self) -> Position {
        self.position
    }
}

impl View for EmbeddedSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.reader.get(self.view, key)
    }

    fn scan<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> Scan<'a> {
        if is_empty(from, to) {
            return Box::new(std::iter::empty());
        }
        let from = match from {
            Bound::Unbounded => Bound::Included(entry_key(self.view, &[])),
            bound => bound.map(|key| entry_key(self.view, key)),
        };
        let to = match to {
            Bound::Unbounded => Bound::Excluded(entry_key(ViewId(self.view.0 + 1), &[])),
            bound => bound.map(|key| entry_key(self.view, key)),
        };
        let entries = self.reader.range((from, to));
        if reverse {
            Box::new(entries.rev())
        } else {
            Box::new(entries)
        }
    }
}
