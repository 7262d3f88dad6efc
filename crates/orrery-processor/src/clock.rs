//! The two clocks of a host and its source of chance, all in one place so that the rest takes them as values.

use std::time::{Duration, SystemTime};

use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::time::Instant;

/// A host's monotonic clock. It goes on while the process is suspended and, on Linux, while the machine sleeps, which is what
/// fencing relies on. Timers stand still in a sleep: whoever wakes has to look at the clock before it acts.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    /// What the machine had slept by then.
    slept_before: Duration,
}

impl Clock {
    pub fn start() -> Clock {
        Clock {
            start: Instant::now(),
            slept_before: slept(),
        }
    }

    /// Since the host started.
    pub fn now(&self) -> Duration {
        self.now_having_slept(self.slept())
    }

    fn now_having_slept(&self, slept: Duration) -> Duration {
        self.start.elapsed() + slept
    }

    /// The instant of a time on this clock, for timers.
    pub fn instant(&self, at: Duration) -> Instant {
        self.instant_having_slept(at, self.slept())
    }

    fn instant_having_slept(&self, at: Duration, slept: Duration) -> Instant {
        self.start + at.saturating_sub(slept)
    }

    /// How long the machine has slept since the host started.
    fn slept(&self) -> Duration {
        let slept = slept().saturating_sub(self.slept_before);
        if slept < SLEEP_MIN { Duration::ZERO } else { slept }
    }
}

/// How long after the last whole `step` since then an instant lies. What begins by so much earlier meets others that do the same.
pub fn out_of_step(at: Instant, since: Instant, step: Duration) -> Duration {
    let past = at.saturating_duration_since(since).as_nanos() % step.as_nanos().max(1);
    Duration::from_nanos(u64::try_from(past).unwrap_or_default())
}

/// Less than this is not a sleep, but what passes between looks at two clocks.
const SLEEP_MIN: Duration = Duration::from_millis(100);

/// How long the machine has slept since it was started: the difference of a clock that goes on meanwhile and one that does not.
#[cfg(target_os = "linux")]
fn slept() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    const LOOKS_MAX: u32 = 8;
    let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    let mut n_looks = 0;
    loop {
        let (before, with_sleep, after) = (
            read(ClockId::Monotonic),
            read(ClockId::Boottime),
            read(ClockId::Monotonic),
        );
        n_looks += 1;
        // Somebody else may have had the processor between two looks.
        if after.saturating_sub(before) < SLEEP_MIN / 10 || n_looks == LOOKS_MAX {
            return with_sleep.saturating_sub(after);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn slept() -> Duration {
    Duration::ZERO
}

/// The machine's wall clock, for what people and other processors read; no decision of ours rests on it.
pub fn since_1970() -> Duration {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the crate's one place that reads the wall clock"
    )]
    let now = SystemTime::now();
    now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Chance; zero if the machine has none to give, which only makes jitter less and names less unique.
pub fn chance() -> u64 {
    let mut bytes = [0; 8];
    let _ = SystemRandom::new().fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Chance from 0 up to 1.
pub fn jitter() -> f64 {
    (chance() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_in_step_meets_whenever_it_began_and_is_done_once_in_its_time() {
        let (since, step) = (Instant::now(), Duration::from_secs(10));
        for begun_ms in [0, 1, 1_234, 9_999, 10_000, 123_456] {
            let at = since + Duration::from_millis(begun_ms) + step;
            let first = at - out_of_step(at, since, step);
            assert_eq!((first - since).as_millis() % 10_000, 0, "{begun_ms}");
            // A little late every time, and yet not later and later.
            let next = first + Duration::from_millis(7) + step;
            assert_eq!(next - out_of_step(next, since, step), first + step);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_and_its_timers_agree_while_the_machine_is_awake() {
        let clock = Clock::start();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(clock.now(), Duration::from_secs(60));
        let at = clock.instant(Duration::from_secs(65));
        assert_eq!(at.duration_since(Instant::now()), Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_machine_slept_is_past_for_the_clock_and_no_wait_for_its_timers() {
        let awake = Clock::start();
        let hour = Duration::from_secs(3600);
        assert_eq!(awake.now_having_slept(hour), hour);
        assert_eq!(
            awake.instant_having_slept(hour + Duration::from_secs(5), hour),
            awake.start + Duration::from_secs(5)
        );
        assert_eq!(
            awake.instant_having_slept(Duration::from_secs(5), hour),
            awake.start,
            "it is over"
        );
    }
}
