//! Removing many items: a whole logical partition, or what has expired.

use std::ops::Bound;

use orrery_model::log::{DeleteItem, Operation};
use orrery_model::{Charge, Epk, Lsn, Result};

use super::{Context, id_text, load, unreadable};
use crate::command::{Decision, Effect, StepOutcome, StepResult};
use crate::history;
use crate::keys;
use crate::storage::View;
use crate::stored::StoredItem;

/// Bytes of items that one sweep removes, the last item left out: what a transaction takes away may have to be kept.
const SWEEP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Up to `limit` items of one logical partition.
pub(super) fn delete_key(view: &dyn View, epk: &Epk, limit: usize, context: &Context<'_>) -> Result<Decision> {
    let form = context.form();
    let from = keys::items_from(form, epk);
    let mut decision = Decision::default();
    let mut charge = Charge::read_nothing();
    let mut n_bytes = 0;
    for entry in view.scan(Bound::Included(&from), Bound::Unbounded, false) {
        let (key, value) = entry.map_err(unreadable)?;
        let Some((at, number)) = keys::read_item(form, &key).filter(|(at, _)| at == epk) else {
            break;
        };
        if decision.operations.len() == limit || n_bytes > SWEEP_BYTES_MAX {
            decision.more = true;
            break;
        }
        let item = StoredItem::decode(&value).map_err(unreadable)?;
        n_bytes += value.len();
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
    let mut n_bytes = 0;
    for (epk, number) in candidates {
        if n_bytes > SWEEP_BYTES_MAX {
            break;
        }
        if let Some(current) = load(view, context, epk, *number)?.filter(|current| current.expired) {
            let id = id_text(&current.item)?;
            n_bytes += current.item.body.len();
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

/// The oldest versions that have left the window, whole transactions of them.
pub(super) fn trim_history(view: &dyn View, limit: usize, context: &Context<'_>) -> Result<Decision> {
    let through = history::trimmable(view, context.definition, context.now, limit).map_err(unreadable)?;
    Ok(Decision {
        operations: through
            .map(|through| Operation::HistoryTrimmed { through })
            .into_iter()
            .collect(),
        ..Decision::default()
    })
}
