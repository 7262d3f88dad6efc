//! What an account has counted of an article's reviews, kept up to date by the account's own change feed.
//!
//! Beside the totals of an article lies one document per review that says with which rating it is counted. Both are written
//! together, so a review that comes again, or comes in an old version, changes nothing. Invariant: the totals are the sum of
//! what is counted.

use serde::{Deserialize, Serialize};

use super::{Entity, Review};
use crate::ids;
use crate::rating::RatingTotals;

/// Reviews per rating of one article in one account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ReviewTotals {
    pub article_id: String,
    pub home_account: String,
    pub counts: RatingTotals,
}

/// With which rating a review is counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct CountedReview {
    #[serde(rename = "id")]
    pub id: String,
    pub article_id: String,
    pub home_account: String,
    pub rating: u8,
    /// The review's time of change: later versions have later ones.
    pub version: u64,
}

impl CountedReview {
    pub fn of(review: &Review) -> CountedReview {
        CountedReview {
            id: ids::counted_id(review.id()),
            article_id: review.article_id.clone(),
            home_account: review.home_account.clone(),
            rating: review.rating,
            version: review.changed_at,
        }
    }
}

impl ReviewTotals {
    /// The id of every article's totals: they lie under the article's key.
    pub const ID: &'static str = "totals";

    /// What a version of a review makes of the totals and of what was counted of it; nothing if it is counted already.
    pub fn count(
        totals: Option<&ReviewTotals>,
        counted: Option<&CountedReview>,
        review: &Review,
    ) -> Option<(ReviewTotals, CountedReview)> {
        if counted.is_some_and(|counted| counted.version >= review.changed_at) {
            return None;
        }
        let before = totals.map_or_else(RatingTotals::default, |totals| totals.counts);
        let rest = counted.map_or(before, |counted| before.without(counted.rating));
        let totals = ReviewTotals {
            article_id: review.article_id.clone(),
            home_account: review.home_account.clone(),
            counts: rest.with(review.rating),
        };
        Some((totals, CountedReview::of(review)))
    }
}

impl Entity for ReviewTotals {
    const TYPE: &'static str = "ReviewTotals";

    fn id(&self) -> &str {
        ReviewTotals::ID
    }

    fn partition_key(&self) -> String {
        self.article_id.clone()
    }
}

impl Entity for CountedReview {
    const TYPE: &'static str = "CountedReview";

    fn id(&self) -> &str {
        &self.id
    }

    fn partition_key(&self) -> String {
        self.article_id.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn review(user: &str, rating: u8, version: u64) -> Review {
        let review = Review::new("usa.X", user, "usa", "", rating, 5).unwrap();
        Review {
            changed_at: version,
            ..review
        }
    }

    #[test]
    fn documents_are_read_back_as_they_were() {
        let (totals, counted) = ReviewTotals::count(None, None, &review("bob", 4, 7)).unwrap();
        assert_eq!(totals.document()["Counts"], serde_json::json!([0, 0, 0, 1, 0]));
        assert_eq!(
            serde_json::from_value::<ReviewTotals>(totals.document()).unwrap(),
            totals
        );
        assert_eq!(
            serde_json::from_value::<CountedReview>(counted.document()).unwrap(),
            counted
        );
    }

    proptest! {
        #[test]
        fn totals_count_the_last_version_of_every_review_once_whatever_comes_again(
            versions in prop::collection::vec((0usize..4, 1u8..=5), 1..40),
            repeats in prop::collection::vec(0usize..40, 0..40),
        ) {
            // In the order of the feed, and then some of them again, as after a crash.
            let all: Vec<Review> = versions
                .iter()
                .enumerate()
                .map(|(at, (user, rating))| review(&format!("user{user}"), *rating, at as u64 + 1))
                .collect();
            let again = repeats.iter().filter_map(|at| all.get(*at));
            let (mut totals, mut counted): (Option<ReviewTotals>, BTreeMap<String, CountedReview>) = Default::default();
            for review in all.iter().chain(again) {
                let known = counted.get(&ids::counted_id(review.id()));
                if let Some((next, one)) = ReviewTotals::count(totals.as_ref(), known, review) {
                    totals = Some(next);
                    counted.insert(one.id.clone(), one);
                }
            }
            let last: BTreeMap<usize, u8> = versions.iter().copied().collect();
            let expected = last.values().fold(RatingTotals::default(), |sum, rating| sum.with(*rating));
            prop_assert_eq!(totals.unwrap().counts, expected);
        }
    }
}
