//! What a node keeps in memory of its logs besides their views: hot items, and the latest changes.

use orrery_model::{LogId, Lsn};

use crate::cache::HotCache;
use crate::recent::Recent;

#[derive(Debug)]
pub struct Caches {
    pub items: HotCache,
    pub recent: Recent,
}

impl Caches {
    /// Caches with so many bytes of items. The latest changes may take half as much again, most of which are the same bytes.
    pub fn new(item_bytes_max: usize) -> Caches {
        Caches {
            items: HotCache::new(item_bytes_max),
            recent: Recent::new(item_bytes_max / 2),
        }
    }

    /// Forgets everything of a log: it was dropped, restored, or changed its role.
    pub fn clear(&self, log: LogId) {
        self.items.clear(log);
        self.recent.clear(log);
    }

    /// The same for a log that stands at `lsn` and may have been changed by others up to there.
    pub fn begin(&self, log: LogId, lsn: Lsn) {
        self.items.begin(log, lsn);
        self.recent.clear(log);
    }
}
