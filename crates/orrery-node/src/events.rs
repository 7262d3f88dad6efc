//! What happens in a region, told to whoever listens: administrators, tests, tools.
//!
//! Telling never waits. Each listener has a bounded queue; one that is too slow loses the oldest events and is told how
//! many it missed. Nothing here is durable: the catalogue is the truth, events only say that it is worth a look.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use orrery_model::{PartitionId, ResourceId, Timestamp};
use orrery_partition::storage::Health;
use tokio::sync::broadcast;

use crate::api::ResourceKind;
use crate::catalogue::{Catalogue, Record, ReshardRecord};
use crate::clock::Clock;
use crate::geo::simulated::Simulated;

/// Events a listener may be behind.
const QUEUE: usize = 256;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Rises by one with each event of this process.
    pub sequence: u64,
    pub at: Timestamp,
    pub happening: Happening,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    Created(Named),
    Replaced(Named),
    Deleted(Named),
    /// A split or merge has begun, the parents still serve.
    ReshardStarted(Reshard),
    /// The children serve.
    ReshardFinished(Reshard),
    /// It was given up, the parents go on serving.
    ReshardUndone(Reshard),
    SnapshotSaved {
        name: String,
    },
    SnapshotDropped {
        name: String,
    },
    KeysChanged,
    /// The store takes writes again.
    StoreWritable,
    /// Too little free space: writes are refused, reads go on.
    StoreFull,
    /// A sync failed: writes are refused until the store has been reopened and verified.
    StoreReadOnly {
        reason: String,
    },
    /// Another region has taken over from one that was taken offline.
    FailedOver {
        from: String,
        to: String,
        /// That only the old one has.
        lost_transactions: u64,
        /// Logs of which it has more that could not be counted.
        n_uncounted: u64,
    },
    /// What a region alone had could not all be kept when it came back, and whoever brought it back accepted that.
    ConflictsDropped {
        region: String,
        n_versions: u64,
        n_unreadable_logs: u64,
    },
    /// Something that a region's store has is not what was written. With other regions it is made anew from them.
    RegionDamaged {
        region: String,
        reason: String,
    },
    /// A region whose data was damaged has been given an empty store and takes over what the others have.
    RegionRenewed {
        region: String,
    },
    /// A fault rule was applied to a request.
    FaultApplied {
        rule: u64,
        operation: String,
    },
    /// Somebody has changed the simulated world.
    Simulated(Simulated),
}

/// A resource of the catalogue by its names, from the outside in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub kind: ResourceKind,
    pub path: Vec<String>,
}

/// Partitions that become others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshard {
    pub database: String,
    pub container: String,
    pub parents: Vec<PartitionId>,
    pub children: Vec<PartitionId>,
}

impl Reshard {
    pub fn is_split(&self) -> bool {
        self.parents.len() == 1
    }
}

/// Where events are told and heard.
#[derive(Clone, Debug)]
pub struct Events {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Arc<dyn Clock>,
    n_told: AtomicU64,
    sender: broadcast::Sender<Event>,
}

/// One listener's queue.
#[derive(Debug)]
pub struct Listener(broadcast::Receiver<Event>);

/// What a listener gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    Event(Event),
    /// This many events were lost because the listener was too slow.
    Missed(u64),
}

impl Events {
    pub fn new(clock: Arc<dyn Clock>) -> Events {
        Events {
            shared: Arc::new(Shared {
                clock,
                n_told: AtomicU64::new(0),
                sender: broadcast::Sender::new(QUEUE),
            }),
        }
    }

    pub fn tell(&self, happening: Happening) {
        let event = Event {
            sequence: self.shared.n_told.fetch_add(1, Ordering::Relaxed) + 1,
            at: self.shared.clock.now(),
            happening,
        };
        // Nobody needs to listen.
        let _ = self.shared.sender.send(event);
    }

    /// Hears everything told from now on.
    pub fn listen(&self) -> Listener {
        Listener(self.shared.sender.subscribe())
    }
}

