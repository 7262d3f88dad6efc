//! What to do when a delegate fails: wait and try again, narrow the batch down to the item at fault, or give up on it.
//!
//! A batch is tried whole a number of times. If somebody will take what cannot be handled, it is then halved again and
//! again until single items are left, and those that still fail are given up, one by one. Invariants: every item is
//! delivered or given up, in order, before the batch is done; the number of calls is bounded by the policy, the batch's
//! size and the number of bad items; nothing here knows a clock or chance.

use std::ops::Range;
use std::time::Duration;

/// How often and how fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Before the second attempt; doubled after each.
    pub first: Duration,
    /// Never wait longer.
    pub most: Duration,
    /// Attempts at a whole batch, and at a single item, before giving up.
    pub attempts: u32,
    /// Crashes at one position before its changes are handled one by one.
    pub crashes: u64,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            first: Duration::from_millis(200),
            most: Duration::from_secs(60),
            attempts: 5,
            crashes: 3,
        }
    }
}

impl RetryPolicy {
    /// The pause after `n_failed` failures in a row. `jitter`, from 0 to 1, takes away up to half of it, so that hosts that
    /// failed together do not come back together.
    pub fn pause(&self, n_failed: u32, jitter: f64) -> Duration {
        let doubled = self
            .first
            .saturating_mul(2u32.saturating_pow(n_failed.saturating_sub(1).min(20)));
        doubled.min(self.most).mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0)
    }
}

/// What follows a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// The same slice again, after a pause.
    Retry { after: Duration },
    /// A narrower slice, at once.
    Narrow,
    /// This item cannot be handled.
    GiveUp { index: usize },
}

/// A batch on its way through the delegate.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Slices still to deliver, the next one last.
    pending: Vec<Range<usize>>,
    n_failed: u32,
    n_postponed: u32,
    n_items: usize,
    gives_up: bool,
}

impl Delivery {
    /// `gives_up`: somebody takes items that cannot be handled. Otherwise the batch is tried for ever.
    pub fn new(n_items: usize, gives_up: bool) -> Delivery {
        Delivery::over(0..n_items, gives_up)
    }

    /// For a part of a page that is delivered beside the others.
    pub fn over(items: Range<usize>, gives_up: bool) -> Delivery {
        let mut delivery = Delivery {
            pending: Vec::new(),
            n_failed: 0,
            n_postponed: 0,
            n_items: items.len(),
            gives_up,
        };
        delivery.push(items);
        delivery
    }

    /// Every item on its own: after a crash nobody knows which one it was.
    pub fn one_by_one(n_items: usize) -> Delivery {
        let mut delivery = Delivery::new(0, true);
        delivery.n_items = n_items;
        (0..n_items).rev().for_each(|index| delivery.push(index..index + 1));
        delivery
    }

    /// The batch has failed so often before, elsewhere.
    #[must_use]
    pub fn having_failed(self, n_failed: u32) -> Delivery {
        Delivery { n_failed, ..self }
    }

    fn push(&mut self, slice: Range<usize>) {
        if !slice.is_empty() {
            self.pending.push(slice);
        }
    }

    /// The slice to deliver now, or nothing once the batch is done.
    pub fn current(&self) -> Option<Range<usize>> {
        self.pending.last().cloned()
    }

    /// Failed attempts at the current slice.
    pub fn n_failed(&self) -> u32 {
        self.n_failed
    }

    /// Calls with the current slice so far, with those that asked to come again.
    pub fn n_calls(&self) -> u32 {
        self.n_failed.saturating_add(self.n_postponed)
    }

    /// The current slice is to come again, without having failed.
    pub fn postponed(&mut self) {
        self.n_postponed = self.n_postponed.saturating_add(1);
    }

    /// The current slice is done.
    pub fn succeeded(&mut self) {
        self.pending.pop();
        self.begin();
    }

    /// Nothing has been tried with the slice that is current now.
    fn begin(&mut self) {
        (self.n_failed, self.n_postponed) = (0, 0);
    }

