//! Keys whose changes go to the dead letters because an earlier change of theirs is there.

use std::collections::BTreeSet;
use std::time::Duration;

/// What a worker knows of the parked keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Parked {
    keys: BTreeSet<String>,
    read_at: Option<Duration>,
}

impl Parked {
    /// Whether the store has to be asked: never asked yet, or a while ago while there were keys that may be free by now.
    pub fn is_stale(&self, now: Duration, after: Duration) -> bool {
        match self.read_at {
            None => true,
            Some(read_at) => !self.keys.is_empty() && now.saturating_sub(read_at) >= after,
        }
    }

    pub fn replace(&mut self, keys: impl IntoIterator<Item = String>, now: Duration) {
        self.keys = keys.into_iter().collect();
        self.read_at = Some(now);
    }

    pub fn insert(&mut self, key: String) {
        self.keys.insert(key);
    }

    pub fn contains(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
