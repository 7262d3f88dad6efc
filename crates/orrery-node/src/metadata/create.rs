//! Creating resources.

use std::sync::Arc;

use bytes::Bytes;
use orrery_model::etag::Precondition;
use orrery_model::json::Value;
use orrery_model::offer::Throughput;
use orrery_model::rid::ChildKind;
use orrery_model::{ContainerDefinition, EpkRange, Error, PartitionId, ResourceId, Result, Status};
use orrery_partition::draft::Identity;

use super::{body, conflict, kinds, parent, replace, shown};
use crate::api::{ContainerFacts, Outcome, ResourceKind, Selector};
use crate::catalogue::{ContainerEntry, OfferRecord, PartitionRecord, RangeEntry, Record, ResourceRecord};
use crate::control::Change;
use crate::node::Node;

/// Throughput of a container when neither it nor its database says.
const DEFAULT_THROUGHPUT: Throughput = Throughput::Manual(400);

pub(super) async fn create(
    node: &Arc<Node>,
    kind: ResourceKind,
    path: &[Selector],
    body: &Value,
    upsert: bool,
    throughput: Option<Throughput>,
    precondition: &Precondition,
) -> Result<Outcome> {
    let (name, definition) = kinds::check(kind, body, None)?;
    let mut change = node.control.change().await;
    let parent = parent(&node.control.catalogue(), kind, path)?;
    let existing = node
        .control
        .catalogue()
        .find(kind, parent.as_ref(), &Selector::Name(name.clone()))
        .map(|(rid, _)| rid);
    if existing.is_some() {
        drop(change);
        return match (upsert, kind) {
            (true, ResourceKind::Database | ResourceKind::Container) | (false, _) => Err(conflict()),
            (true, _) => replace::replace(node, kind, path, &Selector::Name(name), body, precondition).await,
        };
    }
    let rid = next_rid(&mut change, kind, parent.as_ref())?;
    let record = ResourceRecord {
        kind,
        parent,
        name,
        etag: change.etag(rid.as_bytes()),
        ts: change.now,
        sequence: change.next_sequence(),
        definition: Bytes::from(definition),
        version: 1,
    };
    let created = Outcome::Created(shown(&rid, &record));
    change.put(Record::Resource(rid.clone(), Some(record.clone())));
    match kind {
        ResourceKind::Container => create_container(node, change, rid, &record, throughput).await?,
        _ => {
            if let (ResourceKind::Database, Some(throughput)) = (kind, throughput) {
                put_offer(&mut change, &rid, kind, throughput);
            }
            change.commit().await?;
        }
    }
    Ok(created)
}

/// The container's partitions are opened before the catalogue names it, so that it serves as soon as it is seen. Logs of a
/// create that does not get that far are dropped: their numbers were reserved, so they are nobody else's.
async fn create_container(
    node: &Arc<Node>,
    mut change: Change<'_>,
    rid: ResourceId,
    record: &ResourceRecord,
    throughput: Option<Throughput>,
) -> Result<()> {
    let shared = record
        .parent
        .as_ref()
        .is_some_and(|database| node.control.catalogue().offer_of(database).is_some());
    let throughput = throughput.or_else(|| (!shared).then_some(DEFAULT_THROUGHPUT));
    if let Some(throughput) = throughput {
        put_offer(&mut change, &rid, ResourceKind::Container, throughput);
    }
    let n_partitions = node
        .settings
        .partitions
        .max(throughput.map_or(1, Throughput::n_partitions));
    let definition = Arc::new(ContainerDefinition::from_stored(&record.definition)?);
    let ranges = EpkRange::initial(definition.partition_key(), n_partitions);
    let mut entry = ContainerEntry {
        identity: Identity::new(rid.clone()),
        rid: rid.clone(),
        name: record.name.clone(),
        facts: Arc::new(ContainerFacts::new(String::new(), record.name.clone(), rid.clone())),
        definition,
        definition_version: record.version,
        ranges: Vec::new(),
        n_partitions_ever: n_partitions,
    };
    let logs = change.reserve_logs(ranges.len(), &node.duty).await?;
    for (index, (range, log)) in ranges.into_iter().zip(logs).enumerate() {
        let range = RangeEntry {
            partition: PartitionId(index as u32),
            range,
            log,
            parents: Vec::new(),
            since: change.lsn,
        };
        let stored = PartitionRecord {
            range: range.range.clone(),
            log: range.log,
            parents: Vec::new(),
            since: range.since,
        };
        change.put(Record::Partition(rid.clone(), range.partition, Some(stored)));
        entry.ranges.push(range);
    }
    for range in &entry.ranges {
        if let Err(error) = node.open_partition(&entry, range).await {
            // Nothing names them, whatever became of the last one.
            abandon(node, &entry).await;
            return Err(error);
        }
    }
    if let Err(error) = change.commit().await {
        // A commit that may have happened needs its partitions; if it did not, they go at the next start.
        if error.status() != Status::REQUEST_TIMEOUT {
            abandon(node, &entry).await;
        }
        return Err(error);
    }
    node.set_throttles(&entry);
    Ok(())
}

async fn abandon(node: &Node, entry: &ContainerEntry) {
    for range in &entry.ranges {
        drop(node.close_partition(range.log));
        if let Err(error) = node.store.drop_log(range.log).await {
            tracing::warn!(log = %range.log, %error, "an abandoned log stays until the next start");
        }
    }
}

fn put_offer(change: &mut Change<'_>, target: &ResourceId, kind: ResourceKind, throughput: Throughput) {
    change.counters.offers += 1;
    let rid = ResourceId::offer(change.counters.offers as u32);
    let offer = OfferRecord {
        target: target.clone(),
        target_self: body::self_link(target, kind),
        throughput,
        etag: change.etag(rid.as_bytes()),
        ts: change.now,
        sequence: change.next_sequence(),
    };
    change.put(Record::Offer(rid, Some(offer)));
}

pub(super) fn next_rid(change: &mut Change<'_>, kind: ResourceKind, parent: Option<&ResourceId>) -> Result<ResourceId> {
    let under = || parent.ok_or_else(|| Error::bad_request("The resource needs a parent."));
    let counters = &mut change.counters;
    let child =
        |kind| -> Result<ResourceId> { Ok(ResourceId::child_of_container(under()?, kind, counters.others + 1)) };
    let rid = match kind {
        ResourceKind::Database => {
            counters.databases += 1;
            return Ok(ResourceId::database(counters.databases as u32));
        }
        ResourceKind::Container => {
            counters.containers += 1;
            return Ok(ResourceId::container(under()?, counters.containers as u32));
        }
        ResourceKind::User => {
            counters.users += 1;
            return Ok(ResourceId::user(under()?, counters.users as u32));
        }
        ResourceKind::Permission => ResourceId::permission(under()?, counters.others + 1),
        ResourceKind::StoredProcedure => child(ChildKind::StoredProcedure)?,
        ResourceKind::Trigger => child(ChildKind::Trigger)?,
        ResourceKind::Conflict => child(ChildKind::Conflict)?,
        ResourceKind::UserDefinedFunction => child(ChildKind::UserDefinedFunction)?,
        ResourceKind::Offer => {
            return Err(Error::bad_request(
                "Offers are created with their database or container.",
            ));
        }
    };
    counters.others += 1;
    Ok(rid)
}
