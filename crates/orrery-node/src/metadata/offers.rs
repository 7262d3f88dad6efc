//! Offers: the throughput of databases and containers.

use std::sync::Arc;

use orrery_model::etag::Precondition;
use orrery_model::json::Value;
use orrery_model::offer::Migration;
use orrery_model::{ResourceId, Result};
use orrery_partition::decide::precondition_failed;

use super::{Changed, body, not_found};
use crate::api::{Outcome, Resource, Selector};
use crate::catalogue::{OfferRecord, Record};
use crate::node::Node;

/// Clients name an offer by its resource id, also where a name would stand.
fn rid_of(target: &Selector) -> Result<ResourceId> {
    match target {
        Selector::Rid(rid) => Ok(rid.clone()),
        Selector::Name(text) => ResourceId::parse(text).ok_or_else(not_found),
    }
}

pub(super) fn read(node: &Node, target: &Selector) -> Result<(Resource, u32)> {
    let rid = rid_of(target)?;
    let catalogue = node.control.catalogue();
    let offer = catalogue.offer(&rid).ok_or_else(not_found)?;
    Ok((shown(&rid, offer), offer.throughput.minimum()))
}

pub(super) async fn replace(
    node: &Arc<Node>,
    target: &Selector,
    body: &Value,
    precondition: &Precondition,
    migration: Migration,
) -> Result<Changed> {
    let rid = rid_of(target)?;
    let mut change = node.control.change().await;
    let current = node.control.catalogue().offer(&rid).cloned().ok_or_else(not_found)?;
    if !precondition.holds(Some(&current.etag)) {
        return Err(precondition_failed());
    }
    let throughput = current.throughput.replace(body, migration)?;
    let record = OfferRecord {
        throughput,
        etag: change.etag(rid.as_bytes()),
        ts: change.now,
        ..current
    };
    change.put(Record::Offer(rid.clone(), Some(record.clone())));
    change.commit().await?;
    let containers: Vec<_> = node.control.catalogue().containers().cloned().collect();
    for container in containers
        .iter()
        .filter(|container| container.rid.as_bytes().starts_with(record.target.as_bytes()))
    {
        node.set_throttles(container);
    }
    Ok((Outcome::Found(shown(&rid, &record)), Some(throughput.minimum())))
}

fn shown(rid: &ResourceId, record: &OfferRecord) -> Resource {
    Resource {
        body: body::of_offer(rid, record),
        etag: record.etag.to_string(),
    }
}
