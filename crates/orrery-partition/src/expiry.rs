//! Time to live: when an item counts as absent.
//!
//! The container switches it on and may give a default; an item may have its own. Changing the container's default
//! applies to every item that has none of its own, at once, because the moment is computed and not stored.

use orrery_model::{ContainerDefinition, Timestamp};

use crate::stored::StoredItem;

/// When the item ends, in seconds since 1970; `None` for never.
pub fn expires_at(definition: &ContainerDefinition, item: &StoredItem) -> Option<u64> {
    let default = definition.default_ttl()?;
    let seconds = item.ttl.unwrap_or(default);
    u64::try_from(seconds).ok().map(|seconds| item.ts + seconds)
}

/// Is the item absent for every reader now?
pub fn is_expired(definition: &ContainerDefinition, item: &StoredItem, now: Timestamp) -> bool {
    expires_at(definition, item).is_some_and(|at| at <= now.seconds())
}

/// When an item with a time to live of its own ends, for the expiry-ordered entries. Items that follow the container's
/// default are found through the order of changes instead.
pub fn own_expiry(item: &StoredItem) -> Option<u64> {
    u64::try_from(item.ttl?).ok().map(|seconds| item.ts + seconds)
}
