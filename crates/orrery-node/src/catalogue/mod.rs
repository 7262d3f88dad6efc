//! What exists: databases, containers, users, offers and the physical partitions of every container, as the system log
//! tells it.
//!
//! The catalogue is a view like any other: [`Catalogue::apply`] takes the records of the system log in order, at start
//! from the store and afterwards from each commit. Nothing else changes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use orrery_model::{ContainerDefinition, EpkRange, Error, LogId, Lsn, PartitionId, ResourceId, Result, Status};
use orrery_partition::draft::Identity;

use crate::api::{ContainerFacts, ContainerRef, ResourceKind, Selector};

mod record;

pub use record::{
    Counters, OfferRecord, PartitionRecord, Record, ReshardRecord, ResourceRecord, SavedPartition, SnapshotRecord,
};

/// Everything the system log says.
#[derive(Debug, Default)]
pub struct Catalogue {
    pub counters: Counters,
    resources: HashMap<ResourceId, Arc<ResourceRecord>>,
    names: HashMap<(ResourceKind, Option<ResourceId>), HashMap<String, ResourceId>>,
    offers: HashMap<ResourceId, OfferRecord>,
    containers: HashMap<ResourceId, Arc<ContainerEntry>>,
    /// These two in their order: whoever goes through them does so in the same order every time.
    pub reshards: BTreeMap<(ResourceId, PartitionId), ReshardRecord>,
    pub snapshots: BTreeMap<String, SnapshotRecord>,
}

/// A container and its physical partitions as they are now. Replaced as a whole when either changes.
#[derive(Clone, Debug)]
pub struct ContainerEntry {
    pub rid: ResourceId,
    pub name: String,
    /// What every answer says about it.
    pub facts: Arc<ContainerFacts>,
    pub identity: Identity,
    pub definition: Arc<ContainerDefinition>,
    pub definition_version: u64,
    /// Sorted by range; together they cover the whole space.
    pub ranges: Vec<RangeEntry>,
    /// Partitions this container has ever had; the next one's number.
    pub n_partitions_ever: u32,
}

/// One physical partition that serves.
#[derive(Clone, Debug)]
pub struct RangeEntry {
    pub partition: PartitionId,
    pub range: EpkRange,
    pub log: LogId,
    /// All ancestors, oldest first.
    pub parents: Vec<PartitionId>,
    /// LSN of the system transaction that made it serve.
    pub since: Lsn,
}

impl ContainerEntry {
    /// The partition that holds an EPK.
    pub fn route(&self, epk: &orrery_model::Epk) -> Option<&RangeEntry> {
        let after = self.ranges.partition_point(|entry| entry.range.min <= *epk);
        self.ranges
            .get(after.checked_sub(1)?)
            .filter(|entry| entry.range.contains(epk))
    }

    pub fn range(&self, partition: PartitionId) -> Option<&RangeEntry> {
        self.ranges.iter().find(|entry| entry.partition == partition)
    }

    /// The partitions that hold any part of a range.
    pub fn overlapping(&self, range: &EpkRange) -> impl Iterator<Item = &RangeEntry> {
        self.ranges.iter().filter(move |entry| entry.range.overlaps(range))
    }
}

impl Catalogue {
    /// Takes one record of the system log.
    pub fn apply(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        match Record::decode(key, value)? {
            Record::Account(_) => {}
            Record::Counters(counters) => self.counters = counters,
            Record::Resource(rid, resource) => self.apply_resource(rid, resource)?,
            Record::Offer(rid, offer) => match offer {
                Some(offer) => drop(self.offers.insert(rid, offer)),
                None => drop(self.offers.remove(&rid)),
            },
            Record::Partition(container, partition, record) => self.apply_partition(&container, partition, record),
            Record::Reshard(container, child, record) => match record {
                Some(record) => drop(self.reshards.insert((container, child), record)),
                None => drop(self.reshards.remove(&(container, child))),
            },
            Record::Snapshot(name, record) => match record {
                Some(record) => drop(self.snapshots.insert(name, record)),
                None => drop(self.snapshots.remove(&name)),
            },
        }
        Ok(())
    }

    fn apply_resource(&mut self, rid: ResourceId, record: Option<ResourceRecord>) -> Result<()> {
        let Some(record) = record else {
            if let Some(gone) = self.resources.remove(&rid)
                && let Some(names) = self.names.get_mut(&(gone.kind, gone.parent.clone()))
            {
                names.remove(&gone.name);
            }
            self.containers.remove(&rid);
            return Ok(());
        };
        let names = self.names.entry((record.kind, record.parent.clone())).or_default();
        names.insert(record.name.clone(), rid.clone());
        if record.kind == ResourceKind::Container {
            self.apply_container(&rid, &record)?;
        }
        self.resources.insert(rid, Arc::new(record));
        Ok(())
    }

