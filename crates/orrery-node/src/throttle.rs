//! Optional throughput enforcement: a token bucket of request units per physical partition.
//!
//! A request is let in while the bucket is not empty and pays afterwards, so a single expensive operation runs a debt
//! instead of never running at all. One second of throughput may be saved up.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use orrery_model::{Charge, Error, Result, Status, Timestamp};

#[derive(Debug, Default)]
pub struct Throttle {
    /// Request units per second; zero lets everything through.
    rate: AtomicU32,
    bucket: Mutex<Bucket>,
}

#[derive(Debug, Default)]
struct Bucket {
    /// Hundredths of request units; negative is a debt.
    level: i64,
    filled_at_ms: u64,
}

impl Throttle {
    pub fn set_rate(&self, units_per_second: u32) {
        self.rate.store(units_per_second, Ordering::Relaxed);
    }

    /// Refuses with 429 when the bucket is empty.
    pub fn admit(&self, now: impl FnOnce() -> Timestamp) -> Result<()> {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return Ok(());
        }
        let mut bucket = self.lock();
        bucket.fill(i64::from(rate), now());
        if bucket.level > 0 {
            return Ok(());
        }
        // Hundredths per second are tenths per 100 ms: the wait until the level is positive again.
        let wait_ms = (1 - bucket.level) * 10 / i64::from(rate) + 1;
        Err(Error::new(
            Status::THROTTLED,
            "Request rate is large. More Request Units may be needed, so no changes were made.",
        )
        .with_retry_after_ms(wait_ms as u64))
    }

    pub fn pay(&self, charge: Charge) {
        if self.rate.load(Ordering::Relaxed) > 0 {
            self.lock().level -= charge.as_hundredths() as i64;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Bucket {
    fn fill(&mut self, rate: i64, now: Timestamp) {
        let full = rate * 100;
        if self.filled_at_ms == 0 {
            self.level = full;
        }
        let elapsed_ms = now.0.saturating_sub(self.filled_at_ms).min(60_000) as i64;
        self.level = (self.level + elapsed_ms * rate / 10).min(full);
        self.filled_at_ms = now.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_refuses_when_empty_and_refills_with_time() {
        let throttle = Throttle::default();
        throttle.set_rate(400);
        let start = Timestamp(1_000_000);
        throttle.admit(|| start).unwrap();
        throttle.pay(Charge::hundredths(50_000));
        let error = throttle.admit(|| start).unwrap_err();
        assert_eq!(error.status(), Status::THROTTLED);
        let wait_ms = error.retry_after_ms().unwrap();
        assert!(throttle.admit(|| Timestamp(start.0 + wait_ms / 2)).is_err());
        throttle.admit(|| Timestamp(start.0 + wait_ms)).unwrap();
    }

    #[test]
    fn without_a_rate_everything_is_let_in() {
        let throttle = Throttle::default();
        throttle.pay(Charge::hundredths(1_000_000));
        throttle.admit(|| Timestamp(1)).unwrap();
    }
}
