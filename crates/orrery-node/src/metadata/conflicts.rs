//! Conflicts: versions that lost and are kept, so that an application can look at them and write what it wants to keep.
//!
//! They are resources of their container like scripts are, made by the service and not by clients. The name of a conflict
//! says where it comes from, so that keeping the same one twice keeps it once.

use std::sync::Arc;

use bytes::Bytes;
use orrery_model::json::{Number, Object, Value};
use orrery_model::rid::ChildKind;
use orrery_model::{Error, LogId, Lsn, ResourceId, Result, Status};

use super::create::next_rid;
use crate::api::{ResourceKind, Selector};
use crate::catalogue::{Record, ResourceRecord};
use crate::node::Node;

/// Conflicts of a container that are kept, by number and by size: they are part of the catalogue, which is in memory. Where
/// there is no room nothing is dropped; whoever has them keeps them until there is, or until somebody accepts the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConflictLimits {
    pub n_max: usize,
    pub bytes_max: usize,
}

impl Default for ConflictLimits {
    fn default() -> ConflictLimits {
        ConflictLimits {
            n_max: 50_000,
            bytes_max: 256 << 20,
        }
    }
}

/// A version that lost.
#[derive(Clone, Debug)]
pub struct Lost {
    /// Where it was written.
    pub region: String,
    pub log: LogId,
    pub lsn: Lsn,
    /// Its place in the transaction.
    pub index: usize,
    pub kind: LostKind,
    /// The item's number in its container.
    pub number: u64,
    /// JSON text; of a deletion the item's id alone.
    pub content: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostKind {
    Create,
    Replace,
    Delete,
}

impl Lost {
    fn name(&self) -> String {
        format!("{:x}-{:x}-{:x}", self.log.0, self.lsn.0, self.index)
    }

    fn definition(&self, container: &ResourceId) -> Bytes {
        let operation = match self.kind {
            LostKind::Create => "create",
            LostKind::Replace => "replace",
            LostKind::Delete => "delete",
        };
        let item = ResourceId::child_of_container(container, ChildKind::Item, self.number);
        let mut fields = Object::new();
        fields.insert("id", Value::String(self.name()));
        fields.insert("operationType", Value::from(operation));
        fields.insert("resourceType", Value::from("document"));
        fields.insert("resourceId", Value::String(item.to_string()));
        fields.insert("content", Value::String(self.content.clone()));
        fields.insert("conflict_lsn", Value::Number(Number::from(self.lsn.0 as i64)));
        fields.insert("reason", Value::from("failover"));
        fields.insert("region", Value::String(self.region.clone()));
        Bytes::from(Value::Object(fields).to_text())
    }
}

/// How much more a container can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    n_left: usize,
    bytes_left: usize,
}

impl Room {
    /// Looks at what there is. Clients may delete some of it meanwhile, so that there is more room than this says.
    pub fn of(node: &Node, container: &ResourceId) -> Room {
        let catalogue = node.control.catalogue();
        let kept = catalogue.list(ResourceKind::Conflict, Some(container));
        let n_bytes: usize = kept.iter().map(|(_, record)| record.definition.len()).sum();
        let limits = node.settings.conflicts;
        Room {
            n_left: limits.n_max.saturating_sub(kept.len()),
            bytes_left: limits.bytes_max.saturating_sub(n_bytes),
        }
    }

    /// What is left after so many more, if they fit.
    fn without(self, n_more: usize, bytes_more: usize) -> Option<Room> {
        Some(Room {
            n_left: self.n_left.checked_sub(n_more)?,
            bytes_left: self.bytes_left.checked_sub(bytes_more)?,
        })
    }
}

/// What became of versions that were to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// They are durable. So many of them are new.
    All(usize),
    /// There is no room for those that are new, so many; none of them is kept.
    NoRoom(usize),
}

/// Keeps versions that lost, all of one container, as one change: all of them or none.
pub async fn keep(node: &Arc<Node>, container: &ResourceId, lost: &[Lost], room: &mut Room) -> Result<Kept> {
    let mut change = node.control.change().await;
    let new: Vec<(&Lost, Bytes)> = {
        let catalogue = node.control.catalogue();
        catalogue
            .container(container)
            .ok_or_else(|| Error::bad_request("The container is gone."))?;
        let is_new = |lost: &&Lost| {
            let name = Selector::Name(lost.name());
            catalogue.find(ResourceKind::Conflict, Some(container), &name).is_none()
        };
        let new = lost.iter().filter(is_new);
        new.map(|lost| (lost, lost.definition(container))).collect()
    };
    if new.is_empty() {
        return Ok(Kept::All(0));
    }
    let n_bytes = new.iter().map(|(_, definition)| definition.len()).sum();
    let Some(left) = room.without(new.len(), n_bytes) else {
        return Ok(Kept::NoRoom(new.len()));
    };
    let n_new = new.len();
    for (lost, definition) in new {
        let rid = next_rid(&mut change, ResourceKind::Conflict, Some(container))?;
        let record = ResourceRecord {
            kind: ResourceKind::Conflict,
            parent: Some(container.clone()),
            name: lost.name(),
            etag: change.etag(rid.as_bytes()),
            ts: change.now,
            sequence: change.next_sequence(),
            definition,
            version: 1,
        };
        change.put(Record::Resource(rid, Some(record)));
    }
    change.commit().await?;
    *room = left;
    Ok(Kept::All(n_new))
}

/// Tells what can be done where there is no room.
pub fn no_room(node: &Node, container: &str) -> Error {
    let ConflictLimits { n_max, bytes_max } = node.settings.conflicts;
    Error::new(
        Status::PRECONDITION_FAILED,
        format!(
            "The conflict feed of {container} has no room for what the region alone has: it keeps {n_max} conflicts and {} MB. \
             Nothing is dropped. Delete conflicts that have been looked at and try again, or accept the loss.",
            bytes_max >> 20
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_has_room_for_a_number_and_for_a_size() {
        let room = Room {
            n_left: 2,
            bytes_left: 100,
        };
        assert_eq!(room.without(3, 10), None);
        assert_eq!(room.without(1, 101), None);
        let full = Room {
            n_left: 0,
            bytes_left: 0,
        };
        assert_eq!(room.without(2, 100), Some(full));
    }
}
