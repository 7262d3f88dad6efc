//! The two clocks of a host and its source of chance, all in one place so that the rest takes them as values.

use std::time::{Duration, SystemTime};

use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::time::Instant;

/// A host's monotonic clock. It goes on while the process is suspended, which is what fencing relies on.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// Since the host started.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// The instant of a time on this clock, for timers.
    pub fn instant(&self, at: Duration) -> Instant {
        self.start + at
    }
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
