//! Conflicts: versions that lost and are kept, so that an application can look at them and write what it wants to keep.
//!
//! They are resources of their container like scripts are, made by the service and not by clients. The name of a conflict
//! says where it comes from, so that keeping the same one twice keeps it once.

use std::sync::Arc;

use bytes::Bytes;
use orrery_model::json::{Number, Object, Value};
use orrery_model::rid::ChildKind;
use orrery_model::{Error, LogId, Lsn, ResourceId, Result};

use super::create::next_rid;
use crate::api::{ResourceKind, Selector};
use crate::catalogue::{Record, ResourceRecord};
use crate::node::Node;

/// Conflicts of a container that are kept. The rest is only counted: they are part of the catalogue, which is in memory.
const PER_CONTAINER_MAX: usize = 50_000;

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

/// Keeps versions that lost, all of one container, as one change. Answers how many are new.
pub async fn keep(node: &Arc<Node>, container: &ResourceId, lost: &[Lost]) -> Result<usize> {
    let mut change = node.control.change().await;
    let mut n_kept = {
        let catalogue = node.control.catalogue();
        catalogue
            .container(container)
            .ok_or_else(|| Error::bad_request("The container is gone."))?;
        catalogue.list(ResourceKind::Conflict, Some(container)).len()
    };
    let mut n_new = 0;
    for lost in lost {
        let name = Selector::Name(lost.name());
        let catalogue = node.control.catalogue();
        let known = catalogue.find(ResourceKind::Conflict, Some(container), &name).is_some();
        drop(catalogue);
        if known || n_kept >= PER_CONTAINER_MAX {
            continue;
        }
        let rid = next_rid(&mut change, ResourceKind::Conflict, Some(container))?;
        let record = ResourceRecord {
            kind: ResourceKind::Conflict,
            parent: Some(container.clone()),
            name: lost.name(),
            etag: change.etag(rid.as_bytes()),
            ts: change.now,
            sequence: change.next_sequence(),
            definition: lost.definition(container),
            version: 1,
        };
        change.put(Record::Resource(rid, Some(record)));
        n_kept += 1;
        n_new += 1;
    }
    if n_new > 0 {
        change.commit().await?;
    }
    Ok(n_new)
}
