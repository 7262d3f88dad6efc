//! What can be set when a store is opened.

use std::fmt;
use std::sync::Arc;

use lsm_tree::{Cache, DescriptorTable};

/// Settings of an embedded store. The defaults suit a development machine.
#[derive(Clone, Debug)]
pub struct EmbeddedSettings {
    /// Where blocks of the view are kept in memory. Share one between the stores of a process.
    pub cache: ViewCache,
    /// View entries gathered in memory before they are flushed to disk.
    pub write_buffer_bytes: u64,
    /// A log file is closed and a new one begun at about this size.
    pub segment_bytes: u64,
    /// The view is flushed when the log has grown by this much, which bounds the replay after a crash.
    pub replay_bytes_max: u64,
    /// Log kept beyond what the view and the holds need, so that a follower that was away for a moment finds it.
    pub log_keep_bytes: u64,
    /// Below this much free space nothing is written any more.
    pub free_reserve_bytes: u64,
}

impl Default for EmbeddedSettings {
    fn default() -> EmbeddedSettings {
        EmbeddedSettings {
            cache: ViewCache::new(32 << 20),
            write_buffer_bytes: 8 << 20,
            segment_bytes: 8 << 20,
            replay_bytes_max: 64 << 20,
            log_keep_bytes: 16 << 20,
            free_reserve_bytes: 256 << 20,
        }
    }
}

/// Memory for blocks of views, and open files of theirs, shared by all stores that were given a clone.
#[derive(Clone)]
pub struct ViewCache {
    pub(super) blocks: Arc<Cache>,
    pub(super) descriptors: Arc<DescriptorTable>,
}

/// Table files held open at once.
const OPEN_FILES_MAX: usize = 512;

impl ViewCache {
    /// A cache of about this size.
    pub fn new(size_bytes: u64) -> ViewCache {
        ViewCache {
            blocks: Arc::new(Cache::with_capacity_bytes(size_bytes)),
            descriptors: Arc::new(DescriptorTable::new(OPEN_FILES_MAX)),
        }
    }
}

impl fmt::Debug for ViewCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewCache")
            .field("capacity_bytes", &self.blocks.capacity())
            .finish_non_exhaustive()
    }
}
