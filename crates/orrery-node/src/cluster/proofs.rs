//! What a node knows of logs that it does not write, under strong consistency: where they stood with whoever writes them, at a time
//! after it asked.
//!
//! A strong read of such a log asks first, waits until the node's copy has come so far, reads, and answers once every region that
//! counts is known to have what it read. Nothing here asks anybody: whoever carries questions takes what is wanted and tells what
//! was answered.
//!
//! Invariant: an answer is told only if the region that gave it could not have been replaced by then, and if what it names was in
//! every region that counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use orrery_model::{Error, LogId, Lsn, Result, Status};
use orrery_partition::storage::Log;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::api::{Consistency, Options};
use crate::geo::duty::{Promise, confirmed};
use crate::node::Node;
use crate::partition::Partition;

/// How soon to ask again: questions and answers may be lost.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// What was answered longer ago is of no use to anybody.
const KEPT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
struct Proof {
    lsn: Lsn,
    asked: Instant,
}

#[derive(Debug, Default)]
pub struct Proofs {
    known: crate::watched::Watched<BTreeMap<LogId, Proof>>,
    wanted: Mutex<BTreeSet<LogId>>,
    asks: Notify,
}

impl Proofs {
    /// Logs stood there, proven after `asked` and in every region that counts.
    pub fn tell(&self, heads: impl IntoIterator<Item = (LogId, Lsn)>, asked: Instant) {
        self.known.modify(|known| {
            for (log, lsn) in heads {
                let proof = known.entry(log).or_insert(Proof { lsn, asked });
                // Answers may come out of order; the higher one asks more of whoever reads.
                proof.lsn = proof.lsn.max(lsn);
                proof.asked = proof.asked.max(asked);
            }
            known.retain(|_, proof| proof.asked.elapsed() < KEPT);
        });
    }

    /// The logs that somebody asks about, once there are any. They count as asked for.
    pub async fn wanted(&self) -> BTreeSet<LogId> {
        loop {
            let asks = self.asks.notified();
            let wanted = std::mem::take(&mut *self.wanted.lock().unwrap_or_else(PoisonError::into_inner));
            if !wanted.is_empty() {
                return wanted;
            }
            asks.await;
        }
    }

    /// Where a log stood, proven by a question that was asked after `since`.
    async fn head(&self, log: LogId, since: Instant) -> Lsn {
        self.find(log, |proof| proof.asked >= since).await.lsn
    }

    /// Completes when every region that counts is known to have a log up to `lsn`.
    async fn reaches(&self, log: LogId, lsn: Lsn) {
        self.find(log, |proof| proof.lsn >= lsn).await;
    }

    async fn find(&self, log: LogId, is_enough: impl Fn(&Proof) -> bool) -> Proof {
        let mut found = None;
        let mut look = |known: &BTreeMap<LogId, Proof>| {
            found = known.get(&log).copied().filter(&is_enough);
            found.is_some()
        };
        if !look(&self.known.read()) {
            loop {
                self.want(log);
                let answered = self.known.wait_for(&mut look);
                if tokio::time::timeout(ASK_AGAIN, answered).await.is_ok() {
                    break;
                }
            }
        }
        found.expect("it was found just now")
    }

    fn want(&self, log: LogId) {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).insert(log);
        self.asks.notify_one();
    }
}

impl Node {
    /// Must a read ask whoever writes, because it may miss nothing that was acknowledged in any region?
    fn asks_abroad(&self, options: &Options) -> bool {
        let level = options.consistency;
        let asks = level.is_none_or(|level| level >= Consistency::BoundedStaleness);
        self.duty.clustered && self.duty.promise == Promise::Everywhere && asks
    }

    /// The same of a partition: its owner knows by itself.
    pub(crate) fn asks_about(&self, options: &Options, partition: &Partition) -> bool {
        self.asks_abroad(options) && !partition.is_owned()
    }

    /// The same of the catalogue.
    pub(crate) fn asks_about_catalogue(&self, options: &Options) -> bool {
        self.asks_abroad(options) && !self.control.is_owner()
    }

    /// Before a strong read: waits until this node's copy of a log has everything that was acknowledged.
    pub(crate) async fn catch_up_with(&self, log: &dyn Log) -> Result<()> {
        let since = Instant::now();
        confirmed(async {
            let head = self.duty.proofs.head(log.id(), since).await;
            while log.head().lsn < head {
                log.wait_past(log.head().lsn).await;
            }
            true
        })
        .await
    }

    /// After it: waits until every region that counts has what was read.
    pub(crate) async fn prove_shown(&self, log: LogId, lsn: Lsn) -> Result<()> {
        confirmed(async {
            self.duty.proofs.reaches(log, lsn).await;
            true
        })
        .await
    }

    /// Before the catalogue is read.
    pub(crate) async fn catch_up_with_catalogue(&self) -> Result<()> {
        let since = Instant::now();
        confirmed(async {
            let head = self.duty.proofs.head(LogId::SYSTEM, since).await;
            self.control.shown_past(head).await;
            true
        })
        .await
    }

    /// After something was missing in the catalogue, which stood at `shown` before: it may have been too old to know.
    pub(crate) async fn prove_missing(&self, shown: Lsn) -> Result<()> {
        self.catch_up_with_catalogue().await?;
        match self.control.shown() == shown {
            true => Ok(()),
            false => Err(Error::new(Status::UNAVAILABLE, "What exists has just changed here.").with_retry_after_ms(10)),
        }
    }

    /// The logs that reads of this node have to ask about.
    pub async fn wanted_proofs(&self) -> BTreeSet<LogId> {
        self.duty.proofs.wanted().await
    }

    /// Whoever writes logs had them up to there, proven after `asked`.
    pub fn learn_proofs(&self, heads: &[(LogId, Lsn)], asked: Instant) {
        let partitions = self.partitions.read().unwrap_or_else(PoisonError::into_inner);
        for (log, lsn) in heads {
            if let Some(partition) = partitions.get(log) {
                partition.learn_committed(*lsn);
            }
        }
        drop(partitions);
        self.duty.proofs.tell(heads.iter().copied(), asked);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const LOG: LogId = LogId(3);

    #[tokio::test(start_paused = true)]
    async fn an_answer_to_an_earlier_question_proves_nothing() {
        let proofs = Arc::new(Proofs::default());
        let early = Instant::now();
        tokio::time::advance(Duration::from_millis(1)).await;
        let since = Instant::now();
        let reading = tokio::spawn({
            let proofs = Arc::clone(&proofs);
            async move { proofs.head(LOG, since).await }
        });
        assert_eq!(proofs.wanted().await, BTreeSet::from([LOG]));
        proofs.tell([(LOG, Lsn(5))], early);
        tokio::task::yield_now().await;
        assert!(!reading.is_finished());
        // Asked again, because the answer may have been lost.
        assert_eq!(proofs.wanted().await, BTreeSet::from([LOG]));
        proofs.tell([(LOG, Lsn(7))], Instant::now());
        assert_eq!(reading.await.unwrap(), Lsn(7));
    }

    #[tokio::test(start_paused = true)]
    async fn what_every_region_is_known_to_have_need_not_be_asked_for() {
        let proofs = Proofs::default();
        proofs.tell([(LOG, Lsn(7))], Instant::now());
        proofs.reaches(LOG, Lsn(7)).await;
        let beyond = tokio::time::timeout(Duration::from_secs(1), proofs.reaches(LOG, Lsn(8)));
        assert!(beyond.await.is_err());
        assert_eq!(proofs.wanted().await, BTreeSet::from([LOG]));
    }
}
