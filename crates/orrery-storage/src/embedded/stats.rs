//! What the committer counts: a handful of relaxed additions per group, never per record.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use orrery_partition::storage::{LatencyCounts, StoreStats};

/// Upper bounds of the sync histogram in microseconds.
const BOUNDS_US: [u64; 12] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 25_000, 100_000, 500_000, 2_500_000,
];

#[derive(Debug, Default)]
pub(super) struct Stats {
    n_groups: AtomicU64,
    n_records: AtomicU64,
    group_bytes: AtomicU64,
    sync_counts: [AtomicU64; BOUNDS_US.len() + 1],
    sync_us: AtomicU64,
}

impl Stats {
    /// Counts a group that was written and synced.
    pub(super) fn group(&self, n_records: usize, bytes: usize, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let slot = BOUNDS_US.partition_point(|bound| *bound < took_us);
        self.n_groups.fetch_add(1, Ordering::Relaxed);
        self.n_records.fetch_add(n_records as u64, Ordering::Relaxed);
        self.group_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.sync_counts[slot].fetch_add(1, Ordering::Relaxed);
        self.sync_us.fetch_add(took_us, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> StoreStats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        StoreStats {
            n_groups: load(&self.n_groups),
            n_records: load(&self.n_records),
            group_bytes: load(&self.group_bytes),
            sync: LatencyCounts {
                bounds_us: BOUNDS_US.to_vec(),
                counts: self.sync_counts.iter().map(load).collect(),
                sum_us: load(&self.sync_us),
            },
            ..StoreStats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_counted_in_the_bucket_of_its_duration() {
        let stats = Stats::default();
        stats.group(3, 100, Duration::from_micros(50));
        stats.group(1, 10, Duration::from_micros(51));
        stats.group(1, 10, Duration::from_secs(60));
        let read = stats.read();
        assert_eq!((read.n_groups, read.n_records, read.group_bytes), (3, 5, 120));
        assert_eq!((read.sync.counts[0], read.sync.counts[1]), (1, 1));
        assert_eq!(read.sync.counts.last(), Some(&1));
        assert_eq!(read.sync.sum_us, 60_000_101);
    }
}
