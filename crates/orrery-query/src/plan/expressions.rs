//! Expressions: names become frames, literals become constants.

use std::collections::HashSet;
use std::sync::Arc;

use orrery_model::{Number, Value};

use super::compiler::{Compiler, element_step};
use super::expr::{Expr, Step};
use super::limits::PARAMETER_BYTES_MAX;
use super::scope::{Place, Resolved, Slot};
use crate::error::QueryError;
use crate::functions::OrderedValue;
use crate::parse::Span;
use crate::parse::ast::{self, BinaryOperator, ExprKind, Name, SubqueryForm, UnaryOperator};
use crate::run::like::LikePattern;
use crate::values::size_bytes;

/// Lists of constants from this length on are searched as sets.
const SET_FROM: usize = 16;

impl Compiler<'_> {
    pub fn expr(&mut self, expr: &ast::Expr) -> Expr {
        self.n_expressions += 1;
        if self.has_given_up() {
            return Expr::undefined();
        }
        if let Some(key) = self.group_key(expr) {
            return key;
        }
        match &expr.kind {
            ExprKind::Undefined => Expr::undefined(),
            ExprKind::Null => Expr::Constant(Some(Value::Null)),
            ExprKind::Bool(value) => Expr::Constant(Some(Value::Bool(*value))),
            ExprKind::Number(number) => Expr::Constant(Some(Value::Number(*number))),
            ExprKind::String(text) => Expr::Constant(Some(Value::String(text.clone()))),
            ExprKind::Parameter(name) => self.parameter(name),
            ExprKind::Name(_) => self.postfix(expr, &[], expr.span),
            ExprKind::Postfix { base, steps } => self.postfix(base, steps, expr.span),
            ExprKind::Array(items) => fold_array(self.exprs(items)),
            ExprKind::Object(members) => self.object(members),
            ExprKind::Unary { operator, operand } => self.unary(*operator, operand),
            ExprKind::Chain { first, rest } => self.chain(first, rest),
            ExprKind::Coalesce(operands) => Expr::Coalesce(self.exprs(operands)),
            ExprKind::Conditional {
                condition,
                then,
                otherwise,
            } => Expr::Conditional {
                condition: self.boxed(condition),
                then: self.boxed(then),
                otherwise: self.boxed(otherwise),
            },
            ExprKind::Between {
                value,
                low,
                high,
                negated,
            } => {
                let between = Expr::Between {
                    value: self.boxed(value),
                    low: self.boxed(low),
                    high: self.boxed(high),
                };
                negate_if(*negated, between)
            }
            ExprKind::In { value, list, negated } => {
                let member = self.member_of(value, list);
                negate_if(*negated, member)
            }
            ExprKind::Like {
                value,
                pattern,
                escape,
                negated,
            } => {
                let like = self.like(value, pattern, escape.as_ref());
                negate_if(*negated, like)
            }
            ExprKind::Subquery { form, query } => self.subquery_expr(*form, query),
            ExprKind::Let { name, value, body } => self.let_in(name, value, body),
            ExprKind::Call { name, udf, arguments } => self.call(name, *udf, arguments, expr.span),
        }
    }

    /// A copy of a parameter's value. A short text can ask for many copies of a long value.
    fn parameter(&mut self, name: &str) -> Expr {
        let value = self.parameters.get(name);
        self.parameter_bytes = self.parameter_bytes.saturating_add(value.map_or(0, size_bytes));
        if self.parameter_bytes > PARAMETER_BYTES_MAX {
            self.refuse(QueryError::plain(format!(
                "The query names its parameters so often that their values need more than the allowed \
                 {PARAMETER_BYTES_MAX} bytes of memory."
            )));
            return Expr::undefined();
        }
        Expr::Constant(value.cloned())
    }

    pub fn boxed(&mut self, expr: &ast::Expr) -> Box<Expr> {
        Box::new(self.expr(expr))
    }

    pub fn exprs(&mut self, exprs: &[ast::Expr]) -> Vec<Expr> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    fn object(&mut self, members: &[(Name, ast::Expr)]) -> Expr {
        let mut taken = HashSet::new();
        let mut compiled = Vec::with_capacity(members.len());
        for (name, value) in members {
            if !taken.insert(name.text.as_str()) {
                self.duplicate_member(&name.text, name.span);
            }
            compiled.push((name.text.clone(), self.expr(value)));
        }
        fold_object(compiled)
    }

    fn unary(&mut self, operator: UnaryOperator, operand: &ast::Expr) -> Expr {
        let operand = self.expr(operand);
        if let (UnaryOperator::Minus, Some(Value::Number(number))) = (operator, operand.constant()) {
            return Expr::Constant(Some(Value::Number(negated(*number))));
        }
        let operand = Box::new(operand);
        match operator {
            UnaryOperator::Minus => Expr::Negate(operand),
            UnaryOperator::Plus => Expr::Plus(operand),
            UnaryOperator::BitNot => Expr::BitNot(operand),
            UnaryOperator::Not => Expr::Not(operand),
        }
    }

    fn chain(&mut self, first: &ast::Expr, rest: &[(BinaryOperator, ast::Expr)]) -> Expr {
        let first = self.expr(first);
        let is_logic = rest.first().map(|(operator, _)| *operator);
        let rest: Vec<(BinaryOperator, Expr)> = rest
            .iter()
            .map(|(operator, operand)| (*operator, self.expr(operand)))
            .collect();
        let all = |first, rest: Vec<(BinaryOperator, Expr)>| {
            std::iter::once(first)
                .chain(rest.into_iter().map(|(_, operand)| operand))
                .collect()
        };
        match is_logic {
            Some(BinaryOperator::And) => Expr::And(all(first, rest)),
            Some(BinaryOperator::Or) => Expr::Or(all(first, rest)),
            _ => Expr::Chain {
                first: Box::new(first),
                rest,
            },
        }
    }

    fn member_of(&mut self, value: &ast::Expr, list: &[ast::Expr]) -> Expr {
        let value = self.boxed(value);
        let list = self.exprs(list);
        let members = || {
            list.iter()
                .map(|member| member.constant().cloned().map(|value| OrderedValue(Some(value))))
        };
        let set = if list.len() >= SET_FROM {
            members().collect()
        } else {
            None
        };
        Expr::In { value, list, set }
    }

    fn like(&mut self, value: &ast::Expr, pattern: &ast::Expr, escape: Option<&Name>) -> Expr {
        let value = self.boxed(value);
        let pattern = self.boxed(pattern);
        let escape = escape.and_then(|escape| escape.text.encode_utf16().next());
        let ready = pattern
            .constant()
            .and_then(Value::as_str)
            .map(|text| LikePattern::new(text, escape));
        Expr::Like {
            value,
            pattern,
            escape,
            ready,
        }
    }

    fn subquery_expr(&mut self, form: SubqueryForm, query: &ast::Statement) -> Expr {
        let block = Box::new(self.subquery(query).block);
        Expr::Subquery { form, block }
    }

    fn let_in(&mut self, name: &Name, value: &ast::Expr, body: &ast::Expr) -> Expr {
        let place = self.place_of(value);
        let value = self.boxed(value);
        self.scope.slots.push(Slot::Value {
            name: Some(name.text.clone()),
            place,
        });
        let body = self.boxed(body);
        self.scope.slots.pop();
        Expr::Let { value, body }
    }

    /// A base and the member accesses after it.
    fn postfix(&mut self, base: &ast::Expr, steps: &[ast::Step], span: Span) -> Expr {
        let n_fixed = steps
            .iter()
            .take_while(|step| fixed_step(step, self.parameters).is_some())
            .count();
        let fixed: Vec<Step> = steps[..n_fixed]
            .iter()
            .filter_map(|step| fixed_step(step, self.parameters))
            .collect();
        let place = self.place_of(base).follow(&fixed);
        let mut expr = match &base.kind {
            ExprKind::Name(name) => self.path(name, fixed, base.span, span),
            _ if fixed.is_empty() => self.expr(base),
            _ => Expr::Access {
                base: self.boxed(base),
                steps: fixed,
            },
        };
        let rest = &steps[n_fixed..];
        let varies = rest
            .iter()
            .any(|step| matches!(step, ast::Step::Index(index) if mentions_names(index)));
        if varies && matches!(place, Place::Computed | Place::Constructed(_)) {
            let message = "The specified query includes 'member indexer' which is currently not supported.";
            self.problem(span, "SC2990", message);
        }
        let mut is_item = place == Place::Document(Vec::new());
        for step in rest {
            expr = match step {
                ast::Step::Index(index) => {
                    let index = self.expr(index);
                    let stored = Expr::Index {
                        base: Box::new(expr),
                        index: Box::new(index.clone()),
                    };
                    match is_item {
                        true => self.or_computed(&index, stored),
                        false => stored,
                    }
                }
                ast::Step::Member(name) => Expr::Access {
                    base: Box::new(expr),
                    steps: vec![Step::Name(name.text.clone())],
                },
            };
            is_item = false;
        }
        expr
    }

    /// The member of an item that an index names, which nobody knows before it is evaluated: it may be a computed property.
    fn or_computed(&mut self, index: &Expr, stored: Expr) -> Expr {
        let properties = self.definition.computed.clone();
        properties.iter().fold(stored, |otherwise, property| {
            self.n_expressions += property.n_expressions;
            let name = Expr::Constant(Some(Value::String(property.name().to_owned())));
            Expr::Conditional {
                condition: Box::new(Expr::Chain {
                    first: Box::new(index.clone()),
                    rest: vec![(BinaryOperator::Equal, name)],
                }),
                then: Box::new(Expr::Computed(Arc::clone(property))),
                otherwise: Box::new(otherwise),
            }
        })
    }

    fn path(&mut self, name: &str, steps: Vec<Step>, name_span: Span, span: Span) -> Expr {
        match self.scope.resolve(name) {
            Some(Resolved::Value { up, place }) => self.value_path(up, &place, steps),
            Some(Resolved::Grouped { up, source }) => self.grouped_path(up, source, &steps, name_span, span),
            None => {
                let number = match name {
                    "NaN" => f64::NAN,
                    "Infinity" => f64::INFINITY,
                    _ => return self.unresolved(name, name_span),
                };
                let base = Box::new(Expr::Constant(Some(Value::Number(Number::Double(number)))));
                if steps.is_empty() {
                    *base
                } else {
                    Expr::Access { base, steps }
                }
            }
        }
    }

    /// Along the steps from the value bound `up` frames above, which comes from `place`.
    pub fn value_path(&mut self, up: usize, place: &Place, steps: Vec<Step>) -> Expr {
        self.computed_property(place, &steps)
            .unwrap_or(Expr::Path { up, steps })
    }

    /// The computed property that a path names, or something below it.
    fn computed_property(&mut self, place: &Place, steps: &[Step]) -> Option<Expr> {
        let (Step::Name(name), rest) = steps.split_first()? else {
            return None;
        };
        if *place != Place::Document(Vec::new()) {
            return None;
        }
        let mut properties = self.definition.computed.iter();
        let property = properties.find(|property| property.name() == name)?;
        self.n_expressions += property.n_expressions;
        let base = Expr::Computed(Arc::clone(property));
        Some(if rest.is_empty() {
            base
        } else {
            Expr::Access {
                base: Box::new(base),
                steps: rest.to_vec(),
            }
        })
    }

    /// Where the value of an expression comes from.
    pub fn place_of(&mut self, expr: &ast::Expr) -> Place {
        match &expr.kind {
            ExprKind::Name(name) => match self.scope.resolve(name) {
                Some(Resolved::Value { place, .. }) => place,
                _ => Place::Computed,
            },
            ExprKind::Postfix { base, steps } => {
                let fixed: Option<Vec<Step>> = steps.iter().map(|step| fixed_step(step, self.parameters)).collect();
                match fixed {
                    Some(steps) => self.place_of(base).follow(&steps),
                    None => Place::Computed,
                }
            }
            ExprKind::Object(members) => Place::constructed(
                members
                    .iter()
                    .map(|(name, value)| (name.text.clone(), self.place_of(value))),
            ),
            _ => Place::Computed,
        }
    }
}

