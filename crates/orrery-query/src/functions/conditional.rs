//! Functions that choose. `IIF` is not here: it evaluates only the branch it takes, so it is an expression of its own.

use orrery_model::Value;

use super::arguments::Arguments;
use super::registry::{Table, at_least};

pub(super) fn register(table: &mut Table) {
    table.scalar("CHOOSE", at_least(2), choose);
}

/// The n-th of the other arguments, counted from 1.
fn choose(arguments: &Arguments<'_>) -> Option<Value> {
    let index = usize::try_from(arguments.integer(0)?).ok().filter(|index| *index > 0)?;
    arguments.get(index).cloned()
}
