//! Patching: read, check the condition, change, write the whole item as its next version.

use orrery_model::json;
use orrery_model::patch::{Patch, PatchOperation, Pointer};
use orrery_model::{ContainerDefinition, Error, Result, Status};
use orrery_query::Allowance;

use super::{Context, Decided, Writer, precondition_failed};
use crate::command::Target;
use crate::draft::{ItemDraft, own_properties};

/// The language counts time in units of 100 ns.
const TICKS_PER_MS: i64 = 10_000;

pub(super) fn decide(
    writer: &Writer<'_>,
    target: &Target,
    patch: &Patch,
    allowance: &mut Allowance,
) -> Result<Decided> {
    check_paths(writer.context.definition, patch)?;
    let current = writer.find(target)?;
    writer.check_precondition(&current)?;
    if let Some(condition) = &patch.condition {
        let condition = orrery_query::parse_condition(condition, allowance)?;
        let item = json::parse_value(&current.item.body)
            .map_err(|error| Error::new(Status::INTERNAL, "a stored item is not JSON").with_source(error))?;
        if !condition.holds(&item, &world(writer.context), allowance)? {
            return Err(precondition_failed());
        }
    }
    let mut object = own_properties(&current.item.body)?;
    patch.apply(&mut object)?;
    let draft = ItemDraft::from_object(writer.context.definition, object)?;
    if draft.id.as_bytes() != current.item.id || draft.key != writer.step.key {
        return Err(unpatchable());
    }
    writer.put(Vec::new(), &draft, Some(&current))
}

/// What a condition sees besides the item.
fn world(context: &Context<'_>) -> orrery_query::Context<'static> {
    orrery_query::Context {
        now_ticks: context.now.0 as i64 * TICKS_PER_MS,
        seed: context.now.0,
        functions: None,
    }
}

/// A property of the partition key is not to be patched, not even to the value it has.
fn check_paths(definition: &ContainerDefinition, patch: &Patch) -> Result<()> {
    let keys = definition.partition_key().paths();
    let is_key = |path: &&Pointer| keys.iter().any(|key| key.segments().eq(path.segments()));
    match patch.operations.iter().flat_map(PatchOperation::paths).find(is_key) {
        Some(_) => Err(unpatchable()),
        None => Ok(()),
    }
}

fn unpatchable() -> Error {
    Error::bad_request("A patch cannot change the id or the partition key of an item.")
}
