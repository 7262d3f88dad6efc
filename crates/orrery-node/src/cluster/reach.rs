//! Which logs a request is about, so that it finds its way to whoever owns them.

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_model::{Epk, EpkRange, LogId, Lsn, PartitionKey};

use crate::api::{BatchOperation, ContainerRef, FeedTarget, ItemOperation, ItemVerb, Operation, Options, Request};
use crate::catalogue::ContainerEntry;
use crate::feed::target_range;
use crate::items::{Demand, find_container, prepare};
use crate::node::Node;

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// What exists; or nothing this node knows of, which the coordinator knows better.
    Catalogue,
    /// The logs of these partitions, at least one. `reads` when views are enough to answer it.
    Logs { logs: BTreeSet<LogId>, reads: bool },
}

impl Node {
    /// What a request is about, as far as this node knows.
    pub fn reach(&self, request: &Request) -> Reach {
        let Request { options, operation, .. } = request;
        let found = match operation {
            Operation::Metadata(_) | Operation::PartitionRanges { .. } | Operation::QueryPlan { .. } => None,
            Operation::Item(operation) => self.reach_of_item(options, operation),
            Operation::Batch(operation) => self.reach_of_batch(options, operation),
            Operation::DeletePartitionKey {
                container,
                partition_key,
            } => self
                .known(options, container)
                .and_then(|container| log_of_key(&container, partition_key))
                .map(|log| (BTreeSet::from([log]), false)),
            Operation::ReadFeed { container, target, .. } | Operation::Query { container, target, .. } => {
                self.reach_of_feed(options, container, target)
            }
            Operation::ChangeFeed(read) => self.reach_of_feed(options, &read.container, &read.target),
        };
        match found {
            Some((logs, reads)) if !logs.is_empty() => Reach::Logs { logs, reads },
            _ => Reach::Catalogue,
        }
    }

    /// The log of everything with a partition key, as far as this node knows.
    pub fn log_of(&self, container: &ContainerRef, key: &PartitionKey) -> Option<LogId> {
        let container = self.control.catalogue().resolve(container).ok()?;
        log_of_key(&container, key)
    }

    fn known(&self, options: &Options, container: &ContainerRef) -> Option<Arc<ContainerEntry>> {
        find_container(self, options, container).ok()
    }

    fn reach_of_item(&self, options: &Options, operation: &ItemOperation) -> Option<(BTreeSet<LogId>, bool)> {
        let container = self.known(options, &operation.container)?;
        let reads = matches!(operation.verb, ItemVerb::Read { .. });
        let log = match &operation.partition_key {
            Some(key) => log_of_key(&container, key)?,
            None => log_of_step(&container, None, &operation.verb)?,
        };
        Some((BTreeSet::from([log]), reads))
    }

    /// Also a batch that only reads is decided by whoever writes.
    fn reach_of_batch(&self, options: &Options, operation: &BatchOperation) -> Option<(BTreeSet<LogId>, bool)> {
        let container = self.known(options, &operation.container)?;
        if let Some(partition) = operation.partition {
            return Some((BTreeSet::from([container.range(partition)?.log]), false));
        }
        if operation.atomic {
            let log = log_of_key(&container, operation.partition_key.as_ref()?)?;
            return Some((BTreeSet::from([log]), false));
        }
        let shared = operation.partition_key.as_ref();
        let steps = operation.steps.iter();
        // A step that cannot be read fails wherever it is tried.
        let logs = steps.filter_map(|step| log_of_step(&container, step.partition_key.as_ref().or(shared), &step.verb));
        Some((logs.collect(), false))
    }

    fn reach_of_feed(
        &self,
        options: &Options,
        container: &ContainerRef,
        target: &FeedTarget,
    ) -> Option<(BTreeSet<LogId>, bool)> {
        let container = self.known(options, container)?;
        let range = target_range(&container, target).ok()?;
        Some((logs_over(&container, &range), true))
    }

    /// Where this node's copies of logs stand. `None` when one is not open.
    pub fn heads(&self, logs: &BTreeSet<LogId>) -> Option<Vec<(LogId, Lsn)>> {
        let partitions = self
            .partitions
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let head = |log: &LogId| Some((*log, partitions.get(log)?.log.head().lsn));
        logs.iter().map(head).collect()
    }

    /// Whether this node owns these logs, each proven by a write.
    pub async fn proves_logs(&self, logs: &BTreeSet<LogId>) -> bool {
        let open: Option<Vec<_>> = {
            let partitions = self
                .partitions
                .read()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            logs.iter().map(|log| partitions.get(log).cloned()).collect()
        };
        for partition in open.into_iter().flatten() {
            if !partition.is_owned() || partition.log.barrier().await.is_err() {
                return false;
            }
        }
        logs.iter().all(|log| self.owns(*log))
    }

    /// Waits until this node's copy of a log has reached an LSN. For ever when it is not open.
    pub async fn reaches(&self, log: LogId, lsn: Lsn) {
        let open = {
            let partitions = self
                .partitions
                .read()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            partitions.get(&log).map(|partition| Arc::clone(&partition.log))
        };
        let Some(open) = open else {
            return std::future::pending().await;
        };
        while open.head().lsn < lsn {
            open.wait_past(open.head().lsn).await;
        }
    }
}

fn logs_over(container: &ContainerEntry, range: &EpkRange) -> BTreeSet<LogId> {
    container.overlapping(range).map(|entry| entry.log).collect()
}

fn log_of_key(container: &ContainerEntry, key: &PartitionKey) -> Option<LogId> {
    let definition = container.definition.partition_key();
    let key = definition.complete(key).ok()?;
    Some(container.route(&Epk::of(definition, &key))?.log)
}

/// Where one step goes. What it writes may have to say so.
fn log_of_step(container: &ContainerEntry, key: Option<&PartitionKey>, verb: &ItemVerb) -> Option<LogId> {
    if let Some(key) = key {
        return log_of_key(container, key);
    }
    let step = prepare(container, None, Demand::plain(verb.clone())).ok()?;
    Some(container.route(&step.epk)?.log)
}
