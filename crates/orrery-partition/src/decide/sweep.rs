//! Removing many items: a whole logical partition, or what has expired.

use std::ops::Bound;

use orrery_model::log::{DeleteItem, Operation};
use orrery_model::{Charge, Epk, Lsn, Result};

use super::{Context, id_text, load, unreadable};
use crate::command::{Decision, Effect, StepOutcome, StepResult};
use crate::keys;
use crate::storage::View;
use crate::stored::StoredItem;

/// Up to `limit` items of one logical partition.
pub(super) fn delete_key(view: &dyn View, epk: &Epk, limit: usize, context: &Context<'_>) -> Result<Decision> {
    let form = context.form();
    let from = keys::items_from(form, epk);
    let mut decision = Decision::default();
    let mut charge = Charge::read_nothing();
    for entry in view.scan(Bound::Included(&from), Bound::Unbounded, false) {
        let (key, value) = entry.map_err(unreadable)?;
        let Some((at, number)) = keys::read_item(form, &key).filter(|(at, _)| at == epk) else {
            break;
        };
        if decision.operations.len() == limit {
            decision.more = true;
            break;
        }
        let item = StoredItem::decode(&value).map_err(unreadable)?;
        charge += Charge::delete(item.body.len());
        let id = id_text(&item)?;
        decision.operations.push(Operation::Delete(DeleteItem {
            epk: at,
            id,
            number,
            expired: false,
        }));
    }
    let outcome = StepOutcome {
        effect: Effect::Deleted,
        etag: None,
        body: None,
        lsn: Lsn::ZERO,
    };
    decision.results.push(StepResult {
        outcome: Ok(outcome),
        charge,
    });
    Ok(decision)
}

/// Those candidates that have really expired, whatever has happened since they were listed.
pub(super) fn purge(view: &dyn View, candidates: &[(Epk, u64)], context: &Context<'_>) -> Result<Decision> {
    let mut decision = Decision::default();
    for (epk, number) in candidates {
        if let Some(current) = load(view, context, epk, *number)?.filter(|current| current.expired) {
            let id = id_text(&current.item)?;
            decision.operations.push(Operation::Delete(DeleteItem {
                epk: epk.clone(),
                id,
                number: *number,
                expired: true,
            }));
        }
    }
    Ok(decision)
}
