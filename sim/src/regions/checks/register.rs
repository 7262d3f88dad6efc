//! Strong consistency: every item behaves like one register, real time included.
//!
//! The search of Wing and Gong with Lowe's memory: take, one after another, an operation that no unfinished one precedes,
//! and never try the same set of taken operations with the same value twice.

use std::collections::HashSet;

use super::super::history::{Action, Answer, Call, Item, items_of};
use super::Broken;

/// Steps after which a search is given up; a history that needs more is too concurrent to judge.
const STEPS_MAX: usize = 2_000_000;

pub fn items_are_linearizable(calls: &[Call]) -> Result<(), Broken> {
    for item in items_of(calls) {
        let operations = operations(calls, item);
        match search(&operations) {
            Verdict::Linearizable => {}
            Verdict::Not => return Err(format!("{item:?} is not linearizable: {operations:?}")),
            Verdict::Undecided => return Err(format!("{item:?}: too concurrent to judge")),
        }
    }
    Ok(())
}

/// An operation on a register. Without an end it may take effect at any time, or never.
#[derive(Clone, Copy, Debug)]
struct Operation {
    began: u64,
    ended: Option<u64>,
    effect: Effect,
}

#[derive(Clone, Copy, Debug)]
enum Effect {
    Read(Option<u64>),
    Write { value: u64, expected: Option<u64> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Linearizable,
    Not,
    Undecided,
}

fn operations(calls: &[Call], item: Item) -> Vec<Operation> {
    let of = |call: &Call| {
        let (effect, ended) = match (call.action, call.answer) {
            (Action::Read, Answer::Read { found, .. }) => {
                (Effect::Read(found.map(|(value, _)| value)), Some(call.completed))
            }
            (Action::Write { value, expected }, Answer::Written { .. }) => {
                (Effect::Write { value, expected }, Some(call.completed))
            }
            (Action::Write { value, expected }, Answer::Unknown) => (Effect::Write { value, expected }, None),
            _ => return None,
        };
        Some(Operation {
            began: call.invoked,
            ended,
            effect,
        })
    };
    let of_item = calls.iter().filter(|call| call.item == item);
    let mut all: Vec<Operation> = of_item.filter_map(of).collect();
    all.sort_unstable_by_key(|operation| operation.began);
    all
}

/// What has been taken, and the value that leaves.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Taken {
    done: Vec<u64>,
    value: Option<u64>,
}

impl Taken {
    fn has(&self, index: usize) -> bool {
        self.done[index / 64] >> (index % 64) & 1 == 1
    }

    fn with(&self, index: usize, value: Option<u64>) -> Taken {
        let mut next = Taken {
            done: self.done.clone(),
            value,
        };
        next.done[index / 64] |= 1 << (index % 64);
        next
    }
}

fn search(operations: &[Operation]) -> Verdict {
    let start = Taken {
        done: vec![0; operations.len().div_ceil(64)],
        value: None,
    };
    let (mut known, mut open) = (HashSet::from([start.clone()]), vec![start]);
    let mut n_steps = 0;
    while let Some(taken) = open.pop() {
        let left = || operations.iter().enumerate().filter(|(index, _)| !taken.has(*index));
        let Some(first_end) = left().filter_map(|(_, operation)| operation.ended).min() else {
            return Verdict::Linearizable;
        };
        for (index, operation) in left().take_while(|(_, operation)| operation.began < first_end) {
            n_steps += 1;
            if n_steps > STEPS_MAX {
                return Verdict::Undecided;
            }
            let value = match operation.effect {
                Effect::Read(value) if value == taken.value => value,
                Effect::Write { value, expected } if expected.is_none() || expected == taken.value => Some(value),
                _ => continue,
            };
            let next = taken.with(index, value);
            if known.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    Verdict::Not
}

#[cfg(test)]
mod tests {
    use super::super::example::{call, read, wrote};
    use super::*;

    fn judge(calls: Vec<Call>) -> Result<(), Broken> {
        items_are_linearizable(&calls)
    }

    #[test]
    fn a_read_of_an_old_value_after_a_write_ended_is_noticed() {
        let stale = vec![wrote((1, 2), 1, 1), wrote((3, 4), 2, 2), read((5, 6), Some((1, 1)))];
        assert!(judge(stale).is_err());
        let missing = vec![wrote((1, 2), 1, 1), read((3, 4), None)];
        assert!(judge(missing).is_err());
    }

    #[test]
    fn two_reads_that_disagree_about_the_order_are_noticed() {
        let both = vec![
            wrote((1, 10), 1, 1),
            wrote((2, 9), 2, 2),
            read((11, 12), Some((1, 1))),
            read((13, 14), Some((2, 2))),
        ];
        assert!(judge(both).is_err());
    }

    #[test]
    fn a_read_during_a_write_may_see_either_value() {
        for found in [Some((1, 1)), Some((2, 2))] {
            judge(vec![wrote((1, 2), 1, 1), wrote((3, 6), 2, 2), read((4, 5), found)]).expect("either is right");
        }
    }

    #[test]
    fn a_write_of_unknown_fate_may_show_late_or_never() {
        let unknown = || {
            let action = Action::Write {
                value: 2,
                expected: None,
            };
            call(0, (3, 4), action, Answer::Unknown)
        };
        let old = || read((5, 6), Some((1, 1)));
        judge(vec![wrote((1, 2), 1, 1), unknown(), old()]).expect("it never happened");
        judge(vec![wrote((1, 2), 1, 1), unknown(), old(), read((7, 8), Some((2, 2)))]).expect("it happened late");
        let back = vec![
            wrote((1, 2), 1, 1),
            unknown(),
            read((5, 6), Some((2, 2))),
            read((7, 8), Some((1, 1))),
        ];
        assert!(judge(back).is_err(), "and does not unhappen");
    }

    #[test]
    fn a_conditional_write_over_another_value_is_noticed() {
        let action = Action::Write {
            value: 3,
            expected: Some(1),
        };
        let answer = wrote((5, 6), 3, 3).answer;
        let lost_update = vec![
            wrote((1, 2), 1, 1),
            wrote((3, 4), 2, 2),
            call(0, (5, 6), action, answer),
        ];
        assert!(judge(lost_update).is_err());
    }
}
