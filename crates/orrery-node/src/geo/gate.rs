//! What may pass a link that is paused, as a whole or for some logs: nothing, or as many transactions as somebody lets through.
//!
//! Pure. Order is the link's business: a gate only says how many of those that wait in line may go on now.

use std::collections::{BTreeMap, BTreeSet};

use orrery_model::LogId;

/// Which logs are held up, and what is let through all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// The whole link.
    all_paused: bool,
    paused: BTreeSet<LogId>,
    /// Transactions that may pass; `None` for those of any log that is not paused by itself.
    steps: BTreeMap<Option<LogId>, u64>,
}

impl Gate {
    pub fn set_all(&mut self, paused: bool) {
        self.all_paused = paused;
        if !paused {
            self.steps.remove(&None);
        }
    }

    pub fn set_log(&mut self, log: LogId, paused: bool) {
        match paused {
            true => drop(self.paused.insert(log)),
            false => {
                self.paused.remove(&log);
                self.steps.remove(&Some(log));
            }
        }
    }

    /// Lets so many more transactions through: of one log, or of whichever come first.
    pub fn step(&mut self, log: Option<LogId>, n_transactions: u64) {
        let steps = self.steps.entry(log).or_default();
        *steps = steps.saturating_add(n_transactions);
    }

    pub fn paused_logs(&self) -> impl Iterator<Item = LogId> {
        self.paused.iter().copied()
    }

    /// Transactions that are still let through, of all kinds.
    pub fn steps_left(&self) -> u64 {
        self.steps.values().fold(0, |sum, steps| sum.saturating_add(*steps))
    }

    /// Whether everything may pass.
    pub fn is_open(&self) -> bool {
        !self.all_paused && self.paused.is_empty()
    }

    /// Whether anything of a log may pass.
    pub fn lets_pass(&self, log: LogId) -> bool {
        !self.holds(log) || self.allowance(log) > 0
    }

    /// How many of a log's transactions that wait may pass now. They count as passed.
    pub fn pass(&mut self, log: LogId, n_waiting: usize) -> usize {
        if !self.holds(log) {
            return n_waiting;
        }
        let n_passing = self.allowance(log).min(n_waiting as u64);
        let own = self.take(Some(log), n_passing);
        self.take(None, n_passing - own);
        n_passing as usize
    }

    fn holds(&self, log: LogId) -> bool {
        self.all_paused || self.paused.contains(&log)
    }

    /// A log that is paused by itself is stepped by itself.
    fn allowance(&self, log: LogId) -> u64 {
        let of = |key| self.steps.get(&key).copied().unwrap_or(0);
        let shared = if self.paused.contains(&log) { 0 } else { of(None) };
        of(Some(log)).saturating_add(shared)
    }

    /// Takes at most so many steps; answers how many there were.
    fn take(&mut self, key: Option<LogId>, n_wanted: u64) -> u64 {
        let Some(steps) = self.steps.get_mut(&key) else {
            return 0;
        };
        let n_taken = n_wanted.min(*steps);
        *steps -= n_taken;
        if *steps == 0 {
            self.steps.remove(&key);
        }
        n_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: LogId = LogId(1);
    const TWO: LogId = LogId(2);

    #[test]
    fn nothing_is_held_up_until_somebody_says_so() {
        let mut gate = Gate::default();
        assert!(gate.lets_pass(ONE));
        assert_eq!(gate.pass(ONE, 7), 7);
    }

    #[test]
    fn steps_of_a_link_are_for_whoever_comes_first() {
        let mut gate = Gate::default();
        gate.set_all(true);
        assert!(!gate.lets_pass(ONE));
        gate.step(None, 3);
        assert_eq!((gate.pass(ONE, 2), gate.pass(TWO, 2), gate.pass(ONE, 2)), (2, 1, 0));
        assert_eq!(gate.steps_left(), 0);
    }

    #[test]
    fn one_log_is_paused_and_stepped_by_itself() {
        let mut gate = Gate::default();
        gate.set_log(ONE, true);
        assert_eq!((gate.pass(ONE, 5), gate.pass(TWO, 5)), (0, 5));
        gate.step(None, 9);
        assert!(!gate.lets_pass(ONE), "steps of the link are not its own");
        gate.step(Some(ONE), 2);
        assert_eq!((gate.pass(ONE, 5), gate.steps_left()), (2, 9));
        gate.set_log(ONE, false);
        assert_eq!(gate.pass(ONE, 5), 5);
    }

    #[test]
    fn a_step_of_one_log_on_a_paused_link_is_used_before_those_of_all() {
        let mut gate = Gate::default();
        gate.set_all(true);
        gate.step(None, 1);
        gate.step(Some(ONE), 1);
        assert_eq!((gate.pass(ONE, 1), gate.pass(TWO, 1), gate.pass(ONE, 1)), (1, 1, 0));
    }

    #[test]
    fn what_was_let_through_and_not_used_ends_with_the_pause() {
        let mut gate = Gate::default();
        gate.set_all(true);
        gate.step(None, 5);
        gate.set_all(false);
        gate.set_all(true);
        assert_eq!(gate.pass(ONE, 1), 0);
    }
}
