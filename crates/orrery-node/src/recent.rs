//! The latest transactions of all logs, so that whoever follows the change feed is given items without a look-up for each:
//! neighbours in time lie all over the key space.
//!
//! A version is found by the very change that made it, its LSN, place and item number, and never changes again. So nothing here can
//! be out of date; it can only be missing. The oldest go first, whatever log they are of.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orrery_model::log::{Operation, Transaction};
use orrery_model::{LogId, Lsn};
use orrery_partition::stored::StoredItem;

/// What an operation takes besides its texts, and a transaction besides its operations.
const OVERHEAD_BYTES: usize = 160;

#[derive(Debug)]
pub struct Recent {
    bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    logs: HashMap<LogId, VecDeque<Arc<Transaction>>>,
    /// One entry per transaction, in the order of arrival: its log and its size.
    order: VecDeque<(LogId, usize)>,
    bytes: usize,
}

/// The change that made a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeId {
    pub lsn: Lsn,
    /// Place of the operation inside its transaction.
    pub index: u16,
    pub number: u64,
}

impl Recent {
    pub fn new(bytes_max: usize) -> Recent {
        Recent {
            bytes_max,
            kept: Mutex::default(),
        }
    }

    /// Keeps what was appended to a log.
    pub fn push(&self, log: LogId, transactions: Vec<Arc<Transaction>>) {
        let mut kept = self.lock();
        for transaction in transactions {
            let bytes = size(&transaction);
            if bytes > self.bytes_max / 4 {
                continue;
            }
            while kept.bytes + bytes > self.bytes_max && kept.evict_one() {}
            kept.bytes += bytes;
            kept.order.push_back((log, bytes));
            kept.logs.entry(log).or_default().push_back(transaction);
        }
    }

    /// The versions that changes of one log have made, as far as they are kept. Quickest with changes in ascending order.
    pub fn find(&self, log: LogId, changes: &[ChangeId]) -> Vec<Option<StoredItem>> {
        let kept = self.lock();
        let Some(transactions) = kept.logs.get(&log) else {
            return vec![None; changes.len()];
        };
        let mut at = 0;
        let versions = changes.iter().map(|change| {
            // The same transaction as the change before, or the one after it; else it is searched for.
            let is_near = |at: usize| transactions.get(at).is_some_and(|near| near.lsn == change.lsn);
            at = match (is_near(at), is_near(at + 1)) {
                (true, _) => at,
                (_, true) => at + 1,
                _ => transactions.partition_point(|transaction| transaction.lsn < change.lsn),
            };
            version(transactions.get(at)?, change)
        });
        versions.collect()
    }

