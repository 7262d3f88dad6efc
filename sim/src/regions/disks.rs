//! What is left of a region that is killed: its disk, from which it lives again. Nothing that was acknowledged is lost with a process,
//! and disks that lose something are another simulation ([`crate::cores`]).

use std::sync::Arc;

use orrery_model::{Result, Timestamp};
use orrery_node::ManualClock;
use orrery_node::geo::fleet::RegionParts;
use orrery_node::geo::membership::Sites;
use orrery_node::geo::topology::Region;
use orrery_partition::storage::BoxFuture;
use orrery_storage::{MemoryStore, SharedStore};

/// The account's part of each disk, of which it is the only one.
const ACCOUNT: u16 = 0;

/// A disk for each region, in the order in which regions are numbered.
#[derive(Debug)]
pub struct Disks(Vec<Arc<SharedStore>>);

impl Disks {
    pub fn new(n_regions: usize) -> Disks {
        let disk = |_| SharedStore::new(MemoryStore::new());
        Disks((0..n_regions).map(disk).collect())
    }

    /// What a region runs on, whether it is new or lives again.
    pub fn parts(&self, index: usize, name: &str) -> RegionParts {
        RegionParts {
            name: name.to_owned(),
            store: self.0[index].account(ACCOUNT),
            clock: Arc::new(ManualClock::at(Timestamp(1_700_000_000_000))),
        }
    }
}

impl Sites for Disks {
    fn prepare<'a>(&'a self, region: &'a Region) -> BoxFuture<'a, Result<RegionParts>> {
        let parts = self.parts(region.id.0 as usize, &region.name);
        Box::pin(async move { Ok(parts) })
    }

    fn kill<'a>(&'a self, region: &'a Region) -> BoxFuture<'a, Result<()>> {
        self.0[region.id.0 as usize].abandon(ACCOUNT);
        Box::pin(async { Ok(()) })
    }

    fn release<'a>(&'a self, _region: &'a Region) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
