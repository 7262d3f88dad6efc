//! Conditions of patch requests: `FROM c WHERE …` over the one item to be changed.

use orrery_model::Value;

use crate::Query;
use crate::definition::Definition;
use crate::error::{QueryError, Result};
use crate::parameters::Parameters;
use crate::parse::ast::{Expr, ExprKind, SelectList, Statement};
use crate::parse::{self, Span};
use crate::plan::{Plan, plan};
use crate::run::{self, Context};

/// A well-formed condition.
#[derive(Clone, Debug)]
pub struct Condition {
    query: Query,
}

/// Parses a condition.
pub fn parse_condition(text: &str) -> Result<Condition> {
    let (from, filter) = parse::parse_condition(text)?;
    let span = Span::new(0, text.len());
    let statement = Statement {
        distinct: false,
        top: None,
        list: SelectList::Value(Expr::new(ExprKind::Bool(true), span)),
        from: Some(from),
        filter,
        group_by: Vec::new(),
        order_by: None,
        window: None,
        span,
    };
    let condition = Condition {
        query: Query {
            text: text.to_owned(),
            statement,
        },
    };
    // Unknown names and functions are mistakes in the text too, so they are found here and not at the first item.
    plan(&condition.query, &Definition::plain(), &Parameters::none())?;
    Ok(condition)
}

impl Condition {
    /// Whether the condition is true for `item`.
    pub fn holds(&self, item: &Value, parameters: &Parameters) -> Result<bool, QueryError> {
        self.prepare(parameters)?.holds(item)
    }

    /// The condition made ready for many items.
    pub fn prepare(&self, parameters: &Parameters) -> Result<PreparedCondition> {
        let plan = plan(&self.query, &Definition::plain(), parameters)?;
        Ok(PreparedCondition { plan })
    }
}

/// A condition that has been planned.
#[derive(Debug)]
pub struct PreparedCondition {
    plan: Plan,
}

impl PreparedCondition {
    /// Whether the condition is true for `item`.
    pub fn holds(&self, item: &Value) -> Result<bool> {
        run::holds(&self.plan, item, &Context::default())
    }
}
