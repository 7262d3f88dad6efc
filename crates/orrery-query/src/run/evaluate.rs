//! Expressions over frames.
//!
//! Results borrow from the item, the frames or the plan whenever they can; a filter over paths and constants copies
//! nothing.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use orrery_model::json::Object;
use orrery_model::{Number, Value};

use super::budget::Meter;
use super::frame::Frame;
use super::like::LikePattern;
use crate::error::{QueryError, Result};
use crate::functions::{Arguments, Environment, OrderedValue, Refusal, Scalar, VALUE_BYTES_MAX};
use crate::parse::ast::{BinaryOperator, SubqueryForm};
use crate::plan::{Block, Expr, Step};
use crate::values::{Computed, bit_not, calculate, compare_scalars, equal, size_bytes};

/// User-defined functions, provided by the caller.
pub trait UserFunctions {
    /// Calls a function with defined arguments. `None` is undefined.
    fn call(&self, name: &str, arguments: &[Value]) -> orrery_model::Result<Option<Value>>;
}

pub(crate) struct Evaluator<'r> {
    pub environment: Environment,
    pub functions: Option<&'r dyn UserFunctions>,
    pub meter: Meter<'r>,
    /// Work is counted by what it could be at most, not by what it mostly is.
    pub counts_all: bool,
}

/// Texts shorter than this take no more to compare than numbers do.
const LONG_TEXT_BYTES: usize = 64;

/// Arguments of a call that fit on the stack.
const ARGUMENTS_INLINE: usize = 4;

