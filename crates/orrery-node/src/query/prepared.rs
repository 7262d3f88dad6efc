//! A query made ready for a container: planned, with what the index can do for it.

use orrery_model::Result;
use orrery_query::index::{Condition, IndexOrder};
use orrery_query::plan::{Plan, plan};
use orrery_query::{Definition, Parameters, Query};

use crate::catalogue::ContainerEntry;

#[derive(Debug)]
pub struct Prepared {
    pub plan: Plan,
    /// What items that pass the filter have in the index.
    pub condition: Condition,
    /// The index that has the order asked for.
    pub order: Option<IndexOrder>,
}

impl Prepared {
    /// `in_pieces`: for a caller that puts the rows of several partitions together.
    pub fn new(
        query: &Query,
        container: &ContainerEntry,
        definition: &Definition,
        parameters: &Parameters,
        in_pieces: bool,
    ) -> Result<Prepared> {
        let plan = plan(query, definition, parameters)?;
        let plan = if in_pieces { plan.in_pieces() } else { plan };
        let rules = container.definition.index_rules();
        Ok(Prepared {
            condition: Condition::of(&plan, rules),
            order: IndexOrder::of(&plan, rules),
            plan,
        })
    }

    /// The rows of a page that can matter.
    pub fn rows_at_most(&self, page_rows_max: usize) -> usize {
        self.plan
            .rows_at_most()
            .and_then(|rows| usize::try_from(rows).ok())
            .map_or(page_rows_max, |rows| rows.min(page_rows_max))
    }
}
