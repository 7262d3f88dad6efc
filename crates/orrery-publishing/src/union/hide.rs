//! Which notifications a reader no longer wants: those of subscriptions that were cancelled before they were raised.
//!
//! A cancellation reaches other accounts late, and until it does their fan-out goes on. So the newest state of a filter over
//! all accounts decides when the feed is read. Invariant: a notification is hidden only if every filter that raised any copy of it
//! was cancelled before that.

use std::collections::BTreeMap;

use crate::entity::{Listing, Notification, SubscriptionState};
use crate::filter::Filter;

/// The newest state of each filter of one user.
#[derive(Clone, Debug, Default)]
pub struct Cancellations {
    newest: BTreeMap<Filter, (u64, SubscriptionState)>,
}

impl Cancellations {
    /// From the lists of all accounts, in any order.
    pub fn new<'a>(listings: impl IntoIterator<Item = &'a Listing>) -> Cancellations {
        let mut newest: BTreeMap<Filter, (u64, SubscriptionState)> = BTreeMap::new();
        for listing in listings {
            let seen = (listing.changed_at, listing.state);
            let entry = newest.entry(listing.subscription_filter.clone()).or_insert(seen);
            // Of two states of one instant, being active wins: a notification too many is better than one too few.
            let is_newer = seen.0 > entry.0 || (seen.0 == entry.0 && seen.1 == SubscriptionState::Active);
            if is_newer {
                *entry = seen;
            }
        }
        Cancellations { newest }
    }

    /// Whether a notification is not wanted, by its copies in all accounts.
    pub fn hides(&self, copies: &[Notification]) -> bool {
        copies.iter().all(|copy| self.is_unwanted(copy))
    }

    fn is_unwanted(&self, notification: &Notification) -> bool {
        let is_cancelled = |filter: &Filter| {
            let cancelled = self.newest.get(filter);
            cancelled.is_some_and(|(at, state)| *state == SubscriptionState::Cancelled && notification.created_at > *at)
        };
        notification.matched_filters.iter().all(is_cancelled)
    }

    /// The filters that are active, with the time since when.
    pub fn active(&self) -> impl Iterator<Item = (&Filter, u64)> {
        let is_active = |state: SubscriptionState| state == SubscriptionState::Active;
        let entries = self.newest.iter().filter(move |(_, (_, state))| is_active(*state));
        entries.map(|(filter, (at, _))| (filter, *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entity::{Article, Draft, Subscription};

    fn filter(text: &str) -> Filter {
        Filter::parse(text).unwrap()
    }

    fn listing(account: &str, text: &str, state: SubscriptionState, at: u64) -> Listing {
        let subscription = Subscription::new("bob", filter(text), 0, account, 1);
        Listing::of(&subscription.with_state(state, at))
    }

    fn notification(filters: &[&str], created_at: u64) -> Notification {
        let draft = Draft {
            category: "sports".into(),
            title: "t".into(),
            ..Draft::default()
        };
        let article = Article::new("usa.X".into(), "usa", "ann", draft, 1).unwrap();
        let filters = filters.iter().map(|text| filter(text)).collect();
        Notification::new("bob", &article, filters, None, "usa", created_at)
    }

    #[test]
    fn a_cancellation_in_any_account_hides_what_was_raised_after_it() {
        let listings = [
            listing("usa", "sports", SubscriptionState::Active, 10),
            listing("asia", "sports", SubscriptionState::Cancelled, 20),
        ];
        let cancellations = Cancellations::new(&listings);
        assert!(cancellations.hides(&[notification(&["sports"], 21)]));
        assert!(!cancellations.hides(&[notification(&["sports"], 20)]));
        assert_eq!(cancellations.active().count(), 0);
    }

    #[test]
    fn the_newest_state_wins_in_whatever_order_accounts_answer() {
        let mut listings = vec![
            listing("asia", "sports", SubscriptionState::Cancelled, 20),
            listing("usa", "sports", SubscriptionState::Active, 30),
        ];
        for _ in 0..2 {
            assert!(!Cancellations::new(&listings).hides(&[notification(&["sports"], 40)]));
            listings.reverse();
        }
    }

    #[test]
    fn one_reason_that_still_holds_is_enough() {
        let listings = [listing("usa", "sports", SubscriptionState::Cancelled, 20)];
        let cancellations = Cancellations::new(&listings);
        assert!(!cancellations.hides(&[notification(&["author:ann", "sports"], 30)]));
    }
}
