//! Handling dead letters again, once whatever was wrong has been put right.
//!
//! Letters are given back key by key, oldest first. A key whose letter fails again keeps it and everything behind it.
//! Invariant: a letter is deleted only after it was handled.

use std::collections::BTreeSet;
use std::future::Future;

use super::{DeadLetter, DeadLetterStore};
use crate::error::{Cause, StoreError};

/// Letters looked at per round.
const ROUND: usize = 1000;

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
    let mut done = Replay::default();
    let mut failed_keys = BTreeSet::new();
    loop {
        let failed = |source, handled| ReplayError { handled, source };
        let letters = store
            .list(processor, ROUND)
            .await
            .map_err(|error| failed(error, done.handled))?;
        let before = done.handled;
        for letter in letters.into_iter().filter(&wanted) {
            if failed_keys.contains(&letter.key) {
                continue;
            }
            match handle(letter.clone()).await {
                Ok(()) => {
                    store
                        .delete(&letter)
                        .await
                        .map_err(|error| failed(error, done.handled))?;
                    done.handled += 1;
                }
                Err(error) => {
                    failed_keys.insert(letter.key.clone());
                    done.failed.push((letter.key, crate::delegate::chain(&*error.into())));
                }
            }
        }
        if done.handled == before {
            return Ok(done);
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
            range: None,
            key: key.into(),
            item_id: None,
            lsn: Some(lsn),
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
