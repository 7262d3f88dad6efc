//! Pieces of rewritten statements.

use crate::functions::{AggregateKind, Kind, find};
use crate::parse::Span;
use crate::parse::ast::{
    BinaryOperator, Collection, Count, CountValue, Expr, ExprKind, Name, SelectItem, SelectList, Statement, Step,
    Window,
};
use crate::plan::select::item_names;

/// Where clients put `true` or the filter that resumes a sorted query.
const FILTER_PLACEHOLDER: &str = "({documentdb-formattableorderbyquery-filter})";

pub(super) fn expr(kind: ExprKind) -> Expr {
    Expr::new(kind, Span::default())
}

/// Text that is printed as it is: a placeholder for the client.
pub(super) fn verbatim(text: impl Into<String>) -> Expr {
    expr(ExprKind::Name(text.into()))
}

fn name(text: &str) -> Name {
    Name {
        text: text.to_owned(),
        span: Span::default(),
    }
}

pub(super) fn object<'t>(members: impl IntoIterator<Item = (&'t str, Expr)>) -> Expr {
    expr(ExprKind::Object(
        members.into_iter().map(|(key, value)| (name(key), value)).collect(),
    ))
}

pub(super) fn array(items: Vec<Expr>) -> Expr {
    expr(ExprKind::Array(items))
}

pub(super) fn call(function: &str, arguments: Vec<Expr>) -> Expr {
    expr(ExprKind::Call {
        name: name(function),
        udf: false,
        arguments,
    })
}

pub(super) fn item(value: Expr, alias: Option<&str>) -> SelectItem {
    SelectItem {
        expr: value,
        alias: alias.map(name),
    }
}

/// `[{"item": a}, {"item": b}]`
pub(super) fn item_array<'e>(values: impl Iterator<Item = &'e Expr>) -> Expr {
    array(values.map(|value| object([("item", value.clone())])).collect())
}

/// The `_rid` of the item: `alias._rid` where the first source is the item itself.
pub(super) fn rid_of(statement: &Statement) -> SelectItem {
    if !begins_with_item(statement) {
        return item(call("_RID", Vec::new()), Some("_rid"));
    }
    let base = Box::new(verbatim(root_alias(statement)));
    item(
        expr(ExprKind::Postfix {
            base,
            steps: vec![Step::Member(name("_rid"))],
        }),
        None,
    )
}

fn begins_with_item(statement: &Statement) -> bool {
    let source = statement.from.as_ref().and_then(|from| from.sources.first());
    let Some(source) = source.filter(|source| !source.iterate) else {
        return false;
    };
    match &source.collection {
        Collection::Path { steps, .. } => steps.is_empty(),
        // The rows of `SELECT *` are those of its own source.
        Collection::Subquery(inner) => matches!(inner.list, SelectList::Star(_)) && begins_with_item(inner),
        Collection::Expr(_) => false,
    }
}

fn root_alias(statement: &Statement) -> String {
    let source = statement.from.as_ref().and_then(|from| from.sources.first());
    source.and_then(|source| source.binding()).unwrap_or("root").to_owned()
}

/// What the query selects, as one expression.
pub(super) fn payload(statement: &Statement) -> Expr {
    match &statement.list {
        SelectList::Star(_) => verbatim(root_alias(statement)),
        SelectList::Value(value) => value.clone(),
        SelectList::Items(items) => {
            let names = item_names(items);
            object(
                names
                    .iter()
                    .map(|(name, _)| name.as_str())
                    .zip(items.iter().map(|item| item.expr.clone())),
            )
        }
    }
}

pub(super) fn and(left: Expr, right: Expr) -> Expr {
    let operators = vec![(BinaryOperator::And, right)];
    match left.kind {
        ExprKind::Chain { first, mut rest } if rest.iter().all(|(operator, _)| *operator == BinaryOperator::And) => {
            rest.extend(operators);
            expr(ExprKind::Chain { first, rest })
        }
        _ => expr(ExprKind::Chain {
            first: Box::new(left),
            rest: operators,
        }),
    }
}

/// The filter with the client's placeholder, and for VALUE the demand that there be a value.
pub(super) fn resumable_filter(statement: &Statement) -> Expr {
    let placeholder = verbatim(FILTER_PLACEHOLDER);
    let filter = match &statement.filter {
        Some(filter) => and(filter.clone(), placeholder),
        None => placeholder,
    };
    match &statement.list {
        SelectList::Value(value) => and(filter, call("IS_DEFINED", vec![value.clone()])),
        _ => filter,
    }
}

/// The aggregate that an expression is, exactly.
pub(super) fn as_aggregate(value: &Expr) -> Option<(AggregateKind, &Name, &Expr)> {
    let ExprKind::Call {
        name,
        udf: false,
        arguments,
    } = &value.kind
    else {
        return None;
    };
    match find(&name.text)?.kind {
        Kind::Aggregate(kind) => Some((kind, name, arguments.first()?)),
        _ => None,
    }
}

/// The partial result of an aggregate that clients can merge.
pub(super) fn partial_aggregate(kind: AggregateKind, spelling: &Name, argument: &Expr) -> Expr {
    let of = |function: &str| call(function, vec![argument.clone()]);
    let extreme = |member: &str| {
        let own = of(&spelling.text);
        object([
            ("item", own.clone()),
            ("item2", object([(member, own), ("count", of("COUNT"))])),
        ])
    };
    match kind {
        AggregateKind::Average => object([("item", object([("sum", of("SUM")), ("count", of("COUNT"))]))]),
        AggregateKind::Min => extreme("min"),
        AggregateKind::Max => extreme("max"),
        _ => object([("item", of(&spelling.text))]),
    }
}

pub(super) fn count(value: u64) -> Count {
    Count {
        value: CountValue::Literal(value.into()),
        span: Span::default(),
    }
}

pub(super) fn window(offset: u64, limit: u64) -> Window {
    Window {
        offset: count(offset),
        limit: count(limit),
        span: Span::default(),
    }
}
