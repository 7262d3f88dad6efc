//! Patching: read, check the condition, change, write the whole item as its next version.

use orrery_model::json;
use orrery_model::patch::Patch;
use orrery_model::{Error, Result, Status};

use super::{Decided, Writer, precondition_failed};
use crate::command::Target;
use crate::draft::{ItemDraft, own_properties};

pub(super) fn decide(writer: &Writer<'_>, target: &Target, patch: &Patch) -> Result<Decided> {
    let current = writer.find(target)?;
    writer.check_precondition(&current)?;
    if let Some(condition) = &patch.condition {
        let condition = orrery_query::parse_condition(condition)?;
        let item = json::parse_value(&current.item.body)
            .map_err(|error| Error::new(Status::INTERNAL, "a stored item is not JSON").with_source(error))?;
        if !condition.holds(&item, &orrery_query::Parameters::none())? {
            return Err(precondition_failed());
        }
    }
    let mut object = own_properties(&current.item.body)?;
    patch.apply(&mut object)?;
    let draft = ItemDraft::from_object(writer.context.definition, object)?;
    if draft.id.as_bytes() != current.item.id || draft.key != writer.step.key {
        return Err(Error::bad_request(
            "A patch cannot change the id or the partition key of an item.",
        ));
    }
    writer.put(Vec::new(), &draft, Some(&current))
}