    fn apply_container(&mut self, rid: &ResourceId, record: &ResourceRecord) -> Result<()> {
        let database = record.parent.as_ref().and_then(|parent| self.resources.get(parent));
        let definition = Arc::new(ContainerDefinition::from_stored(&record.definition)?);
        let entry = match self.containers.get(rid) {
            Some(known) => ContainerEntry {
                definition,
                definition_version: record.version,
                ..ContainerEntry::clone(known)
            },
            None => ContainerEntry {
                rid: rid.clone(),
                name: record.name.clone(),
                facts: Arc::new(ContainerFacts::new(
                    database.map(|database| database.name.clone()).unwrap_or_default(),
                    record.name.clone(),
                    rid.clone(),
                )),
                identity: Identity::new(rid.clone()),
                definition,
                definition_version: record.version,
                ranges: Vec::new(),
                n_partitions_ever: 0,
            },
        };
        self.containers.insert(rid.clone(), Arc::new(entry));
        Ok(())
    }

    fn apply_partition(&mut self, container: &ResourceId, partition: PartitionId, record: Option<PartitionRecord>) {
        let Some(entry) = self.containers.get_mut(container) else {
            return;
        };
        let entry = Arc::make_mut(entry);
        entry.ranges.retain(|range| range.partition != partition);
        entry.n_partitions_ever = entry.n_partitions_ever.max(partition.0 + 1);
        if let Some(PartitionRecord {
            range,
            log,
            parents,
            since,
        }) = record
        {
            let place = entry.ranges.partition_point(|other| other.range.min < range.min);
            entry.ranges.insert(
                place,
                RangeEntry {
                    partition,
                    range,
                    log,
                    parents,
                    since,
                },
            );
        }
    }

    /// The resource id that a client's word stands for; one it gave itself need not exist.
    fn rid_of<'a>(
        &'a self,
        kind: ResourceKind,
        parent: Option<&ResourceId>,
        target: &'a Selector,
    ) -> Option<&'a ResourceId> {
        match target {
            Selector::Name(name) => self.names.get(&(kind, parent.cloned()))?.get(name),
            Selector::Rid(rid) => Some(rid),
        }
    }

    /// The resource of a kind under a parent.
    pub fn find(
        &self,
        kind: ResourceKind,
        parent: Option<&ResourceId>,
        target: &Selector,
    ) -> Option<(ResourceId, &Arc<ResourceRecord>)> {
        let rid = self.rid_of(kind, parent, target)?;
        let record = self.resources.get(rid)?;
        (record.kind == kind && record.parent.as_ref() == parent).then(|| (rid.clone(), record))
    }

    /// Resources of a kind under a parent, in the order they were created.
    pub fn list(&self, kind: ResourceKind, parent: Option<&ResourceId>) -> Vec<(&ResourceId, &Arc<ResourceRecord>)> {
        let Some(names) = self.names.get(&(kind, parent.cloned())) else {
            return Vec::new();
        };
        let mut found: Vec<_> = names
            .values()
            .filter_map(|rid| self.resources.get_key_value(rid))
            .collect();
        found.sort_by_key(|(_, record)| record.sequence);
        found
    }

    /// Everything below a resource, deepest first, and the resource itself.
    pub fn subtree(&self, rid: &ResourceId) -> Vec<ResourceId> {
        let mut found = self.all_resources();
        found.retain(|candidate| candidate.as_bytes().starts_with(rid.as_bytes()));
        found
    }

    /// Every database, container, user, permission and script, deepest first.
    pub fn all_resources(&self) -> Vec<ResourceId> {
        let mut all: Vec<ResourceId> = self.resources.keys().cloned().collect();
        all.sort_by_key(|rid| std::cmp::Reverse(rid.as_bytes().len()));
        all
    }

    pub fn resource(&self, rid: &ResourceId) -> Option<&Arc<ResourceRecord>> {
        self.resources.get(rid)
    }

    pub fn containers(&self) -> impl Iterator<Item = &Arc<ContainerEntry>> {
        self.containers.values()
    }

    pub fn container(&self, rid: &ResourceId) -> Option<&Arc<ContainerEntry>> {
        self.containers.get(rid)
    }

    /// The container a request names, or 404/1003, because what the client asked for lies inside it.
    pub fn resolve(&self, container: &ContainerRef) -> Result<Arc<ContainerEntry>> {
        let found = match &container.container {
            Selector::Rid(rid) => self.containers.get(rid),
            Selector::Name(_) => self
                .rid_of(ResourceKind::Database, None, &container.database)
                .and_then(|database| self.rid_of(ResourceKind::Container, Some(database), &container.container))
                .and_then(|rid| self.containers.get(rid)),
        };
        found.cloned().ok_or_else(owner_not_found)
    }

    /// The offer of a database or container.
    pub fn offer_of(&self, target: &ResourceId) -> Option<(&ResourceId, &OfferRecord)> {
        self.offers.iter().find(|(_, offer)| offer.target == *target)
    }

    pub fn offer(&self, rid: &ResourceId) -> Option<&OfferRecord> {
        self.offers.get(rid)
    }

    /// All offers, oldest first.
    pub fn offers(&self) -> Vec<(&ResourceId, &OfferRecord)> {
        let mut offers: Vec<_> = self.offers.iter().collect();
        offers.sort_by_key(|(_, offer)| offer.sequence);
        offers
    }
}

pub fn owner_not_found() -> Error {
    Error::new(Status::PARENT_NOT_FOUND, "Owner resource does not exist")
}
