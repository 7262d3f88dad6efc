//! Expressions that need no item.

use orrery_model::Value;

use super::budget::{Meter, Unlimited};
use super::evaluate::Evaluator;
use super::frame::Frame;
use crate::functions::Environment;
use crate::plan::Expr;

/// The truth of an expression that needs no item: `None` when it does need one, `Some(None)` for undefined.
pub(crate) fn constant_truth(expr: &Expr, planar: bool) -> Option<Option<bool>> {
    if !is_constant(expr) {
        return None;
    }
    let mut budget = Unlimited;
    let evaluator = evaluator(&mut budget, planar);
    Some(evaluator.truth(expr, &Frame::root(None)).ok().flatten())
}

/// The value of an expression that needs no item; `None` also when it is undefined.
pub(crate) fn constant_value(expr: &Expr, planar: bool) -> Option<Value> {
    if !is_constant(expr) {
        return None;
    }
    let mut budget = Unlimited;
    let evaluator = evaluator(&mut budget, planar);
    let frame = Frame::root(None);
    evaluator
        .eval(expr, &frame)
        .ok()
        .flatten()
        .map(|value| value.into_owned())
}

fn evaluator(budget: &mut Unlimited, planar: bool) -> Evaluator<'_> {
    Evaluator {
        environment: Environment::new(0, 0, planar),
        functions: None,
        meter: Meter::new(budget, usize::MAX),
    }
}

/// Functions whose value is not decided by their arguments.
const CHANGING: [&str; 9] = [
    "RAND",
    "NOW",
    "AGO",
    "GETCURRENTDATETIME",
    "GETCURRENTTICKS",
    "GETCURRENTTIMESTAMP",
    "GETCURRENTDATETIMESTATIC",
    "GETCURRENTTICKSSTATIC",
    "GETCURRENTTIMESTAMPSTATIC",
];

fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Constant(_) => true,
        Expr::Path { .. } | Expr::Subquery { .. } | Expr::Let { .. } | Expr::UserCall { .. } => false,
        Expr::GroupKey { .. } | Expr::Aggregate { .. } => false,
        Expr::Access { base, .. } => is_constant(base),
        Expr::Index { base, index } => is_constant(base) && is_constant(index),
        Expr::Array(items) | Expr::Coalesce(items) | Expr::And(items) | Expr::Or(items) => {
            items.iter().all(is_constant)
        }
        Expr::Object(members) => members.iter().all(|(_, member)| is_constant(member)),
        Expr::Negate(operand) | Expr::Plus(operand) | Expr::BitNot(operand) | Expr::Not(operand) => {
            is_constant(operand)
        }
        Expr::Chain { first, rest } => is_constant(first) && rest.iter().all(|(_, operand)| is_constant(operand)),
        Expr::Conditional {
            condition,
            then,
            otherwise,
        } => is_constant(condition) && is_constant(then) && is_constant(otherwise),
        Expr::Between { value, low, high } => is_constant(value) && is_constant(low) && is_constant(high),
        Expr::In { value, list, .. } => is_constant(value) && list.iter().all(is_constant),
        Expr::Like { value, pattern, .. } => is_constant(value) && is_constant(pattern),
        Expr::Call { function, arguments } => !CHANGING.contains(&function.name) && arguments.iter().all(is_constant),
    }
}
