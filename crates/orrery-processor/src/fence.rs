//! Until when a host may act on a lease without having heard from the store.
//!
//! Others may take a lease once it has not been renewed for the expiry, measured from the renewal's arrival at the server.
//! The owner measures from the moment it *sent* the renewal, which is earlier, and stops a margin before that: so it has
//! stopped before anybody else can begin. Its clock is monotonic and goes on while the process is suspended.

use std::time::Duration;

/// Part of the expiry that is kept as a margin.
const MARGIN_DIVISOR: u32 = 10;

/// The end of what the last confirmed write allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    shuts_at: Duration,
}

impl Fence {
    /// `sent_at` is when the confirmed write was sent, on the host's monotonic clock.
    pub fn new(sent_at: Duration, expiry: Duration) -> Fence {
        Fence {
            shuts_at: sent_at + (expiry - expiry / MARGIN_DIVISOR),
        }
    }

    pub fn shuts_at(&self) -> Duration {
        self.shuts_at
    }

    pub fn is_shut(&self, now: Duration) -> bool {
        now >= self.shuts_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_stops_before_its_lease_can_be_taken() {
        let expiry = Duration::from_secs(60);
        let fence = Fence::new(Duration::from_secs(100), expiry);
        assert!(!fence.is_shut(Duration::from_secs(153)));
        assert!(fence.is_shut(Duration::from_secs(154)));
        assert!(fence.shuts_at() < Duration::from_secs(100) + expiry);
    }
}
