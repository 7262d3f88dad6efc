//! Session consistency: who carries a token never sees less than before, wherever it reads.
//!
//! Versions of an item are compared by LSN. A session that saw an end of the log which a forced failover then cut off has
//! seen what no longer is; from there on it starts over.

use std::collections::HashMap;

use orrery_model::Lsn;

use super::super::history::{Answer, Call, History, Item};
use super::Broken;

/// Own writes are read, reads never go back, and a region that lacks what the token names does not answer.
pub fn sessions_move_forward(history: &History) -> Result<(), Broken> {
    let mut sessions: HashMap<usize, HashMap<Item, (Lsn, u64)>> = HashMap::new();
    let mut calls: Vec<&Call> = history.calls.iter().collect();
    calls.sort_unstable_by_key(|call| call.completed);
    for call in calls {
        let seen = sessions.entry(call.client).or_default();
        match call.answer {
            Answer::Written { lsn, .. } => {
                let known = seen.insert(call.item, (lsn, call.completed));
                if let Some((before, at)) = known
                    && lsn <= before
                    && !history.is_lost(call.item, before, at)
                {
                    return Err(format!("{call:?} was given an LSN below {before:?}"));
                }
            }
            Answer::Read { found, at } => {
                if let Some(token) = call.token
                    && at < token
                {
                    return Err(format!("{call:?} was answered by a region that stood at {at:?}"));
                }
                check_read(history, call, found.map(|(_, lsn)| lsn), seen)?;
                if let Some((_, lsn)) = found {
                    let known = seen.entry(call.item).or_insert((lsn, call.completed));
                    if lsn > known.0 || history.is_lost(call.item, known.0, known.1) {
                        *known = (lsn, call.completed);
                    }
                }
            }
            Answer::Refused(..) | Answer::Unknown => {}
        }
    }
    Ok(())
}

fn check_read(
    history: &History,
    call: &Call,
    found: Option<Lsn>,
    seen: &HashMap<Item, (Lsn, u64)>,
) -> Result<(), Broken> {
    let Some((before, at)) = seen.get(&call.item) else {
        return Ok(());
    };
    if found.is_some_and(|lsn| lsn >= *before) || history.is_lost(call.item, *before, *at) {
        return Ok(());
    }
    Err(format!(
        "client {} had seen {:?} at {before:?} and then {call:?}",
        call.client, call.item
    ))
}

#[cfg(test)]
mod tests {
    use super::super::example::{ITEM, read, wrote};
    use super::*;
    use crate::regions::history::Loss;

    fn calls(calls: Vec<Call>) -> History {
        History {
            calls,
            ..History::default()
        }
    }

    #[test]
    fn a_client_that_does_not_see_its_own_write_is_noticed() {
        let history = calls(vec![wrote((1, 2), 7, 5), read((3, 4), None)]);
        assert!(sessions_move_forward(&history).is_err());
        let history = calls(vec![wrote((1, 2), 7, 5), read((3, 4), Some((7, 5)))]);
        sessions_move_forward(&history).expect("it sees it");
    }

    #[test]
    fn a_read_that_goes_back_is_noticed() {
        let history = calls(vec![read((1, 2), Some((7, 5))), read((3, 4), Some((6, 4)))]);
        assert!(sessions_move_forward(&history).is_err());
    }

    #[test]
    fn another_client_may_see_less() {
        let mut other = read((3, 4), None);
        other.client = 1;
        sessions_move_forward(&calls(vec![wrote((1, 2), 7, 5), other])).expect("it is another session");
    }

    #[test]
    fn an_answer_from_a_region_behind_the_token_is_noticed() {
        let mut behind = read((3, 4), Some((7, 5)));
        behind.token = Some((0, Lsn(6)));
        assert!(
            sessions_move_forward(&calls(vec![behind]))
                .unwrap_err()
                .contains("stood at")
        );
    }

    #[test]
    fn a_reported_loss_takes_back_what_was_seen() {
        let mut history = calls(vec![wrote((1, 2), 7, 5), read((4, 5), None)]);
        history.losses.push(Loss {
            at: 3,
            item: ITEM,
            after: Lsn(4),
            head: Lsn(5),
            is_exact: true,
        });
        sessions_move_forward(&history).expect("the write was lost and reported");
    }
}
