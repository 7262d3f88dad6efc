//! How many queries run at once, and how much they may hold together.
//!
//! Most queries are done within milliseconds, and many of them may run side by side. One that goes on for longer is heavy:
//! it needs one of a few slots, as many as there are processors, or it waits. So slow queries share the machine among
//! themselves and leave the rest of it to everybody else.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use orrery_model::{Error, Result, Status};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Queries that have begun, heavy ones included.
const RUNNING_MAX: usize = 64;
/// How long a query waits until it may begin.
const ADMISSION_TIME_MAX: Duration = Duration::from_secs(5);
/// Heavy queries that wait for a slot; each keeps a thread.
const WAITING_MAX: usize = 16;
/// What sorting, grouping and removing duplicates may hold in all queries together.
const MEMORY_BYTES_MAX: usize = 512 * 1024 * 1024;
/// When a client that was sent away should come back.
const RETRY_AFTER_MS: u64 = 500;

/// What the queries of a node use at the moment.
#[derive(Debug)]
pub struct QueryLoad {
    running: Arc<Semaphore>,
    heavy_max: usize,
    heavy: Mutex<Heavy>,
    freed: Condvar,
    memory_bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct Heavy {
    n_running: usize,
    n_waiting: usize,
}

impl QueryLoad {
    pub fn new(heavy_max: usize) -> Arc<QueryLoad> {
        Arc::new(QueryLoad {
            running: Arc::new(Semaphore::new(RUNNING_MAX)),
            heavy_max,
            heavy: Mutex::default(),
            freed: Condvar::new(),
            memory_bytes: AtomicUsize::new(0),
        })
    }

    /// Lets a query begin, after a while if need be.
    pub async fn admit(self: &Arc<Self>) -> Result<Admission> {
        let permit = tokio::time::timeout(ADMISSION_TIME_MAX, Arc::clone(&self.running).acquire_owned()).await;
        match permit {
            Ok(Ok(permit)) => Ok(Admission {
                load: Arc::clone(self),
                is_heavy: false,
                memory_bytes: 0,
                _permit: permit,
            }),
            _ => Err(busy("Too many queries are running.")),
        }
    }

    fn heavy(&self) -> MutexGuard<'_, Heavy> {
        self.heavy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn busy(message: &str) -> Error {
    Error::new(Status::THROTTLED, message).with_retry_after_ms(RETRY_AFTER_MS)
}

/// A query's right to run, given back when it is dropped.
#[derive(Debug)]
pub struct Admission {
    load: Arc<QueryLoad>,
    is_heavy: bool,
    memory_bytes: usize,
    _permit: OwnedSemaphorePermit,
}

impl Admission {
    pub fn is_heavy(&self) -> bool {
        self.is_heavy
    }

    /// Takes a slot of a heavy query if one is free.
    pub fn try_become_heavy(&mut self) -> bool {
        let mut heavy = self.load.heavy();
        let free = heavy.n_running < self.load.heavy_max;
        heavy.n_running += usize::from(free);
        self.is_heavy = free;
        free
    }

    /// Takes a slot of a heavy query, and keeps the thread waiting until one is free.
    pub fn become_heavy(&mut self, time_max: Duration) -> Result<()> {
        let deadline = Instant::now() + time_max;
        let refused = || busy("Too many queries that take long are running.");
        let mut heavy = self.load.heavy();
        if heavy.n_running >= self.load.heavy_max && heavy.n_waiting >= WAITING_MAX {
            return Err(refused());
        }
        heavy.n_waiting += 1;
        while heavy.n_running >= self.load.heavy_max {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                heavy.n_waiting -= 1;
                return Err(refused());
            }
            let waited = self.load.freed.wait_timeout(heavy, left);
            heavy = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        heavy.n_waiting -= 1;
        heavy.n_running += 1;
        drop(heavy);
        self.is_heavy = true;
        Ok(())
    }

    /// Says how much the query holds now.
    pub fn hold(&mut self, bytes: usize) -> Result<()> {
        let all = &self.load.memory_bytes;
        let before = match bytes.checked_sub(self.memory_bytes) {
            Some(more) => all.fetch_add(more, Ordering::Relaxed) + more,
            None => all.fetch_sub(self.memory_bytes - bytes, Ordering::Relaxed),
        };
        let grew = bytes > self.memory_bytes;
        self.memory_bytes = bytes;
        if grew && before > MEMORY_BYTES_MAX {
            return Err(busy(
                "The queries that are running need all of the memory there is for queries.",
            ));
        }
        Ok(())
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.load.memory_bytes.fetch_sub(self.memory_bytes, Ordering::Relaxed);
        if self.is_heavy {
            self.load.heavy().n_running -= 1;
            self.load.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slot_of_a_heavy_query_is_free_again_when_the_query_is_over() {
        let load = QueryLoad::new(1);
        let mut first = load.admit().await.unwrap();
        let mut second = load.admit().await.unwrap();
        assert!(first.try_become_heavy());
        assert!(!second.try_become_heavy());
        let refused = second.become_heavy(Duration::ZERO).unwrap_err();
        assert_eq!(
            (refused.status(), refused.retry_after_ms()),
            (Status::THROTTLED, Some(RETRY_AFTER_MS))
        );
        let waiter = std::thread::spawn(move || second.become_heavy(Duration::from_secs(60)));
        while load.heavy().n_waiting == 0 {
            std::thread::yield_now();
        }
        drop(first);
        waiter.join().unwrap().unwrap();
        assert_eq!(load.heavy().n_running, 0, "the waiter had it and is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_query_that_cannot_begin_is_sent_away() {
        let load = QueryLoad::new(1);
        let mut admitted = Vec::new();
        for _ in 0..RUNNING_MAX {
            admitted.push(load.admit().await.unwrap());
        }
        assert_eq!(load.admit().await.unwrap_err().status(), Status::THROTTLED);
        admitted.pop();
        load.admit().await.unwrap();
    }

    #[tokio::test]
    async fn memory_is_shared_and_given_back() {
        let load = QueryLoad::new(1);
        let mut first = load.admit().await.unwrap();
        let mut second = load.admit().await.unwrap();
        first.hold(MEMORY_BYTES_MAX).unwrap();
        assert_eq!(second.hold(1).unwrap_err().status(), Status::THROTTLED);
        first.hold(10).unwrap();
        second.hold(1).unwrap();
        drop(first);
        drop(second);
        assert_eq!(load.memory_bytes.load(Ordering::Relaxed), 0);
    }
}
