//! Has a mirror stalled? Pure: told what the origin and the mirror have reached, it says when to do something about it.
//!
//! Mirrors have been seen to stand still for hours without an error. One that is behind its origin, while the origin answers,
//! and does not move for long enough, is taken for stalled; one whose origin cannot be asked is not judged.

use std::time::Duration;

use super::message::StreamSequence;

/// What is known of one mirror.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    reached: StreamSequence,
    /// Since when it is behind and has not moved.
    since: Option<Duration>,
}

/// Watches the mirrors of one store.
#[derive(Debug)]
pub struct Watchdog {
    limit: Duration,
    seen: Vec<Seen>,
}

impl Watchdog {
    /// A mirror that does not move for `limit` has stalled.
    pub fn new(limit: Duration) -> Watchdog {
        Watchdog {
            limit,
            seen: Vec::new(),
        }
    }

    /// What one stream and its origin have reached at a moment, as `None` when the origin cannot be asked. Answers whether the
    /// mirror has stalled; then it is given as long again.
    pub fn has_stalled(&mut self, idx: usize, own: u64, origin: Option<u64>, now: Duration) -> bool {
        if self.seen.len() <= idx {
            self.seen.resize(idx + 1, Seen::default());
        }
        let seen = &mut self.seen[idx];
        let is_behind = origin.is_some_and(|origin| origin > own);
        let has_moved = own != seen.reached;
        seen.reached = own;
        if !is_behind || has_moved {
            seen.since = is_behind.then_some(now);
            return false;
        }
        let since = *seen.since.get_or_insert(now);
        let is_stalled = now.saturating_sub(since) >= self.limit;
        if is_stalled {
            seen.since = Some(now);
        }
        is_stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_mirror_that_is_behind_and_does_not_move_has_stalled_after_a_while() {
        let mut watchdog = Watchdog::new(at(10));
        assert!(!watchdog.has_stalled(3, 5, Some(9), at(0)));
        assert!(!watchdog.has_stalled(3, 5, Some(12), at(9)));
        assert!(watchdog.has_stalled(3, 5, Some(12), at(10)));
        assert!(!watchdog.has_stalled(3, 5, Some(12), at(11)), "it is given time again");
        assert!(watchdog.has_stalled(3, 5, Some(12), at(20)));
    }

    #[test]
    fn a_mirror_that_moves_or_has_everything_has_not_stalled() {
        let mut watchdog = Watchdog::new(at(10));
        for second in 0..100 {
            assert!(!watchdog.has_stalled(0, second, Some(1000), at(second)));
            assert!(!watchdog.has_stalled(1, 7, Some(7), at(second)));
        }
    }

    #[test]
    fn a_mirror_whose_origin_cannot_be_asked_is_not_judged() {
        let mut watchdog = Watchdog::new(at(10));
        assert!(!watchdog.has_stalled(0, 5, Some(9), at(0)));
        assert!(!watchdog.has_stalled(0, 5, None, at(50)));
        assert!(!watchdog.has_stalled(0, 5, Some(9), at(51)));
        assert!(watchdog.has_stalled(0, 5, Some(9), at(61)));
    }
}
