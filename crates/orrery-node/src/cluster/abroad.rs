//! What the nodes of one region learn of the others: how far those have come with its logs, where it writes; how far the one that
//! writes has come, where it follows.
//!
//! Nothing here asks anybody. Whoever carries words between regions tells it, and is told when somebody waits for an answer. The
//! rules are those of regions in one process: [`crate::geo::progress`] says how much more may be written,
//! [`crate::geo::freshness`] what may be read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use orrery_model::{Epoch, LogId, Lsn};
use orrery_partition::storage::Log;
use tokio::time::Instant;

use crate::geo::duty::Promise;
use crate::geo::freshness;
use crate::geo::topology::RegionId;
use crate::node::Node;

impl Node {
    /// Says whether another region takes writes from now on.
    pub fn set_follows(&self, follows: bool) {
        self.duty.set_follows(follows);
    }

    /// Does what the account promises depend on how far its regions are?
    pub fn heeds_regions(&self) -> bool {
        self.duty.promise != Promise::Local
    }

    /// Says which other regions count while this one writes.
    pub fn count_regions(&self, regions: BTreeSet<RegionId>) {
        if self.duty.progress.members() != regions {
            self.duty.progress.set_members(regions);
        }
    }

    /// Another region has these logs up to there, durable and visible. What it has of an epoch that this node does not know is
    /// of another history, and says nothing about the logs here.
    pub async fn note_progress(&self, region: RegionId, reached: &BTreeMap<LogId, (Epoch, Lsn)>) {
        let logs = self.live_logs();
        for (log, (epoch, lsn)) in reached {
            let Some(own) = logs.get(log).filter(|own| *epoch <= own.head().epoch) else {
                continue;
            };
            let progress = self.duty.progress.of(*log);
            progress.report(region, *lsn);
            if own.head().lsn > *lsn && (self.owns(*log) || *log == LogId::SYSTEM && self.duty.writes()) {
                let lacking = lsn.next();
                if !progress.is_dated(lacking) {
                    progress.date(lacking, self.age_of_next(&**own, *lsn).await);
                }
            }
        }
    }

    /// How old the transaction after `lsn` is. One whose time is not to be had any more counts from now on.
    async fn age_of_next(&self, log: &dyn Log, lsn: Lsn) -> Duration {
        let read = log.read_log(lsn, 1).await;
        let first = read.ok().and_then(|transactions| transactions.into_iter().next());
        let age_ms = first.map_or(0, |first| self.now().0.saturating_sub(first.at.0));
        Duration::from_millis(age_ms)
    }

    /// How often a region that follows asks where the logs of the one that writes stand, if what it may answer depends on that.
    pub fn asks_every(&self) -> Option<Duration> {
        match self.duty.promise {
            Promise::Within(bounds) => Some(freshness::interval(bounds.age)),
            Promise::Local | Promise::Everywhere => None,
        }
    }

    /// Completes when a read waits for the answer.
    pub async fn wants_heads(&self) {
        self.duty.freshness.wanted().await;
    }

    /// The region that writes had these logs up to there, some time after it was asked.
    pub fn learn_heads(&self, heads: impl IntoIterator<Item = (LogId, Lsn)>, asked: Instant) {
        if let Promise::Within(bounds) = self.duty.promise {
            self.duty.freshness.tell(heads, asked, bounds.age);
        }
    }
}
