//! The view of one log at one position.

use std::fmt;
use std::ops::Bound;

use bytes::Bytes;
use orrery_model::Position;
use orrery_partition::storage::{Result, Scan, Snapshot, View};

use super::layers::{Entries, Layers, Merged, REMOVED, mark_of};
use super::record::ViewId;
use super::view::{Reader, entry_key};
use crate::range::is_empty;

pub(super) struct EmbeddedSnapshot {
    pub(super) reader: Reader,
    pub(super) layers: Layers,
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
        let mut views = self.layers.all().peekable();
        while let Some(view) = views.next() {
            let found = self.reader.get(view, key)?;
            // Marks only say something about what lies beneath.
            if found.is_some() || views.peek().is_none() || self.reader.get(view, &mark_of(key))?.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn scan<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> Scan<'a> {
        if is_empty(from, to) {
            return Box::new(std::iter::empty());
        }
        if self.layers.beneath().is_empty() {
            return self.scan_view(self.layers.own, from, to, reverse);
        }
        let end = [REMOVED];
        let to = match to {
            Bound::Included(key) | Bound::Excluded(key) if key < end.as_slice() => to,
            _ => Bound::Excluded(end.as_slice()),
        };
        let mut merged = Merged::new(reverse);
        let mut views = self.layers.all().peekable();
        while let Some(view) = views.next() {
            let marks = views.peek().map(|_| self.scan_marks(view, from, to, reverse));
            merged.push(self.scan_view(view, from, to, reverse), marks);
        }
        Box::new(merged)
    }
}

impl EmbeddedSnapshot {
    fn scan_view(&self, view: ViewId, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> Entries {
        let from = match from {
            Bound::Unbounded => Bound::Included(entry_key(view, &[])),
            bound => bound.map(|key| entry_key(view, key)),
        };
        let to = match to {
            Bound::Unbounded => Bound::Excluded(entry_key(ViewId(view.0 + 1), &[])),
            bound => bound.map(|key| entry_key(view, key)),
        };
        let entries = self.reader.range((from, to));
        if reverse {
            Box::new(entries.rev())
        } else {
            Box::new(entries)
        }
    }

    /// The keys between the bounds that are marked as removed.
    fn scan_marks(&self, view: ViewId, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> Entries {
        let from = match from {
            Bound::Unbounded => Bound::Included(mark_of(&[])),
            bound => bound.map(mark_of),
        };
        // Never without a bound: it ends where the marks of the log's keys begin.
        let to = to.map(mark_of);
        let marks = self.scan_view(
            view,
            from.as_ref().map(|key| &**key),
            to.as_ref().map(|key| &**key),
            reverse,
        );
        Box::new(marks.map(|mark| mark.map(|(key, value)| (key.slice(1..), value))))
    }
}
