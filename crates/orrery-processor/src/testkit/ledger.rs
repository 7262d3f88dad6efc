//! A record of every delivery, and the proofs it allows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::feed::Change;

/// One change that reached a delegate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub key: String,
    pub id: String,
    pub lsn: u64,
    pub host: String,
    pub lease: String,
}

/// Deliveries in the order they happened, over all hosts of a test. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    deliveries: Arc<Mutex<Vec<Delivery>>>,
}

impl Ledger {
    /// Notes changes that a delegate was given.
    pub fn note(&self, host: &str, lease: &str, key_path: &str, changes: &[Change]) {
        let paths = [key_path.to_owned()];
        let delivery = |change: &Change| Delivery {
            key: change.key(&paths),
            id: change.id().unwrap_or_default().to_owned(),
            lsn: change.metadata.lsn.unwrap_or_default(),
            host: host.to_owned(),
            lease: lease.to_owned(),
        };
        self.extend(changes.iter().map(delivery));
    }

    pub fn extend(&self, deliveries: impl IntoIterator<Item = Delivery>) {
        let mut noted = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
        noted.extend(deliveries);
    }

    pub fn deliveries(&self) -> Vec<Delivery> {
        self.deliveries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn len(&self) -> usize {
        self.deliveries.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The last LSN delivered of every item.
    pub fn latest(&self) -> BTreeMap<(String, String), u64> {
        let mut latest = BTreeMap::new();
        for delivery in self.deliveries() {
            let seen = latest.entry((delivery.key, delivery.id)).or_insert(0);
            *seen = delivery.lsn.max(*seen);
        }
        latest
    }

    /// Versions delivered more than once, with how often.
    pub fn repeated(&self) -> BTreeMap<(String, String, u64), usize> {
        let mut counts = BTreeMap::new();
        for delivery in self.deliveries() {
            *counts.entry((delivery.key, delivery.id, delivery.lsn)).or_insert(0) += 1;
        }
        counts.retain(|_, count| *count > 1);
        counts
    }

    /// A delivery that came, for the first time, after a later change of its key; none means that every key was in order.
    /// Repeats are allowed: what matters is that nothing new is older than what was already seen.
    pub fn out_of_order(&self) -> Option<Delivery> {
        let mut seen: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for delivery in self.deliveries() {
            let lsns = seen.entry(delivery.key.clone()).or_default();
            let is_new = !lsns.contains(&delivery.lsn);
            if is_new && lsns.last().is_some_and(|last| *last > delivery.lsn) {
                return Some(delivery);
            }
            if is_new {
                lsns.push(delivery.lsn);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(lsns: &[u64]) -> Ledger {
        let ledger = Ledger::default();
        ledger.extend(lsns.iter().map(|lsn| Delivery {
            key: "k".into(),
            id: "i".into(),
            lsn: *lsn,
            host: "h".into(),
            lease: "l".into(),
        }));
        ledger
    }

    #[test]
    fn a_repeat_is_in_order_and_a_late_newcomer_is_not() {
        assert_eq!(ledger(&[1, 2, 3, 2, 3, 4]).out_of_order(), None);
        assert_eq!(ledger(&[1, 3, 2]).out_of_order().map(|delivery| delivery.lsn), Some(2));
        assert_eq!(ledger(&[1, 2, 2]).repeated().len(), 1);
    }
}
