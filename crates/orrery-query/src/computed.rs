//! Computed properties: `SELECT VALUE … FROM c`, one value made of one item and of nothing else.
//!
//! What a query of that form may say is checked when a container is defined, so that every query over the container can take
//! the expression as if it had been written there.

use orrery_model::Value;
use orrery_model::json::Object;

use crate::Query;
use crate::definition::Definition;
use crate::error::{QueryError, Result};
use crate::functions::{Kind, find};
use crate::parameters::Parameters;
use crate::parse::ast::{Collection, Expr, ExprKind, SelectList, Statement, Step};
use crate::plan::plan;

/// A virtual property: its name and the query that computes it.
#[derive(Clone, Debug)]
pub(crate) struct ComputedProperty {
    pub name: String,
    pub query: Statement,
}

/// Checks the computed properties among the fields of a container.
pub fn check_computed_properties(fields: &Object) -> Result<()> {
    read_all(fields).try_for_each(|property| property.map(drop))
}

/// The computed properties of a container, as far as they make sense: a query that does not would make no sense in any other.
pub(crate) fn of_container(fields: &Object) -> Vec<ComputedProperty> {
    read_all(fields).filter_map(Result::ok).collect()
}

fn read_all(fields: &Object) -> impl Iterator<Item = Result<ComputedProperty>> {
    let entries = fields
        .get("computedProperties")
        .and_then(Value::as_array)
        .unwrap_or_default();
    let texts = |entry: &Value| Some((text(entry, "name")?, text(entry, "query")?));
    let all: Vec<(String, String)> = entries.iter().filter_map(texts).collect();
    let names: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
    all.into_iter().map(move |(name, query)| {
        let others: Vec<&str> = names
            .iter()
            .map(String::as_str)
            .filter(|other| *other != name)
            .collect();
        match read(&query, &others) {
            Ok(query) => Ok(ComputedProperty { name, query }),
            Err(error) => Err(QueryError::plain(format!(
                "The query of the computed property '{name}' is not valid: {}",
                error.inner()
            ))),
        }
    })
}

fn text(entry: &Value, member: &str) -> Option<String> {
    entry.get(member).and_then(Value::as_str).map(str::to_owned)
}

fn read(text: &str, others: &[&str]) -> Result<Statement> {
    let query = Query::parse(text)?;
    let (alias, value) = value_of(&query.statement).ok_or_else(|| {
        QueryError::plain("It must be of the form SELECT VALUE expression FROM alias, without any other clause.")
    })?;
    check(value, alias, others)?;
    plan(&query, &Definition::plain(), &Parameters::none())?;
    Ok(query.statement)
}

/// The alias and the expression of `SELECT VALUE expression FROM alias`; `None` for every other statement.
pub(crate) fn value_of(statement: &Statement) -> Option<(&str, &Expr)> {
    let Statement {
        distinct: false,
        top: None,
        list: SelectList::Value(value),
        from: Some(from),
        filter: None,
        group_by,
        order_by: None,
        window: None,
        ..
    } = statement
    else {
        return None;
    };
    let [source] = from.sources.as_slice() else { return None };
    let is_item = matches!(&source.collection, Collection::Path { steps, .. } if steps.is_empty());
    let alias = source.binding()?;
    (is_item && !source.iterate && group_by.is_empty()).then_some((alias, value))
}

/// Refuses what does not depend on the item alone, and what is not known of it without looking at other things first.
fn check(expr: &Expr, alias: &str, others: &[&str]) -> Result<()> {
    let refused = match &expr.kind {
        ExprKind::Subquery { .. } => Some("a subquery".to_owned()),
        ExprKind::Parameter(name) => Some(format!("the parameter '{name}'")),
        ExprKind::Call { name, udf: true, .. } => Some(format!("the user-defined function '{}'", name.text)),
        ExprKind::Call { name, .. } if is_refused(&name.text) => Some(format!("the function '{}'", name.text)),
        ExprKind::Postfix { base, steps } => match (&base.kind, steps.first().and_then(step_name)) {
            (ExprKind::Name(root), Some(name)) if root == alias && others.contains(&name) => {
                Some(format!("the computed property '{name}'"))
            }
            _ => None,
        },
        _ => None,
    };
    if let Some(refused) = refused {
        return Err(QueryError::plain(format!("It must not use {refused}.")));
    }
    expr.children()
        .into_iter()
        .try_for_each(|child| check(child, alias, others))
}

/// Aggregates, spatial functions, and those that give something else each time.
fn is_refused(function: &str) -> bool {
    let Some(known) = find(function) else { return false };
    let name = function.to_ascii_uppercase();
    let is_varying = name.starts_with("GETCURRENT") || name == "RAND" || name == "NOW";
    is_varying || name.starts_with("ST_") || matches!(known.kind, Kind::Aggregate(_))
}

fn step_name(step: &Step) -> Option<&str> {
    match step {
        Step::Member(name) => Some(&name.text),
        Step::Index(index) => match &index.kind {
            ExprKind::String(name) => Some(name),
            _ => None,
        },
    }
}
