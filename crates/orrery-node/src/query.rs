//! Queries: over resources of the catalogue, which are few and held in memory.

use orrery_model::json::Value;
use orrery_model::{Result, Timestamp};
use orrery_query::{Context, Parameters, Query, evaluate_list};

/// Runs a query over values that are all at hand.
pub fn over_values(
    text: &str,
    given: &[(String, Option<Value>)],
    values: &[Value],
    now: Timestamp,
) -> Result<Vec<Value>> {
    let query = Query::parse(text)?;
    let mut parameters = Parameters::none();
    for (name, value) in given {
        parameters.add(name, value.clone())?;
    }
    let context = Context {
        now_ticks: now.0 as i64 * 10_000,
        seed: now.0,
        functions: None,
    };
    Ok(evaluate_list(&query, values, &parameters, &context)?)
}
