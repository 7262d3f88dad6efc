//! How far the other regions have come with the logs this region writes: what strong consistency waits for, what bounded
//! staleness measures, and what operators see as lag.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use orrery_model::{LogId, Lsn};
use tokio::time::Instant;

use super::bounds::Bounds;
use super::jumps::{Jump, n_between};
use super::topology::RegionId;
use crate::watched::Watched;

/// How closely the age of a backlog is known.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// Samples kept of a log's appends. When there are more, every second one goes and they are taken half as often, so that what
/// a region costs that is cut off does not depend on how long that lasts; the age of its backlog is told less closely then, and
/// never too young.
pub const SAMPLES_MAX: usize = 1024;

/// Of all logs of an account.
#[derive(Debug, Default)]
pub struct Progress {
    /// In their order, so that whoever waits for several is woken in the same order every time.
    logs: RwLock<BTreeMap<LogId, Arc<LogProgress>>>,
    members: Members,
}

/// The regions that count: those that serve reads, without the one that writes.
type Members = Arc<RwLock<BTreeSet<RegionId>>>;

/// Of one log.
#[derive(Debug)]
pub struct LogProgress {
    members: Members,
    state: Watched<State>,
}

#[derive(Debug, Default)]
struct State {
    applied: BTreeMap<RegionId, Lsn>,
    head: Lsn,
    jumps: Vec<Jump>,
    /// When transactions were appended, one every so often, oldest first.
    appended: VecDeque<(Lsn, Instant)>,
    /// How many times the interval between two of them has been doubled.
    n_doubled: u32,
}

/// What a region lacks of one log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    pub transactions: u64,
    /// Age of the oldest transaction it lacks.
    pub age: Duration,
}

impl Progress {
    pub fn of(&self, log: LogId) -> Arc<LogProgress> {
        if let Some(found) = self.logs.read().unwrap_or_else(PoisonError::into_inner).get(&log) {
            return Arc::clone(found);
        }
        let mut logs = self.logs.write().unwrap_or_else(PoisonError::into_inner);
        let fresh = || {
            Arc::new(LogProgress {
                members: Arc::clone(&self.members),
                state: Watched::default(),
            })
        };
        Arc::clone(logs.entry(log).or_insert_with(fresh))
    }

    /// Forgets a log that is gone.
    pub fn forget(&self, log: LogId) {
        self.logs.write().unwrap_or_else(PoisonError::into_inner).remove(&log);
    }

    /// The regions that count.
    pub fn members(&self) -> BTreeSet<RegionId> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says which regions count from now on. Whoever waits for one that no longer does goes on.
    pub fn set_members(&self, members: BTreeSet<RegionId>) {
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = members;
        for log in self.logs.read().unwrap_or_else(PoisonError::into_inner).values() {
            log.state.modify(|_| {});
        }
    }
}

impl LogProgress {
    /// This region begins to write a log that stands at `head` and has these jumps. What it knew of the age of transactions is
    /// from when it last wrote: others have come in between.
    pub fn begin(&self, head: Lsn, jumps: Vec<Jump>) {
        self.state.modify(|state| {
            state.head = head;
            state.jumps = jumps;
            state.appended.clear();
            state.n_doubled = 0;
        });
    }

    /// Whether the age of a transaction is known, or at least not underrated.
    pub fn is_dated(&self, lsn: Lsn) -> bool {
        let state = self.state.read();
        state.appended.front().is_some_and(|(first, _)| *first <= lsn)
    }

    /// A transaction that was appended before this region began to write it, or before it was started, is so old.
    pub fn date(&self, lsn: Lsn, age: Duration) {
        let now = Instant::now();
        let at = now.checked_sub(age).unwrap_or(now);
        self.state.modify(|state| {
            let place = state.appended.partition_point(|(first, _)| *first < lsn);
            // Clocks of regions differ; the order of a log's transactions does not depend on them.
            let at = state.appended.get(place).map_or(at, |(_, later)| at.min(*later));
            state.appended.insert(place, (lsn, at));
        });
    }

    /// This region has appended up to `head`.
    pub fn appended(&self, head: Lsn) {
        let now = Instant::now();
        self.state.modify(|state| {
            let first_new = state.head.next();
            state.head = state.head.max(head);
            let interval = SAMPLE_INTERVAL * (1 << state.n_doubled);
            let recent = |(_, at): &(Lsn, Instant)| now.duration_since(*at) < interval;
            if !state.appended.back().is_some_and(recent) {
                state.appended.push_back((first_new, now));
                state.thin_out();
            }
        });
    }

