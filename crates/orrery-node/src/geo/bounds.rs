//! How far a region may be behind under bounded staleness: K transactions and T, per partition, and what an account may choose.
//!
//! The minima are the service's. Less is for tests of what happens at the bound, which an account must be told to allow.

use std::time::Duration;

use orrery_model::{Error, Result};

/// What a region may lack at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub transactions: u64,
    pub age: Duration,
}

/// What an account says about its bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Staleness {
    /// `None`: the least that accounts of several regions may have.
    pub chosen: Option<Bounds>,
    /// May they be tighter than accounts usually may?
    pub may_be_tight: bool,
}

impl Bounds {
    /// The least that an account with so many regions may choose.
    pub const fn least(n_regions: usize) -> Bounds {
        match n_regions {
            0 | 1 => Bounds {
                transactions: 10,
                age: Duration::from_secs(5),
            },
            _ => Bounds {
                transactions: 100_000,
                age: Duration::from_secs(300),
            },
        }
    }

    /// Refuses what no account may have, tight or not.
    pub fn check_range(self) -> Result<()> {
        let fits = (1..=i32::MAX as u64).contains(&self.transactions) && (5..=86_400).contains(&self.age.as_secs());
        match fits {
            true => Ok(()),
            false => Err(Error::bad_request(
                "Bounded staleness allows between 1 and 2,147,483,647 transactions and between 5 and 86,400 seconds.",
            )),
        }
    }
}

impl Staleness {
    /// What holds between regions.
    pub fn bounds(self) -> Bounds {
        self.chosen.unwrap_or(Bounds::least(2))
    }

    /// Refuses bounds that are too tight for so many regions.
    pub fn check(self, n_regions: usize) -> Result<()> {
        let least = Bounds::least(n_regions);
        let fits = |chosen: Bounds| chosen.transactions >= least.transactions && chosen.age >= least.age;
        match self.may_be_tight || self.chosen.is_none_or(fits) {
            true => Ok(()),
            false => Err(Error::bad_request(format!(
                "Bounded staleness of an account with {n_regions} region{} must allow at least {} transactions and {} seconds.",
                if n_regions == 1 { "" } else { "s" },
                least.transactions,
                least.age.as_secs(),
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(transactions: u64, seconds: u64) -> Bounds {
        Bounds {
            transactions,
            age: Duration::from_secs(seconds),
        }
    }

    fn chosen(transactions: u64, seconds: u64) -> Staleness {
        Staleness {
            chosen: Some(bounds(transactions, seconds)),
            may_be_tight: false,
        }
    }

    #[test]
    fn the_minima_grow_with_a_second_region() {
        chosen(10, 5).check(1).expect("enough for one region");
        for (staleness, n_regions) in [
            (chosen(9, 5), 1),
            (chosen(99_999, 300), 2),
            (chosen(100_000, 299), 3),
            (chosen(10, 5), 2),
        ] {
            let refused = staleness.check(n_regions).unwrap_err();
            assert_eq!(refused.status().code, 400, "{staleness:?} with {n_regions}");
        }
        chosen(100_000, 300).check(3).expect("enough for several");
        Staleness::default().check(3).expect("what nobody chose fits");
    }

    #[test]
    fn whoever_may_be_tight_may_have_anything_in_range() {
        let tight = Staleness {
            may_be_tight: true,
            ..chosen(1, 5)
        };
        tight.check(3).expect("told to allow it");
        for (outside, n) in [
            (bounds(0, 5), 0),
            (bounds(1 << 31, 5), 1),
            (bounds(1, 4), 2),
            (bounds(1, 86_401), 3),
        ] {
            assert!(outside.check_range().is_err(), "{n}");
        }
        bounds(1, 5).check_range().expect("the least of all");
        bounds((1 << 31) - 1, 86_400).check_range().expect("the most of all");
    }
}
