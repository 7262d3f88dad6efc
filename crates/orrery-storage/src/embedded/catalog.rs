//! The logs of a store as everyone sees them: where each stands, who owns it, where its records are.
//!
//! Only the committer changes a log; everyone else reads.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use orrery_model::{Epoch, LogId, Lsn, Position};
use orrery_partition::storage::LogInfo;

use super::layers::Layers;
use super::segments::SegmentId;
use super::view::LogMeta;
use crate::frame::Sequence;
use crate::head::Head;
use crate::holds::Holds;

#[derive(Debug, Default)]
pub(super) struct Catalog {
    logs: Mutex<BTreeMap<LogId, Arc<LogState>>>,
}

impl Catalog {
    pub(super) fn get(&self, log: LogId) -> Option<Arc<LogState>> {
        self.lock().get(&log).cloned()
    }

    pub(super) fn insert(&self, state: Arc<LogState>) {
        self.lock().insert(state.id, state);
    }

    pub(super) fn remove(&self, log: LogId) -> Option<Arc<LogState>> {
        self.lock().remove(&log)
    }

    pub(super) fn all(&self) -> Vec<Arc<LogState>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<LogId, Arc<LogState>>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One log.
#[derive(Debug)]
pub(super) struct LogState {
    pub(super) id: LogId,
    layers: RwLock<Layers>,
    pub(super) head: Head,
    pub(super) holds: Holds,
    content: Mutex<Content>,
}

#[derive(Debug)]
pub(super) struct Content {
    pub(super) owner: Epoch,
    pub(super) is_dropped: bool,
    /// The log starts after this.
    pub(super) start: Lsn,
    records: VecDeque<Location>,
}

/// Where the record of one append is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Location {
    /// The last transaction of the append.
    pub(super) last: Lsn,
    pub(super) sequence: Sequence,
    pub(super) segment: SegmentId,
    pub(super) offset: u32,
    pub(super) length: u32,
}

impl LogState {
    pub(super) fn new(id: LogId, meta: LogMeta) -> LogState {
        let content = Content {
            owner: meta.owner,
            is_dropped: false,
            start: meta.position.lsn,
            records: VecDeque::new(),
        };
        LogState {
            id,
            layers: RwLock::new(meta.layers),
            head: Head::new(meta.position),
            holds: Holds::default(),
            content: Mutex::new(content),
        }
    }

    pub(super) fn position(&self) -> Position {
        self.head.get()
    }

    /// The views it reads. Asked for together with a reader, it is those that the reader knows.
    pub(super) fn layers(&self) -> Layers {
        self.layers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_layers(&self, layers: Layers) {
        *self.layers.write().unwrap_or_else(PoisonError::into_inner) = layers;
    }

    pub(super) fn meta(&self) -> LogMeta {
        LogMeta {
            layers: self.layers(),
            owner: self.lock().owner,
            position: self.position(),
        }
    }

    pub(super) fn info(&self) -> LogInfo {
        LogInfo {
            log: self.id,
            position: self.position(),
            owner: self.lock().owner,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    /// Remembers where an append went. `previous` is where the log stood before it.
    pub(super) fn add(&mut self, previous: Lsn, location: Location) {
        if self.records.is_empty() {
            self.start = previous;
        }
        self.records.push_back(location);
    }

    /// Forgets every record; the log starts after `start`.
    pub(super) fn forget(&mut self, start: Lsn) {
        self.records.clear();
        self.start = start;
    }

    /// Records that hold transactions after `after`, about `limit_bytes` of them but at least one.
    pub(super) fn find(&self, after: Lsn, limit_bytes: usize) -> Vec<Location> {
        let first = self.records.partition_point(|location| location.last <= after);
        let mut room_bytes = limit_bytes;
        let mut found = Vec::new();
        for location in self.records.range(first..) {
            found.push(*location);
            match room_bytes.checked_sub(location.length as usize) {
                Some(left) if left > 0 => room_bytes = left,
                _ => break,
            }
        }
        found
    }

    /// Forgets records up to `below` that the flushed view holds. Answers where the log starts now.
    pub(super) fn trim(&mut self, below: Lsn, flushed: Sequence) -> Lsn {
        while let Some(first) = self.records.front() {
            if first.last > below || first.sequence > flushed {
                break;
            }
            self.start = first.last;
            self.records.pop_front();
        }
        self.start
    }

    /// The oldest segment that holds a record of this log.
    pub(super) fn oldest_segment(&self) -> Option<SegmentId> {
        self.records.front().map(|location| location.segment)
    }

    /// The last transaction of this log in segments up to `segment`.
    pub(super) fn last_in(&self, segment: SegmentId) -> Option<Lsn> {
        let n = self.records.partition_point(|location| location.segment <= segment);
        n.checked_sub(1).map(|idx| self.records[idx].last)
    }
}