    /// Another region has applied up to `lsn`, durable and visible.
    pub fn report(&self, region: RegionId, lsn: Lsn) {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner).clone();
        self.state.modify(|state| {
            let applied = state.applied.entry(region).or_default();
            *applied = (*applied).max(lsn);
            let slowest = members
                .iter()
                .map(|member| state.applied.get(member).copied().unwrap_or(Lsn::ZERO))
                .min();
            // A sample is of use as long as the next one is not wholly applied as well.
            while let (Some(slowest), Some((next, _))) = (slowest, state.appended.get(1)) {
                if *next > slowest.next() {
                    break;
                }
                state.appended.pop_front();
            }
            if state.appended.len() < 2 {
                state.n_doubled = 0;
            }
        });
    }

    /// A region begins anew, perhaps from further back.
    pub fn restart(&self, region: RegionId, lsn: Lsn) {
        self.state.modify(|state| {
            state.applied.insert(region, lsn);
        });
    }

    /// Up to where every region that counts has applied; `None` when no other counts.
    pub fn committed(&self) -> Option<Lsn> {
        self.committed_in(&self.state.read())
    }

    fn committed_in(&self, state: &State) -> Option<Lsn> {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        members
            .iter()
            .map(|member| state.applied.get(member).copied().unwrap_or(Lsn::ZERO))
            .min()
    }

    /// Waits until every region that counts has applied `lsn`.
    pub async fn wait_committed(&self, lsn: Lsn) {
        let is_committed = |state: &State| self.committed_in(state).is_none_or(|committed| committed >= lsn);
        self.state.wait_for(is_committed).await;
    }

    /// Waits until more than `known` is committed, and answers how much. While no other region counts, nothing is.
    pub async fn committed_past(&self, known: Lsn) -> Lsn {
        let mut committed = known;
        let is_past = |state: &State| {
            committed = self.committed_in(state).unwrap_or(known);
            committed > known
        };
        self.state.wait_for(is_past).await;
        committed
    }

    /// Up to where nothing is only here: what every region that counts has, or all of it when no other counts.
    fn everywhere_in(&self, state: &State) -> Lsn {
        self.committed_in(state)
            .map_or(state.head, |committed| committed.min(state.head))
    }

    /// Up to there.
    pub fn everywhere(&self) -> Lsn {
        self.everywhere_in(&self.state.read())
    }

    /// Waits until that reaches `lsn`.
    pub async fn everywhere_reaches(&self, lsn: Lsn) {
        self.state.wait_for(|state| self.everywhere_in(state) >= lsn).await;
    }

    /// What a region lacks.
    pub fn lag(&self, region: RegionId) -> Lag {
        self.state.read().lag(region)
    }

    /// How many samples of appends are held.
    pub fn n_samples(&self) -> usize {
        self.state.read().appended.len()
    }

    /// How many transactions may follow before a region that counts lacks more than it may.
    pub fn room(&self, bounds: Bounds) -> u64 {
        // In the order in which everybody takes the two.
        let state = self.state.read();
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        let room = |member: &RegionId| match state.lag(*member) {
            lag if lag.age >= bounds.age => 0,
            lag => bounds.transactions.saturating_sub(lag.transactions),
        };
        members.iter().map(room).min().unwrap_or(u64::MAX)
    }
}

impl State {
    /// Keeps the first sample: it is the age of whoever lacks everything.
    fn thin_out(&mut self) {
        if self.appended.len() > SAMPLES_MAX {
            // From half a day on it stays.
            self.n_doubled = (self.n_doubled + 1).min(20);
            let mut keep = false;
            self.appended.retain(|_| {
                keep = !keep;
                keep
            });
        }
    }

