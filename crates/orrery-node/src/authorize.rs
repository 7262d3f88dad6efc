//! What a principal may do. Asked before an operation runs: whether it writes, once, here; whether it is about what the
//! principal was granted, as soon as the container is known.

use orrery_model::{Error, PartitionKey, ResourceId, Result, Status};

use crate::api::{ItemVerb, MetadataVerb, Operation, Principal};

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

/// Refuses everything a resource token was not issued for.
pub fn scope(
    principal: &Principal,
    container: &ResourceId,
    key: Option<&PartitionKey>,
    item: Option<&ResourceId>,
) -> Result<()> {
    let Principal::Grant(grant) = principal else {
        return Ok(());
    };
    let granted = grant.resource.as_bytes();
    let inside =
        container.as_bytes().starts_with(granted) || item.is_some_and(|item| item.as_bytes().starts_with(granted));
    if !inside {
        return Err(forbidden("The resource token was not issued for this resource."));
    }
    match &grant.partition_key {
        Some(granted) if key != Some(granted) => {
            Err(forbidden("The resource token was issued for another partition key."))
        }
        _ => Ok(()),
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
