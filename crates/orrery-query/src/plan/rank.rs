//! `ORDER BY RANK`: scores, and their fusion.

use orrery_model::Value;

use super::compiler::Compiler;
use super::expr::Expr;
use super::limits::{FUSION_ARGUMENTS_MAX, SCORE_TERMS_MAX};
use super::order::Ordering;
use crate::error::QueryError;
use crate::functions::full_text::{Language, Term};
use crate::functions::vector::Distance;
use crate::parameters::Parameters;
use crate::parse::Span;
use crate::parse::ast::{self, Collection, Direction, ExprKind, Name, OrderBy, Statement, UnaryOperator};

/// Several ways to score an item, fused into one order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ranking {
    pub scores: Vec<Score>,
    /// One per score. A negative weight turns its score's order around.
    pub weights: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Score {
    FullText {
        text: Expr,
        language: Language,
        terms: Vec<Term>,
    },
    /// The direction puts the most similar first.
    Vector { distance: Expr, direction: Direction },
}

/// The parts of a RANK clause as written.
pub(super) struct RankClause<'a> {
    pub scores: Vec<RankScore<'a>>,
    /// Empty when none are given.
    pub weights: Vec<f64>,
}

pub(super) enum RankScore<'a> {
    FullText {
        text: &'a ast::Expr,
        terms: &'a [ast::Expr],
    },
    Vector {
        call: &'a ast::Expr,
        arguments: &'a [ast::Expr],
    },
}

/// What is wrong with a RANK clause.
pub(super) enum RankProblem {
    /// No score where one is needed.
    NoScore,
    /// A fusion within a fusion.
    Nested(Name),
    Weights(Span),
}

impl<'a> RankClause<'a> {
    pub fn read(order_by: &'a OrderBy, parameters: &Parameters) -> Result<RankClause<'a>, RankProblem> {
        let [key] = order_by.keys.as_slice() else {
            return Err(RankProblem::NoScore);
        };
        let Some(arguments) = call_of(&key.expr, "RRF") else {
            let score = score_of(&key.expr).ok_or(RankProblem::NoScore)?;
            return Ok(RankClause {
                scores: vec![score],
                weights: Vec::new(),
            });
        };
        let (arguments, weights) = match arguments.split_last() {
            Some((last, scores)) if matches!(last.kind, ExprKind::Array(_) | ExprKind::Parameter(_)) => {
                let weights = fixed_numbers(last, parameters).filter(|weights| weights.len() == scores.len());
                (scores, weights.ok_or(RankProblem::Weights(last.span))?)
            }
            _ => (arguments, Vec::new()),
        };
        if let Some(name) = arguments.iter().find_map(fusion_of) {
            return Err(RankProblem::Nested(name.clone()));
        }
        let scores: Option<Vec<RankScore<'a>>> = arguments.iter().map(score_of).collect();
        let scores = scores.filter(|scores| scores.len() >= 2).ok_or(RankProblem::NoScore)?;
        Ok(RankClause { scores, weights })
    }
}

fn call_of<'a>(expr: &'a ast::Expr, function: &str) -> Option<&'a [ast::Expr]> {
    match &expr.kind {
        ExprKind::Call {
            name,
            udf: false,
            arguments,
        } if name.text.eq_ignore_ascii_case(function) => Some(arguments),
        _ => None,
    }
}

/// The name of the call when it is one of RRF.
fn fusion_of(expr: &ast::Expr) -> Option<&Name> {
    match &expr.kind {
        ExprKind::Call { name, udf: false, .. } if name.text.eq_ignore_ascii_case("RRF") => Some(name),
        _ => None,
    }
}

fn score_of(expr: &ast::Expr) -> Option<RankScore<'_>> {
    if let Some([text, terms @ ..]) = call_of(expr, "FULLTEXTSCORE").filter(|arguments| arguments.len() >= 2) {
        return Some(RankScore::FullText { text, terms });
    }
    let arguments = call_of(expr, "VECTORDISTANCE").filter(|arguments| arguments.len() >= 2)?;
    Some(RankScore::Vector { call: expr, arguments })
}

/// Numbers that are known before any item is: an array of literals and parameters, or a parameter that is one.
fn fixed_numbers(expr: &ast::Expr, parameters: &Parameters) -> Option<Vec<f64>> {
    match &expr.kind {
        ExprKind::Array(items) => items.iter().map(|item| fixed_number(item, parameters)).collect(),
        ExprKind::Parameter(name) => parameters.get(name)?.as_array()?.iter().map(number_of).collect(),
        _ => None,
    }
}

fn number_of(value: &Value) -> Option<f64> {
    value.as_number().map(|number| number.to_f64())
}

