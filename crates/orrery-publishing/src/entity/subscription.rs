//! A subscription, the entry in its user's own list, and how a large filter is laid out.
//!
//! A subscription lies under its filter, because fan-out asks who subscribed to it. A user's list lies under the user, because
//! that is how a list is asked for. The list is written right after the subscription and repaired from the change feed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Entity;
use crate::filter::Filter;
use crate::ids;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SubscriptionState {
    Active,
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Subscription {
    #[serde(rename = "id")]
    pub id: String,
    pub home_account: String,
    pub created_at: u64,
    pub subscription_filter: Filter,
    pub user_id: String,
    pub state: SubscriptionState,
    /// When the state became what it is. The newest over all accounts counts.
    pub changed_at: u64,
    /// Buckets the filter had when this was written; 0 for a filter that is not spread.
    #[serde(default)]
    pub buckets: u32,
}

impl Subscription {
    pub fn new(user: &str, filter: Filter, buckets: u32, account: &str, now_ms: u64) -> Subscription {
        Subscription {
            id: ids::subscription_id(user, &filter.to_string()),
            home_account: account.to_owned(),
            created_at: now_ms,
            subscription_filter: filter,
            user_id: user.to_owned(),
            state: SubscriptionState::Active,
            changed_at: now_ms,
            buckets,
        }
    }

    pub fn with_state(self, state: SubscriptionState, now_ms: u64) -> Subscription {
        Subscription {
            state,
            changed_at: now_ms,
            ..self
        }
    }

    /// What becomes of a stored subscription when this one is to be written: the later state wins, the first date stays.
    /// Subscribing again counts from then on, or a cancellation of before that is still under way would win over it; cancelling
    /// again does not, or what was raised between the two would be shown.
    pub fn over(self, stored: &Subscription) -> Option<Subscription> {
        let is_said_again = self.state == SubscriptionState::Cancelled && stored.state == SubscriptionState::Cancelled;
        let is_news = self.changed_at > stored.changed_at && !is_said_again;
        is_news.then_some(Subscription {
            created_at: stored.created_at,
            ..self
        })
    }
}

impl Entity for Subscription {
    const TYPE: &'static str = "Subscription";

    fn id(&self) -> &str {
        &self.id
    }

    fn partition_key(&self) -> String {
        self.subscription_filter.partition_key(&self.user_id, self.buckets)
    }
}

/// A subscription as its user sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Listing {
    #[serde(rename = "id")]
    pub id: String,
    pub home_account: String,
    pub created_at: u64,
    pub subscription_filter: Filter,
    pub user_id: String,
    pub state: SubscriptionState,
    pub changed_at: u64,
}

impl Listing {
    pub fn of(subscription: &Subscription) -> Listing {
        let filter = subscription.subscription_filter.clone();
        Listing {
            id: ids::listing_id(&subscription.user_id, &filter.to_string()),
            home_account: subscription.home_account.clone(),
            created_at: subscription.created_at,
            subscription_filter: filter,
            user_id: subscription.user_id.clone(),
            state: subscription.state,
            changed_at: subscription.changed_at,
        }
    }
}

impl Entity for Listing {
    const TYPE: &'static str = "SubscriptionListing";

    fn id(&self) -> &str {
        &self.id
    }

    fn partition_key(&self) -> String {
        self.user_id.clone()
    }
}

/// How many buckets a filter is spread over. Filters without this document are not spread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct FilterLayout {
    pub subscription_filter: Filter,
    pub buckets: u32,
}

impl Entity for FilterLayout {
    const TYPE: &'static str = "FilterLayout";

    fn id(&self) -> &str {
        "layout"
    }

    fn partition_key(&self) -> String {
        self.subscription_filter.to_string()
    }

    fn computed(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribing_again_counts_from_then_on_and_cancelling_again_does_not() {
        let at = |state, at_ms| {
            let filter = Filter::parse("sports").unwrap();
            Subscription::new("bob", filter, 0, "usa", at_ms).with_state(state, at_ms)
        };
        let (active, cancelled) = (SubscriptionState::Active, SubscriptionState::Cancelled);
        let news = |new, old| at(new, 20).over(&at(old, 10));
        assert_eq!(
            news(active, active).map(|news| (news.created_at, news.changed_at)),
            Some((10, 20))
        );
        assert!(news(cancelled, active).is_some() && news(active, cancelled).is_some());
        assert_eq!(news(cancelled, cancelled), None);
        // The later one wins in whatever order they arrive.
        assert_eq!(at(cancelled, 10).over(&at(active, 20)), None);
    }
}
