//! Which logical partitions of a partition are full ([`FullKeys`]), found out now and then.
//!
//! No write keeps count of what its logical partition holds: that would make all of them dearer for a limit that few ever meet. A
//! logical partition cannot hold more than its partition, so nothing is looked at until that holds as much as one of them may.
//! From then on the items are added up whenever a small part of the limit has been written, by which, and by what is written
//! while that takes, a logical partition may exceed it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use orrery_partition::keys::EpkForm;
use orrery_partition::quota::FullKeys;
use orrery_partition::state::PartitionState;
use orrery_partition::storage::{Log, Result};

use crate::tasks::Tasks;

/// Somebody looks after every such part of the limit.
const PARTS: u64 = 64;

#[derive(Debug)]
pub struct Quota {
    bytes_max: u64,
    /// Since somebody last looked.
    written_bytes: AtomicU64,
    is_counting: AtomicBool,
    full: RwLock<Arc<FullKeys>>,
}

impl Quota {
    pub fn new(bytes_max: u64) -> Quota {
        Quota {
            bytes_max,
            // What was there before counts as well.
            written_bytes: AtomicU64::new(bytes_max / PARTS),
            is_counting: AtomicBool::new(false),
            full: RwLock::default(),
        }
    }

    /// What was found when somebody last looked.
    pub fn full(&self) -> Arc<FullKeys> {
        Arc::clone(&self.full.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// So much was written to the partition, visibly.
    pub fn wrote(self: &Arc<Self>, bytes: usize, log: &Arc<dyn Log>, form: EpkForm, tasks: &Tasks) {
        let written = self.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        if written < self.bytes_max / PARTS || self.is_counting.swap(true, Ordering::AcqRel) {
            return;
        }
        self.written_bytes.store(0, Ordering::Relaxed);
        if !matches!(self.may_be_exceeded(&**log), Ok(true)) {
            self.found(FullKeys::default());
            return;
        }
        let (quota, log) = (Arc::clone(self), Arc::clone(log));
        tasks.spawn(async move {
            let counting = Arc::clone(&quota);
            let counted = tokio::task::spawn_blocking(move || {
                let snapshot = log.snapshot()?;
                FullKeys::count(&*snapshot, form, counting.bytes_max)
            });
            match counted.await {
                Ok(Ok(full)) => quota.found(full),
                other => {
                    tracing::warn!(?other, "the sizes of logical partitions could not be added up");
                    quota.is_counting.store(false, Ordering::Release);
                }
            }
        });
    }

    fn may_be_exceeded(&self, log: &dyn Log) -> Result<bool> {
        let state = PartitionState::load(&*log.snapshot()?)?;
        Ok(state.is_some_and(|state| state.size_bytes >= self.bytes_max))
    }

    fn found(&self, full: FullKeys) {
        *self.full.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(full);
        self.is_counting.store(false, Ordering::Release);
    }
}
