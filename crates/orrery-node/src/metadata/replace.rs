//! Replacing resources. A container's new definition reaches every partition's log before the answer.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use orrery_model::etag::Precondition;
use orrery_model::json::Value;
use orrery_model::{Error, ResourceId, Result, Status};

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
    if kind == ResourceKind::Container
        && let Err(error) = redefine(node, &rid).await
    {
        // The change is made, so it is not answered as one that failed. Partitions that have not learnt of it will.
        tracing::warn!(container = %rid, %error, "a partition has not learnt its new definition yet");
        node.tasks.spawn(redefine_later(Arc::downgrade(node), rid.clone()));
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

/// Between two attempts to tell partitions their new definition.
const REDEFINE_PAUSE: Duration = Duration::from_millis(500);

/// Goes on telling a container's partitions its definition until all of them have it.
async fn redefine_later(node: Weak<Node>, rid: ResourceId) {
    let Some(stopped) = node.upgrade().map(|node| node.tasks.stopped()) else {
        return;
    };
    tokio::pin!(stopped);
    loop {
        tokio::select! {
            // Both are safe to drop: neither has begun anything.
            () = &mut stopped => return,
            () = tokio::time::sleep(REDEFINE_PAUSE) => {}
        }
        let Some(node) = node.upgrade() else { return };
        if redefine(&node, &rid).await.is_ok() {
            return;
        }
    }
}

/// Tells every partition of a container its definition; fails if one of them could not be told.
async fn redefine(node: &Arc<Node>, rid: &ResourceId) -> Result<()> {
    let Some(container) = node.control.catalogue().container(rid).cloned() else {
        return Ok(());
    };
    let mut told = Ok(());
    for range in &container.ranges {
        let learned = match node.partition(range) {
            // In a cluster its owner learns of it from the system log.
            Ok(partition) if node.duty.clustered && !partition.is_owned() => continue,
            Ok(partition) => partition.command(define(&container)).await,
            Err(error) => Err(error),
        };
        let is_elsewhere = |status| node.duty.clustered && status == Status::WRITE_FORBIDDEN;
        match learned {
            // Split or handed over in the meantime: the children were opened with the new definition or get it when they are,
            // and so does the next owner. The change itself is made.
            Err(error) if error.status() == Status::PARTITION_GONE || is_elsewhere(error.status()) => {
                tracing::debug!(%error, "a partition learns its new definition when it opens");
            }
            Err(error) => told = Err(error),
            Ok(_) => {}
        }
    }
    node.policy_changed.notify_one();
    told
}
