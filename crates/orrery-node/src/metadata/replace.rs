//! Replacing resources. A container's new definition reaches every partition's log before the answer.

use std::sync::Arc;

use bytes::Bytes;
use orrery_model::etag::Precondition;
use orrery_model::json::Value;
use orrery_model::{Error, Result, Status};

use super::{check_precondition, conflict, find, kinds, shown};
use crate::api::{Outcome, ResourceKind, Selector};
use crate::catalogue::{Record, ResourceRecord};
use crate::node::{Node, define};

pub(super) async fn replace(
    node: &Arc<Node>,
    kind: ResourceKind,
    path: &[Selector],
    target: &Selector,
    body: &Value,
    precondition: &Precondition,
) -> Result<Outcome> {
    let mut change = node.control.change().await;
    let (rid, current) = find(&node.control.catalogue(), kind, path, target)?;
    check_precondition(precondition, &current)?;
    let (name, definition) = kinds::check(kind, body, Some(&current.definition))?;
    check_rename(node, kind, &current, &name)?;
    let record = ResourceRecord {
        name: name.clone(),
        etag: change.etag(rid.as_bytes()),
        ts: change.now,
        definition: Bytes::from(definition),
        version: current.version + 1,
        ..ResourceRecord::clone(&current)
    };
    if name != current.name {
        // The old name must be free again before the new one is taken.
        change.put(Record::Resource(rid.clone(), None));
    }
    change.put(Record::Resource(rid.clone(), Some(record.clone())));
    change.commit().await?;
    if kind == ResourceKind::Container {
        redefine(node, &rid).await?;
    }
    Ok(Outcome::Found(shown(&rid, &record)))
}

/// Users, permissions and scripts may take a new name, if it is free.
fn check_rename(node: &Node, kind: ResourceKind, current: &ResourceRecord, name: &str) -> Result<()> {
    if name == current.name {
        return Ok(());
    }
    if let ResourceKind::Database | ResourceKind::Container = kind {
        return Err(Error::bad_request("The id of a resource cannot be changed."));
    }
    let taken = node
        .control
        .catalogue()
        .find(kind, current.parent.as_ref(), &Selector::Name(name.to_owned()))
        .is_some();
    if taken { Err(conflict()) } else { Ok(()) }
}

async fn redefine(node: &Arc<Node>, rid: &orrery_model::ResourceId) -> Result<()> {
    let Some(container) = node.control.catalogue().container(rid).cloned() else {
        return Ok(());
    };
    for range in &container.ranges {
        let learned = match node.partition(range) {
            Ok(partition) => partition.command(define(&container)).await,
            Err(error) => Err(error),
        };
        match learned {
            // Split in the meantime: the children were opened with the new definition or get it when they are.
            Err(error) if error.status() == Status::PARTITION_GONE => {
                tracing::debug!(%error, "a partition learns its new definition when it opens");
            }
            learned => drop(learned?),
        }
    }
    node.policy_changed.notify_one();
    Ok(())
}
