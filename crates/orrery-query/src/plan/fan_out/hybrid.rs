//! The plan of `ORDER BY RANK`: one query for statistics, one per score.

use orrery_model::Value;

use super::build::Built;
use super::features::{Feature, Features};
use super::info::{HybridSearchInfo, QueryInfo};
use super::rewrite::{
    and, array, call, count, expr, item, item_array, object, payload, resumable_filter, rid_of, verbatim, window,
};
use crate::error::{QueryError, Result};
use crate::parameters::Parameters;
use crate::parse::Span;
use crate::parse::ast::{
    BinaryOperator, Direction, Expr, ExprKind, OrderBy, OrderKey, SelectList, Statement, Step, Top, UnaryOperator,
};
use crate::parse::{print, print_expr};
use crate::plan::Plan;
use crate::plan::grouping::list_has_aggregate;
use crate::plan::rank::{RankClause, RankScore};

/// A component asks for at least this many rows.
const COMPONENT_ROWS_MIN: u64 = 120;
const COMPONENT_ROWS_MAX: u64 = u32::MAX as u64;
/// Stands for a vector score that does not exist.
const WORST_VECTOR_SCORE: f64 = 1.79769e308;

/// One score of the clause.
struct Component {
    score: Expr,
    is_text: bool,
    reversed: bool,
}

pub(super) fn build(statement: &Statement, plan: &Plan, parameters: &Parameters, features: &Features) -> Result<Built> {
    let order_by = statement.order_by.as_ref();
    let Some(clause) = order_by.and_then(|order_by| RankClause::read(order_by, parameters).ok()) else {
        return Ok(Built::default());
    };
    if !statement.group_by.is_empty() || list_has_aggregate(&statement.list) {
        return Err(QueryError::plain(
            "Aggregates and the GROUP BY clause are not supported together with the ORDER BY RANK clause.",
        ));
    }
    let components = components(&clause, parameters);
    let skips_rewrite = features.has(Feature::HybridSearchSkipOrderByRewrite);
    let infos = components.iter().map(|component| {
        if skips_rewrite && components.len() > 1 {
            plain_component(statement, plan, component, &components)
        } else {
            let scores = if skips_rewrite {
                Vec::new()
            } else {
                default_scores(&components)
            };
            sorted_component(statement, plan, component, scores)
        }
    });
    let hybrid = HybridSearchInfo {
        global_statistics_query: statistics_query(statement, &clause, parameters),
        components: infos.collect(),
        weights: clause.weights.iter().map(|weight| weight.abs()).collect(),
        skip: statement.window.as_ref().map(|_| plan.window.offset),
        take: plan.window.count,
        requires_global_statistics: components.iter().any(|component| component.is_text),
    };
    let mut needed = vec![Feature::HybridSearch];
    if !clause.weights.is_empty() {
        needed.push(Feature::WeightedRankFusion);
    }
    Ok(Built {
        info: None,
        hybrid: Some(hybrid),
        needed,
    })
}

fn components(clause: &RankClause<'_>, parameters: &Parameters) -> Vec<Component> {
    let mut n_texts = 0;
    let mut component = |(index, score): (usize, &RankScore<'_>)| {
        let reversed = clause.weights.get(index).is_some_and(|weight| *weight < 0.0);
        match score {
            RankScore::FullText { text, terms } => {
                n_texts += 1;
                Component {
                    score: text_score(text, single_terms(terms, parameters), n_texts - 1),
                    is_text: true,
                    reversed,
                }
            }
            RankScore::Vector { arguments, .. } => Component {
                score: vector_score(arguments),
                is_text: false,
                reversed,
            },
        }
    };
    clause.scores.iter().enumerate().map(&mut component).collect()
}

/// The terms one by one. An argument may be a list of them, and each needs its own count of hits.
fn single_terms(arguments: &[Expr], parameters: &Parameters) -> Vec<Expr> {
    let single = |argument: &Expr| match &argument.kind {
        ExprKind::Array(terms) => terms.clone(),
        ExprKind::Parameter(name) => match parameters.get(name) {
            Some(Value::Array(terms)) => (0..terms.len()).map(|at| element(argument, at)).collect(),
            _ => vec![argument.clone()],
        },
        _ => vec![argument.clone()],
    };
    arguments.iter().flat_map(single).collect()
}

/// `base[at]`
fn element(base: &Expr, at: usize) -> Expr {
    let index = expr(ExprKind::Number(orrery_model::Number::from(at as u64)));
    expr(ExprKind::Postfix {
        base: Box::new(base.clone()),
        steps: vec![Step::Index(index)],
    })
}

/// The placeholders are filled by the client once it has the statistics of all ranges.
fn text_score(text: &Expr, terms: Vec<Expr>, index: usize) -> Expr {
    let placeholder = |name: &str| verbatim(format!("{{documentdb-formattablehybridsearchquery-{name}}}"));
    let arguments = vec![
        text.clone(),
        array(terms),
        placeholder("totaldocumentcount"),
        placeholder(&format!("totalwordcount-{index}")),
        placeholder(&format!("hitcountsarray-{index}")),
    ];
    call("_FullTextScore", arguments)
}

/// The path comes first, whatever the order in the query.
fn vector_score(arguments: &[Expr]) -> Expr {
    let is_path = |argument: &Expr| matches!(argument.kind, ExprKind::Postfix { .. } | ExprKind::Name(_));
    let mut pair = vec![arguments[0].clone(), arguments[1].clone()];
    if !is_path(&pair[0]) && is_path(&pair[1]) {
        pair.swap(0, 1);
    }
    call("_VectorScore", pair)
}

