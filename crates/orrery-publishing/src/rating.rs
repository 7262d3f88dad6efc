//! How an article is rated, from what each account has counted.
//!
//! Counts are added and the average is taken last: an average of averages would give a small account the weight of a large
//! one. Invariant: adding is commutative and associative, so it does not matter which account answered first.

use serde::{Deserialize, Serialize};

use crate::entity::RATINGS;

const N_RATINGS: usize = (*RATINGS.end() - *RATINGS.start() + 1) as usize;

/// Reviews per rating, of one account or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RatingTotals {
    counts: [u64; N_RATINGS],
}

/// What readers are shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RatingSummary {
    pub count: u64,
    /// Absent without reviews: zero would be a rating.
    pub average: Option<f64>,
    /// Reviews per rating, from the lowest.
    pub histogram: [u64; N_RATINGS],
}

impl RatingTotals {
    /// Counts per rating, from the lowest.
    pub fn from_counts(counts: [u64; N_RATINGS]) -> RatingTotals {
        RatingTotals { counts }
    }

    /// One review more of a rating.
    #[must_use]
    pub fn with(mut self, rating: u8) -> RatingTotals {
        if let Some(count) = self.of(rating) {
            *count = count.saturating_add(1);
        }
        self
    }

    /// One review less of a rating.
    #[must_use]
    pub fn without(mut self, rating: u8) -> RatingTotals {
        if let Some(count) = self.of(rating) {
            *count = count.saturating_sub(1);
        }
        self
    }

    fn of(&mut self, rating: u8) -> Option<&mut u64> {
        let place = rating.checked_sub(*RATINGS.start())?;
        self.counts.get_mut(usize::from(place))
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    #[must_use]
    pub fn plus(mut self, other: RatingTotals) -> RatingTotals {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
        self
    }

    pub fn summary(&self) -> RatingSummary {
        let count = self.count();
        let weighted = self.counts.iter().zip(RATINGS);
        let sum: u64 = weighted.map(|(count, rating)| count * u64::from(rating)).sum();
        RatingSummary {
            count,
            average: (count > 0).then(|| sum as f64 / count as f64),
            histogram: self.counts,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_large_account_weighs_more_than_a_small_one() {
        let usa = RatingTotals::from_counts([0, 0, 0, 0, 9]);
        let asia = RatingTotals::from_counts([1, 0, 0, 0, 0]);
        let summary = usa.plus(asia).summary();
        assert_eq!((summary.count, summary.average), (10, Some(4.6)));
        // The average of the two averages would be 3.
    }

    #[test]
    fn an_article_without_reviews_has_no_average() {
        assert_eq!(RatingTotals::default().summary().average, None);
    }

    proptest! {
        #[test]
        fn totals_over_accounts_equal_the_totals_of_all_reviews(ratings in prop::collection::vec((1u8..=5, 0usize..3), 1..50)) {
            let totals = |wanted: Option<usize>| {
                let mut counts = [0; N_RATINGS];
                let chosen = ratings.iter().filter(|(_, account)| wanted.is_none_or(|wanted| wanted == *account));
                chosen.for_each(|(rating, _)| counts[usize::from(*rating) - 1] += 1);
                RatingTotals::from_counts(counts)
            };
            let summed = (0..3).rev().map(|account| totals(Some(account))).fold(RatingTotals::default(), RatingTotals::plus);
            let sum: u64 = ratings.iter().map(|(rating, _)| u64::from(*rating)).sum();
            prop_assert_eq!(summed, totals(None));
            prop_assert_eq!(summed.summary().average, Some(sum as f64 / ratings.len() as f64));
        }
    }
}
