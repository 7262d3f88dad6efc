//! What entries of the system log say about which logs there are, for a region that follows.
//!
//! The region that writes may have replaced a log by the time another one learns of it: a partition that was split is split
//! again, and its log is gone. An entry that names such a log is true only together with the later one that replaces it, and
//! is applied with it or not at all; else a region that took over in between would name data that nobody has.

use std::collections::HashSet;

use orrery_model::log::{Operation, Transaction};
use orrery_model::{LogId, PartitionId, ResourceId};

use crate::catalogue::Record;

/// Who names logs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Namer {
    Partition(ResourceId, PartitionId),
    Snapshot(String),
}

/// What an entry says of one namer: the logs it has from now on, none if it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    pub namer: Namer,
    pub logs: Vec<LogId>,
}

/// What a transaction of the system log says about logs, in its order.
pub fn namings(transaction: &Transaction) -> Vec<Naming> {
    let records = transaction.operations.iter().filter_map(|operation| match operation {
        Operation::Record { key, value } => Record::decode(key, value.as_deref()).ok(),
        _ => None,
    });
    records.filter_map(naming).collect()
}

fn naming(record: Record) -> Option<Naming> {
    let (namer, logs) = match record {
        Record::Partition(container, partition, record) => {
            let logs = record.into_iter().map(|record| record.log).collect();
            (Namer::Partition(container, partition), logs)
        }
        Record::Snapshot(name, record) => {
            let saved = record.into_iter().flat_map(|record| record.partitions);
            (Namer::Snapshot(name), saved.map(|saved| saved.copy).collect())
        }
        _ => return None,
    };
    Some(Naming { namer, logs })
}

/// Namers whose logs are not to be had.
#[derive(Debug, Default)]
pub struct Lacking(HashSet<Namer>);

impl Lacking {
    /// A namer has other logs, or none; `all_here` tells whether they could be had.
    pub fn note(&mut self, namer: Namer, all_here: bool) {
        match all_here {
            true => self.0.remove(&namer),
            false => self.0.insert(namer),
        };
    }

    /// Does everything named so far exist here?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_forgotten_when_it_is_replaced() {
        let container = ResourceId::container(&ResourceId::database(0), 0);
        let partition = |number| Namer::Partition(container.clone(), PartitionId(number));
        let mut lacking = Lacking::default();
        lacking.note(partition(1), false);
        lacking.note(partition(2), true);
        assert!(!lacking.is_empty(), "the log of the first child is gone");
        lacking.note(partition(3), true);
        assert!(
            !lacking.is_empty(),
            "its own child does not stand for it while it is named"
        );
        lacking.note(partition(1), true);
        assert!(lacking.is_empty());
    }
}