    /// Forgets a log.
    pub fn clear(&self, log: LogId) {
        let mut kept = self.lock();
        if kept.logs.remove(&log).is_some() {
            kept.order.retain(|(of, _)| *of != log);
            kept.bytes = kept.order.iter().map(|(_, bytes)| bytes).sum();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn evict_one(&mut self) -> bool {
        let Some((log, bytes)) = self.order.pop_front() else {
            return false;
        };
        self.bytes -= bytes;
        if let Some(transactions) = self.logs.get_mut(&log) {
            transactions.pop_front();
            if transactions.is_empty() {
                self.logs.remove(&log);
            }
        }
        true
    }
}

fn version(transaction: &Transaction, change: &ChangeId) -> Option<StoredItem> {
    let index = usize::from(change.index);
    match transaction.operations.get(index)? {
        Operation::Put(put) if transaction.lsn == change.lsn && put.number == change.number => {
            Some(StoredItem::of(put, transaction, index))
        }
        _ => None,
    }
}

fn size(transaction: &Transaction) -> usize {
    let of_one = |operation: &Operation| match operation {
        Operation::Put(put) => OVERHEAD_BYTES + put.id.len() + put.epk.as_bytes().len() + put.body.len(),
        _ => OVERHEAD_BYTES,
    };
    OVERHEAD_BYTES + transaction.operations.iter().map(of_one).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use orrery_model::log::PutItem;
    use orrery_model::{Epk, Etag, IndexingDirective, Position, Timestamp};

    use super::*;

    const LOG: LogId = LogId(7);

    fn put(number: u64, n_bytes: usize) -> Operation {
        Operation::Put(PutItem {
            epk: Epk::from_bytes([number as u8; 4]),
            id: number.to_string(),
            number,
            etag: Etag([0; 16]),
            ttl: None,
            directive: IndexingDirective::Default,
            body: Bytes::from(vec![b'x'; n_bytes]),
        })
    }

    /// A log's transactions, each with so many items; numbers go through.
    fn transactions(n_items: &[u64], n_bytes: usize) -> Vec<Arc<Transaction>> {
        let (mut head, mut number) = (Position::default(), 0);
        let mut made = Vec::new();
        for n in n_items {
            let operations = (number..number + n).map(|number| put(number, n_bytes)).collect();
            let transaction = Transaction::following(head, Timestamp(5_000), operations);
            (head, number) = (transaction.position(), number + n);
            made.push(Arc::new(transaction));
        }
        made
    }

    fn change(transaction: &Transaction, index: u16) -> ChangeId {
        let Operation::Put(put) = &transaction.operations[usize::from(index)] else {
            panic!("not an item");
        };
        ChangeId {
            lsn: transaction.lsn,
            index,
            number: put.number,
        }
    }

    #[test]
    fn versions_are_found_by_their_changes_in_any_order_and_nothing_else_is() {
        let recent = Recent::new(1_000_000);
        let made = transactions(&[1, 3, 1, 2], 10);
        recent.push(LOG, made.clone());
        let changes = [
            change(&made[0], 0),
            change(&made[1], 0),
            change(&made[1], 2),
            change(&made[3], 1),
            change(&made[2], 0),
            change(&made[0], 0),
        ];
        let ids = |found: Vec<Option<StoredItem>>| -> Vec<Option<String>> {
            let id = |item: StoredItem| String::from_utf8(item.id.to_vec()).unwrap();
            found.into_iter().map(|item| item.map(id)).collect()
        };
        let expected = ["0", "1", "3", "6", "4", "0"].map(|id| Some(id.to_owned()));
        assert_eq!(ids(recent.find(LOG, &changes)), expected);
        let (of_another, beyond) = (
            ChangeId {
                number: 9,
                ..changes[0]
            },
            ChangeId { index: 1, ..changes[0] },
        );
        let later = ChangeId {
            lsn: Lsn(1 << 40),
            ..changes[0]
        };
        assert_eq!(ids(recent.find(LOG, &[of_another, beyond, later])), [None, None, None]);
        assert_eq!(ids(recent.find(LogId(8), &changes[..1])), [None]);
        recent.clear(LOG);
        assert_eq!(ids(recent.find(LOG, &changes[..1])), [None]);
        assert_eq!(recent.lock().bytes, 0);
    }

    #[test]
    fn memory_is_bounded_over_all_logs_and_the_oldest_make_room() {
        let recent = Recent::new(20_000);
        let made = transactions(&[1; 40], 1_000);
        for (log, transaction) in (0..40).map(|n| LogId(n % 3)).zip(&made) {
            recent.push(log, vec![Arc::clone(transaction)]);
            assert!(recent.lock().bytes <= 20_000);
        }
        let is_kept = |n: usize| recent.find(LogId(n as u64 % 3), &[change(&made[n], 0)])[0].is_some();
        assert!(!is_kept(0) && !is_kept(22) && is_kept(38) && is_kept(39));
        // One that would put out a quarter of all is not taken in.
        recent.push(LOG, transactions(&[1], 6_000));
        assert!(is_kept(39) && !recent.lock().logs.contains_key(&LOG));
        for log in 0..3 {
            recent.clear(LogId(log));
        }
        let kept = recent.lock();
        assert!(kept.bytes == 0 && kept.order.is_empty() && kept.logs.is_empty());
    }
}
