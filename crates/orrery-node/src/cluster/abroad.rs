//! What the nodes of one region learn of the others: how far those have come with its logs, where it writes; how far the one that
//! writes has come, where it follows.
//!
//! Nothing here asks anybody. Whoever carries words between regions tells it, and is told when somebody waits for an answer. The
//! rules are those of regions in one process: [`crate::geo::progress`] says how much more may be written,
//! [`crate::geo::freshness`] what may be read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use orrery_model::{Epoch, LogId, Lsn, Position};
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

    /// Is a write acknowledged when every region that counts has it?
    pub fn promises_everywhere(&self) -> bool {
        self.duty.promise == Promise::Everywhere
    }

    /// This region writes in that epoch, zero when another one does, and cannot have been replaced before `until`.
    pub fn set_reign(&self, epoch: Epoch, until: Option<Instant>) {
        self.duty.set_reign(epoch, until);
    }

    /// The epoch in which this region writes, and for how long it is sure not to be replaced.
    pub fn reign(&self) -> (Epoch, Option<Duration>) {
        self.duty.reign()
    }

    /// Waits until every region that counts has these logs, which this node writes, and this region has not been replaced. `false` when
    /// it has.
    pub async fn commits(&self, heads: &[(LogId, Lsn)]) -> bool {
        for (log, lsn) in heads {
            if !self.duty.commits(*log, *lsn).await {
                return false;
            }
        }
        true
    }

    /// The other regions that count while this one writes.
    pub fn counted_regions(&self) -> BTreeSet<RegionId> {
        self.duty.progress.members()
    }

    /// Age of the oldest transaction of a log that this node writes and another region lacks.
    pub fn age_lacked_by(&self, region: RegionId) -> Duration {
        let mut logs = self.owned_logs();
        if self.duty.writes() {
            logs.insert(LogId::SYSTEM);
        }
        let ages = logs.iter().map(|log| self.duty.progress.of(*log).lag(region).age);
        ages.max().unwrap_or_default()
    }

    /// Where this node's copies of logs stand, as far as its readers see them: what exists is shown a moment after it has come.
    pub fn visible_positions(&self) -> BTreeMap<LogId, Position> {
        let mut positions = self.positions();
        if let Some(system) = positions.get_mut(&LogId::SYSTEM) {
            system.lsn = system.lsn.min(self.control.shown());
        }
        positions
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
