//! How far the other regions have come with the logs this region writes: what strong consistency waits for, what bounded
//! staleness measures, and what operators see as lag.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use orrery_model::{LogId, Lsn};
use tokio::sync::watch;
use tokio::time::Instant;

use super::topology::RegionId;

/// How closely the age of a backlog is known.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// Samples kept of a log's appends. When there are more, every second one goes and they are taken half as often, so that what
/// a region costs that is cut off does not depend on how long that lasts; the age of its backlog is told less closely then, and
/// never too young.
pub const SAMPLES_MAX: usize = 1024;

/// Of all logs of an account.
#[derive(Debug, Default)]
pub struct Progress {
    logs: RwLock<HashMap<LogId, Arc<LogProgress>>>,
    members: Members,
}

/// The regions that count: those that serve reads, without the one that writes.
type Members = Arc<RwLock<BTreeSet<RegionId>>>;

/// Of one log.
#[derive(Debug)]
pub struct LogProgress {
    members: Members,
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    applied: BTreeMap<RegionId, Lsn>,
    head: Lsn,
    /// Where the current epoch begins: LSNs below belong to an earlier one, and the distance between the two says nothing.
    epoch_start: Lsn,
    /// When transactions were appended, one every so often, oldest first.
    appended: VecDeque<(Lsn, Instant)>,
    /// How many times the interval between two of them has been doubled.
    n_doubled: u32,
}

/// What a region may lack at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub transactions: u64,
    pub age: Duration,
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
                state: watch::Sender::default(),
            })
        };
        Arc::clone(logs.entry(log).or_insert_with(fresh))
    }

    /// Forgets a log that is gone.
    pub fn forget(&self, log: LogId) {
        self.logs.write().unwrap_or_else(PoisonError::into_inner).remove(&log);
    }

    /// Says which regions count from now on. Whoever waits for one that no longer does goes on.
    pub fn set_members(&self, members: BTreeSet<RegionId>) {
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = members;
        for log in self.logs.read().unwrap_or_else(PoisonError::into_inner).values() {
            log.state.send_modify(|_| {});
        }
    }
}

impl LogProgress {
    /// This region stands at `head`, in an epoch that began at `epoch_start`.
    pub fn begin(&self, head: Lsn, epoch_start: Lsn) {
        self.state.send_modify(|state| {
            state.head = head;
            state.epoch_start = epoch_start;
        });
    }

    /// This region has appended up to `head`.
    pub fn appended(&self, head: Lsn) {
        let now = Instant::now();
        self.state.send_modify(|state| {
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
        self.state.send_modify(|state| {
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
        self.state.send_modify(|state| {
            state.applied.insert(region, lsn);
        });
    }

    /// Up to where every region that counts has applied; `None` when no other counts.
    pub fn committed(&self) -> Option<Lsn> {
        self.committed_in(&self.state.borrow())
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
        let mut state = self.state.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = state
            .wait_for(|state| self.committed_in(state).is_none_or(|committed| committed >= lsn))
            .await;
    }

    /// Waits until more than `known` is committed, and answers how much. While no other region counts, nothing is.
    pub async fn committed_past(&self, known: Lsn) -> Lsn {
        let mut state = self.state.subscribe();
        let past = |state: &State| self.committed_in(state).filter(|committed| *committed > known);
        // The sender lives in `self`, so waiting cannot fail.
        let moved = state.wait_for(|state| past(state).is_some()).await;
        moved.ok().and_then(|state| past(&state)).unwrap_or(known)
    }

    /// What a region lacks.
    pub fn lag(&self, region: RegionId) -> Lag {
        self.state.borrow().lag(region)
    }

    /// How many samples of appends are held.
    pub fn n_samples(&self) -> usize {
        self.state.borrow().appended.len()
    }

    /// How many transactions may follow before a region that counts lacks more than it may.
    pub fn room(&self, bounds: Bounds) -> u64 {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        let state = self.state.borrow();
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
        let since = applied.0.max(self.epoch_start.0.saturating_sub(1));
        let missing = self
            .appended
            .iter()
            .rev()
            .find(|(first, _)| *first <= applied.next())
            .or(self.appended.front());
        Lag {
            transactions: self.head.0 - since.min(self.head.0),
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
        log.begin(Lsn(10), Lsn(1));
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
    async fn the_jump_of_a_new_epoch_is_no_lag() {
        let log = progress(&[NEAR]);
        let start = Lsn(10).next_epoch_start();
        log.begin(start, start);
        log.restart(NEAR, Lsn(10));
        assert_eq!(log.lag(NEAR).transactions, 1);
    }
}
