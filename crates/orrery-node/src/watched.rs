//! A value that can be waited for.
//!
//! Like a `watch` channel, except that those who wait are woken in the order in which they began to, where a channel wakes them
//! in an order of its own: with one thread, one clock and one seed a run repeats itself, which simulations rely on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub struct Watched<T> {
    value: RwLock<T>,
    changed: Notify,
    n_changes: AtomicU64,
}

impl<T> Watched<T> {
    pub fn new(value: T) -> Watched<T> {
        Watched {
            value: RwLock::new(value),
            changed: Notify::new(),
            n_changes: AtomicU64::new(0),
        }
    }

    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, value: T) {
        self.modify(|current| *current = value);
    }

    /// Changes the value, and lets everybody who waits look at it.
    pub fn modify(&self, change: impl FnOnce(&mut T)) {
        self.change(change);
    }

    /// The same, with an answer.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let answer = change(&mut self.value.write().unwrap_or_else(PoisonError::into_inner));
        self.n_changes.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_waiters();
        answer
    }

    /// How often it has been changed. Asked before the value is looked at, it tells whether there is something new to see.
    pub fn n_changes(&self) -> u64 {
        self.n_changes.load(Ordering::Acquire)
    }

    /// Waits until it has been changed more often than that, also to what it was. Safe to drop.
    pub async fn changed_since(&self, n_changes: u64) {
        self.wait_for(|_| self.n_changes() != n_changes).await;
    }

    /// Waits until the value is as wanted. Safe to drop.
    pub async fn wait_for(&self, mut is_wanted: impl FnMut(&T) -> bool) {
        loop {
            // Made before the look, so that no change in between goes unnoticed.
            let changed = self.changed.notified();
            if is_wanted(&self.read()) {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test]
    async fn whoever_waits_is_woken_in_the_order_of_waiting() {
        let (watched, woken) = (Arc::new(Watched::new(0)), Arc::new(Mutex::new(Vec::new())));
        let mut waiting = Vec::new();
        for number in 0..50 {
            let (watched, woken) = (Arc::clone(&watched), Arc::clone(&woken));
            waiting.push(tokio::spawn(async move {
                watched.wait_for(|value| *value == 2).await;
                woken.lock().unwrap().push(number);
            }));
        }
        for value in 1..=2 {
            tokio::task::yield_now().await;
            assert!(woken.lock().unwrap().is_empty());
            watched.set(value);
        }
        for one in waiting {
            one.await.unwrap();
        }
        assert_eq!(*woken.lock().unwrap(), (0..50).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_change_to_the_same_value_is_a_change() {
        let watched = Watched::new(7);
        let seen = watched.n_changes();
        let unchanged = tokio::time::timeout(std::time::Duration::ZERO, watched.changed_since(seen));
        assert!(unchanged.await.is_err());
        watched.set(7);
        watched.changed_since(seen).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_change_is_missed() {
        let watched = Arc::new(Watched::new(0));
        let counting = tokio::spawn({
            let watched = Arc::clone(&watched);
            async move {
                for value in 1..=10_000 {
                    watched.wait_for(|seen| *seen >= value).await;
                }
            }
        });
        for _ in 0..10_000 {
            watched.modify(|value| *value += 1);
            tokio::task::yield_now().await;
        }
        counting.await.unwrap();
    }
}