fn fixed_number(expr: &ast::Expr, parameters: &Parameters) -> Option<f64> {
    match &expr.kind {
        ExprKind::Number(number) => Some(number.to_f64()),
        ExprKind::Parameter(name) => parameters.get(name).and_then(number_of),
        ExprKind::Unary {
            operator: UnaryOperator::Minus,
            operand,
        } => fixed_number(operand, parameters).map(|number| -number),
        _ => None,
    }
}

/// Whether an argument is written as a term to search for: a text, an object, a parameter, or a list of these.
fn is_search_term(argument: &ast::Expr) -> bool {
    match &argument.kind {
        ExprKind::String(_) | ExprKind::Parameter(_) | ExprKind::Object(_) => true,
        ExprKind::Array(items) => items.iter().all(is_search_term),
        _ => false,
    }
}

impl Compiler<'_> {
    pub fn ranking(&mut self, statement: &Statement, order_by: &OrderBy) -> Ordering {
        self.check_ranked_sources(statement);
        if order_by.keys.iter().any(|key| key.direction.is_some()) {
            self.refuse(QueryError::plain(
                "Specifying a sort order (ASC or DESC) in the ORDER BY RANK clause is not allowed.",
            ));
        }
        let clause = match RankClause::read(order_by, self.parameters) {
            Ok(clause) => clause,
            Err(RankProblem::NoScore) => {
                let message = "The ORDER BY RANK clause must be followed by a VectorDistance and/or a FullTextScore function call.";
                self.problem(order_by.span, "SC2221", message);
                return Ordering::None;
            }
            Err(RankProblem::Nested(name)) => {
                self.unknown_function(&name, &[]);
                return Ordering::None;
            }
            Err(RankProblem::Weights(span)) => {
                let message = "The weights of the RRF function must be an array of numbers, one for each score.";
                self.problem(span, "SC2229", message);
                return Ordering::None;
            }
        };
        if clause.scores.len() > FUSION_ARGUMENTS_MAX {
            self.refuse(QueryError::plain(format!(
                "The RRF function takes at most {FUSION_ARGUMENTS_MAX} arguments."
            )));
        }
        let scores: Vec<Score> = clause.scores.iter().map(|score| self.score(score)).collect();
        let weights = if clause.weights.is_empty() {
            vec![1.0; scores.len()]
        } else {
            clause.weights
        };
        Ordering::Rank(Ranking { scores, weights })
    }

    fn check_ranked_sources(&mut self, statement: &Statement) {
        let Some(from) = &statement.from else { return };
        for (index, source) in from.sources.iter().enumerate() {
            if source.iterate {
                let message = "The FROM clause with the IN operator is not allowed with the ORDER BY RANK clause.";
                self.problem(source.span, "SC2223", message);
            }
            if index > 0 {
                let message = "The JOIN operator is not allowed with the ORDER BY RANK clause.";
                self.problem(source.span, "SC2224", message);
            }
            if matches!(source.collection, Collection::Subquery(_)) {
                let message = "Subqueries in the FROM clause are not allowed with the ORDER BY RANK clause.";
                self.problem(source.span, "SC2225", message);
            }
        }
    }

    fn score(&mut self, score: &RankScore<'_>) -> Score {
        match score {
            RankScore::Vector { call, .. } => {
                let distance = self.expr(call);
                let euclidean = match &distance {
                    Expr::Call { arguments, .. } => Distance::of_arguments(arguments) == Distance::Euclidean,
                    _ => false,
                };
                let direction = if euclidean {
                    Direction::Ascending
                } else {
                    Direction::Descending
                };
                Score::Vector { distance, direction }
            }
            RankScore::FullText { text, terms } => {
                let text = self.expr(text);
                let language = Language::parse(self.language(&text)).unwrap_or(Language::English);
                if !terms.iter().all(is_search_term) {
                    self.refuse(QueryError::plain(
                        "The second through last arguments of the 'FullTextScore' function must be literals of type string or \
                         object specifying the fuzzy search arguments.",
                    ));
                }
                let mut found = Vec::new();
                for term in *terms {
                    found.extend(self.search_terms(term, language));
                    if found.len() > SCORE_TERMS_MAX {
                        let message =
                            format!("The FullTextScore function takes at most {SCORE_TERMS_MAX} search terms.");
                        self.refuse(QueryError::plain(message));
                        break;
                    }
                }
                let terms = found;
                Score::FullText { text, language, terms }
            }
        }
    }

    /// The terms of one argument, which may also be an array of them.
    fn search_terms(&mut self, argument: &ast::Expr, language: Language) -> Vec<Term> {
        let compiled = self.expr(argument);
        match compiled.constant() {
            Some(Value::Array(terms)) => terms
                .iter()
                .take(SCORE_TERMS_MAX + 1)
                .filter_map(|term| Term::parse(language, term))
                .collect(),
            Some(term) => Term::parse(language, term).into_iter().collect(),
            None => Vec::new(),
        }
    }
}