    /// Items that are neither delivered nor given up, by their index in the batch, in order.
    pub fn pending(&self) -> impl Iterator<Item = usize> + '_ {
        self.pending.iter().rev().cloned().flatten()
    }

    pub fn is_pending(&self, index: usize) -> bool {
        self.pending.iter().any(|slice| slice.contains(&index))
    }

    /// All items of the current slice but these are done; these come again, each on its own.
    pub fn only(&mut self, failed: &[usize]) {
        let Some(slice) = self.pending.pop() else { return };
        slice
            .rev()
            .filter(|index| failed.contains(index))
            .for_each(|index| self.push(index..index + 1));
        self.begin();
    }

    /// Items, by their index in the batch, need no further attempt: they are given up, or wait behind one that is.
    pub fn drop_items(&mut self, done: &[usize]) {
        for slice in std::mem::take(&mut self.pending) {
            let mut end = slice.end;
            for index in slice.clone().rev().filter(|index| done.contains(index)) {
                self.push(index + 1..end);
                end = index;
            }
            self.push(slice.start..end);
        }
        self.begin();
    }

    pub fn failed(&mut self, policy: &RetryPolicy, jitter: f64) -> AfterFailure {
        self.n_failed = self.n_failed.saturating_add(1);
        let Some(slice) = self.current() else {
            return AfterFailure::Narrow;
        };
        let is_part = slice.len() < self.n_items;
        // Parts of a batch that has failed as a whole are only a search; whole batches and single items get their chances.
        let attempts = if is_part && slice.len() > 1 {
            1
        } else {
            policy.attempts.max(1)
        };
        if !self.gives_up || self.n_failed < attempts {
            let after = policy.pause(self.n_failed, jitter);
            return AfterFailure::Retry { after };
        }
        self.pending.pop();
        self.begin();
        if slice.len() == 1 {
            return AfterFailure::GiveUp { index: slice.start };
        }
        let middle = slice.start + slice.len() / 2;
        self.push(middle..slice.end);
        self.push(slice.start..middle);
        AfterFailure::Narrow
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn policy() -> RetryPolicy {
        RetryPolicy {
            attempts: 3,
            ..RetryPolicy::default()
        }
    }

    /// Runs a batch of `n` in which any slice with a poison item fails; returns what was delivered, given up, and calls.
    fn run(n: usize, poison: &BTreeSet<usize>) -> (Vec<usize>, Vec<usize>, usize) {
        let mut delivery = Delivery::new(n, true);
        let (mut delivered, mut given_up, mut n_calls) = (Vec::new(), Vec::new(), 0);
        while let Some(slice) = delivery.current() {
            n_calls += 1;
            if slice.clone().any(|index| poison.contains(&index)) {
                if let AfterFailure::GiveUp { index } = delivery.failed(&policy(), 0.0) {
                    given_up.push(index);
                }
            } else {
                delivered.extend(slice);
                delivery.succeeded();
            }
        }
        (delivered, given_up, n_calls)
    }

    #[test]
    fn one_poison_item_among_a_hundred_is_found_in_a_few_calls() {
        let (delivered, given_up, n_calls) = run(100, &BTreeSet::from([42]));
        assert_eq!((delivered.len(), given_up), (99, vec![42]));
        assert!(n_calls <= 3 + 2 * 7 + 3, "{n_calls}");
    }

    #[test]
    fn without_anybody_to_take_bad_items_the_batch_is_tried_for_ever() {
        let mut delivery = Delivery::new(10, false);
        for n in 1..100 {
            let after = policy().pause(n, 0.0);
            assert_eq!(delivery.failed(&policy(), 0.0), AfterFailure::Retry { after });
            assert_eq!(delivery.current(), Some(0..10));
        }
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_jitter_only_shortens_them() {
        let policy = RetryPolicy::default();
        let pauses: Vec<_> = [1, 2, 3, 9, 50].map(|n| policy.pause(n, 0.0).as_millis()).into();
        assert_eq!(pauses, [200, 400, 800, 51_200, 60_000]);
        assert_eq!(policy.pause(2, 1.0).as_millis(), 200);
    }

    #[test]
    fn items_that_are_settled_are_left_out_and_the_others_stay_in_order() {
        let mut delivery = Delivery::new(6, true);
        delivery.drop_items(&[0, 3]);
        let mut slices = Vec::new();
        while let Some(slice) = delivery.current() {
            slices.push(slice);
            delivery.succeeded();
        }
        assert_eq!(slices, [1..3, 4..6]);
    }

    #[test]
    fn items_are_left_out_wherever_they_wait() {
        let mut delivery = Delivery::one_by_one(4);
        delivery.drop_items(&[1, 3]);
        assert_eq!(delivery.pending().collect::<Vec<_>>(), [0, 2]);
        assert!(delivery.is_pending(2) && !delivery.is_pending(3));
        let mut part = Delivery::over(10..14, true);
        assert_eq!(part.current(), Some(10..14));
        part.drop_items(&[12]);
        assert_eq!(part.pending().collect::<Vec<_>>(), [10, 11, 13]);
    }

    proptest! {
        #[test]
        fn every_item_is_delivered_once_or_given_up_in_order(n in 0usize..200, poison in prop::collection::btree_set(0usize..200, 0..6)) {
            let (delivered, given_up, n_calls) = run(n, &poison);
            let bad: Vec<usize> = poison.into_iter().filter(|index| *index < n).collect();
            let good: Vec<usize> = (0..n).filter(|index| !bad.contains(index)).collect();
            prop_assert_eq!(delivered, good);
            prop_assert_eq!(&given_up, &bad);
            prop_assert!(n_calls <= 4 + bad.len() * (2 * 8 + 3));
        }
    }
}
