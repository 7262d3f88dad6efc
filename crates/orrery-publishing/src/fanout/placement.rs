//! In which region an account's role runs: where the account takes its writes. Pure, from what is known of that.
//!
//! Subscriptions are complete and notifications are local writes only there. Not knowing is no reason to move: a role whose
//! account is silent can do nothing anywhere, and nobody else takes the account's writes before somebody is told. Two regions
//! may believe at the same time that they run a role; leases and ids make that harmless.

use std::time::Duration;

use crate::topology::normal_region;

/// Questions to a silent account come soon, however rarely it is asked otherwise, and then more and more rarely, down to one in so
/// many turns.
const SILENT_EVERY: Duration = Duration::from_secs(3);
const SILENT_TURNS_MAX: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    Start,
    Stop,
    Stay,
}

/// What the region `here` does about a role that it runs or does not. `writes_at` is nothing while nobody can tell.
pub fn next_move(is_running: bool, here: &str, writes_at: Option<&str>) -> Move {
    let is_here = writes_at.map(|region| normal_region(region) == normal_region(here));
    match (is_running, is_here) {
        (false, Some(true)) => Move::Start,
        (true, Some(false)) => Move::Stop,
        _ => Move::Stay,
    }
}

/// When to ask again, after so many questions in a row without an answer.
pub fn ask_again_after(every: Duration, n_silent: u32) -> Duration {
    match n_silent {
        0 => every,
        n_silent => every.min(SILENT_EVERY) * (n_silent + 1).min(SILENT_TURNS_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_follows_the_writes_of_its_account_and_stays_where_it_is_while_nobody_can_tell() {
        for (is_running, writes_at, expected) in [
            (false, Some("West US"), Move::Start),
            (false, Some("westus"), Move::Start),
            (false, Some("North Europe"), Move::Stay),
            (false, None, Move::Stay),
            (true, Some("West US"), Move::Stay),
            (true, Some("North Europe"), Move::Stop),
            (true, None, Move::Stay),
        ] {
            let made = next_move(is_running, "West US", writes_at);
            assert_eq!(made, expected, "{is_running} {writes_at:?}");
        }
    }

    #[test]
    fn a_silent_account_is_asked_more_rarely_but_never_given_up() {
        let every = Duration::from_secs(3);
        let waits: Vec<u64> = (0..6).map(|n| ask_again_after(every, n).as_secs()).collect();
        assert_eq!(waits, [3, 6, 9, 12, 12, 12]);
        let rarely = Duration::from_secs(60);
        let waits: Vec<u64> = (0..4).map(|n| ask_again_after(rarely, n).as_secs()).collect();
        assert_eq!(waits, [60, 6, 9, 12]);
    }
}
