//! Bounded staleness: no region that serves lacks more than the account allows when a write is acknowledged, and no read misses
//! a write that was acknowledged too long before it.

use orrery_model::Lsn;
use orrery_node::geo::bounds::Bounds;

use super::super::history::{Answer, History};
use super::Broken;

pub fn lag_stays_within(history: &History, bounds: Bounds) -> Result<(), Broken> {
    for standing in history.standings.iter().filter(|standing| standing.serves) {
        let Some(lsn) = standing.acknowledged else {
            continue;
        };
        let lacks = lsn.0.saturating_sub(standing.position.lsn.0);
        if lacks > bounds.transactions && is_countable(lsn, standing.position.lsn) {
            return Err(format!(
                "{} lacked {lacks} transactions when {lsn:?} was acknowledged; {} are allowed",
                standing.region, bounds.transactions
            ));
        }
    }
    Ok(())
}

/// Nothing is ever deleted, so a read must show a write that was acknowledged longer ago than the bound, or a later one. Does
/// not look into regions: clients could find out the same.
pub fn reads_lack_nothing_old(history: &History, bounds: Bounds) -> Result<(), Broken> {
    let age_ms = bounds.age.as_millis() as u64;
    for read in &history.calls {
        let Answer::Read { found, .. } = read.answer else {
            continue;
        };
        let shown = found.map_or(Lsn::ZERO, |(_, lsn)| lsn);
        for (write, value, _) in history.writes(read.item) {
            let Answer::Written { lsn, .. } = write.answer else {
                continue;
            };
            let is_old = write.answered_ms + age_ms < read.asked_ms;
            if is_old && lsn > shown && !history.is_lost(read.item, lsn, write.completed) {
                return Err(format!(
                    "{} showed {:?} at {shown:?} at {} ms and lacked {value} at {lsn:?}, acknowledged at {} ms; {age_ms} ms are allowed",
                    read.region, read.item, read.asked_ms, write.answered_ms
                ));
            }
        }
    }
    Ok(())
}

/// A forced failover begins far above every LSN given out before, so a distance across it says nothing.
fn is_countable(one: Lsn, other: Lsn) -> bool {
    one.0 >> 32 == other.0 >> 32
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use orrery_model::{ChainHash, Epoch, LogId, Position};

    use super::super::example::{ITEM, call, read, wrote};
    use super::*;
    use crate::regions::history::{Action, Call, Loss, Standing};

    fn lagging_by(n: u64) -> History {
        let standing = Standing {
            at: 1,
            region: "far",
            log: LogId(1),
            position: Position {
                epoch: Epoch(0),
                lsn: Lsn(100 - n),
                hash: ChainHash::default(),
            },
            now_ms: 0,
            serves: true,
            acknowledged: Some(Lsn(100)),
        };
        History {
            standings: vec![standing],
            ..History::default()
        }
    }

    fn seen(calls: Vec<Call>, losses: Vec<Loss>) -> Result<(), Broken> {
        let history = History {
            calls,
            losses,
            ..History::default()
        };
        let bounds = Bounds {
            transactions: 5,
            age: Duration::from_millis(100),
        };
        reads_lack_nothing_old(&history, bounds)
    }

    #[test]
    fn a_read_that_misses_an_old_write_is_noticed() {
        let writes = || vec![wrote((1, 2), 1, 1), wrote((3, 10), 2, 2)];
        let then = |read: Call| writes().into_iter().chain([read]).collect::<Vec<_>>();
        seen(then(read((110, 300), Some((1, 1)))), vec![]).expect("it was asked before the bound had passed");
        seen(then(read((111, 112), Some((2, 2)))), vec![]).expect("it shows the last write");
        assert!(seen(then(read((111, 112), Some((1, 1)))), vec![]).is_err());
        assert!(seen(then(read((111, 112), None)), vec![]).is_err());
    }

    #[test]
    fn a_read_may_miss_what_was_reported_as_lost_and_what_nobody_acknowledged() {
        let loss = Loss {
            at: 50,
            item: ITEM,
            after: Lsn(1),
            head: Lsn(2),
            is_exact: true,
        };
        let calls = || {
            vec![
                wrote((1, 2), 1, 1),
                wrote((3, 10), 2, 2),
                read((200, 201), Some((1, 1))),
            ]
        };
        seen(calls(), vec![loss]).expect("the second write was lost");
        let action = Action::Write {
            value: 2,
            expected: None,
        };
        let unknown = call(0, (3, 10), action, Answer::Unknown);
        seen(
            vec![wrote((1, 2), 1, 1), unknown, read((200, 201), Some((1, 1)))],
            vec![],
        )
        .expect("it may not have happened");
    }

    #[test]
    fn a_region_beyond_the_bound_is_noticed() {
        let bounds = Bounds {
            transactions: 5,
            age: Duration::from_secs(5),
        };
        lag_stays_within(&lagging_by(5), bounds).expect("within the bound");
        assert!(lag_stays_within(&lagging_by(50), bounds).is_err());
    }
}
