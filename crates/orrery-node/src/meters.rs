//! What a node counts about itself, and the list of measures that is made of it for whoever watches.
//!
//! Counting is one relaxed addition. Everything else is read where it is kept when somebody asks.

use std::sync::atomic::{AtomicU64, Ordering};

pub use orrery_partition::storage::LatencyCounts;
use orrery_partition::storage::{Health, StoreStats};

use crate::node::Node;

/// One measure: a name with its unit, what it means, and what it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    pub name: &'static str,
    pub help: &'static str,
    /// What it is measured of; measures of one name differ in this.
    pub labels: Vec<(&'static str, String)>,
    pub reading: Reading,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// Only ever rises.
    Counter(u64),
    Gauge(u64),
    Latency(LatencyCounts),
}

/// A count of things that happened.
#[derive(Debug, Default)]
pub struct Meter(AtomicU64);

impl Meter {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn read(&self) -> Reading {
        Reading::Counter(self.0.load(Ordering::Relaxed))
    }
}

#[derive(Debug, Default)]
pub struct Meters {
    pub queries: Meter,
    pub throttled: Meter,
    pub purged: Meter,
    pub splits: Meter,
    pub merges: Meter,
}

impl Node {
    /// Everything there is to watch about this node and its store.
    pub fn measures(&self) -> Vec<Measure> {
        let mut measures = node_measures(self);
        measures.extend(store_measures(
            &self.store.stats(),
            self.store.size_bytes(),
            &self.store.health(),
        ));
        measures
    }
}

fn measure(name: &'static str, help: &'static str, reading: Reading) -> Measure {
    Measure {
        name,
        help,
        labels: Vec::new(),
        reading,
    }
}

fn node_measures(node: &Node) -> Vec<Measure> {
    let meters = &node.meters;
    let cache = node.cache.items.usage();
    let n_partitions = node
        .control
        .catalogue()
        .containers()
        .map(|entry| entry.ranges.len())
        .sum::<usize>();
    let n_containers = node.control.catalogue().containers().count();
    vec![
        measure(
            "orrery_containers",
            "containers that exist",
            Reading::Gauge(n_containers as u64),
        ),
        measure(
            "orrery_partitions",
            "physical partitions that serve",
            Reading::Gauge(n_partitions as u64),
        ),
        measure(
            "orrery_queries_total",
            "pages of item queries asked for",
            meters.queries.read(),
        ),
        measure(
            "orrery_throttled_total",
            "requests refused for want of request units",
            meters.throttled.read(),
        ),
        measure(
            "orrery_purged_items_total",
            "expired items handed to removal",
            meters.purged.read(),
        ),
        measure("orrery_splits_total", "partitions split", meters.splits.read()),
        measure("orrery_merges_total", "partitions merged", meters.merges.read()),
        measure(
            "orrery_item_cache_hits_total",
            "point reads the item cache answered",
            Reading::Counter(cache.n_hits),
        ),
        measure(
            "orrery_item_cache_misses_total",
            "point reads that went to the view",
            Reading::Counter(cache.n_misses),
        ),
        measure(
            "orrery_item_cache_bytes",
            "memory the item cache uses",
            Reading::Gauge(cache.bytes),
        ),
    ]
}

fn store_measures(stats: &StoreStats, size_bytes: u64, health: &Health) -> Vec<Measure> {
    let is_writable = u64::from(*health == Health::Writable);
    vec![
        measure(
            "orrery_store_writable",
            "1 while the store takes writes",
            Reading::Gauge(is_writable),
        ),
        measure(
            "orrery_store_bytes",
            "size of all logs and views",
            Reading::Gauge(size_bytes),
        ),
        measure(
            "orrery_log_bytes",
            "size of the log files",
            Reading::Gauge(stats.log_bytes),
        ),
        measure(
            "orrery_view_bytes",
            "size of the views on disk",
            Reading::Gauge(stats.view_bytes),
        ),
        measure(
            "orrery_view_unflushed_bytes",
            "view entries in memory only",
            Reading::Gauge(stats.unflushed_bytes),
        ),
        measure(
            "orrery_commit_groups_total",
            "groups written to the log with one sync",
            Reading::Counter(stats.n_groups),
        ),
        measure(
            "orrery_commit_records_total",
            "records in those groups",
            Reading::Counter(stats.n_records),
        ),
        measure(
            "orrery_commit_bytes_total",
            "bytes of those groups",
            Reading::Counter(stats.group_bytes),
        ),
        measure(
            "orrery_log_sync_seconds",
            "time to write and sync a group",
            Reading::Latency(stats.sync.clone()),
        ),
        measure(
            "orrery_view_flushes_total",
            "parts of the view written to disk",
            Reading::Counter(stats.n_flushes),
        ),
        measure(
            "orrery_view_merges_total",
            "merges of view tables",
            Reading::Counter(stats.n_merges),
        ),
    ]
}
