//! What is remembered of failed attempts at a page, item by item, until the page is done.
//!
//! A batch that fails fails for every item in it: nobody knows yet which one it was. Invariant: an item's first failure is
//! the first failed call that had it in its batch.

use std::collections::BTreeMap;

/// What is known of an item that has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// Failed calls that had it in their batch.
    pub attempts: u32,
    /// The host's clock, RFC 3339.
    pub first_at: String,
}

#[derive(Debug, Default)]
pub(super) struct Failures {
    items: BTreeMap<usize, Failure>,
}

impl Failures {
    /// Items, by their index in the page, failed together.
    pub fn note(&mut self, items: impl IntoIterator<Item = usize>, now: &str) {
        for index in items {
            let failure = self.items.entry(index).or_insert_with(|| Failure {
                attempts: 0,
                first_at: now.to_owned(),
            });
            failure.attempts += 1;
        }
    }

    pub fn of(&self, index: usize) -> Option<&Failure> {
        self.items.get(&index)
    }

    /// When anything of the page first failed.
    pub fn first_at(&self) -> Option<&str> {
        self.items.values().map(|failure| failure.first_at.as_str()).min()
    }

    pub fn clear(&mut self) {
        self.items.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_remembers_its_first_failure_and_how_often_it_failed() {
        let mut failures = Failures::default();
        failures.note(0..4, "t1");
        failures.note(2..4, "t2");
        failures.note([3], "t3");
        failures.note([9], "t3");
        let known = |index| failures.of(index).map(|one| (one.attempts, one.first_at.as_str()));
        assert_eq!([known(0), known(3)], [Some((1, "t1")), Some((3, "t1"))]);
        assert_eq!([known(9), known(5)], [Some((1, "t3")), None]);
        assert_eq!(failures.first_at(), Some("t1"));
    }
}
