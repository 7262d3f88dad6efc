//! How many regions of a cluster's account have to agree, under strong consistency: before a write is acknowledged, for a region to
//! be sure that it still is the one that writes, and before another one takes over. Pure.
//!
//! A write is acknowledged when at least [`least`] regions have it, the one that writes among them; a region takes over when it has
//! heard from so many that one of them has it, whichever these were ([`may_take_over`]). Regions promise to follow one region for
//! a time ([`Allegiance`]). Clocks are never compared: who was promised something counts from before it asked, who takes it back waits from
//! after it did.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::geo::topology::RegionId;

/// How long strong writes wait for a region before it is left out.
pub const PATIENCE: Duration = Duration::from_secs(3);
/// One that was left out counts again when it lacks nothing that is older.
pub const CAUGHT_UP: Duration = Duration::from_millis(250);
/// How long a promise lasts.
pub const PROMISE: Duration = Duration::from_secs(3);

/// Regions that have a write at least before it is acknowledged, of all that the account has: both of two, else a majority.
pub fn least(n_regions: usize) -> usize {
    match n_regions {
        0..=2 => n_regions,
        n => n / 2 + 1,
    }
}

/// The same while some are offline. Whoever takes one out sees to it that this is enough ([`may_go_offline`]).
pub fn needed(n_regions: usize, n_online: usize) -> usize {
    least(n_regions).min(n_online)
}

/// Whether so many regions without the one that wrote, the next one among them, have everything that was acknowledged between them.
pub fn may_take_over(n_regions: usize, n_reached: usize) -> bool {
    n_reached > n_regions - least(n_regions)
}

/// Whether a region may be taken out without being told. One that is told cannot take over any more, nor be counted by who does.
pub fn may_go_offline(n_regions: usize, n_left: usize) -> bool {
    n_left >= least(n_regions)
}

/// A region that follows, as the one that writes sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    pub region: RegionId,
    /// Age of the oldest transaction that it lacks.
    pub age: Duration,
    /// Is it left out already?
    pub is_out: bool,
    /// Does it serve? One that is about to is counted as long as it keeps in step, and need not be.
    pub is_online: bool,
}

impl Reader {
    fn is_slow(&self) -> bool {
        let limit = if self.is_out { CAUGHT_UP } else { PATIENCE };
        self.age > limit
    }
}

/// Which of the regions that follow writes wait for. Slow ones are left out, as many as there may be: who is out first, then the
/// slowest.
pub fn counted(readers: &[Reader], n_regions: usize) -> BTreeSet<RegionId> {
    let n_online = 1 + readers.iter().filter(|reader| reader.is_online).count();
    let n_out_max = n_online - needed(n_regions, n_online);
    let mut slow: Vec<&Reader> = readers
        .iter()
        .filter(|reader| reader.is_online && reader.is_slow())
        .collect();
    slow.sort_by_key(|reader| (!reader.is_out, std::cmp::Reverse(reader.age)));
    let out: BTreeSet<RegionId> = slow.iter().take(n_out_max).map(|reader| reader.region).collect();
    let counts = |reader: &&Reader| !out.contains(&reader.region) && (reader.is_online || !reader.is_slow());
    readers.iter().filter(counts).map(|reader| reader.region).collect()
}

/// What a region has promised: in this epoch it follows that region, and helps no other to take over for so long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allegiance {
    pub epoch: u32,
    /// As the region's store is called.
    pub holder: String,
    pub lasts: Duration,
    /// The try to take over that wrote it, as long as nothing has come of that.
    pub attempt: Option<String>,
}

impl Allegiance {
    /// What is written in the place of `current` when the region that writes asks. `None`: it was promised to another.
    pub fn granted(current: Option<&Allegiance>, holder: &str, epoch: u32) -> Option<Allegiance> {
        is_open(current, holder, epoch).then(|| Allegiance {
            epoch,
            holder: holder.to_owned(),
            lasts: PROMISE,
            attempt: None,
        })
    }

    /// The same when a region is about to take over by force in `epoch`. What was promised before lasts for as long as it did, also
    /// when this is tried again.
    pub fn taken_back(current: Option<&Allegiance>, heir: &str, epoch: u32, attempt: &str) -> Option<Allegiance> {
        is_open(current, heir, epoch).then(|| Allegiance {
            epoch,
            holder: heir.to_owned(),
            lasts: current.map_or(PROMISE, |current| current.lasts),
            attempt: Some(attempt.to_owned()),
        })
    }

