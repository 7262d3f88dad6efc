//! How many requests somebody may send: a bucket per sender that fills at a rate, pure over the time it is given.
//!
//! Invariant: the number of buckets is bounded; when it is reached, those that are full again are forgotten, which changes
//! nothing for anybody, and if none is, newcomers share one.

use std::collections::HashMap;

/// Senders that are told apart.
const SENDERS_MAX: usize = 10_000;
/// Where senders go when there are too many.
const CROWD: &str = "";

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub per_second: f64,
    pub burst: f64,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at_ms: u64,
}

#[derive(Debug)]
pub struct Limiter {
    rate: Rate,
    buckets: HashMap<String, Bucket>,
}

impl Limiter {
    pub fn new(rate: Rate) -> Limiter {
        Limiter {
            rate,
            buckets: HashMap::new(),
        }
    }

    /// Takes one request of a sender, or says for how many seconds there is no room.
    pub fn take(&mut self, sender: &str, now_ms: u64) -> Result<(), u64> {
        if !self.buckets.contains_key(sender) && self.buckets.len() >= SENDERS_MAX {
            self.forget_full(now_ms);
        }
        let is_crowded = !self.buckets.contains_key(sender) && self.buckets.len() >= SENDERS_MAX;
        let sender = if is_crowded { CROWD } else { sender };
        let full = Bucket {
            tokens: self.rate.burst,
            at_ms: now_ms,
        };
        let rate = self.rate;
        let bucket = self.buckets.entry(sender.to_owned()).or_insert(full);
        *bucket = filled(*bucket, rate, now_ms);
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            return Ok(());
        }
        let missing_s = (1.0 - bucket.tokens) / rate.per_second.max(f64::MIN_POSITIVE);
        Err(missing_s.ceil().clamp(1.0, 3600.0) as u64)
    }

    fn forget_full(&mut self, now_ms: u64) {
        let rate = self.rate;
        self.buckets
            .retain(|_, bucket| filled(*bucket, rate, now_ms).tokens < rate.burst);
    }
}

fn filled(bucket: Bucket, rate: Rate, now_ms: u64) -> Bucket {
    let since_s = now_ms.saturating_sub(bucket.at_ms) as f64 / 1000.0;
    Bucket {
        tokens: (bucket.tokens + since_s * rate.per_second).min(rate.burst),
        at_ms: bucket.at_ms.max(now_ms),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limiter() -> Limiter {
        Limiter::new(Rate {
            per_second: 2.0,
            burst: 3.0,
        })
    }

    #[test]
    fn a_burst_is_taken_and_then_the_rate_holds() {
        let mut limiter = limiter();
        assert!((0..3).all(|_| limiter.take("ann", 0).is_ok()));
        assert_eq!(limiter.take("ann", 0), Err(1));
        assert_eq!(limiter.take("bob", 0), Ok(()));
        assert_eq!(limiter.take("ann", 499), Err(1));
        assert_eq!(limiter.take("ann", 500), Ok(()));
        assert_eq!(limiter.take("ann", 501), Err(1));
    }

    #[test]
    fn a_crowd_of_senders_takes_bounded_memory() {
        let mut limiter = limiter();
        for number in 0..3 * SENDERS_MAX {
            let _ = limiter.take(&number.to_string(), 0);
        }
        assert!(limiter.buckets.len() <= SENDERS_MAX + 1);
        // Long after, the crowd is forgotten.
        assert_eq!(limiter.take("ann", 60_000), Ok(()));
        assert!(limiter.buckets.len() <= 2);
    }

    proptest! {
        #[test]
        fn nobody_gets_more_than_burst_and_rate(times in prop::collection::vec(0u64..10_000, 1..200)) {
            let (mut limiter, mut times) = (limiter(), times);
            times.sort_unstable();
            let n_taken = times.iter().filter(|at| limiter.take("ann", **at).is_ok()).count();
            let span_s = (times[times.len() - 1] - times[0]) as f64 / 1000.0;
            prop_assert!(n_taken as f64 <= 3.0 + 2.0 * span_s + 1e-9);
        }
    }
}
