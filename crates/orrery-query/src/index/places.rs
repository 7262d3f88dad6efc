//! Geometries are found by the cells they lie in, which items and searches come by through the same cover.
//!
//! Two geometries that meet have a point in common, and the cells of both hold it: they are the same cell, or one lies in the
//! other. A search therefore asks for everything in its own cells and for exactly those cells that its own lie in.

use std::collections::BTreeSet;

use orrery_model::Value;

use super::condition::{Analysis, Condition, place};
use super::path::{Aspect, TermPath};
use super::range::TermRange;
use crate::functions::spatial::cells;
use crate::parse::ast::BinaryOperator;
use crate::plan::Expr;

/// The cells of a value, none when it is no geometry.
pub(super) fn of_value(value: &Value, planar: bool) -> Vec<String> {
    cells::of_item(value, planar)
}

/// What items have whose geometry has a point in common with another one.
pub(super) fn condition(analysis: &Analysis<'_>, arguments: &[Expr]) -> Condition {
    let [a, b] = arguments else { return Condition::Any };
    match (path(analysis, a), path(analysis, b)) {
        (Some(path), None) => near(analysis, &path, b, 0.0),
        (None, Some(path)) => near(analysis, &path, a, 0.0),
        _ => Condition::Any,
    }
}

/// What items have for which `ST_DISTANCE(…)` compares to a limit above it as said.
pub(super) fn distance(analysis: &Analysis<'_>, call: &Expr, operator: BinaryOperator, limit: &Expr) -> Condition {
    let (
        Expr::Call { function, arguments },
        BinaryOperator::Less | BinaryOperator::LessOrEqual | BinaryOperator::Equal,
    ) = (call, operator)
    else {
        return Condition::Any;
    };
    let [a, b] = arguments.as_slice() else {
        return Condition::Any;
    };
    if function.name != "ST_DISTANCE" {
        return Condition::Any;
    }
    let limit = match analysis.constant(limit) {
        Some(limit) => limit.and_then(|limit| limit.as_number().map(|limit| limit.to_f64())),
        None => return Condition::Any,
    };
    // Nothing is nearer than zero, and a distance is never below what is no number.
    let Some(limit) = limit.filter(|limit| *limit >= 0.0) else {
        return Condition::Never;
    };
    match (path(analysis, a), path(analysis, b)) {
        (Some(path), None) => near(analysis, &path, b, limit),
        (None, Some(path)) => near(analysis, &path, a, limit),
        _ => Condition::Any,
    }
}

/// The path of an expression, if geometries there are indexed.
fn path(analysis: &Analysis<'_>, expr: &Expr) -> Option<TermPath> {
    let path = analysis.path(expr)?;
    let is_indexed = place(analysis.rules, &path).has_geometry() && analysis.rules.is_planar() == analysis.planar;
    is_indexed.then(|| path.seen_as(Aspect::Cells))
}

/// Geometries that lie within a distance of another one.
fn near(analysis: &Analysis<'_>, path: &TermPath, other: &Expr, distance: f64) -> Condition {
    let other = match analysis.constant(other) {
        Some(Some(other)) => other,
        Some(None) => return Condition::Never,
        None => return Condition::Any,
    };
    // With something else than a geometry the call is undefined.
    let Some(cells) = cells::of_search(&other, analysis.planar, distance) else {
        return Condition::Never;
    };
    let mut above = BTreeSet::new();
    for cell in &cells {
        above.extend((0..cell.len()).map(|length| cell[..length].to_owned()));
    }
    let inside = cells.iter().map(|cell| TermRange::string_start(path, cell));
    let outside = above
        .into_iter()
        .map(|cell| TermRange::equal(path, &Value::String(cell)));
    Condition::one_of(inside.chain(outside).map(Condition::Range).collect())
}