impl Evaluator<'_> {
    pub fn eval<'f>(&self, expr: &'f Expr, frame: &'f Frame<'f>) -> Result<Computed<'f>> {
        Ok(match expr {
            Expr::Constant(value) => value.as_ref().map(Cow::Borrowed),
            Expr::Path { up, steps } => frame.value(*up).and_then(|value| walk(value, steps)).map(Cow::Borrowed),
            Expr::Computed(property) => {
                let item = Frame::root(frame.item());
                let named = item.inner(frame.item());
                let value = self.eval(property.value(), &named)?;
                value.map(|value| Cow::Owned(value.into_owned()))
            }
            Expr::Access { base, steps } => self.eval(base, frame)?.and_then(|base| walk_computed(base, steps)),
            Expr::Index { base, index } => self.index(base, index, frame)?,
            Expr::Array(items) => Some(Cow::Owned(self.array(items, frame)?)),
            Expr::Object(members) => Some(Cow::Owned(self.object(members, frame)?)),
            Expr::Negate(operand) => self.map(operand, frame, negate)?,
            Expr::Plus(operand) => self
                .eval(operand, frame)?
                .filter(|value| matches!(**value, Value::Number(_))),
            Expr::BitNot(operand) => self.map(operand, frame, bit_not)?,
            Expr::Not(_) | Expr::And(_) | Expr::Or(_) | Expr::Between { .. } | Expr::In { .. } | Expr::Like { .. } => {
                owned_bool(self.truth(expr, frame)?)
            }
            Expr::Chain { first, rest } => self.chain(first, rest, frame)?,
            Expr::Coalesce(operands) => self.coalesce(operands, frame)?,
            Expr::Conditional {
                condition,
                then,
                otherwise,
            } => {
                let chosen = if self.truth(condition, frame)? == Some(true) {
                    then
                } else {
                    otherwise
                };
                self.eval(chosen, frame)?
            }
            Expr::Subquery { form, block } => self.subquery(*form, block, frame)?.map(Cow::Owned),
            Expr::Let { value, body } => {
                let value = self.eval(value, frame)?;
                let inner = frame.inner(value.as_deref());
                self.eval(body, &inner)?.map(|result| Cow::Owned(result.into_owned()))
            }
            Expr::Call { function, arguments } => self.call(*function, arguments, frame)?.map(Cow::Owned),
            Expr::UserCall { name, arguments } => self.user_call(name, arguments, frame)?.map(Cow::Owned),
            Expr::GroupKey { up, index } => frame
                .group(*up)
                .and_then(|group| group.keys[*index].as_ref())
                .map(Cow::Borrowed),
            Expr::Aggregate { up, index } => frame
                .group(*up)
                .and_then(|group| group.aggregates[*index].as_ref())
                .map(Cow::Borrowed),
        })
    }

    /// The value as an operand of logic: anything but a boolean is undefined.
    pub fn truth(&self, expr: &Expr, frame: &Frame<'_>) -> Result<Option<bool>> {
        match expr {
            Expr::Not(operand) => Ok(self.truth(operand, frame)?.map(|value| !value)),
            Expr::And(operands) => self.all_or_any(operands, false, frame),
            Expr::Or(operands) => self.all_or_any(operands, true, frame),
            Expr::Between { value, low, high } => self.between(value, low, high, frame),
            Expr::In { value, list, set } => self.is_in(value, list, set.as_ref(), frame),
            Expr::Like {
                value,
                pattern,
                escape,
                ready,
            } => self.like(value, pattern, *escape, ready.as_ref(), frame),
            Expr::Chain { first, rest } if rest.len() == 1 && is_comparison(rest[0].0) => {
                let (Some(a), Some(b)) = (self.eval(first, frame)?, self.eval(&rest[0].1, frame)?) else {
                    return Ok(None);
                };
                self.compare(rest[0].0, &a, &b)
            }
            _ => Ok(self.eval(expr, frame)?.and_then(|value| value.as_bool())),
        }
    }

    /// AND and OR: `decisive` settles the result, undefined leaves it open.
    fn all_or_any(&self, operands: &[Expr], decisive: bool, frame: &Frame<'_>) -> Result<Option<bool>> {
        let mut result = Some(!decisive);
        for operand in operands {
            match self.truth(operand, frame)? {
                Some(value) if value == decisive => return Ok(Some(decisive)),
                Some(_) => {}
                None => result = None,
            }
        }
        Ok(result)
    }

    fn between(&self, value: &Expr, low: &Expr, high: &Expr, frame: &Frame<'_>) -> Result<Option<bool>> {
        let value = self.eval(value, frame)?;
        let low = self.eval(low, frame)?;
        let high = self.eval(high, frame)?;
        let test = |operator, bound: &Computed<'_>| match (&value, bound) {
            (Some(value), Some(bound)) => self.compare(operator, value, bound),
            _ => Ok(None),
        };
        let (above, below) = (
            test(BinaryOperator::GreaterOrEqual, &low)?,
            test(BinaryOperator::LessOrEqual, &high)?,
        );
        Ok(match (above, below) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        })
    }

    fn is_in(
        &self,
        value: &Expr,
        list: &[Expr],
        set: Option<&BTreeSet<OrderedValue>>,
        frame: &Frame<'_>,
    ) -> Result<Option<bool>> {
        let Some(value) = self.eval(value, frame)? else {
            return Ok(None);
        };
        if let Some(set) = set {
            self.meter.work(reading_work(&value))?;
            return Ok(Some(set.contains(&OrderedValue(Some(value.into_owned())))));
        }
        for candidate in list {
            if let Some(candidate) = self.eval(candidate, frame)?
                && self.compare(BinaryOperator::Equal, &value, &candidate)? == Some(true)
            {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }

    fn like(
        &self,
        value: &Expr,
        pattern: &Expr,
        escape: Option<u16>,
        ready: Option<&LikePattern>,
        frame: &Frame<'_>,
    ) -> Result<Option<bool>> {
        let value = self.eval(value, frame)?;
        let Some(text) = value.as_deref().and_then(Value::as_str) else {
            return Ok(None);
        };
        let evaluated;
        let made;
        let pattern = match ready {
            Some(ready) => ready,
            None => {
                evaluated = self.eval(pattern, frame)?;
                let Some(pattern) = evaluated.as_deref().and_then(Value::as_str) else {
                    return Ok(None);
                };
                made = LikePattern::new(pattern, escape);
                &made
            }
        };
        if self.environment.allow_work(&[text.len(), pattern.work()]).is_none() {
            return Err(QueryError::plain(
                "The LIKE operator would need more time than one comparison may use.",
            ));
        }
        self.meter.work(self.environment.take_work())?;
        Ok(Some(pattern.matches(text)))
    }

    fn map<'f>(
        &self,
        operand: &'f Expr,
        frame: &'f Frame<'f>,
        apply: impl Fn(&Value) -> Option<Value>,
    ) -> Result<Computed<'f>> {
        Ok(self
            .eval(operand, frame)?
            .and_then(|value| apply(&value))
            .map(Cow::Owned))
    }

    fn chain<'f>(
        &self,
        first: &'f Expr,
        rest: &'f [(BinaryOperator, Expr)],
        frame: &'f Frame<'f>,
    ) -> Result<Computed<'f>> {
        let mut left = self.eval(first, frame)?;
        for (operator, operand) in rest {
            let right = self.eval(operand, frame)?;
            let result = match (&left, &right) {
                (Some(a), Some(b)) if is_comparison(*operator) => self.compare(*operator, a, b)?.map(Value::Bool),
                (Some(a), Some(b)) => {
                    if let (BinaryOperator::Concat, Value::String(a), Value::String(b)) = (operator, &**a, &**b) {
                        self.makes(a.len().saturating_add(b.len()))?;
                    }
                    calculate(*operator, a, b)
                }
                _ => None,
            };
            left = result.map(Cow::Owned);
        }
        Ok(left)
    }

    fn coalesce<'f>(&self, operands: &'f [Expr], frame: &'f Frame<'f>) -> Result<Computed<'f>> {
        for operand in operands {
            let value = self.eval(operand, frame)?;
            if value.is_some() {
                return Ok(value);
            }
        }
        Ok(None)
    }

    fn index<'f>(&self, base: &'f Expr, index: &'f Expr, frame: &'f Frame<'f>) -> Result<Computed<'f>> {
        let (Some(base), Some(index)) = (self.eval(base, frame)?, self.eval(index, frame)?) else {
            return Ok(None);
        };
        let step = match &*index {
            Value::String(name) => Step::Name(name.clone()),
            Value::Number(Number::Int(index)) if *index >= 0 => Step::Element(*index as usize),
            _ => return Ok(None),
        };
        Ok(walk_computed(base, &[step]))
    }

    fn array(&self, items: &[Expr], frame: &Frame<'_>) -> Result<Value> {
        let mut values = Vec::with_capacity(items.len());
        let mut n_bytes = 0usize;
        for item in items {
            if let Some(value) = self.eval(item, frame)? {
                let own_bytes = size_bytes(&value);
                n_bytes = n_bytes.saturating_add(own_bytes);
                check_size(n_bytes)?;
                self.meter.work(own_bytes as u64)?;
                values.push(value.into_owned());
            }
        }
        Ok(Value::Array(values))
    }

    fn object(&self, members: &[(String, Expr)], frame: &Frame<'_>) -> Result<Value> {
        let mut object = Object::new();
        let mut n_bytes = 0usize;
        for (name, member) in members {
            if let Some(value) = self.eval(member, frame)? {
                let own_bytes = size_bytes(&value);
                n_bytes = n_bytes.saturating_add(own_bytes);
                check_size(n_bytes)?;
                self.meter.work(own_bytes as u64)?;
                object.push_unique(name.as_str(), value.into_owned());
            }
        }
        Ok(Value::Object(object))
    }

    fn call(&self, function: Scalar, arguments: &[Expr], frame: &Frame<'_>) -> Result<Option<Value>> {
        if arguments.len() <= ARGUMENTS_INLINE {
            let mut values: [Computed<'_>; ARGUMENTS_INLINE] = Default::default();
            for (slot, argument) in values.iter_mut().zip(arguments) {
                *slot = self.eval(argument, frame)?;
            }
            return self.apply(function, &values[..arguments.len()]);
        }
        let values = arguments
            .iter()
            .map(|argument| self.eval(argument, frame))
            .collect::<Result<Vec<_>>>()?;
        self.apply(function, &values)
    }

    fn apply(&self, function: Scalar, values: &[Computed<'_>]) -> Result<Option<Value>> {
        self.meter.step()?;
        let read = |value: &Computed<'_>| value.as_deref().map_or(0, |value| self.argument_work(value));
        self.meter.work(values.iter().map(read).sum())?;
        let environment = &self.environment;
        let result = (function.call)(&Arguments { values, environment });
        self.meter
            .work(environment.take_work() + result.as_ref().map_or(0, text_work))?;
        match environment.refusal().filter(|_| result.is_none()) {
            None => Ok(result),
            Some(refusal) => Err(refused(function.name, refusal)),
        }
    }

    /// What a call takes to go through an argument. How deep it goes differs; a run that must not go on for long counts the
    /// most that it could be.
    fn argument_work(&self, value: &Value) -> u64 {
        match self.counts_all {
            true => reading_work(value),
            false => text_work(value),
        }
    }

    /// A comparison of two defined values.
    fn compare(&self, operator: BinaryOperator, a: &Value, b: &Value) -> Result<Option<bool>> {
        let is_long = match (a, b) {
            (Value::String(a), Value::String(b)) => a.len().min(b.len()) >= LONG_TEXT_BYTES,
            (Value::Array(a), Value::Array(b)) => a.len() == b.len(),
            (Value::Object(a), Value::Object(b)) => a.len() == b.len(),
            _ => false,
        };
        if is_long {
            self.meter.work(reading_work(a).min(reading_work(b)))?;
        }
        Ok(compare(operator, a, b))
    }

    /// Before a text or a list of so many bytes is made.
    fn makes(&self, n_bytes: usize) -> Result<()> {
        check_size(n_bytes)?;
        self.meter.work(n_bytes as u64)
    }

    fn user_call(&self, name: &str, arguments: &[Expr], frame: &Frame<'_>) -> Result<Option<Value>> {
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            match self.eval(argument, frame)? {
                Some(value) => values.push(value.into_owned()),
                // A call with an undefined argument does not take place.
                None => return Ok(None),
            }
        }
        let Some(functions) = self.functions else {
            return Err(QueryError::plain(format!(
                "The user-defined function '{name}' could not be found."
            )));
        };
        Ok(functions.call(name, &values)?)
    }

    fn subquery(&self, form: SubqueryForm, block: &Block, frame: &Frame<'_>) -> Result<Option<Value>> {
        match form {
            SubqueryForm::Exists => {
                let mut found = false;
                _ = self.rows(block, frame, &mut |_| {
                    found = true;
                    Ok(ControlFlow::Break(()))
                })?;
                Ok(Some(Value::Bool(found)))
            }
            SubqueryForm::Array => {
                let mut values = Vec::new();
                let mut held = self.meter.held();
                _ = self.rows(block, frame, &mut |value| {
                    held.add(size_bytes(&value))?;
                    values.push(value.into_owned());
                    Ok(ControlFlow::Continue(()))
                })?;
                Ok(Some(Value::Array(values)))
            }
            SubqueryForm::All => Ok(Some(Value::Bool(self.all_rows_pass(block, frame)?))),
            SubqueryForm::First | SubqueryForm::Last | SubqueryForm::Scalar => self.one_row(form, block, frame),
        }
    }

    fn one_row(&self, form: SubqueryForm, block: &Block, frame: &Frame<'_>) -> Result<Option<Value>> {
        let mut found: Option<Value> = None;
        _ = self.rows(block, frame, &mut |value| {
            if form == SubqueryForm::Scalar && found.is_some() {
                return Err(QueryError::plain(
                    "The cardinality of a scalar subquery result set cannot be greater than one.",
                ));
            }
            found = Some(value.into_owned());
            Ok(if form == SubqueryForm::First {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        Ok(found)
    }
}

fn refused(function: &str, refusal: Refusal) -> QueryError {
    QueryError::plain(match refusal {
        Refusal::Excessive => {
            format!("The {function} function would need more time or memory than one call may use.")
        }
        Refusal::Pattern => format!(
            "The {function} function was given a regular expression with recursion, conditions, verbs or other parts that are not \
             supported."
        ),
    })
}

/// What going through all of a value takes, in the units of a meter.
fn reading_work(value: &Value) -> u64 {
    match value {
        Value::Array(_) | Value::Object(_) => size_bytes(value) as u64,
        scalar => text_work(scalar),
    }
}

/// What going through a value takes, if it is a text.
fn text_work(value: &Value) -> u64 {
    value.as_str().map_or(0, |text| text.len() as u64)
}

/// Refuses to make a value that is larger than any value may be.
fn check_size(n_bytes: usize) -> Result<()> {
    if n_bytes <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(QueryError::plain(format!(
        "The query makes a value of more than the allowed {VALUE_BYTES_MAX} bytes."
    )))
}

fn owned_bool<'f>(value: Option<bool>) -> Computed<'f> {
    value.map(|value| Cow::Owned(Value::Bool(value)))
}

fn negate(value: &Value) -> Option<Value> {
    Some(Value::Number(crate::plan::negated(value.as_number()?)))
}

pub(crate) fn walk<'v>(value: &'v Value, steps: &[Step]) -> Option<&'v Value> {
    steps.iter().try_fold(value, |value, step| match step {
        Step::Name(name) => value.get(name),
        Step::Element(index) => value.as_array()?.get(*index),
        Step::Nowhere => None,
    })
}

fn walk_computed<'f>(base: Cow<'f, Value>, steps: &[Step]) -> Computed<'f> {
    match base {
        Cow::Borrowed(value) => walk(value, steps).map(Cow::Borrowed),
        Cow::Owned(value) => walk(&value, steps).cloned().map(Cow::Owned),
    }
}

fn is_comparison(operator: BinaryOperator) -> bool {
    use BinaryOperator::*;
    matches!(
        operator,
        Equal | NotEqual | Less | LessOrEqual | Greater | GreaterOrEqual
    )
}

fn compare(operator: BinaryOperator, a: &Value, b: &Value) -> Option<bool> {
    use BinaryOperator::*;
    let order = match operator {
        Equal => return Some(equal(a, b)),
        NotEqual => return Some(!equal(a, b)),
        _ => compare_scalars(a, b)?,
    };
    Some(order.is_some_and(|order| match operator {
        Less => order == Ordering::Less,
        LessOrEqual => order != Ordering::Greater,
        Greater => order == Ordering::Greater,
        _ => order != Ordering::Less,
    }))
}
