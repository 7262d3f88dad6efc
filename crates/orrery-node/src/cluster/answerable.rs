//! Which reads a node may answer from its own view, whoever owns what they are about.
//!
//! The view lags behind the owner's by what is on its way. Eventual and consistent-prefix reads bear that; a session read does
//! when the view has reached everything the client's token names; any other read is the owner's to answer. A client without a
//! token is promised nothing by a session. Its point reads are answered from the view all the same only when that has everything
//! which clients of this node have heard of from the owner: through one node nobody misses what was written through it.
//!
//! A log may be dropped while it is read. So whoever answered asks again afterwards ([`Node::still_stands`]), and an answer whose
//! grounds are gone is thrown away.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use futures::FutureExt as _;
use orrery_model::session::SessionProgress;
use orrery_model::{Epk, EpkRange, LogId, Lsn, SessionToken};
use orrery_partition::storage::Log;

use super::Reach;
use crate::api::{Consistency, ContainerRef, Failure, ItemVerb, Operation, Options, Reply, Request};
use crate::catalogue::{ContainerEntry, RangeEntry};
use crate::feed::target_range;
use crate::items::{Place, Read, begin, find_container, finish, tell_progress};
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

    /// Answers a point read that has nothing to wait for: as the owner of its log while `may_own` says so, or from this node's view
    /// if `from_view`. `None`: nothing was done, and somebody else, or a longer way, has to answer it.
    pub fn read_at_once(
        &self,
        request: &Request,
        may_own: impl Fn(LogId) -> bool,
        from_view: bool,
    ) -> Option<Result<Reply, Failure>> {
        let Request {
            principal,
            options,
            operation: Operation::Item(operation),
        } = request
        else {
            return None;
        };
        let read = Read::of(principal, options, operation)?;
        let level = options.level(self.account().consistency);
        // Whoever answers that has to prove something first.
        if level == Consistency::Strong || self.is_strong(options) {
            return None;
        }
        self.admit(request).ok()?;
        let (container, mut facts) = begin(self, options, &operation.container).ok()?;
        let place = read.place(self, &container).ok()?;
        let partition = &place.partition;
        let log = partition.log.id();
        let is_owned = partition.is_owned() && may_own(log);
        let may_show = || from_view && !options.hub_only && shows(&place, level, options.session.as_ref());
        if !is_owned && !may_show() {
            return None;
        }
        let result = read.execute_at_once(self, &place, &mut facts)?;
        tell_progress(&result, &place, &mut facts);
        // Asked again: what was read, or was not found, may have been another's by then.
        let stands = match is_owned {
            true => self.owns(log) && may_own(log),
            false => is_alive(&*partition.log).now_or_never()?,
        };
        let executed = stands.then(|| finish(result, facts))?;
        self.count(&executed);
        Some(executed)
    }

    /// A client of this node has been told by the owner of logs what they hold.
    pub fn learn_told(&self, reach: &Reach, token: &SessionToken) {
        let Reach::Logs { logs, .. } = reach else { return };
        let partitions = self.partitions.read().unwrap_or_else(PoisonError::into_inner);
        for partition in logs.iter().filter_map(|log| partitions.get(log)) {
            if let Some(seen) = token.get(partition.id) {
                partition.learn_told(seen.lsn);
            }
        }
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

/// Whether the view of a partition that another node owns is enough for a point read.
fn shows(place: &Place, level: Consistency, session: Option<&SessionToken>) -> bool {
    let Place {
        container, partition, ..
    } = place;
    let has_seen = match (level, session) {
        (Consistency::Eventual | Consistency::ConsistentPrefix, _) => true,
        (Consistency::Session, None) => partition.has_what_was_told(),
        (Consistency::Session, Some(session)) => container
            .range(partition.id)
            .is_some_and(|entry| reaches(partition, entry, session)),
        (Consistency::BoundedStaleness | Consistency::Strong, _) => false,
    };
    has_seen && partition.serves()
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
