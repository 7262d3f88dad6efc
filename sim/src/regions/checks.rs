//! What must be true of every run, and what of runs at one consistency level.
//!
//! Checks are pure: a history goes in, the first broken promise comes out. Each has tests that plant a violation.

mod bounds;
mod convergence;
mod prefix;
mod register;
mod session;
mod writes;

use orrery_node::api::Consistency;
use orrery_node::geo::bounds::Bounds;

use super::history::History;

/// A promise that did not hold, in words.
pub type Broken = String;

/// Everything that a run at this level must show.
pub fn check(history: &History, level: Consistency, bounds: Bounds) -> Result<(), Broken> {
    writes::no_value_is_invented(history)?;
    writes::nothing_acknowledged_is_lost(history)?;
    writes::conditions_hold(history)?;
    prefix::regions_share_one_log(history)?;
    prefix::batches_are_seen_whole(history)?;
    prefix::pages_have_no_gaps(history)?;
    convergence::regions_end_equal(history)?;
    match level {
        Consistency::Strong => {
            register::items_are_linearizable(&history.calls)?;
            register::items_are_linearizable(&history.catalogue)
        }
        Consistency::BoundedStaleness => {
            bounds::lag_stays_within(history, bounds)?;
            bounds::reads_lack_nothing_old(history, bounds)
        }
        Consistency::Session => session::sessions_move_forward(history),
        Consistency::ConsistentPrefix | Consistency::Eventual => Ok(()),
    }
}

/// Histories written out by hand.
#[cfg(test)]
mod example {
    use orrery_model::Lsn;

    use super::super::history::{Action, Answer, Call, Item};

    pub const ITEM: Item = ("k", "i");

    /// A call that runs from one tick to another, each of them a millisecond.
    pub fn call(client: usize, ticks: (u64, u64), action: Action, answer: Answer) -> Call {
        Call {
            client,
            region: "here",
            item: ITEM,
            action,
            invoked: ticks.0,
            completed: ticks.1,
            asked_ms: ticks.0,
            answered_ms: ticks.1,
            token: None,
            answer,
        }
    }

    pub fn wrote(ticks: (u64, u64), value: u64, lsn: u64) -> Call {
        let action = Action::Write { value, expected: None };
        call(
            0,
            ticks,
            action,
            Answer::Written {
                lsn: Lsn(lsn),
                version: 0,
            },
        )
    }

    pub fn read(ticks: (u64, u64), found: Option<(u64, u64)>) -> Call {
        let found = found.map(|(value, lsn)| (value, Lsn(lsn)));
        let at = (0, found.map_or(Lsn(0), |(_, lsn)| lsn));
        call(0, ticks, Action::Read, Answer::Read { found, at })
    }
}
