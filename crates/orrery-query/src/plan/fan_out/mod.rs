//! Query plans: what a client must know to run a query over several partitions itself.
//!
//! The client asks every range with the rewritten text, merges, and finishes what partitions cannot do alone. The texts
//! and the member order of the plan are a contract with the SDKs.

mod build;
mod compositions;
mod features;
mod hybrid;
mod info;
mod keys;
mod ranges;
mod rewrite;

pub use compositions::check_compositions;
pub use features::{Feature, Features};
pub use info::{Distinct, HybridSearchInfo, QueryInfo, QueryPlan, QueryRange};

use orrery_model::PartitionKeyDefinition;

use super::compiler;
use crate::Query;
use crate::definition::Definition;
use crate::error::Result;
use crate::parameters::Parameters;

/// Plans `query` for a client with the given abilities.
pub fn query_plan(
    query: &Query,
    definition: &Definition,
    partition_key: &PartitionKeyDefinition,
    parameters: &Parameters,
    features: &Features,
) -> Result<QueryPlan> {
    // Which indexes exist is found out when the query runs.
    let definition = definition.clone().without_index_requirements();
    let plan = compiler::compile(query, &definition, parameters)?;
    let ranges = ranges::query_ranges(&plan, partition_key);
    let built = build::build(query.statement(), &plan, &ranges, parameters, features)?;
    features.require(&built.needed)?;
    Ok(QueryPlan {
        info: built.info,
        hybrid: built.hybrid,
        ranges,
    })
}