fn statistics_query(statement: &Statement, clause: &RankClause<'_>, parameters: &Parameters) -> String {
    let statistics = clause.scores.iter().filter_map(|score| match score {
        RankScore::FullText { text, terms } => {
            let text: &Expr = text;
            let hit = |term: &Expr| {
                call(
                    "COUNTIF",
                    vec![call("FullTextContains", vec![text.clone(), term.clone()])],
                )
            };
            let words = call("SUM", vec![call("_FullTextWordCount", vec![text.clone()])]);
            let hits = array(single_terms(terms, parameters).iter().map(hit).collect());
            Some(object([("totalWordCount", words), ("hitCounts", hits)]))
        }
        RankScore::Vector { .. } => None,
    });
    let one = expr(ExprKind::Number(orrery_model::Number::from(1_i64)));
    let list = SelectList::Items(vec![
        item(call("COUNT", vec![one]), Some("documentCount")),
        item(array(statistics.collect()), Some("fullTextStatistics")),
    ]);
    print(&Statement {
        list,
        from: statement.from.clone(),
        ..bare()
    })
}

fn bare() -> Statement {
    Statement {
        distinct: false,
        top: None,
        list: SelectList::Items(Vec::new()),
        from: None,
        filter: None,
        group_by: Vec::new(),
        order_by: None,
        window: None,
        span: Span::default(),
    }
}

/// How many rows a component asks each range for; `None` when the query wants all.
fn component_rows(plan: &Plan) -> Option<u64> {
    let wanted = plan.window.offset.saturating_add(plan.window.count?);
    Some(wanted.saturating_mul(2).clamp(COMPONENT_ROWS_MIN, COMPONENT_ROWS_MAX))
}

/// The statement with the component's order and size.
fn component_statement(statement: &Statement, plan: &Plan, component: &Component) -> Statement {
    let rows = component_rows(plan);
    let direction = match (component.is_text, component.reversed) {
        (_, true) => Some(Direction::Ascending),
        (true, false) => Some(Direction::Descending),
        (false, false) => None,
    };
    let keys = vec![OrderKey {
        expr: component.score.clone(),
        direction,
    }];
    let top = |rows| Top {
        count: count(rows),
        span: Span::default(),
    };
    Statement {
        top: rows.filter(|_| statement.window.is_none()).map(top),
        window: rows.filter(|_| statement.window.is_some()).map(|rows| window(0, rows)),
        order_by: Some(OrderBy {
            rank: false,
            keys,
            span: Span::default(),
        }),
        ..statement.clone()
    }
}

fn sorted_component(statement: &Statement, plan: &Plan, component: &Component, scores: Vec<Expr>) -> QueryInfo {
    let mut rewritten = component_statement(statement, plan, component);
    let payload = object([("payload", payload(statement)), ("componentScores", array(scores))]);
    rewritten.list = SelectList::Items(vec![
        rid_of(statement),
        item(item_array(std::iter::once(&component.score)), Some("orderByItems")),
        item(payload, Some("payload")),
    ]);
    rewritten.filter = Some(resumable_filter(statement));
    let rows = component_rows(plan);
    let windowed = statement.window.is_some();
    QueryInfo {
        top: rows.filter(|_| !windowed),
        offset: rows.filter(|_| windowed).map(|_| 0),
        limit: rows.filter(|_| windowed),
        order_by: vec![if component.reversed {
            Direction::Ascending
        } else {
            Direction::Descending
        }],
        order_by_expressions: vec![print_expr(&component.score)],
        rewritten_query: print(&rewritten),
        has_non_streaming_order_by: true,
        ..QueryInfo::default()
    }
}

fn plain_component(statement: &Statement, plan: &Plan, component: &Component, all: &[Component]) -> QueryInfo {
    let mut rewritten = component_statement(statement, plan, component);
    let scores = all.iter().map(|component| {
        let score = default_score(component);
        if component.reversed {
            multiplied_by_minus_one(score)
        } else {
            score
        }
    });
    rewritten.list = SelectList::Items(vec![
        rid_of(statement),
        item(payload(statement), Some("payload")),
        item(array(scores.collect()), Some("componentScores")),
    ]);
    if let SelectList::Value(value) = &statement.list {
        let defined = call("IS_DEFINED", vec![value.clone()]);
        rewritten.filter = Some(match &statement.filter {
            Some(filter) => and(filter.clone(), defined),
            None => defined,
        });
    }
    QueryInfo {
        rewritten_query: print(&rewritten),
        ..QueryInfo::default()
    }
}

fn default_scores(components: &[Component]) -> Vec<Expr> {
    components.iter().map(default_score).collect()
}

/// `(score ?? worst)`
fn default_score(component: &Component) -> Expr {
    let worst = match (component.is_text, component.reversed) {
        (true, _) => -1.0,
        (false, false) => -WORST_VECTOR_SCORE,
        (false, true) => WORST_VECTOR_SCORE,
    };
    expr(ExprKind::Coalesce(vec![component.score.clone(), number(worst)]))
}

fn number(value: f64) -> Expr {
    let magnitude = expr(ExprKind::Number(orrery_model::Number::from_f64(value.abs())));
    match value < 0.0 {
        true => expr(ExprKind::Unary {
            operator: UnaryOperator::Minus,
            operand: Box::new(magnitude),
        }),
        false => magnitude,
    }
}

fn multiplied_by_minus_one(score: Expr) -> Expr {
    expr(ExprKind::Chain {
        first: Box::new(number(-1.0)),
        rest: vec![(BinaryOperator::Multiply, score)],
    })
}
