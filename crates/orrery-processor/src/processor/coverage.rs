//! Which keys the leases of a unit cover, those that name a partition instead of a range included.
//!
//! Old leases say only the id of their partition. Its range is asked for; where the partition is gone, nobody can say it any
//! more, and such a lease stands for whatever no other one covers. Invariant: keys count as covered only if a lease says
//! so, or if one without a range is left to cover them.

use crate::balance::Listing;
use crate::error::FeedError;
use crate::feed::FeedSource;
use crate::lease::Lease;
use crate::range::{EpkRange, Tiling};
use crate::reshard::Partition;

/// How the leases cover the key space. A retired lease and its children cover the same keys on purpose; while one exists,
/// overlaps mean nothing. As long as leases do not say their range, nothing is known.
pub(crate) fn tiling(listing: &Listing) -> Tiling {
    if listing.leases.iter().any(|lease| lease.range.is_none()) {
        return Tiling::default();
    }
    of_known(&listing.leases)
}

fn of_known(leases: &[Lease]) -> Tiling {
    let ranges: Vec<EpkRange> = leases.iter().filter_map(|lease| lease.range.clone()).collect();
    let mut tiling = Tiling::of(&ranges);
    if leases.iter().any(Lease::is_retired) {
        tiling.overlaps.clear();
    }
    tiling
}

/// Leases whose ranges were asked for.
#[derive(Debug)]
pub(crate) struct Coverage {
    /// Those whose range is known.
    pub leases: Vec<Lease>,
    /// Those that name a partition that is gone, and not its range.
    pub orphans: Vec<Lease>,
    /// The partitions with their ids, if they had to be asked for.
    pub partitions: Option<Vec<Partition>>,
}

impl Coverage {
    pub async fn of(source: &dyn FeedSource, listing: &Listing) -> Result<Coverage, FeedError> {
        let (mut leases, unknown): (Vec<_>, Vec<_>) =
            listing.leases.iter().cloned().partition(|lease| lease.range.is_some());
        if unknown.is_empty() {
            return Ok(Coverage {
                leases,
                orphans: Vec::new(),
                partitions: None,
            });
        }
        let partitions = source.named_partitions().await?;
        let mut orphans = Vec::new();
        for lease in unknown {
            let named = |partition: &&Partition| partition.id.as_deref() == Some(lease.token.as_str());
            match partitions.iter().find(named).map(|partition| partition.range.clone()) {
                Some(range) => leases.push(Lease {
                    range: Some(range),
                    ..lease
                }),
                None => orphans.push(lease),
            }
        }
        Ok(Coverage {
            leases,
            orphans,
            partitions: Some(partitions),
        })
    }

    /// What the leases with ranges leave uncovered, and what they cover more than once.
    pub fn of_ranges(&self) -> Tiling {
        of_known(&self.leases)
    }

    /// The same for all leases: orphans cover what the others leave.
    pub fn tiling(&self) -> Tiling {
        let mut tiling = self.of_ranges();
        if !self.orphans.is_empty() {
            tiling.holes.clear();
        }
        tiling
    }
}
