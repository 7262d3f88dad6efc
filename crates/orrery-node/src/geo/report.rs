//! How the regions of an account are, for those who operate it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use orrery_model::{PartitionId, Result};

use super::fleet::Fleet;
use super::front::{Distance, Outage};
use super::progress::Lag;
use super::simulated::Simulated;
use super::topology::{Region, RegionState};
use crate::clock::SkewedClock;
use crate::meters::{Measure, Reading};

/// A region as operators see it.
#[derive(Clone, Debug)]
pub struct RegionInfo {
    pub name: String,
    pub writes: bool,
    pub state: RegionState,
    /// Of the partition that lags most.
    pub lag: Lag,
    /// Added up over all partitions.
    pub lag_total: u64,
    pub partitions: Vec<PartitionLag>,
    /// How far its clock is ahead of the right time, or behind.
    pub clock_skew_ms: i64,
    /// Strong writes do not wait for it, and it answers no strong reads.
    pub left_out: bool,
    /// How its endpoint fails at present.
    pub outage: Option<Outage>,
    /// How far clients are from it.
    pub distances: Vec<Distance>,
}

/// What a region lacks of one partition.
#[derive(Clone, Debug)]
pub struct PartitionLag {
    pub database: String,
    pub container: String,
    pub partition: PartitionId,
    pub lag: Lag,
}

impl Fleet {
    /// Every region, in the order of failover priority.
    pub fn regions(&self) -> Vec<RegionInfo> {
        let topology = self.topology();
        topology.present().map(|region| self.region_info(region)).collect()
    }

    fn region_info(&self, region: &Region) -> RegionInfo {
        let writer = self.writer();
        let writes = region.id == self.topology().writer().id;
        let follows = !writes && matches!(region.state, RegionState::Online | RegionState::Seeding);
        let front = self.front(region.id).unwrap_or_default();
        let mut info = RegionInfo {
            name: region.name.clone(),
            writes,
            state: region.state,
            lag: Lag::default(),
            lag_total: 0,
            partitions: Vec::new(),
            clock_skew_ms: self.clock(&region.name).map_or(0, |clock| clock.skew_ms()),
            left_out: self
                .left_out
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .contains(&region.id),
            outage: front.outage,
            distances: front.distances,
        };
        if !follows {
            return info;
        }
        let system = writer.duty.progress.of(orrery_model::LogId::SYSTEM).lag(region.id);
        for (container, range) in writer.all_ranges() {
            info.partitions.push(PartitionLag {
                database: container.facts.database_name.clone(),
                container: container.name.clone(),
                partition: range.partition,
                lag: writer.duty.progress.of(range.log).lag(region.id),
            });
        }
        for lag in info.partitions.iter().map(|partition| partition.lag).chain([system]) {
            info.lag_total += lag.transactions;
            info.lag.transactions = info.lag.transactions.max(lag.transactions);
            info.lag.age = info.lag.age.max(lag.age);
        }
        info
    }

    /// Lets a region's clock go wrong by this much, or be right again.
    pub fn set_clock_skew(&self, region: &str, skew_ms: i64) -> Result<()> {
        self.clock(region)?.set_skew_ms(skew_ms);
        self.tell_simulated(Simulated::Clock {
            region: self.topology().named(region)?.name.clone(),
            skew_ms,
        });
        Ok(())
    }

    fn clock(&self, region: &str) -> Result<Arc<SkewedClock>> {
        let topology = self.topology();
        let region = topology.named(region)?;
        let clocks = self.clocks.read().unwrap_or_else(PoisonError::into_inner);
        clocks
            .get(&region.id)
            .cloned()
            .ok_or_else(|| orrery_model::Error::bad_request("The region has no clock yet."))
    }

    /// What there is to watch about regions that follow: their lag, whole and by partition.
    pub fn measures(&self) -> Vec<Measure> {
        let mut measures = measures_of(&self.regions());
        measures.extend(self.link_loads().into_iter().map(|(from, to, n_bytes)| Measure {
            name: "orrery_link_under_way_bytes",
            help: "bytes that are held in memory because they are on their way to another region",
            labels: vec![("from", from), ("to", to)],
            reading: Reading::Gauge(n_bytes as u64),
        }));
        measures.push(Measure {
            name: "orrery_failover_lost_writes_total",
            help: "transactions that no region had when one was taken over from",
            labels: Vec::new(),
            reading: Reading::Counter(self.n_lost.load(Ordering::Relaxed)),
        });
        measures.push(Measure {
            name: "orrery_failover_dropped_versions_total",
            help: "versions only a lost region had that were dropped because conflicts had no room and the loss was accepted",
            labels: Vec::new(),
            reading: Reading::Counter(self.n_dropped.load(Ordering::Relaxed)),
        });
        // One measure's lines stand together.
        measures.sort_by_key(|measure| measure.name);
        measures
    }
}

/// What there is to watch about regions that follow: their lag, whole and by partition.
pub fn measures_of(regions: &[RegionInfo]) -> Vec<Measure> {
    let mut measures = Vec::new();
    for region in regions.iter().filter(|region| !region.writes) {
        let of_region = vec![("region", region.name.clone())];
        let online = u64::from(region.state == RegionState::Online);
        let whole = [
            ("orrery_region_online", "1 while a region for reading serves", online),
            (
                "orrery_region_lag_transactions",
                "transactions a region lacks, of all partitions",
                region.lag_total,
            ),
            (
                "orrery_region_lag_milliseconds",
                "age of the oldest transaction a region lacks",
                region.lag.age.as_millis() as u64,
            ),
        ];
        measures.extend(whole.map(|(name, help, value)| Measure {
            name,
            help,
            labels: of_region.clone(),
            reading: Reading::Gauge(value),
        }));
        measures.extend(
            region
                .partitions
                .iter()
                .flat_map(|partition| partition.measures(&of_region)),
        );
    }
    measures
}

impl PartitionLag {
    fn measures(&self, of_region: &[(&'static str, String)]) -> [Measure; 2] {
        let own = [
            ("database", self.database.clone()),
            ("container", self.container.clone()),
            ("partition", self.partition.0.to_string()),
        ];
        let labels = [of_region, &own].concat();
        let gauge = |name, help, value| Measure {
            name,
            help,
            labels: labels.clone(),
            reading: Reading::Gauge(value),
        };
        [
            gauge(
                "orrery_partition_lag_transactions",
                "transactions of a partition that a region lacks",
                self.lag.transactions,
            ),
            gauge(
                "orrery_partition_lag_milliseconds",
                "age of the oldest transaction of a partition that a region lacks",
                self.lag.age.as_millis() as u64,
            ),
        ]
    }
}
