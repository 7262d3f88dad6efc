//! Letters in memory, for tests and for processes that look at them themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::{DeadLetter, DeadLetterStore, place, sort};
use crate::error::StoreError;

/// Letters that end with the process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryDeadLetters {
    letters: Arc<Mutex<BTreeMap<String, DeadLetter>>>,
}

impl MemoryDeadLetters {
    pub fn letters(&self) -> Vec<DeadLetter> {
        let mut letters: Vec<_> = self.with(|letters| letters.values().cloned().collect());
        sort(&mut letters);
        letters
    }

    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<String, DeadLetter>) -> T) -> T {
        work(&mut self.letters.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl DeadLetterStore for MemoryDeadLetters {
    fn put<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), StoreError>> {
        self.with(|letters| letters.insert(letter.id.clone(), letter.clone()));
        async { Ok(()) }.boxed()
    }

    fn of_key<'a>(
        &'a self,
        processor: &'a str,
        key: &'a str,
        after: Option<&'a DeadLetter>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>, StoreError>> {
        let is_wanted = |letter: &&DeadLetter| {
            let is_behind = after.is_none_or(|after| place(letter) > place(after));
            letter.processor == processor && letter.key == key && is_behind
        };
        let mut letters: Vec<_> = self.with(|letters| letters.values().filter(is_wanted).cloned().collect());
        sort(&mut letters);
        letters.truncate(limit);
        async { Ok(letters) }.boxed()
    }

    fn keys<'a>(&'a self, processor: &'a str) -> BoxFuture<'a, Result<Vec<String>, StoreError>> {
        let letters = self.letters();
        let ours = letters.into_iter().filter(|letter| letter.processor == processor);
        let keys: BTreeSet<String> = ours.map(|letter| letter.key).collect();
        async { Ok(keys.into_iter().collect()) }.boxed()
    }

    fn delete<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), StoreError>> {
        self.with(|letters| letters.remove(&letter.id));
        async { Ok(()) }.boxed()
    }
}
