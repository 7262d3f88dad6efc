//! Turns SQL and an item cursor into rows.
//!
//! Three steps, each a module: [`parse`] makes a syntax tree of the text, [`plan`] resolves and checks it against a
//! container's definition, [`run`] pulls items through a cursor and answers pages of rows. All of it is pure: time,
//! randomness, items and user-defined functions come in as arguments.
//!
//! ```
//! use orrery_query::{Context, Parameters, Query, evaluate_list};
//! use orrery_model::json::parse_value;
//!
//! let items = [parse_value(br#"{"id":"a","n":1}"#)?, parse_value(br#"{"id":"b","n":2}"#)?];
//! let query = Query::parse("SELECT VALUE c.id FROM c WHERE c.n > 1")?;
//! let rows = evaluate_list(&query, &items, &Parameters::none(), &Context::default())?;
//! assert_eq!(rows, [orrery_model::Value::from("b")]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod computed;
mod condition;
mod definition;
mod error;
mod functions;
pub mod index;
mod lookup;
mod parameters;
pub mod parse;
pub mod plan;
pub mod run;
mod values;

pub use computed::check_computed_properties;
pub use condition::{Allowance, Condition, parse_condition};
pub use definition::Definition;
pub use error::{Code, Problem, QueryError, Result};
pub use functions::{FunctionName, function_names};
pub use parameters::Parameters;
pub use plan::{Plan, QueryPlan, query_plan};
pub use run::{Context, UserFunctions};
pub use values::{print_row, row_text};

use orrery_model::Value;
use parse::ast::Statement;
use run::{Budget, ListCursor, Page, PageLimits, Row, Unlimited};

/// A query whose text is well-formed.
#[derive(Clone, Debug)]
pub struct Query {
    text: String,
    statement: Statement,
}

impl Query {
    pub fn parse(text: &str) -> Result<Query> {
        Ok(Query {
            text: text.to_owned(),
            statement: parse::parse(text)?,
        })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn statement(&self) -> &Statement {
        &self.statement
    }
}

/// All rows of a query over a list in memory, for those who wrote the query and the list themselves: nothing limits what it
/// may take.
pub fn evaluate_list(
    query: &Query,
    items: &[Value],
    parameters: &Parameters,
    context: &Context<'_>,
) -> Result<Vec<Value>> {
    let page = page_of_list(
        query,
        items,
        parameters,
        context,
        0,
        PageLimits::unlimited(),
        &mut Unlimited,
    )?;
    page.rows.into_iter().map(Row::into_value).collect()
}

/// One page of a query over a list in memory, such as a feed of databases or containers: what follows the first `n_skipped`
/// rows. There is more if it says where to go on.
pub fn page_of_list(
    query: &Query,
    items: &[Value],
    parameters: &Parameters,
    context: &Context<'_>,
    n_skipped: u64,
    limits: PageLimits,
    budget: &mut dyn Budget,
) -> Result<Page> {
    let plan = plan::plan(query, &Definition::plain(), parameters)?.skipping(n_skipped);
    run::run(&plan, &mut ListCursor::new(items), context, limits, None, budget)
}
