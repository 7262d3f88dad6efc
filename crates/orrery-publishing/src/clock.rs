//! The crate's clock and its source of chance, in one place so that the rest takes them as values.

use std::time::SystemTime;

use ring::rand::{SecureRandom as _, SystemRandom};

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
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
