//! How fresh a region that follows is, as it knows by itself: what bounded staleness asks of its reads.
//!
//! The region asks the one that writes where its logs stand. Whoever has reached that later on has everything that was
//! acknowledged before it asked, by its own clock: no two clocks are compared, and an answer that takes long makes the region
//! look older than it is, never younger.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use orrery_model::{Error, LogId, Lsn, Result, Status};
use orrery_partition::storage::Log;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a read waits for the region to be fresh enough.
const READ_WAIT: Duration = Duration::from_secs(1);
/// Longest time between two questions.
const INTERVAL_MAX: Duration = Duration::from_secs(1);
/// Answers kept of a log that a region is slow to reach, spread over the bound; what came in between is left out.
const MARKS_PER_BOUND: u32 = 32;

/// How often to ask where the bound is `age`.
pub fn interval(age: Duration) -> Duration {
    (age / 8).min(INTERVAL_MAX)
}

/// A place in a log, and when it was asked for: everything acknowledged before that is not after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    lsn: Lsn,
    asked: Instant,
}

/// Of one log, oldest first.
#[derive(Debug, Default)]
struct Marks(VecDeque<Mark>);

impl Marks {
    fn add(&mut self, mark: Mark, age: Duration) {
        // Questions may be answered out of order; an older answer adds nothing.
        if self.0.back().is_some_and(|last| last.asked >= mark.asked) {
            return;
        }
        if let [.., before, last] = &*self.0.make_contiguous()
            && last.asked - before.asked < age / MARKS_PER_BOUND
        {
            self.0.pop_back();
        }
        self.0.push_back(mark);
        while self.0.front().is_some_and(|first| mark.asked - first.asked > age) {
            self.0.pop_front();
        }
    }

    /// Since when nothing is missing for whoever has the log up to `lsn`.
    fn fresh_since(&self, lsn: Lsn) -> Option<Instant> {
        let reached = self.0.iter().rfind(|mark| mark.lsn <= lsn);
        reached.map(|mark| mark.asked)
    }
}

/// Of all logs of a region.
#[derive(Debug, Default)]
pub struct Freshness {
    marks: Mutex<BTreeMap<LogId, Marks>>,
    told: Notify,
    wanted: Notify,
}

impl Freshness {
    /// The region that writes had these logs, up to there, some time after it was asked. Forgets what is of no use within `age`.
    pub fn tell(&self, heads: impl IntoIterator<Item = (LogId, Lsn)>, asked: Instant, age: Duration) {
        let mut marks = self.marks();
        for (log, lsn) in heads {
            marks.entry(log).or_default().add(Mark { lsn, asked }, age);
        }
        // A log that is no longer named was split, merged or deleted there; this region may not know yet.
        let is_of_use = |marks: &Marks| marks.0.back().is_some_and(|mark| mark.asked.elapsed() <= age);
        marks.retain(|_, marks| is_of_use(marks));
        drop(marks);
        self.told.notify_waiters();
    }

    /// Completes when somebody waits for an answer.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Whether who has a log up to `lsn` lacks nothing that was acknowledged longer ago than `age`.
    fn is_within(&self, log: LogId, lsn: Lsn, age: Duration) -> bool {
        let since = self.marks().get(&log).and_then(|marks| marks.fresh_since(lsn));
        since.is_some_and(|since| since.elapsed() <= age)
    }

    /// Waits, if only for a moment, until a log lacks nothing that was acknowledged longer ago than `age`. `shown` is as much of it
    /// as has been read already, or else what it holds by then may be read.
    pub async fn wait(&self, log: &dyn Log, shown: Option<Lsn>, age: Duration) -> Result<()> {
        let is_within = |head: Lsn| self.is_within(log.id(), shown.unwrap_or(head), age);
        if is_within(log.head().lsn) {
            return Ok(());
        }
        let becomes_fresh = async {
            loop {
                // Made before the look, so that no answer in between goes unnoticed.
                let told = self.told.notified();
                let head = log.head().lsn;
                if is_within(head) {
                    return;
                }
                self.wanted.notify_one();
                tokio::select! {
                    biased;
                    // Both are safe to drop.
                    () = told => {}
                    _ = log.wait_past(head) => {}
                }
            }
        };
        let waited = tokio::time::timeout(READ_WAIT, becomes_fresh).await;
        waited.map_err(|_| {
            Error::new(
                Status::UNAVAILABLE,
                "This region may lack more than the account's bounded staleness allows.",
            )
        })
    }

    fn marks(&self) -> MutexGuard<'_, BTreeMap<LogId, Marks>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(10);
    const LOG: LogId = LogId(1);

    #[tokio::test(start_paused = true)]
    async fn a_region_is_as_fresh_as_the_question_whose_answer_it_has_reached() {
        let freshness = Freshness::default();
        assert!(!freshness.is_within(LOG, Lsn(5), AGE), "nobody has told it anything");
        freshness.tell([(LOG, Lsn(5))], Instant::now(), AGE);
        tokio::time::advance(Duration::from_secs(6)).await;
        freshness.tell([(LOG, Lsn(9))], Instant::now(), AGE);
        assert!(!freshness.is_within(LOG, Lsn(4), AGE));
        assert!(freshness.is_within(LOG, Lsn(5), AGE));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(!freshness.is_within(LOG, Lsn(8), AGE), "the second answer is beyond it");
        assert!(freshness.is_within(LOG, Lsn(9), AGE));
        assert!(!freshness.is_within(LogId(2), Lsn(9), AGE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_region_that_is_always_a_little_behind_is_fresh_all_the_same() {
        let freshness = Freshness::default();
        for tick in 0..10_000 {
            freshness.tell([(LOG, Lsn(tick))], Instant::now(), AGE);
            let behind = Lsn(tick.saturating_sub(500));
            assert!(freshness.is_within(LOG, behind, AGE), "{tick}");
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        let n_marks = freshness.marks()[&LOG].0.len();
        assert!(n_marks <= MARKS_PER_BOUND as usize + 2, "{n_marks} are kept");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_told_late_or_no_longer_is_forgotten() {
        let freshness = Freshness::default();
        let early = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        freshness.tell([(LOG, Lsn(7)), (LogId(2), Lsn(1))], Instant::now(), AGE);
        freshness.tell([(LOG, Lsn(9))], early, AGE);
        assert!(freshness.is_within(LOG, Lsn(7), AGE), "the older answer adds nothing");
        tokio::time::advance(AGE + Duration::from_secs(1)).await;
        freshness.tell([(LOG, Lsn(9))], Instant::now(), AGE);
        assert_eq!(freshness.marks().keys().copied().collect::<Vec<_>>(), [LOG]);
    }
}
