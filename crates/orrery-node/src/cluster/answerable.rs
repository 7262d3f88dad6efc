//! Which reads a node may answer from its own view, whoever owns what they are about.
//!
//! The view lags behind the owner's by what is on its way. Eventual and consistent-prefix reads bear that; a session read does
//! when the view has reached everything the client's token names; any other read is the owner's to answer.
//!
//! A log may be dropped while it is read. So whoever answered asks again afterwards ([`Node::still_stands`]), and an answer whose
//! grounds are gone is thrown away.

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_model::session::SessionProgress;
use orrery_model::{Epk, EpkRange, LogId, Lsn, SessionToken};
use orrery_partition::storage::Log;

use crate::api::{Consistency, ContainerRef, ItemVerb, Operation, Options, Request};
use crate::catalogue::{ContainerEntry, RangeEntry};
use crate::feed::target_range;
use crate::items::find_container;
use crate::node::Node;
use crate::partition::Partition;

/// The partitions an answer was read from.
#[derive(Debug)]
pub struct Grounds(Vec<Arc<dyn Log>>);

impl Node {
    /// The partitions from which this node may answer a request as it is, if it may.
    pub fn grounds(&self, request: &Request) -> Option<Grounds> {
        let Request { options, operation, .. } = request;
        if options.hub_only {
            return None;
        }
        let session = match options.level(self.account().consistency) {
            Consistency::Eventual | Consistency::ConsistentPrefix => None,
            Consistency::Session => Some(options.session.as_ref()?),
            Consistency::BoundedStaleness | Consistency::Strong => return None,
        };
        let (container, range) = self.subject(options, operation)?;
        let mut logs = Vec::new();
        for entry in container.overlapping(&range) {
            let partition = self.partition(entry).ok()?;
            if !partition.serves() || !session.is_none_or(|session| reaches(&partition, entry, session)) {
                return None;
            }
            logs.push(Arc::clone(&partition.log));
        }
        (!logs.is_empty()).then_some(Grounds(logs))
    }

    /// Partitions from which everything about these logs can be answered, if this node has them all.
    pub fn grounds_of(&self, logs: &BTreeSet<LogId>) -> Option<Grounds> {
        let ranges = self.ranges_by_log();
        let mut grounds = Vec::new();
        for log in logs {
            let partition = self.partition(ranges.get(log)?).ok()?;
            if !partition.serves() {
                return None;
            }
            grounds.push(Arc::clone(&partition.log));
        }
        Some(Grounds(grounds))
    }

    /// Whether what an answer was read from was there all the time.
    pub async fn still_stands(&self, grounds: Grounds) -> bool {
        for log in &grounds.0 {
            if !is_alive(&**log).await {
                return false;
            }
        }
        true
    }

    /// The container and the part of it that a read of items is about.
    pub(super) fn subject(&self, options: &Options, operation: &Operation) -> Option<(Arc<ContainerEntry>, EpkRange)> {
        let find = |container: &ContainerRef| find_container(self, options, container).ok();
        let (container, target) = match operation {
            Operation::Item(operation) if matches!(operation.verb, ItemVerb::Read { .. }) => {
                let container = find(&operation.container)?;
                let definition = container.definition.partition_key();
                let key = definition.complete(operation.partition_key.as_ref()?).ok()?;
                let epk = Epk::of(definition, &key);
                let range = container.route(&epk)?.range.clone();
                return Some((container, range));
            }
            Operation::ReadFeed { container, target, .. } | Operation::Query { container, target, .. } => {
                (container, target)
            }
            Operation::ChangeFeed(read) => (&read.container, &read.target),
            _ => return None,
        };
        let container = find(container)?;
        let range = target_range(&container, target).ok()?;
        Some((container, range))
    }
}

/// Has the partition seen what the client has seen of it or of what it came from? A client that says nothing about it may have
/// seen anything.
fn reaches(partition: &Partition, entry: &RangeEntry, session: &SessionToken) -> bool {
    let seen = entry.parents.iter().chain([&partition.id]);
    let wanted = seen
        .filter_map(|partition| session.get(*partition))
        .reduce(SessionProgress::merge);
    wanted.is_some_and(|wanted| partition.progress().reaches(wanted))
}

/// Does a log still exist, with the owner it had when it was opened?
pub(super) async fn is_alive(log: &dyn Log) -> bool {
    // Nothing is added: an append of nothing only looks. It looks at the position too, which may move meanwhile.
    let checked = log.append(log.head(), Vec::new()).await;
    match checked {
        Ok(()) => true,
        Err(orrery_partition::storage::StorageError::Fenced { actual }) => actual.lsn > Lsn::ZERO,
        Err(_) => false,
    }
}
