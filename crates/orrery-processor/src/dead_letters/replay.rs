//! Handling dead letters again, once whatever was wrong has been put right.
//!
//! Letters are given back key by key, oldest first. A key whose letter fails again keeps it and everything behind it.
//! Invariant: a letter is deleted only after it was handled.

use std::collections::BTreeSet;
use std::future::Future;

use super::{DeadLetter, DeadLetterStore};
use crate::error::{Cause, StoreError};

/// Letters read at a time.
const ROUND: usize = 100;

/// What a replay came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    pub handled: usize,
    /// Keys whose letters stay, with the error of the first one.
    pub failed: Vec<(String, String)>,
}

/// A replay that could not go on.
#[derive(Debug, thiserror::Error)]
#[error("the dead letters could not be read or deleted after {handled} had been handled")]
pub struct ReplayError {
    pub handled: usize,
    #[source]
    pub source: StoreError,
}

/// Gives a processor's letters for which `wanted` says yes to `handle`, until none is left that can be handled.
/// [`crate::Processor::replay`] gives them to the processor's own delegate.
///
/// ```
/// use orrery_processor::dead_letters::{MemoryDeadLetters, replay};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let letters = MemoryDeadLetters::default();
/// let done = replay(&letters, "invoices", |letter| letter.error.contains("timeout"), |letter| async move {
///     println!("again: {:?}", letter.change().id());
///     Ok::<_, std::io::Error>(())
/// })
/// .await?;
/// assert_eq!((done.handled, done.failed.len()), (0, 0));
/// # Ok(())
/// # }
/// ```
pub async fn replay<R, E>(
    store: &dyn DeadLetterStore,
    processor: &str,
    wanted: impl Fn(&DeadLetter) -> bool,
    handle: impl Fn(DeadLetter) -> R,
) -> Result<Replay, ReplayError>
where
    R: Future<Output = Result<(), E>>,
    E: Into<Cause>,
{
    let mut replaying = Replaying {
        store,
        processor,
        wanted,
        handle,
        done: Replay::default(),
    };
    match replaying.run().await {
        Ok(()) => Ok(replaying.done),
        Err(source) => Err(ReplayError {
            handled: replaying.done.handled,
            source,
        }),
    }
}

struct Replaying<'a, W, H> {
    store: &'a dyn DeadLetterStore,
    processor: &'a str,
    wanted: W,
    handle: H,
    done: Replay,
}

impl<W, H, R, E> Replaying<'_, W, H>
where
    W: Fn(&DeadLetter) -> bool,
    H: Fn(DeadLetter) -> R,
    R: Future<Output = Result<(), E>>,
    E: Into<Cause>,
{
    /// Key after key, and again as long as letters came meanwhile that can be handled.
    async fn run(&mut self) -> Result<(), StoreError> {
        let mut failed = BTreeSet::new();
        loop {
            let n_before = self.done.handled;
            for key in self.store.keys(self.processor).await? {
                if failed.contains(&key) {
                    continue;
                }
                if let Some(error) = self.replay_key(&key).await? {
                    self.done.failed.push((key.clone(), error));
                    failed.insert(key);
                }
            }
            if self.done.handled == n_before {
                return Ok(());
            }
        }
    }

    /// The error of a letter that stays, and everything behind it.
    async fn replay_key(&mut self, key: &str) -> Result<Option<String>, StoreError> {
        let mut last: Option<DeadLetter> = None;
        loop {
            let letters = self.store.of_key(self.processor, key, last.as_ref(), ROUND).await?;
            let Some(end) = letters.last().cloned() else {
                return Ok(None);
            };
            for letter in letters {
                if !(self.wanted)(&letter) {
                    continue;
                }
                if let Err(error) = (self.handle)(letter.clone()).await {
                    return Ok(Some(crate::delegate::chain(&*error.into())));
                }
                self.store.delete(&letter).await?;
                self.done.handled += 1;
            }
            last = Some(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::MemoryDeadLetters;
    use super::*;

    fn letter(key: &str, lsn: u64) -> DeadLetter {
        DeadLetter {
            id: format!("{key}{lsn}"),
            processor: "p".into(),
            source: "c".into(),
            lease_token: "-FF".into(),
            epoch: 1,
            range: None,
            key: key.into(),
            item_id: None,
            lsn: Some(lsn),
            index: 0,
            committed_at: None,
            operation: None,
            parked: false,
            attempts: 1,
            first_failed_at: None,
            failed_at: String::new(),
            error: String::new(),
            current: None,
            previous: None,
        }
    }

    #[tokio::test]
    async fn letters_behind_many_that_fail_or_are_not_wanted_are_reached() {
        let store = MemoryDeadLetters::default();
        for lsn in 0..1_500 {
            store.put(&letter("a", lsn)).await.unwrap();
        }
        for number in 0..300 {
            store.put(&letter(&format!("k{number:04}"), 1)).await.unwrap();
        }
        store.put(&letter("z", 1)).await.unwrap();
        let handle = |letter: DeadLetter| async move {
            if letter.key.starts_with('k') {
                Err("still bad")
            } else {
                Ok(())
            }
        };
        let wanted = |letter: &DeadLetter| letter.key != "a" || letter.lsn >= Some(1_490);
        let done = replay(&store, "p", wanted, handle).await.unwrap();
        assert_eq!((done.handled, done.failed.len()), (11, 300));
        assert_eq!(store.letters().len(), 1_490 + 300);
    }

    #[tokio::test]
    async fn letters_come_back_in_order_and_a_key_that_fails_again_keeps_the_rest() {
        let store = MemoryDeadLetters::default();
        for (key, lsn) in [("b", 9), ("a", 3), ("a", 11), ("b", 4), ("a", 5)] {
            store.put(&letter(key, lsn)).await.unwrap();
        }
        let seen = Mutex::new(Vec::new());
        let handle = |letter: DeadLetter| {
            seen.lock().unwrap().push((letter.key.clone(), letter.lsn.unwrap()));
            async move { if letter.id == "b4" { Err("still bad") } else { Ok(()) } }
        };
        let done = replay(&store, "p", |_| true, handle).await.unwrap();
        assert_eq!(
            done,
            Replay {
                handled: 3,
                failed: vec![("b".into(), "still bad".into())]
            }
        );
        let seen = seen.into_inner().unwrap();
        assert_eq!(
            seen,
            [("a".into(), 3), ("a".into(), 5), ("a".into(), 11), ("b".into(), 4)]
        );
        let left: Vec<_> = store.letters().into_iter().map(|letter| letter.id).collect();
        assert_eq!(left, ["b4", "b9"]);
    }
}
