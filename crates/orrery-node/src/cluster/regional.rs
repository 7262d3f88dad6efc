//! A node whose region hands the account's writes over to another region, or is compared with one.

use std::collections::BTreeMap;

use orrery_model::{Error, LogId, Lsn, Result, Status};
use tokio::sync::MutexGuard;

use crate::geo::progress::Lag;
use crate::geo::report::PartitionLag;
use crate::node::Node;
use crate::partition::Held;

/// Nothing is written by this node until this is dropped: neither items nor what exists.
#[derive(Debug)]
pub struct HeldWrites<'a> {
    _unchanged: MutexGuard<'a, ()>,
    _held: Vec<Held>,
}

impl Node {
    /// Does this node take any writes?
    pub fn takes_writes(&self) -> bool {
        self.duty.writes() || !self.owned_logs().is_empty()
    }

    /// Lets what is under way end, and everything else wait.
    pub async fn hold_writes(&self) -> Result<HeldWrites<'_>> {
        let unchanged = self.control.hold().await;
        if !self.control.catalogue().reshards.is_empty() {
            return Err(Error::new(
                Status::PRECONDITION_FAILED,
                "A partition is being split or merged; try again when it is done.",
            ));
        }
        Ok(HeldWrites {
            _held: self.hold_all().await?,
            _unchanged: unchanged,
        })
    }

    /// What a region that stands at `behind` lacks of one that stands at `ahead`, by partition.
    pub fn lags(&self, behind: &BTreeMap<LogId, Lsn>, ahead: &BTreeMap<LogId, Lsn>) -> Vec<PartitionLag> {
        let at = |positions: &BTreeMap<LogId, Lsn>, log| positions.get(&log).copied().unwrap_or(Lsn::ZERO);
        let ranges = self.all_ranges().into_iter();
        ranges
            .map(|(container, range)| PartitionLag {
                database: container.facts.database_name.clone(),
                container: container.name.clone(),
                partition: range.partition,
                lag: Lag {
                    transactions: between(at(behind, range.log), at(ahead, range.log)),
                    ..Lag::default()
                },
            })
            .collect()
    }
}

/// Transactions from one LSN to a later one, as far as LSNs tell: they jump where an epoch begins.
fn between(from: Lsn, to: Lsn) -> u64 {
    let epoch_start = (to.0 >> 32) << 32;
    to.0.saturating_sub(from.0.max(epoch_start.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jump_of_a_new_epoch_is_no_lag() {
        assert_eq!(between(Lsn(3), Lsn(10)), 7);
        assert_eq!(between(Lsn(10), Lsn(10)), 0);
        assert_eq!(between(Lsn(10), Lsn(10).next_epoch_start()), 1);
    }
}