    fn lag(&self, region: RegionId) -> Lag {
        let applied = self.applied.get(&region).copied().unwrap_or(Lsn::ZERO);
        if applied >= self.head {
            return Lag::default();
        }
        let missing = self
            .appended
            .iter()
            .rev()
            .find(|(first, _)| *first <= applied.next())
            .or(self.appended.front());
        Lag {
            transactions: n_between(applied, self.head, &self.jumps),
            age: missing.map_or(Duration::ZERO, |(_, at)| at.elapsed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: RegionId = RegionId(1);
    const FAR: RegionId = RegionId(2);

    fn progress(members: &[RegionId]) -> Arc<LogProgress> {
        let progress = Progress::default();
        progress.set_members(members.iter().copied().collect());
        progress.of(LogId(1))
    }

    #[tokio::test]
    async fn a_write_is_committed_when_the_slowest_region_has_it() {
        let log = progress(&[NEAR, FAR]);
        log.appended(Lsn(5));
        log.report(NEAR, Lsn(5));
        assert_eq!(log.committed(), Some(Lsn::ZERO));
        log.report(FAR, Lsn(4));
        assert_eq!(log.committed(), Some(Lsn(4)));
        let waiting = tokio::spawn({
            let log = Arc::clone(&log);
            async move { log.wait_committed(Lsn(5)).await }
        });
        log.report(FAR, Lsn(5));
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn everything_is_everywhere_while_no_other_region_counts() {
        let all = Progress::default();
        all.set_members([NEAR].into());
        let log = all.of(LogId(1));
        log.appended(Lsn(5));
        log.report(NEAR, Lsn(3));
        let at_once = |lsn| tokio::time::timeout(Duration::ZERO, log.everywhere_reaches(lsn));
        assert!(at_once(Lsn(3)).await.is_ok() && at_once(Lsn(4)).await.is_err());
        let waiting = tokio::spawn({
            let log = Arc::clone(&log);
            async move { log.everywhere_reaches(Lsn(5)).await }
        });
        all.set_members(BTreeSet::new());
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn nobody_waits_for_a_region_that_no_longer_counts() {
        let all = Progress::default();
        all.set_members([NEAR].into());
        let log = all.of(LogId(1));
        log.appended(Lsn(1));
        let waiting = tokio::spawn({
            let log = Arc::clone(&log);
            async move { log.wait_committed(Lsn(1)).await }
        });
        all.set_members(BTreeSet::new());
        waiting.await.unwrap();
        assert_eq!(log.committed(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn lag_counts_transactions_and_the_age_of_the_oldest_missing_one() {
        let log = progress(&[NEAR]);
        log.begin(Lsn(10), Vec::new());
        log.restart(NEAR, Lsn(10));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(log.lag(NEAR), Lag::default(), "an idle log has no lag");
        log.appended(Lsn(11));
        tokio::time::advance(Duration::from_secs(3)).await;
        log.appended(Lsn(14));
        let lag = log.lag(NEAR);
        assert_eq!((lag.transactions, lag.age.as_secs()), (4, 3));
        log.report(NEAR, Lsn(12));
        let lag = log.lag(NEAR);
        assert_eq!((lag.transactions, lag.age.as_secs()), (2, 0));
        log.report(NEAR, Lsn(14));
        assert_eq!(log.lag(NEAR), Lag::default());
    }

    #[tokio::test(start_paused = true)]
    async fn bounds_are_exceeded_by_number_or_by_age() {
        let log = progress(&[NEAR]);
        let bounds = Bounds {
            transactions: 3,
            age: Duration::from_secs(5),
        };
        log.appended(Lsn(2));
        assert!(log.room(bounds) > 0);
        log.appended(Lsn(3));
        assert_eq!(log.room(bounds), 0);
        log.report(NEAR, Lsn(2));
        assert!(log.room(bounds) > 0);
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(log.room(bounds), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn however_long_a_region_is_cut_off_its_lag_is_told_from_few_samples_and_never_too_young() {
        let log = progress(&[NEAR]);
        let hours = Duration::from_secs(3 * 3600);
        let n_appends = (hours.as_millis() / 100) as u64;
        for lsn in 1..=n_appends {
            log.appended(Lsn(lsn));
            assert!(log.n_samples() <= SAMPLES_MAX);
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(log.lag(NEAR).age, hours);
        log.report(NEAR, Lsn(n_appends / 2));
        let age = log.lag(NEAR).age;
        assert!(age >= hours / 2 && age < hours / 2 + hours / 64, "{age:?}");
        log.report(NEAR, Lsn(n_appends));
        assert_eq!(log.lag(NEAR), Lag::default());
    }

    #[tokio::test]
    async fn the_jump_of_a_new_epoch_is_no_lag_and_hides_none() {
        let log = progress(&[NEAR]);
        let (from, to) = (Lsn(10), Lsn(10).next_epoch_start());
        log.begin(to, vec![Jump { from, to }]);
        log.restart(NEAR, Lsn(10));
        assert_eq!(log.lag(NEAR).transactions, 1);
        log.restart(NEAR, Lsn(4));
        assert_eq!(log.lag(NEAR).transactions, 7, "six of them from before the jump");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_missing_before_a_region_began_to_write_is_as_old_as_it_is() {
        let log = progress(&[NEAR, FAR]);
        tokio::time::advance(Duration::from_secs(3600)).await;
        log.begin(Lsn(10), Vec::new());
        log.restart(NEAR, Lsn(8));
        log.restart(FAR, Lsn(4));
        assert!(!log.is_dated(Lsn(9)));
        log.date(Lsn(9), Duration::from_secs(20));
        assert!(log.is_dated(Lsn(9)) && !log.is_dated(Lsn(5)));
        // By a clock that was behind, and yet it is the older one.
        log.date(Lsn(5), Duration::from_secs(1));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(log.lag(NEAR).age.as_secs(), 30);
        assert_eq!(log.lag(FAR).age.as_secs(), 30);
        log.appended(Lsn(11));
        log.report(FAR, Lsn(10));
        assert_eq!(log.lag(FAR).age.as_secs(), 0, "{:?}", log.lag(FAR));
        assert_eq!(log.lag(NEAR).age.as_secs(), 30);
    }
}
