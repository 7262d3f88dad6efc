//! Operations on the catalogue: databases, containers, users, permissions, offers and scripts.
//!
//! All kinds share one shape (a name under a parent, a definition, a tag); what differs is checked in [`kinds`] and shown by
//! [`body`]. Changes are decided and committed under the control lock and never stop halfway.

use std::sync::Arc;

use orrery_model::etag::Precondition;
use orrery_model::{Charge, Error, ResourceId, Result, Status};
use orrery_partition::decide::precondition_failed;

use crate::api::{
    Facts, Failure, MetadataOperation, MetadataVerb, Outcome, Principal, Reply, Resource, ResourceKind, Selector,
};
use crate::authorize;
use crate::catalogue::{Catalogue, ResourceRecord, owner_not_found};
use crate::items::finish;
use crate::node::Node;
use crate::reindex;

pub mod body;
pub mod conflicts;
mod create;
mod delete;
mod kinds;
mod list;
mod offers;
mod replace;
mod usage;

pub async fn execute(node: &Arc<Node>, principal: &Principal, operation: MetadataOperation) -> Result<Reply, Failure> {
    check_principal(node, principal, &operation)?;
    let MetadataOperation { kind, path, verb } = operation;
    let write = !matches!(
        verb,
        MetadataVerb::Read { .. } | MetadataVerb::List { .. } | MetadataVerb::Query { .. }
    );
    let mut facts = Facts {
        charge: Charge::metadata(write),
        ..Facts::default()
    };
    let result = match verb {
        MetadataVerb::Read { target, precondition } => read(node, kind, &path, &target, &precondition, &mut facts),
        MetadataVerb::List { page } => list::list(node, kind, &path, None, &page).await,
        MetadataVerb::Query { query, page } => list::list(node, kind, &path, Some(&query), &page).await,
        write => {
            let worker = Arc::clone(node);
            let changed = node
                .change_catalogue(async move { change(&worker, kind, &path, write).await })
                .await;
            changed.map(|(outcome, min_throughput)| {
                facts.min_throughput = min_throughput;
                outcome
            })
        }
    };
    finish(result, facts)
}

type Changed = (Outcome, Option<u32>);

async fn change(node: &Arc<Node>, kind: ResourceKind, path: &[Selector], verb: MetadataVerb) -> Result<Changed> {
    match verb {
        MetadataVerb::Create {
            body,
            upsert,
            throughput,
            precondition,
        } => create::create(node, kind, path, &body, upsert, throughput, &precondition)
            .await
            .map(|outcome| (outcome, None)),
        MetadataVerb::Replace {
            target,
            body,
            precondition,
            migration,
        } if kind == ResourceKind::Offer => offers::replace(node, &target, &body, &precondition, migration).await,
        MetadataVerb::Replace {
            target,
            body,
            precondition,
            ..
        } => replace::replace(node, kind, path, &target, &body, &precondition)
            .await
            .map(|outcome| (outcome, None)),
        MetadataVerb::Delete { target, precondition } => delete::delete(node, kind, path, &target, &precondition)
            .await
            .map(|outcome| (outcome, None)),
        MetadataVerb::Read { .. } | MetadataVerb::List { .. } | MetadataVerb::Query { .. } => {
            Err(Error::new(Status::INTERNAL, "a read is not a change"))
        }
    }
}

/// A resource token reads its own container; everything else of the catalogue needs an account key.
fn check_principal(node: &Node, principal: &Principal, operation: &MetadataOperation) -> Result<()> {
    if let (Principal::Grant(_), ResourceKind::Container, MetadataVerb::Read { target, .. }) =
        (principal, operation.kind, &operation.verb)
    {
        let catalogue = node.control.catalogue();
        let parent = parent(&catalogue, operation.kind, &operation.path)?;
        if let Some((rid, _)) = catalogue.find(operation.kind, parent.as_ref(), target) {
            return authorize::about(principal, &rid);
        }
    }
    authorize::account(principal)
}

/// The resource id of a kind's parent: 404/1003 when one on the way is missing.
fn parent(catalogue: &Catalogue, kind: ResourceKind, path: &[Selector]) -> Result<Option<ResourceId>> {
    let ancestors: &[ResourceKind] = match kind {
        ResourceKind::Database | ResourceKind::Offer => &[],
        ResourceKind::Container | ResourceKind::User => &[ResourceKind::Database],
        ResourceKind::Permission => &[ResourceKind::Database, ResourceKind::User],
        ResourceKind::StoredProcedure
        | ResourceKind::Trigger
        | ResourceKind::UserDefinedFunction
        | ResourceKind::Conflict => &[ResourceKind::Database, ResourceKind::Container],
    };
    let mut parent: Option<ResourceId> = None;
    for (kind, selector) in ancestors.iter().zip(path) {
        let (rid, _) = catalogue
            .find(*kind, parent.as_ref(), selector)
            .ok_or_else(owner_not_found)?;
        parent = Some(rid);
    }
    Ok(parent)
}

/// The resource a request names. A missing parent is 404/1003 for what lies inside it, except that a container of a
/// missing database is simply not found.
fn find(
    catalogue: &Catalogue,
    kind: ResourceKind,
    path: &[Selector],
    target: &Selector,
) -> Result<(ResourceId, Arc<ResourceRecord>)> {
    let parent = parent(catalogue, kind, path)?;
    let (rid, record) = catalogue.find(kind, parent.as_ref(), target).ok_or_else(not_found)?;
    Ok((rid, Arc::clone(record)))
}

fn read(
    node: &Node,
    kind: ResourceKind,
    path: &[Selector],
    target: &Selector,
    precondition: &Precondition,
    facts: &mut Facts,
) -> Result<Outcome> {
    if kind == ResourceKind::Offer {
        let (resource, minimum) = offers::read(node, target)?;
        facts.min_throughput = Some(minimum);
        return Ok(Outcome::Found(resource));
    }
    let (rid, record) = find(&node.control.catalogue(), kind, path, target)?;
    if kind == ResourceKind::Container {
        facts.index_progress = reindex::progress(node, &rid);
        facts.usage = usage::of_container(node, &rid);
        facts.container = node
            .control
            .catalogue()
            .container(&rid)
            .map(|container| Arc::clone(&container.facts));
    }
    if matches!(precondition, Precondition::IfNoneMatch(_)) && !precondition.holds(Some(&record.etag)) {
        return Ok(Outcome::NotModified {
            etag: record.etag.to_string(),
        });
    }
    Ok(Outcome::Found(shown(&rid, &record)))
}

/// A resource as clients see it.
fn shown(rid: &ResourceId, record: &ResourceRecord) -> Resource {
    Resource {
        body: body::of(rid, record),
        etag: record.etag.to_string(),
    }
}

fn check_precondition(precondition: &Precondition, record: &ResourceRecord) -> Result<()> {
    if precondition.holds(Some(&record.etag)) {
        Ok(())
    } else {
        Err(precondition_failed())
    }
}

fn not_found() -> Error {
    Error::new(Status::NOT_FOUND, "Resource Not Found")
}

fn conflict() -> Error {
    Error::new(
        Status::CONFLICT,
        "Resource with specified id, name, or unique index already exists.",
    )
}
