//! Writes: values come from somewhere, acknowledged ones stay, conditions are kept.

use std::collections::HashMap;

use super::super::history::{Answer, Call, History, Item};
use super::Broken;

/// Every value read or left at the end was written by a request that was not refused.
pub fn no_value_is_invented(history: &History) -> Result<(), Broken> {
    let mut possible: HashMap<(Item, u64), &Answer> = HashMap::new();
    for item in history.items() {
        for (call, value, _) in history.writes(item) {
            possible.insert((item, value), &call.answer);
        }
    }
    let check = |item: Item, value: u64, place: &str| match possible.get(&(item, value)) {
        None => Err(format!("{item:?}: {place} shows {value}, which nobody wrote")),
        Some(Answer::Refused(status, sub_status)) => Err(format!(
            "{item:?}: {place} shows {value}, a write that was refused with {status}/{sub_status}"
        )),
        Some(_) => Ok(()),
    };
    for call in &history.calls {
        if let Answer::Read {
            found: Some((value, _)),
            ..
        } = call.answer
        {
            check(call.item, value, call.region)?;
        }
    }
    for (region, items) in &history.finals {
        for (item, value) in items {
            check(*item, *value, region)?;
        }
    }
    Ok(())
}

/// The last value of every item was not written before another write that was acknowledged and kept began.
pub fn nothing_acknowledged_is_lost(history: &History) -> Result<(), Broken> {
    for (region, items) in &history.finals {
        for item in history.items() {
            let last = items.iter().find(|(name, _)| *name == item).map(|(_, value)| *value);
            let writer = history.writes(item).find(|(_, value, _)| Some(*value) == last);
            let ended = match writer {
                // It may have taken effect at any time.
                Some((call, ..)) if call.answer == Answer::Unknown => continue,
                Some((call, ..)) => call.completed,
                None => 0,
            };
            let superseded = history
                .writes(item)
                .find(|(call, ..)| call.invoked > ended && is_kept(history, call));
            if let Some((call, value, _)) = superseded {
                return Err(format!(
                    "{item:?} in {region} ends with {last:?}, but {value} was acknowledged later ({:?})",
                    call.answer
                ));
            }
        }
    }
    Ok(())
}

/// A write over a version came directly after that version.
pub fn conditions_hold(history: &History) -> Result<(), Broken> {
    for item in history.items() {
        // With a write whose fate is unknown the order is not known either.
        let is_vague = history.losses.iter().any(|loss| loss.item == item && !loss.is_exact);
        if is_vague || history.writes(item).any(|(call, ..)| call.answer == Answer::Unknown) {
            continue;
        }
        let mut kept: Vec<_> = history
            .writes(item)
            .filter_map(|(call, value, expected)| match call.answer {
                Answer::Written { lsn, version } if is_kept(history, call) => Some(((version, lsn), value, expected)),
                _ => None,
            })
            .collect();
        kept.sort_unstable();
        for pair in kept.windows(2) {
            if let Some(expected) = pair[1].2
                && expected != pair[0].1
            {
                return Err(format!(
                    "{item:?}: {} replaced {}, though it was meant to replace {expected}",
                    pair[1].1, pair[0].1
                ));
            }
        }
    }
    Ok(())
}

fn is_kept(history: &History, call: &Call) -> bool {
    matches!(call.answer, Answer::Written { lsn, .. } if !history.is_lost(call.item, lsn, call.completed))
}

#[cfg(test)]
mod tests {
    use orrery_model::Lsn;

    use super::super::example::{ITEM, call, read, wrote};
    use super::*;
    use crate::regions::history::{Action, Loss};

    fn ending_with(calls: Vec<Call>, last: Option<u64>) -> History {
        History {
            calls,
            finals: vec![("here", last.into_iter().map(|value| (ITEM, value)).collect())],
            ..History::default()
        }
    }

    #[test]
    fn a_value_that_nobody_wrote_is_noticed() {
        let history = ending_with(vec![wrote((1, 2), 7, 1), read((3, 4), Some((8, 1)))], Some(7));
        assert!(no_value_is_invented(&history).unwrap_err().contains("nobody wrote"));
    }

    #[test]
    fn a_refused_write_that_shows_is_noticed() {
        let refused = Action::Write {
            value: 9,
            expected: None,
        };
        let calls = vec![call(0, (1, 2), refused, Answer::Refused(503, 0))];
        let history = ending_with(calls, Some(9));
        assert!(no_value_is_invented(&history).unwrap_err().contains("refused"));
    }

    #[test]
    fn a_lost_write_is_noticed_unless_it_was_reported() {
        let mut history = ending_with(vec![wrote((1, 2), 7, 1), wrote((3, 4), 8, 2)], Some(7));
        assert!(nothing_acknowledged_is_lost(&history).is_err());
        history.losses.push(Loss {
            at: 5,
            item: ITEM,
            after: Lsn(1),
            head: Lsn(2),
            is_exact: true,
        });
        nothing_acknowledged_is_lost(&history).expect("it was reported");
        let nothing_left = ending_with(vec![wrote((1, 2), 7, 1)], None);
        assert!(nothing_acknowledged_is_lost(&nothing_left).is_err());
    }

    #[test]
    fn writes_that_overlap_may_end_either_way() {
        for last in [7, 8] {
            let history = ending_with(vec![wrote((1, 4), 7, 1), wrote((2, 3), 8, 2)], Some(last));
            nothing_acknowledged_is_lost(&history).expect("they overlap");
        }
    }

    #[test]
    fn a_lost_update_is_noticed() {
        let mut second = wrote((3, 4), 8, 2);
        let mut third = wrote((5, 6), 9, 3);
        for call in [&mut second, &mut third] {
            let Action::Write { expected, .. } = &mut call.action else {
                continue;
            };
            *expected = Some(7);
        }
        let history = ending_with(vec![wrote((1, 2), 7, 1), second.clone()], Some(8));
        conditions_hold(&history).expect("it replaced what it meant to");
        let history = ending_with(vec![wrote((1, 2), 7, 1), second, third], Some(9));
        assert!(conditions_hold(&history).is_err());
    }
}
