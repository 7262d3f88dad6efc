//! The service's clock, in one place so that the rest takes time as a value.

use std::time::SystemTime;

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
