//! Computed properties: `SELECT VALUE … FROM c`, one value made of one item and of nothing else.
//!
//! What a query of that form may say is checked when a container is defined. The expression is made ready once per definition,
//! for the queries that name the property and for the index that holds its values: both compute the same.

use std::cell::Cell;
use std::sync::Arc;

use orrery_model::Value;
use orrery_model::json::{Object, Wanted};

use crate::Query;
use crate::definition::Definition;
use crate::error::{QueryError, Result};
use crate::functions::{Kind, find};
use crate::parameters::Parameters;
use crate::parse::ast::{self, Collection, ExprKind, SelectList, Statement};
use crate::plan::{Expr, Step, plan, survey_value};
use crate::run;
use crate::values::is_finite;

/// What the computed properties of one item may take together for an index, in units of about a nanosecond: the writer of the
/// item waits for it.
pub(crate) const COMPUTING_WORK_MAX: u64 = 1 << 20;

/// A virtual property, ready to be computed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ComputedProperty {
    name: String,
    /// Sees the item in two frames: as the item, and as what its query calls it.
    value: Expr,
    /// How many expressions the value is made of, at most.
    pub n_expressions: usize,
    planar: bool,
}

/// What an index is told of a computed property.
pub(crate) enum Indexable {
    Value(Value),
    Undefined,
    /// It takes too much to compute, or is nothing that an index can hold.
    Unknown,
}

impl ComputedProperty {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// For a frame chain that [`run`] makes of the item.
    pub fn value(&self) -> &Expr {
        &self.value
    }

    /// The steps from the item, when the property only gives another name to a path.
    pub fn stored_path(&self) -> Option<&[Step]> {
        match &self.value {
            Expr::Path { steps, .. } => Some(steps),
            _ => None,
        }
    }

    /// Adds the parts of an item that the value depends on.
    pub fn survey(&self, wanted: &mut Wanted) {
        survey_value(&self.value, wanted);
    }

    /// The value that an index holds for an item: the same wherever and whenever it is asked for. It takes from the work that
    /// is left.
    pub fn of(&self, item: &Value, work_left: &Cell<u64>) -> Indexable {
        match run::compute(self, item, self.planar, work_left) {
            Ok(None) => Indexable::Undefined,
            Ok(Some(value)) if is_finite(&value) => Indexable::Value(value),
            Ok(Some(_)) | Err(_) => Indexable::Unknown,
        }
    }
}

/// Checks the computed properties among the fields of a container.
pub fn check_computed_properties(fields: &Object) -> Result<()> {
    read_all(fields, &Definition::plain()).try_for_each(|property| property.map(drop))
}

/// The computed properties of a container, as far as they make sense: a query that does not would make no sense in any other.
/// `definition` is what else queries depend on.
pub(crate) fn of_container(fields: &Object, definition: &Definition) -> Vec<Arc<ComputedProperty>> {
    read_all(fields, definition)
        .filter_map(Result::ok)
        .map(Arc::new)
        .collect()
}

fn read_all(fields: &Object, definition: &Definition) -> impl Iterator<Item = Result<ComputedProperty>> {
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
        match read(&name, &query, &others, definition) {
            Ok(property) => Ok(property),
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

fn read(name: &str, text: &str, others: &[&str], definition: &Definition) -> Result<ComputedProperty> {
    let query = Query::parse(text)?;
    let (alias, value) = value_of(&query.statement).ok_or_else(|| {
        QueryError::plain("It must be of the form SELECT VALUE expression FROM alias, without any other clause.")
    })?;
    check(value, alias, others)?;
    let n_expressions = n_expressions(value);
    let plan = plan(&query, definition, &Parameters::none())?;
    Ok(ComputedProperty {
        name: name.to_owned(),
        value: plan.block.output,
        n_expressions,
        planar: plan.planar,
    })
}

fn n_expressions(expr: &ast::Expr) -> usize {
    1 + expr.children().into_iter().map(n_expressions).sum::<usize>()
}

/// The alias and the expression of `SELECT VALUE expression FROM alias`; `None` for every other statement.
fn value_of(statement: &Statement) -> Option<(&str, &ast::Expr)> {
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
fn check(expr: &ast::Expr, alias: &str, others: &[&str]) -> Result<()> {
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
    let is_varying = name.starts_with("GETCURRENT") || matches!(name.as_str(), "RAND" | "NOW" | "AGO");
    is_varying || name.starts_with("ST_") || matches!(known.kind, Kind::Aggregate(_))
}

fn step_name(step: &ast::Step) -> Option<&str> {
    match step {
        ast::Step::Member(name) => Some(&name.text),
        ast::Step::Index(index) => match &index.kind {
            ExprKind::String(name) => Some(name),
            _ => None,
        },
    }
}
