//! Function calls: looked up, counted, checked.

use orrery_model::Value;

use super::compiler::Compiler;
use super::expr::{Expr, Step};
use super::limits::GEOMETRY_POINTS_MAX;
use crate::error::QueryError;
use crate::functions::{Kind, Scalar, ScoreKind, find};
use crate::parse::Span;
use crate::parse::ast::{self, ExprKind, Name};

pub(super) const COMPOSITION: &str = "Compositions of aggregates and other expressions are not allowed.";

impl Compiler<'_> {
    pub fn call(&mut self, name: &Name, udf: bool, arguments: &[ast::Expr], span: Span) -> Expr {
        if udf {
            return self.user_call(name, arguments);
        }
        let Some(function) = find(&name.text) else {
            return self.unknown_function(name, arguments);
        };
        match function.kind {
            Kind::Score(ScoreKind::Fusion) => return self.unknown_function(name, arguments),
            Kind::Score(ScoreKind::FullText) => {
                let message = "The FullTextScore function is only allowed in the ORDER BY RANK clause.";
                self.problem(span, "SC2240", message);
                return Expr::undefined();
            }
            _ => {}
        }
        if let Some(message) = function.count_problem(&name.text, arguments.len()) {
            self.problem(span, "SC2050", message);
            return Expr::undefined();
        }
        match function.kind {
            Kind::Aggregate(kind) => self.aggregate(kind, &arguments[0], span),
            Kind::Conditional => Expr::Conditional {
                condition: self.boxed(&arguments[0]),
                then: self.boxed(&arguments[1]),
                otherwise: self.boxed(&arguments[2]),
            },
            Kind::Scalar(Scalar { name: "_RID", .. }) => Expr::Path {
                up: self.scope.root_up(),
                steps: vec![Step::Name("_rid".to_owned())],
            },
            Kind::Scalar(scalar) => {
                let mut compiled = self.exprs(arguments);
                self.check_arguments(scalar.name, arguments, &mut compiled);
                Expr::Call {
                    function: scalar,
                    arguments: compiled,
                }
            }
            Kind::Score(_) => Expr::undefined(),
        }
    }

    pub fn unknown_function(&mut self, name: &Name, arguments: &[ast::Expr]) -> Expr {
        self.exprs(arguments);
        self.problem(
            name.span,
            "SC2005",
            format!("'{}' is not a recognized built-in function name.", name.text),
        );
        Expr::undefined()
    }

    fn user_call(&mut self, name: &Name, arguments: &[ast::Expr]) -> Expr {
        self.n_user_calls += 1;
        if !self.user_functions.contains(&name.text) {
            self.user_functions.push(name.text.clone());
        }
        if arguments.iter().any(super::grouping::has_aggregate) {
            self.refuse(QueryError::plain(COMPOSITION));
        }
        Expr::UserCall {
            name: name.text.clone(),
            arguments: self.exprs(arguments),
        }
    }

    fn geometry_arguments(&mut self, function: &str, compiled: &[Expr]) {
        let n_points = |argument: &Expr| argument.constant().map_or(0, n_points);
        if compiled.iter().any(|argument| n_points(argument) > GEOMETRY_POINTS_MAX) {
            self.refuse(QueryError::plain(format!(
                "The geometry given to the {function} function exceeds the maximum of {GEOMETRY_POINTS_MAX} points."
            )));
        }
    }

    /// Rules about particular arguments, and what the container's policies add to them.
    fn check_arguments(&mut self, function: &str, arguments: &[ast::Expr], compiled: &mut Vec<Expr>) {
        match function {
            "VECTORDISTANCE" | "_VECTORSCORE" => self.vector_arguments(arguments, compiled),
            _ if function.starts_with("ST_") => self.geometry_arguments(function, compiled),
            _ if function.trim_start_matches('_').starts_with("FULLTEXT") => self.full_text_arguments(compiled),
            "DOCUMENTID" if !matches!(arguments[0].kind, ExprKind::Name(_)) => {
                self.refuse(QueryError::plain(
                    "The argument of the DOCUMENTID function must be the root of the item.",
                ));
            }
            _ => {}
        }
    }
}

/// Points of a geometry: arrays that hold coordinates.
fn n_points(value: &Value) -> usize {
    match value {
        Value::Object(object) => object.get("coordinates").map_or(0, n_points),
        Value::Array(items) if items.first().is_some_and(|first| first.as_number().is_some()) => 1,
        Value::Array(items) => items.iter().map(n_points).sum(),
        _ => 0,
    }
}
