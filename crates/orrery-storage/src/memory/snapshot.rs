//! A view at one sequence. Scans copy a bounded chunk at a time, so a slow reader never holds up the writer.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use orrery_model::Position;
use orrery_partition::storage::{Result, Scan, Snapshot, View};

use super::log::LogState;
use super::map::Sequence;
use crate::range::is_empty;

/// Entries copied at first, so that a scan that wants one row pays for few.
const CHUNK_FIRST: usize = 8;
/// Entries copied at most while the lock is held.
const CHUNK_MAX: usize = 256;

pub(super) struct MemorySnapshot {
    state: Arc<LogState>,
    sequence: Sequence,
    position: Position,
}

impl MemorySnapshot {
    /// The sequence must already be registered with the state.
    pub(super) fn new(state: Arc<LogState>, sequence: Sequence, position: Position) -> MemorySnapshot {
        MemorySnapshot {
            state,
            sequence,
            position,
        }
    }
}

impl Drop for MemorySnapshot {
    fn drop(&mut self) {
        self.state.release(self.sequence);
    }
}

impl fmt::Debug for MemorySnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySnapshot")
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

impl Snapshot for MemorySnapshot {
    fn position(&self) -> Position {
        self.position
    }
}

impl View for MemorySnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.state.read().map.get(self.sequence, key))
    }

    fn scan<'a>(&'a self, from: Bound<&[u8]>, to: Bound<&[u8]>, reverse: bool) -> Scan<'a> {
        if is_empty(from, to) {
            return Box::new(std::iter::empty());
        }
        Box::new(Chunks {
            snapshot: self,
            from: from.map(Bytes::copy_from_slice),
            to: to.map(Bytes::copy_from_slice),
            reverse,
            chunk: VecDeque::new(),
            chunk_size: CHUNK_FIRST,
            is_done: false,
        })
    }
}

struct Chunks<'a> {
    snapshot: &'a MemorySnapshot,
    from: Bound<Bytes>,
    to: Bound<Bytes>,
    reverse: bool,
    chunk: VecDeque<(Bytes, Bytes)>,
    chunk_size: usize,
    is_done: bool,
}

impl Chunks<'_> {
    fn refill(&mut self) {
        let bounds = (
            self.from.as_ref().map(AsRef::as_ref),
            self.to.as_ref().map(AsRef::as_ref),
        );
        if self.is_done || is_empty(bounds.0, bounds.1) {
            return;
        }
        let content = self.snapshot.state.read();
        self.chunk = content
            .map
            .range(self.snapshot.sequence, bounds, self.reverse, self.chunk_size);
        drop(content);
        self.is_done = self.chunk.len() < self.chunk_size;
        self.chunk_size = (self.chunk_size * 4).min(CHUNK_MAX);
        if let Some((last, _)) = self.chunk.back() {
            let passed = Bound::Excluded(last.clone());
            *if self.reverse { &mut self.to } else { &mut self.from } = passed;
        }
    }
}

impl Iterator for Chunks<'_> {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.chunk.is_empty() {
            self.refill();
        }
        self.chunk.pop_front().map(Ok)
    }
}
