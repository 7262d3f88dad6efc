//! Optional throughput enforcement: a token bucket of request units per physical partition, or one for all containers that
//! share the throughput of their database.
//!
//! A request is let in while the bucket is not empty and pays afterwards, so a single expensive operation runs a debt
//! instead of never running at all. One second of throughput may be saved up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orrery_model::{Charge, Error, ResourceId, Result, Status, Timestamp};

/// What a partition's requests draw on.
#[derive(Debug, Default)]
pub struct Throttle {
    /// Without a pool everything is let through, which is asked by every request.
    is_limited: AtomicBool,
    pool: Mutex<Option<Arc<Pool>>>,
}

/// A bucket that is filled at some rate.
#[derive(Debug, Default)]
pub struct Pool {
    bucket: Mutex<Bucket>,
}

/// The pools of databases whose containers share their throughput.
#[derive(Debug, Default)]
pub struct SharedPools {
    by_database: Mutex<HashMap<ResourceId, Arc<Pool>>>,
}

#[derive(Debug, Default)]
struct Bucket {
    /// Request units per second.
    rate: u32,
    /// Hundredths of request units; negative is a debt.
    level: i64,
    filled_at_ms: u64,
}

impl Throttle {
    /// Lets everything through.
    pub fn lift(&self) {
        *locked(&self.pool) = None;
        self.is_limited.store(false, Ordering::Relaxed);
    }

    /// Gives the partition so much for itself. What it owes it goes on owing.
    pub fn set_rate(&self, units_per_second: u32) {
        let mut pool = locked(&self.pool);
        match &*pool {
            Some(own) if Arc::strong_count(own) == 1 => own.set_rate(units_per_second),
            _ => {
                let own = Arc::new(Pool::default());
                own.set_rate(units_per_second);
                *pool = Some(own);
            }
        }
        self.is_limited.store(true, Ordering::Relaxed);
    }

    /// Has the partition draw on what others draw on too.
    pub fn share(&self, shared: Arc<Pool>) {
        *locked(&self.pool) = Some(shared);
        self.is_limited.store(true, Ordering::Relaxed);
    }

    /// Refuses with 429 when the bucket is empty.
    pub fn admit(&self, now: impl FnOnce() -> Timestamp) -> Result<()> {
        match self.pool() {
            Some(pool) => pool.admit(now()),
            None => Ok(()),
        }
    }

    pub fn pay(&self, charge: Charge) {
        if let Some(pool) = self.pool() {
            locked(&pool.bucket).level -= charge.as_hundredths() as i64;
        }
    }

    fn pool(&self) -> Option<Arc<Pool>> {
        match self.is_limited.load(Ordering::Relaxed) {
            true => locked(&self.pool).clone(),
            false => None,
        }
    }
}

impl Pool {
    fn set_rate(&self, units_per_second: u32) {
        locked(&self.bucket).rate = units_per_second;
    }

    fn admit(&self, now: Timestamp) -> Result<()> {
        let mut bucket = locked(&self.bucket);
        bucket.fill(now);
        if bucket.level > 0 {
            return Ok(());
        }
        // Hundredths per second are tenths per 100 ms: the wait until the level is positive again.
        let wait_ms = (1 - bucket.level) * 10 / i64::from(bucket.rate.max(1)) + 1;
        Err(Error::new(
            Status::THROTTLED,
            "Request rate is large. More Request Units may be needed, so no changes were made.",
        )
        .with_retry_after_ms(wait_ms as u64))
    }
}

impl SharedPools {
    /// The pool of a database, with its rate of now.
    pub fn of(&self, database: &ResourceId, units_per_second: u32) -> Arc<Pool> {
        let mut pools = locked(&self.by_database);
        // Databases that are gone leave a pool that nobody draws on.
        pools.retain(|known, pool| known == database || Arc::strong_count(pool) > 1);
        let pool = pools.entry(database.clone()).or_default();
        pool.set_rate(units_per_second);
        Arc::clone(pool)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bucket {
    fn fill(&mut self, now: Timestamp) {
        let rate = i64::from(self.rate);
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
        throttle.set_rate(1);
        throttle.admit(|| Timestamp(1)).unwrap();
        throttle.pay(Charge::hundredths(1_000_000));
        throttle.admit(|| Timestamp(1)).unwrap_err();
        throttle.lift();
        throttle.admit(|| Timestamp(1)).unwrap();
    }

    #[test]
    fn a_debt_outlives_a_change_of_the_rate() {
        let throttle = Throttle::default();
        throttle.set_rate(400);
        throttle.admit(|| Timestamp(1_000)).unwrap();
        throttle.pay(Charge::hundredths(1_000_000));
        throttle.set_rate(500);
        throttle.admit(|| Timestamp(1_000)).unwrap_err();
    }

    #[test]
    fn partitions_that_share_a_pool_leave_each_other_what_is_left() {
        let (pools, database) = (SharedPools::default(), ResourceId::database(1));
        let (one, other) = (Throttle::default(), Throttle::default());
        for throttle in [&one, &other] {
            throttle.share(pools.of(&database, 400));
        }
        let now = || Timestamp(1_000_000);
        one.admit(now).unwrap();
        one.pay(Charge::hundredths(50_000));
        assert!(one.admit(now).is_err() && other.admit(now).is_err());
        // A throughput of its own is nobody else's.
        other.set_rate(400);
        other.admit(now).unwrap();
        assert!(one.admit(now).is_err());
    }
}
