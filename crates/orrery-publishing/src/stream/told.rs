//! What a user's listeners have been told lately, so that they are told of a notification once.
//!
//! A notification may lie in several accounts, after its user moved, and its copies arrive one by one; and a feed may give a change
//! again. Invariant: memory is bounded. What is forgotten is told once more when another copy of it comes, which listeners bear,
//! since they know notifications by their ids.

use std::collections::{HashMap, VecDeque};

/// Notifications of one user that are remembered.
const REMEMBERED: usize = 256;

/// What a copy of a notification says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    New,
    /// The user has read it: no news, and a copy that does not know it yet is none either.
    Read,
    Withdrawn,
}

/// The notifications of one user that came lately, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Told {
    last: HashMap<String, Said>,
    order: VecDeque<String>,
}

impl Told {
    /// Notes what a copy of a notification says. Whether that is news.
    pub fn is_news(&mut self, id: &str, said: Said) -> bool {
        let known = self.last.get(id).copied();
        let is_news = match said {
            Said::New => known.is_none(),
            Said::Read => false,
            // Also of one that is not known: whoever listens may have it from the feed.
            Said::Withdrawn => known != Some(Said::Withdrawn),
        };
        // A withdrawal is final, whatever other copies say.
        if known != Some(Said::Withdrawn) {
            self.remember(id, said);
        }
        is_news
    }

    fn remember(&mut self, id: &str, said: Said) {
        if self.last.insert(id.to_owned(), said).is_none() {
            self.order.push_back(id.to_owned());
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.last.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn copies_are_told_once_and_the_withdrawal_of_any_of_them_is_final() {
        let mut told = Told::default();
        for (said, is_news) in [
            (Said::New, true),
            (Said::New, false),
            (Said::Withdrawn, true),
            (Said::Withdrawn, false),
            (Said::New, false),
            (Said::Read, false),
            (Said::Withdrawn, false),
        ] {
            assert_eq!(told.is_news("a", said), is_news, "{said:?}");
        }
        assert!(told.is_news("b", Said::Withdrawn), "it may be known from the feed");
    }

    #[test]
    fn a_copy_that_does_not_know_it_was_read_is_no_news() {
        let mut told = Told::default();
        assert!(!told.is_news("a", Said::Read));
        assert!(!told.is_news("a", Said::New));
        assert!(told.is_news("a", Said::Withdrawn));
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_the_latest_are_told_once(ids in prop::collection::vec(0u32..2000, 0..1500)) {
            let mut told = Told::default();
            for id in &ids {
                let id = id.to_string();
                told.is_news(&id, Said::New);
                prop_assert!(!told.is_news(&id, Said::New));
                prop_assert!(told.last.len() <= REMEMBERED && told.order.len() == told.last.len());
            }
        }
    }
}