/// A step known before any item is.
fn fixed_step(step: &ast::Step, parameters: &crate::Parameters) -> Option<Step> {
    let index = match step {
        ast::Step::Member(name) => return Some(Step::Name(name.text.clone())),
        ast::Step::Index(index) => index,
    };
    match &index.kind {
        ExprKind::String(name) => Some(Step::Name(name.clone())),
        ExprKind::Number(number) => Some(element_step(number.as_i64())),
        ExprKind::Parameter(name) => match parameters.get(name) {
            Some(Value::String(name)) => Some(Step::Name(name.clone())),
            Some(Value::Number(number)) => Some(element_step(number.as_i64())),
            _ => Some(Step::Nowhere),
        },
        _ => None,
    }
}

/// Whether the value of an expression depends on what names are bound to.
fn mentions_names(expr: &ast::Expr) -> bool {
    let own = matches!(expr.kind, ExprKind::Name(_) | ExprKind::Subquery { .. });
    own || expr.children().into_iter().any(mentions_names)
}

fn negate_if(negated: bool, expr: Expr) -> Expr {
    if negated { Expr::Not(Box::new(expr)) } else { expr }
}

pub(crate) fn negated(number: Number) -> Number {
    match number {
        Number::Int(int) if int != i64::MIN => Number::Int(-int),
        other => Number::from_f64(-other.to_f64()),
    }
}

fn fold_array(items: Vec<Expr>) -> Expr {
    if !items.iter().all(|item| matches!(item, Expr::Constant(_))) {
        return Expr::Array(items);
    }
    let values = items.into_iter().filter_map(|item| match item {
        Expr::Constant(value) => value,
        _ => None,
    });
    Expr::Constant(Some(Value::Array(values.collect())))
}

fn fold_object(members: Vec<(String, Expr)>) -> Expr {
    if !members.iter().all(|(_, value)| matches!(value, Expr::Constant(_))) {
        return Expr::Object(members);
    }
    let defined = members.into_iter().filter_map(|(name, value)| match value {
        Expr::Constant(Some(value)) => Some((name, value)),
        _ => None,
    });
    Expr::Constant(Some(Value::Object(defined.collect())))
}