    /// The same when nothing came of it: the region follows `holder` as before. Only what that very attempt took is given back: another one may
    /// have come to something since.
    pub fn given_back(current: Option<&Allegiance>, attempt: &str, holder: &str, epoch: u32) -> Option<Allegiance> {
        let taken = current.filter(|current| current.attempt.as_deref() == Some(attempt))?;
        Some(Allegiance {
            epoch,
            holder: holder.to_owned(),
            lasts: taken.lasts,
            attempt: None,
        })
    }

    /// Until when the holder relies on a promise that it asked for at `asked`: a little less than others wait.
    pub fn relied_until(asked: Duration) -> Duration {
        asked + PROMISE - PROMISE / 10
    }
}

fn is_open(current: Option<&Allegiance>, holder: &str, epoch: u32) -> bool {
    current.is_none_or(|current| current.epoch < epoch || current.epoch == epoch && current.holder == holder)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn of_two_regions_none_is_left_out_and_of_more_a_minority_may_be() {
        let n_out_max = |n: usize| n - least(n);
        assert_eq!([2, 3, 4, 5, 6, 7].map(n_out_max), [0, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn whoever_takes_over_has_heard_from_a_region_that_has_what_was_acknowledged() {
        for n_regions in 2..=7 {
            for writer in 0..n_regions {
                let sets = || (0..1_u32 << n_regions).map(move |bits| (bits, bits.count_ones() as usize));
                let has_writer = |bits: u32| bits >> writer & 1 == 1;
                for (acked, n_acked) in sets().filter(|(bits, _)| has_writer(*bits)) {
                    let is_acknowledged = n_acked >= least(n_regions);
                    for (reached, n_reached) in sets().filter(|(bits, _)| !has_writer(*bits)) {
                        let takes_over = may_take_over(n_regions, n_reached);
                        assert!(!is_acknowledged || !takes_over || acked & reached != 0);
                    }
                }
            }
        }
    }

    fn reader(region: u32, age_ms: u64, is_out: bool) -> Reader {
        Reader {
            region: RegionId(region),
            age: Duration::from_millis(age_ms),
            is_out,
            is_online: true,
        }
    }

    #[test]
    fn a_slow_region_is_left_out_of_three_and_counts_again_when_it_has_caught_up() {
        let of = |readers: &[Reader]| counted(readers, 3).iter().map(|region| region.0).collect::<Vec<_>>();
        assert_eq!(of(&[reader(1, 2_900, false), reader(2, 0, false)]), [1, 2]);
        assert_eq!(of(&[reader(1, 3_100, false), reader(2, 0, false)]), [2]);
        assert_eq!(of(&[reader(1, 300, true), reader(2, 0, false)]), [2]);
        assert_eq!(of(&[reader(1, 200, true), reader(2, 0, false)]), [1, 2]);
        // Who is out stays out, however slow the other becomes: one of them has to have everything.
        assert_eq!(of(&[reader(1, 4_000, true), reader(2, 9_000, false)]), [2]);
    }

    #[test]
    fn one_that_is_about_to_serve_holds_nobody_up() {
        let coming = Reader {
            is_online: false,
            ..reader(2, 9_000, false)
        };
        assert_eq!(counted(&[reader(1, 0, false), coming], 3).len(), 1);
        let in_step = Reader {
            age: Duration::ZERO,
            ..coming
        };
        assert_eq!(counted(&[reader(1, 0, false), in_step], 3).len(), 2);
    }

    proptest! {
        #[test]
        fn enough_regions_are_counted_whatever_is_slow(
            paces in proptest::collection::vec((0_u64..10_000, any::<bool>()), 1..6),
        ) {
            let readers: Vec<Reader> = paces.iter().enumerate().map(|(idx, (age, out))| reader(idx as u32 + 1, *age, *out)).collect();
            let n_regions = readers.len() + 1;
            let counted = counted(&readers, n_regions);
            prop_assert!(counted.len() + 1 >= least(n_regions));
            for reader in readers.iter().filter(|reader| reader.age <= CAUGHT_UP) {
                prop_assert!(counted.contains(&reader.region));
            }
        }

        /// One region asks for promises again and again, another takes over by force; both are answered after any time. The first
        /// one never relies on them when the other has begun.
        #[test]
        fn no_region_relies_on_promises_when_another_has_taken_over(
            n_regions in 2_usize..6,
            asks in proptest::collection::vec((0_u64..2_000, proptest::collection::vec(0_u64..3_000, 6)), 1..20),
            takes_back in proptest::collection::vec(proptest::option::of(0_u64..20_000), 6),
        ) {
            let ms = Duration::from_millis;
            // By region: when what was stored. Number 0 writes, number 1 takes over.
            let mut promised: Vec<Vec<(Duration, Duration)>> = vec![Vec::new(); n_regions];
            let mut asked = Duration::ZERO;
            for (pause, delays) in &asks {
                asked += ms(*pause);
                (0..n_regions).for_each(|region| promised[region].push((asked, asked + ms(delays[region]))));
            }
            let taken: Vec<Option<Duration>> = (0..n_regions).map(|region| takes_back[region].map(ms)).collect();
            let reached: Vec<Duration> = (1..n_regions).filter_map(|region| taken[region]).collect();
            prop_assume!(taken[1].is_some() && may_take_over(n_regions, reached.len()));
            let begins = reached.iter().max().copied().unwrap_or_default() + PROMISE;
            for (idx, (asked, _)) in promised[0].iter().enumerate() {
                let is_granted = |region: &usize| {
                    let (_, stored) = promised[*region][idx];
                    let is_taken = *region > 0 && taken[*region].is_some_and(|taken| taken <= stored);
                    let before = Allegiance { epoch: 1 + u32::from(is_taken), holder: if is_taken { "b" } else { "a" }.into(), lasts: PROMISE, attempt: None };
                    Allegiance::granted(Some(&before), "a", 1).is_some()
                };
                let n_granted = (0..n_regions).filter(is_granted).count();
                if n_granted >= least(n_regions) {
                    prop_assert!(Allegiance::relied_until(*asked) <= begins);
                }
            }
        }
    }

    #[test]
    fn what_was_promised_to_another_is_not_given_away() {
        let promise = |epoch, holder: &str| Allegiance {
            epoch,
            holder: holder.into(),
            lasts: PROMISE,
            attempt: None,
        };
        let current = promise(2, "b");
        assert_eq!(Allegiance::granted(Some(&current), "a", 1), None);
        assert_eq!(Allegiance::granted(Some(&current), "a", 2), None);
        assert_eq!(Allegiance::granted(Some(&current), "b", 2), Some(current.clone()));
        assert_eq!(Allegiance::granted(Some(&current), "a", 3), Some(promise(3, "a")));
        assert_eq!(Allegiance::granted(None, "a", 1), Some(promise(1, "a")));
        let longer = Allegiance {
            lasts: PROMISE * 2,
            ..promise(1, "a")
        };
        let taken = Allegiance::taken_back(Some(&longer), "b", 2, "first").unwrap();
        assert_eq!((taken.epoch, taken.lasts), (2, PROMISE * 2));
        let again = Allegiance::taken_back(Some(&taken), "b", 2, "second").unwrap();
        assert_eq!(again.lasts, PROMISE * 2, "also when it is tried again");
        assert_eq!(Allegiance::taken_back(Some(&taken), "c", 2, "third"), None);
    }

    #[test]
    fn an_attempt_that_failed_gives_back_what_it_took_and_nothing_of_one_that_came_after_it() {
        let taken = |before: Option<&Allegiance>, attempt: &str| Allegiance::taken_back(before, "b", 2, attempt);
        let first = taken(None, "first").unwrap();
        let back = Allegiance::given_back(Some(&first), "first", "a", 1).unwrap();
        assert_eq!((back.epoch, back.holder.as_str(), back.attempt), (1, "a", None));
        let second = taken(Some(&first), "second").unwrap();
        assert_eq!(Allegiance::given_back(Some(&second), "first", "a", 1), None);
        let reigns = Allegiance::granted(Some(&second), "b", 2).unwrap();
        for attempt in ["first", "second"] {
            assert_eq!(
                Allegiance::given_back(Some(&reigns), attempt, "a", 1),
                None,
                "it was taken over"
            );
        }
    }

    #[test]
    fn what_another_node_of_a_region_was_promised_is_over_before_writes_go_on_without_that_region() {
        // A planned change ends the promises of the node that decides it. Others of its region rely on what they were told before, and
        // whoever takes writes then waits for that region for so long.
        assert!(Allegiance::relied_until(Duration::ZERO) < PATIENCE);
    }
}
