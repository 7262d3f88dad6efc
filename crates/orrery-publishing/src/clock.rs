//! The crate's clock and its source of chance, in one place so that the rest takes them as values.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use ring::rand::{SecureRandom as _, SystemRandom};

/// How far a wall clock may be set back without anybody here noticing. One set back farther was wrong before: it is followed,
/// or everything made until it catches up would bear one and the same time of the future.
const STEP_BACK_MAX: u64 = 10_000;

/// How far times of their own may run ahead of the clock. Whoever publishes faster than a thousand a second for longer gets equal
/// ones, rather than times of the future.
const AHEAD_MAX: u64 = 50;

/// The time last told.
static LAST: AtomicU64 = AtomicU64::new(0);
/// The last time that was told to be somebody's own.
static LAST_OWN: AtomicU64 = AtomicU64::new(0);

/// Milliseconds since 1970. What one process does in turn has times in that order, also where the wall clock is corrected.
pub fn now_ms() -> u64 {
    let wall = wall_ms();
    let told = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(steady(last, wall)));
    steady(told.unwrap_or_default(), wall)
}

/// Milliseconds since 1970 that nothing else published by this process has, for what is listed in the order of its times: two
/// articles published one after the other within a millisecond are shown in that order.
pub fn own_ms() -> u64 {
    let now = now_ms();
    let told = LAST_OWN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(following(last, now)));
    following(told.unwrap_or_default(), now)
}

fn following(last: u64, now: u64) -> u64 {
    match last.checked_sub(now) {
        None => now,
        Some(ahead) if ahead < AHEAD_MAX => last + 1,
        Some(ahead) if ahead < STEP_BACK_MAX => last,
        Some(_) => now,
    }
}

fn steady(last: u64, wall: u64) -> u64 {
    if wall + STEP_BACK_MAX < last {
        wall
    } else {
        wall.max(last)
    }
}

fn wall_ms() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the crate's one place that reads the wall clock"
    )]
    let now = SystemTime::now();
    now.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

/// Chance for a new id; zeros if the machine has none to give, which only makes ids of one millisecond collide, and a
/// collision is answered as one.
pub fn chance() -> [u8; 10] {
    let mut bytes = [0; 10];
    let _ = SystemRandom::new().fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stands_still_while_the_wall_clock_is_set_back_a_little_and_follows_it_far() {
        assert_eq!(steady(0, 50_000), 50_000);
        assert_eq!(steady(50_000, 50_001), 50_001);
        assert_eq!(steady(50_000, 49_000), 50_000);
        assert_eq!(steady(50_000, 50_000 - STEP_BACK_MAX), 50_000);
        assert_eq!(steady(50_000, 50_000 - STEP_BACK_MAX - 1), 39_999);
        assert!(now_ms() <= now_ms());
    }

    #[test]
    fn what_is_published_in_turn_has_times_in_turn_as_long_as_they_stay_near_the_clock() {
        assert_eq!(following(0, 50_000), 50_000);
        assert_eq!(following(50_000, 50_000), 50_001);
        assert_eq!(following(50_000 + AHEAD_MAX - 1, 50_000), 50_000 + AHEAD_MAX);
        assert_eq!(following(50_000 + AHEAD_MAX, 50_000), 50_000 + AHEAD_MAX);
        assert_eq!(following(50_000 + STEP_BACK_MAX, 50_000), 50_000);
        let (first, second) = (own_ms(), own_ms());
        assert!(first < second, "{first} {second}");
    }
}
