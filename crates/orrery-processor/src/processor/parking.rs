//! Keys whose changes go to the dead letters because an earlier change of theirs is there.
//!
//! All leases of a host share what it knows, so that the letters are listed once for all of them. Invariant: a worker parks by a
//! listing that was asked for after it took its lease, and by everything that was parked here since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::StoreError;

/// What a host knows of the parked keys.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    known: Mutex<Known>,
    /// Held while the letters are listed: whoever needs that too waits for the same answer.
    listing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    listed: BTreeSet<String>,
    /// When the listing was asked for.
    asked_at: Option<Duration>,
    /// Keys that were parked here, and when: a listing that was asked for before may not have them.
    added: BTreeMap<String, Duration>,
}

impl Known {
    fn is_empty(&self) -> bool {
        self.listed.is_empty() && self.added.is_empty()
    }

    /// Whether the letters have to be listed: not since a lease was taken, or a while ago while there were keys that may be free
    /// by now.
    fn is_stale(&self, taken_at: Duration, now: Duration, after: Duration) -> bool {
        match self.asked_at {
            Some(asked_at) if asked_at >= taken_at => !self.is_empty() && now.saturating_sub(asked_at) >= after,
            _ => true,
        }
    }

    fn listed(&mut self, keys: Vec<String>, asked_at: Duration) {
        self.listed = keys.into_iter().collect();
        self.asked_at = Some(asked_at);
        self.added.retain(|_, added_at| *added_at >= asked_at);
    }
}

impl Parked {
    fn known<T>(&self, work: impl FnOnce(&mut Known) -> T) -> T {
        work(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lists the keys, unless what is known is fresh enough for a worker that took its lease at `taken_at`, or becomes so while it
    /// waits for another one. `clock` tells the time, and what is older than `after` may have changed.
    pub async fn refresh<R>(
        &self,
        taken_at: Duration,
        clock: impl Fn() -> Duration,
        after: Duration,
        list: impl FnOnce() -> R,
    ) -> Result<(), StoreError>
    where
        R: Future<Output = Result<Vec<String>, StoreError>>,
    {
        if !self.known(|known| known.is_stale(taken_at, clock(), after)) {
            return Ok(());
        }
        let _one = self.listing.lock().await;
        if !self.known(|known| known.is_stale(taken_at, clock(), after)) {
            return Ok(());
        }
        let asked_at = clock();
        let keys = list().await?;
        self.known(|known| known.listed(keys, asked_at));
        Ok(())
    }

    /// A letter of this key was stored.
    pub fn insert(&self, key: String, now: Duration) {
        self.known(|known| known.added.insert(key, now));
    }

    pub fn contains(&self, key: &str) -> bool {
        self.known(|known| known.listed.contains(key) || known.added.contains_key(key))
    }

    pub fn is_empty(&self) -> bool {
        self.known(|known| known.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const AFTER: Duration = Duration::from_secs(13);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Asks at a moment, for a lease that was taken at another; whether the letters were listed for it.
    async fn asks(parked: &Parked, taken_at: u64, now: u64, keys: &[&str]) -> bool {
        let is_listed = Cell::new(false);
        let list = || {
            is_listed.set(true);
            std::future::ready(Ok(keys.iter().map(|key| (*key).to_owned()).collect()))
        };
        parked.refresh(at(taken_at), || at(now), AFTER, list).await.unwrap();
        is_listed.get()
    }

    #[tokio::test]
    async fn leases_share_a_listing_that_was_asked_for_after_they_were_taken() {
        let parked = Parked::default();
        assert!(asks(&parked, 5, 10, &[]).await);
        assert!(!asks(&parked, 7, 11, &[]).await);
        assert!(
            asks(&parked, 11, 12, &[]).await,
            "its last owner may have parked a key at 11"
        );
        assert!(
            !asks(&parked, 12, 500, &[]).await,
            "nobody else parks keys of leases that are here"
        );
    }

    #[tokio::test]
    async fn keys_that_are_parked_are_looked_at_again_after_a_while() {
        let parked = Parked::default();
        assert!(asks(&parked, 0, 10, &["a"]).await);
        assert!(!asks(&parked, 0, 20, &[]).await);
        assert!(parked.contains("a"));
        assert!(asks(&parked, 0, 23, &[]).await);
        assert!(parked.is_empty(), "it was replayed");
    }

    #[tokio::test]
    async fn a_key_that_is_parked_while_the_letters_are_listed_stays_parked() {
        let parked = Parked::default();
        let list = || {
            parked.insert("b".to_owned(), at(10));
            std::future::ready(Ok(vec!["a".to_owned()]))
        };
        parked.refresh(at(0), || at(10), AFTER, list).await.unwrap();
        assert!(parked.contains("a") && parked.contains("b"));
        assert!(asks(&parked, 0, 30, &["b"]).await);
        assert!(!parked.contains("a") && parked.contains("b"));
    }
}
