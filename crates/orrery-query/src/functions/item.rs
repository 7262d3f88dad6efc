//! Functions about the item as a whole.

use orrery_model::{Number, ResourceId, Value};

use super::arguments::Arguments;
use super::registry::{Table, exactly};

pub(super) fn register(table: &mut Table) {
    table.scalar("DOCUMENTID", exactly(1), document_id);
    // For the texts of plans. Planning makes a path of the call.
    table.scalar("_RID", exactly(0), |_| None);
}

/// The number in an item's `_rid`: its last eight bytes, little endian.
fn document_id(arguments: &Arguments<'_>) -> Option<Value> {
    let rid = ResourceId::parse(arguments.get(0)?.get("_rid")?.as_str()?)?;
    let (_, number) = rid.as_bytes().split_last_chunk::<8>()?;
    Some(Value::Number(Number::from(u64::from_le_bytes(*number))))
}