impl Listener {
    /// The next event; `None` when there will be no more. Safe to drop: an event that was not returned stays queued.
    pub async fn next(&mut self) -> Option<Heard> {
        match self.0.recv().await {
            Ok(event) => Some(Heard::Event(event)),
            Err(broadcast::error::RecvError::Lagged(n_missed)) => Some(Heard::Missed(n_missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// What a committed change amounts to, given the catalogue before and after it.
pub(crate) fn of_change(records: &[Record], before: &Summary, after: &Catalogue) -> Vec<Happening> {
    let mut happenings = before.compare(after);
    for record in records {
        happenings.extend(match record {
            Record::Account(_) => Some(Happening::KeysChanged),
            Record::Snapshot(name, Some(_)) => Some(Happening::SnapshotSaved { name: name.clone() }),
            Record::Snapshot(name, None) => Some(Happening::SnapshotDropped { name: name.clone() }),
            Record::Reshard(container, _, Some(record)) => {
                reshard(after, container, record).map(Happening::ReshardStarted)
            }
            _ => None,
        });
    }
    happenings
}

/// What a change touches, as it was before.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    resources: Vec<(ResourceId, Option<Named>)>,
    /// Splits and merges that end with the change, and whether partitions change with them.
    reshards: Vec<(Reshard, bool)>,
}

impl Summary {
    pub(crate) fn of(records: &[Record], before: &Catalogue) -> Summary {
        let rids: BTreeSet<&ResourceId> = records
            .iter()
            .filter_map(|record| match record {
                Record::Resource(rid, _) => Some(rid),
                _ => None,
            })
            .collect();
        let publishes = records.iter().any(|record| matches!(record, Record::Partition(..)));
        let ended = records.iter().filter_map(|record| match record {
            Record::Reshard(container, child, None) => {
                let record = before.reshards.get(&(container.clone(), *child))?;
                Some((reshard(before, container, record)?, publishes))
            }
            _ => None,
        });
        Summary {
            resources: rids.into_iter().map(|rid| (rid.clone(), named(before, rid))).collect(),
            reshards: ended.collect(),
        }
    }

    fn compare(&self, after: &Catalogue) -> Vec<Happening> {
        let resources = self.resources.iter().filter_map(|(rid, before)| {
            Some(match (before, named(after, rid)) {
                (None, Some(created)) => Happening::Created(created),
                (Some(_), Some(replaced)) => Happening::Replaced(replaced),
                (Some(deleted), None) => Happening::Deleted(deleted.clone()),
                (None, None) => return None,
            })
        });
        let reshards = self.reshards.iter().map(|(reshard, published)| match published {
            true => Happening::ReshardFinished(reshard.clone()),
            false => Happening::ReshardUndone(reshard.clone()),
        });
        resources.chain(reshards).collect()
    }
}

fn named(catalogue: &Catalogue, rid: &ResourceId) -> Option<Named> {
    let record = catalogue.resource(rid)?;
    let mut path = vec![record.name.clone()];
    let mut parent = record.parent.clone();
    while let Some(record) = parent.as_ref().and_then(|parent| catalogue.resource(parent)) {
        path.insert(0, record.name.clone());
        parent = record.parent.clone();
    }
    Some(Named {
        kind: record.kind,
        path,
    })
}

fn reshard(catalogue: &Catalogue, container: &ResourceId, record: &ReshardRecord) -> Option<Reshard> {
    let entry = catalogue.container(container)?;
    Some(Reshard {
        database: entry.facts.database_name.clone(),
        container: entry.name.clone(),
        parents: record.parents.clone(),
        children: record.children.iter().map(|(child, ..)| *child).collect(),
    })
}

/// What it means that a store's health is now this and was something else before.
pub(crate) fn of_health(now: &Health) -> Option<Happening> {
    match now {
        Health::Writable => Some(Happening::StoreWritable),
        Health::Full => Some(Happening::StoreFull),
        Health::ReadOnly(reason) => Some(Happening::StoreReadOnly { reason: reason.clone() }),
        Health::Closed => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn events() -> Events {
        Events::new(Arc::new(ManualClock::at(Timestamp(5))))
    }

    #[tokio::test]
    async fn a_listener_hears_what_is_told_after_it_came() {
        let events = events();
        events.tell(Happening::StoreFull);
        let mut listener = events.listen();
        events.tell(Happening::StoreWritable);
        let expected = Event {
            sequence: 2,
            at: Timestamp(5),
            happening: Happening::StoreWritable,
        };
        assert_eq!(listener.next().await, Some(Heard::Event(expected)));
    }

    #[tokio::test]
    async fn a_slow_listener_is_told_how_many_it_missed_and_then_hears_the_rest() {
        let events = events();
        let mut listener = events.listen();
        let n_lost = 7;
        (0..QUEUE as u64 + n_lost).for_each(|_| events.tell(Happening::KeysChanged));
        assert_eq!(listener.next().await, Some(Heard::Missed(n_lost)));
        let Some(Heard::Event(next)) = listener.next().await else {
            panic!("the queue holds the latest events");
        };
        assert_eq!(next.sequence, n_lost + 1);
    }

    #[tokio::test]
    async fn a_listener_ends_with_what_it_listens_to() {
        let events = events();
        let mut listener = events.listen();
        drop(events);
        assert_eq!(listener.next().await, None);
    }
}
