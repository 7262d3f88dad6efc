//! Where the LSNs of a log leave numbers out: a forced failover begins far above every LSN given out before it.
//!
//! How much a region lacks is counted in transactions, and the numbers that were never given to any are none. The first
//! transaction after a jump names the one before it, so that the log itself tells, also after a restart.

use orrery_model::Lsn;
use orrery_partition::storage::Log;

/// Failovers to look back over. Whoever lacks more than the last so many has its lag told from there on.
const JUMPS_MAX: usize = 32;

/// Numbers that no transaction has: everything between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// The last transaction before.
    pub from: Lsn,
    /// The first one after.
    pub to: Lsn,
}

/// How many transactions follow `after`, up to `head`.
pub fn n_between(after: Lsn, head: Lsn, jumps: &[Jump]) -> u64 {
    let within = jumps.iter().filter(|jump| after < jump.to && jump.to <= head);
    let n_left_out: u64 = within.map(|jump| jump.to.0 - jump.from.max(after).0 - 1).sum();
    head.0.saturating_sub(after.0).saturating_sub(n_left_out)
}

/// The jumps of a log, newest first, as far back as it reaches. What came before its beginning counts as nothing.
pub async fn jumps_of(log: &dyn Log) -> Vec<Jump> {
    let mut jumps = Vec::new();
    let mut lsn = log.head().lsn;
    while let Some(before) = before_epoch(lsn).filter(|_| jumps.len() < JUMPS_MAX) {
        // One transaction is enough: the first of the epoch.
        let read = log.read_log(before, 1).await;
        let first = read.ok().and_then(|transactions| transactions.into_iter().next());
        let Some(first) = first.filter(|first| first.previous <= before) else {
            jumps.push(Jump {
                from: Lsn::ZERO,
                to: before.next(),
            });
            break;
        };
        jumps.push(Jump {
            from: first.previous,
            to: first.lsn,
        });
        lsn = first.previous;
    }
    jumps
}

/// The number before those that the epoch of an LSN began with; `None` when it goes on from the very first.
fn before_epoch(lsn: Lsn) -> Option<Lsn> {
    ((lsn.0 >> 32) << 32).checked_sub(1).map(Lsn)
}

#[cfg(test)]
mod tests {
    use orrery_model::log::{Operation, Transaction};
    use orrery_model::{Epoch, LogId, Timestamp};
    use orrery_partition::storage::{Role, Store};
    use orrery_storage::MemoryStore;

    use super::*;
    use crate::node::append_transaction;

    const EPOCH: u64 = 1 << 32;

    #[test]
    fn numbers_that_were_left_out_are_no_transactions() {
        let jump = |from, to| Jump {
            from: Lsn(from),
            to: Lsn(to),
        };
        let jumps = [jump(EPOCH + 2, 2 * EPOCH), jump(10, EPOCH)];
        let n = |after, head| n_between(Lsn(after), Lsn(head), &jumps);
        assert_eq!(n(4, 10), 6, "before any jump");
        assert_eq!(n(4, EPOCH), 7, "what was missing before the jump is missing still");
        assert_eq!(n(10, EPOCH + 2), 3);
        assert_eq!(n(12, EPOCH + 2), 3, "what was cut off is not missing");
        assert_eq!(n(4, 2 * EPOCH + 1), 6 + 3 + 2, "across both");
        assert_eq!(n(EPOCH + 1, 2 * EPOCH + 1), 1 + 2);
        assert_eq!(n(2 * EPOCH + 1, 2 * EPOCH + 1), 0);
        assert_eq!(n(3 * EPOCH, 2 * EPOCH), 0, "nothing is missing to whoever has more");
    }

    #[tokio::test]
    async fn a_log_tells_its_own_jumps() {
        let store = MemoryStore::new();
        let mut at = Vec::new();
        for (epoch, n_more) in [(1, 4), (2, 1), (7, 2)] {
            let role = Role::Own { epoch: Epoch(epoch) };
            let log = store.open(LogId(1), role).await.unwrap();
            for index in 0..=n_more {
                let head = log.head();
                let lsn = match index {
                    0 if epoch > 1 => Epoch(epoch).start_above(),
                    _ => head.lsn.next(),
                };
                let record = Operation::Record {
                    key: "k".into(),
                    value: None,
                };
                let entry = Transaction::at_lsn(head, Epoch(epoch), lsn, Timestamp(0), vec![record]);
                append_transaction(&*log, entry).await.unwrap();
            }
            at.push(log.head().lsn);
        }
        let log = store.open(LogId(1), Role::Follow).await.unwrap();
        let jumps = jumps_of(&*log).await;
        assert_eq!(
            jumps,
            [
                Jump {
                    from: at[1],
                    to: Lsn(7 * EPOCH)
                },
                Jump {
                    from: at[0],
                    to: Lsn(2 * EPOCH)
                }
            ]
        );
        assert_eq!(n_between(Lsn::ZERO, log.head().lsn, &jumps), 5 + 2 + 3);
        // Once its beginning is gone, so is what came before.
        log.trim(Lsn(2 * EPOCH)).await.unwrap();
        let jumps = jumps_of(&*log).await;
        assert_eq!(jumps[0].from, at[1]);
        assert_eq!((jumps[1].from, jumps[1].to), (Lsn::ZERO, Lsn(2 * EPOCH)));
    }
}
