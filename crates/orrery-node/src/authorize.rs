//! What a principal may do. Asked before an operation runs: whether it writes, once, here; whether it is about what the
//! principal was granted, as soon as the container is known.

use orrery_model::{Error, PartitionKey, ResourceId, Result, Status};

use crate::api::{ItemVerb, MetadataVerb, Operation, Principal, ResourceKind};

/// Refuses a write by a principal that may only read.
pub fn writes(principal: &Principal, operation: &Operation) -> Result<()> {
    let read_only = match principal {
        Principal::Account { read_only } => *read_only,
        Principal::Grant(grant) => grant.read_only,
    };
    if read_only && is_write(operation) {
        return Err(forbidden("The given key or token allows reading only."));
    }
    Ok(())
}

/// Refuses a look at permissions by a key that allows reading only: with each of them comes a token that may allow more.
pub fn permissions(principal: &Principal, operation: &Operation) -> Result<()> {
    let is_about_permissions =
        matches!(operation, Operation::Metadata(operation) if operation.kind == ResourceKind::Permission);
    match principal {
        Principal::Account { read_only: true } if is_about_permissions => Err(forbidden(
            "A key that allows reading only does not allow reading permissions.",
        )),
        _ => Ok(()),
    }
}

/// Does an operation change anything?
pub fn is_write(operation: &Operation) -> bool {
    match operation {
        Operation::Metadata(operation) => !matches!(
            operation.verb,
            MetadataVerb::Read { .. } | MetadataVerb::List { .. } | MetadataVerb::Query { .. }
        ),
        Operation::Item(operation) => !matches!(operation.verb, ItemVerb::Read { .. }),
        Operation::Batch(operation) => operation
            .steps
            .iter()
            .any(|step| !matches!(step.verb, ItemVerb::Read { .. })),
        Operation::DeletePartitionKey { .. } => true,
        Operation::PartitionRanges { .. }
        | Operation::ReadFeed { .. }
        | Operation::Query { .. }
        | Operation::QueryPlan { .. }
        | Operation::ChangeFeed(_) => false,
    }
}

/// Is an operation for the region that takes writes? A batch is, also one that only reads: its steps are decided together by the
/// partition's writer.
pub fn needs_writer(operation: &Operation) -> bool {
    matches!(operation, Operation::Batch(_)) || is_write(operation)
}

/// Refuses everything a resource token was not issued for. `item` is the id of the one item that a request is about; creating
/// one is about the container.
pub fn scope(
    principal: &Principal,
    container: &ResourceId,
    key: Option<&PartitionKey>,
    item: Option<&str>,
) -> Result<()> {
    let Principal::Grant(grant) = principal else {
        return Ok(());
    };
    let is_inside = container.as_bytes().starts_with(grant.resource.as_bytes());
    if !is_inside || (grant.item.is_some() && grant.item.as_deref() != item) {
        return Err(forbidden("The resource token was not issued for this resource."));
    }
    match &grant.partition_key {
        Some(granted) if key != Some(granted) => {
            Err(forbidden("The resource token was issued for another partition key."))
        }
        _ => Ok(()),
    }
}

/// Whether a principal may be about one item only, whose id must then be known to tell.
pub fn is_about_an_item(principal: &Principal) -> bool {
    matches!(principal, Principal::Grant(grant) if grant.item.is_some())
}

/// Refuses a look at a container itself, its definition and partitions, to whom it does not concern. A token for one logical
/// partition or one item needs both to find its way.
pub fn about(principal: &Principal, container: &ResourceId) -> Result<()> {
    match principal {
        Principal::Grant(grant) if grant.resource.as_bytes().starts_with(container.as_bytes()) => Ok(()),
        Principal::Grant(grant) if container.as_bytes().starts_with(grant.resource.as_bytes()) => Ok(()),
        Principal::Grant(_) => Err(forbidden("The resource token was not issued for this resource.")),
        Principal::Account { .. } => Ok(()),
    }
}

/// Refuses what only holders of an account key may do.
pub fn account(principal: &Principal) -> Result<()> {
    match principal {
        Principal::Account { .. } => Ok(()),
        Principal::Grant(_) => Err(forbidden("A resource token does not allow this operation.")),
    }
}

fn forbidden(message: &str) -> Error {
    Error::new(Status::FORBIDDEN, message)
}
