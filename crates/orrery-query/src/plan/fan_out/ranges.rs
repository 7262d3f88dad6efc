//! From a filter to the ranges that can hold matching items.
//!
//! The analysis asks, for each expression, for which partition keys it can be true (or false). Where it cannot tell, the
//! answer is "all", so a range is never left out wrongly.

use orrery_model::json::Object;
use orrery_model::key::{KeyComponent, KeyKind};
use orrery_model::{EpkRange, PartitionKey, PartitionKeyDefinition, Value};

use super::info::QueryRange;
use super::keys::Keys;
use crate::parse::ast::{BinaryOperator, SubqueryForm};
use crate::plan::{Block, Collection, Expr, Input, Plan, Step};
use crate::run::Constants;

/// The ranges a plan has to visit.
pub(super) fn query_ranges(plan: &Plan, definition: &PartitionKeyDefinition) -> Vec<QueryRange> {
    match &plan.input {
        Input::Nothing => return vec![QueryRange::empty()],
        Input::Rows(inner) => return query_ranges(inner, definition),
        Input::Items => {}
    }
    let mut analysis = Analysis {
        definition,
        constants: Constants::new(plan.planar),
        frames: vec![Some(Vec::new())],
    };
    let keys = analysis.block(&plan.block, true);
    to_ranges(keys, definition)
}

struct Analysis<'a> {
    definition: &'a PartitionKeyDefinition,
    constants: Constants,
    /// The document path that each frame is bound to, if it is one.
    frames: Vec<Option<Vec<Step>>>,
}

impl Analysis<'_> {
    /// The keys for which a block has rows.
    fn block(&mut self, block: &Block, is_outermost: bool) -> Keys {
        let n_outer = self.frames.len();
        let mut keys = Keys::All;
        for source in &block.sources {
            let path = match &source.collection {
                Collection::Value(expr) if !source.iterate => self.path(expr),
                Collection::Value(_) => None,
                Collection::Rows(inner) => {
                    keys = keys.intersection(self.block(inner, false));
                    None
                }
            };
            self.frames.push(path);
        }
        if let Some(filter) = &block.filter {
            keys = keys.intersection(self.truth(filter, true));
        }
        self.frames.truncate(n_outer);
        match block.has_row_anyway() && !is_outermost {
            true => Keys::All,
            false => keys,
        }
    }

    /// The document path an expression stands for.
    fn path(&self, expr: &Expr) -> Option<Vec<Step>> {
        match expr {
            Expr::Path { up, steps } => {
                let frame = self.frames.get(self.frames.len().checked_sub(up + 1)?)?;
                Some([frame.as_ref()?.as_slice(), steps].concat())
            }
            Expr::Access { base, steps } => Some([self.path(base)?.as_slice(), steps].concat()),
            Expr::Computed(property) => property.stored_path().map(<[Step]>::to_vec),
            _ => None,
        }
    }

    /// Which component of the partition key an expression is.
    fn component(&self, expr: &Expr) -> Option<usize> {
        let path = self.path(expr)?;
        self.definition.paths().iter().position(|key| {
            let names = key.segments();
            path.len() == names.len()
                && path
                    .iter()
                    .zip(names)
                    .all(|(step, name)| matches!(step, Step::Name(own) if own == name))
        })
    }

    /// The keys for which `expr` can be exactly `wanted`.
    fn truth(&mut self, expr: &Expr, wanted: bool) -> Keys {
        if let Some(value) = self.constants.truth(expr) {
            return if value == Some(wanted) { Keys::All } else { Keys::none() };
        }
        match expr {
            Expr::Not(operand) => self.truth(operand, !wanted),
            Expr::And(operands) => self.combine(operands, wanted, wanted),
            Expr::Or(operands) => self.combine(operands, wanted, !wanted),
            Expr::Path { .. } | Expr::Access { .. } | Expr::Computed(_) => self.equals(expr, &Value::Bool(wanted)),
            Expr::In { value, list, .. } if wanted => list
                .iter()
                .fold(Keys::none(), |keys, member| keys.union(self.equality(value, member))),
            Expr::Chain { first, rest } if wanted && rest.len() == 1 && rest[0].0 == BinaryOperator::Equal => {
                let equal = self.equality(first, &rest[0].1);
                equal.intersection(self.defined(expr))
            }
            Expr::Like {
                value,
                ready: Some(pattern),
                ..
            } if wanted => match pattern.exact() {
                Some(text) => self.equals(value, &Value::String(text)),
                None => Keys::All,
            },
            Expr::Call { function, arguments } if wanted => self.call(function.name, arguments),
            _ => self.defined(expr),
        }
    }

    fn combine(&mut self, operands: &[Expr], wanted: bool, all: bool) -> Keys {
        let start = if all { Keys::All } else { Keys::none() };
        operands.iter().fold(start, |keys, operand| {
            let operand = self.truth(operand, wanted);
            if all {
                keys.intersection(operand)
            } else {
                keys.union(operand)
            }
        })
    }

    fn call(&self, function: &str, arguments: &[Expr]) -> Keys {
        match (function, arguments) {
            ("IS_NULL", [value]) => self.equals(value, &Value::Null),
            ("IS_BOOL", [value]) => self
                .equals(value, &Value::Bool(false))
                .union(self.equals(value, &Value::Bool(true))),
            ("ARRAY_CONTAINS", [list, value]) => match list.constant().and_then(Value::as_array) {
                Some(list) => list
                    .iter()
                    .fold(Keys::none(), |keys, member| keys.union(self.equals(value, member))),
                None => Keys::All,
            },
            _ => Keys::All,
        }
    }

    /// The keys for which two expressions can be equal.
    fn equality(&self, a: &Expr, b: &Expr) -> Keys {
        for (one, other) in [(a, b), (b, a)] {
            let Some(value) = self.constants.value(other) else {
                continue;
            };
            if let Expr::Call { function, arguments } = one
                && let ("ABS", Some(number)) = (function.name, value.as_number())
            {
                let negative = Value::Number(crate::plan::negated(number));
                return self
                    .equals(&arguments[0], &value)
                    .union(self.equals(&arguments[0], &negative));
            }
            return self.equals(one, &value);
        }
        Keys::All
    }

    fn equals(&self, expr: &Expr, value: &Value) -> Keys {
        match self.component(expr) {
            Some(index) => Keys::point(self.definition.paths().len(), index, key_component(value)),
            None => Keys::All,
        }
    }

    /// The keys for which an expression can have a value at all: scalar subqueries in it must have a row.
    fn defined(&mut self, expr: &Expr) -> Keys {
        match expr {
            Expr::Subquery {
                form: SubqueryForm::Scalar,
                block,
            } => self.block(block, false),
            Expr::Chain { first, rest } => {
                let first = self.defined(first);
                rest.iter()
                    .fold(first, |keys, (_, operand)| keys.intersection(self.defined(operand)))
            }
            // Spatial functions are defined for objects only, but for those that ask whether it is one.
            Expr::Call { function, arguments }
                if function.name.starts_with("ST_") && !function.name.starts_with("ST_ISVALID") =>
            {
                let object = Value::Object(Object::new());
                arguments.iter().fold(Keys::All, |keys, argument| {
                    keys.intersection(self.equals(argument, &object))
                })
            }
            _ => Keys::All,
        }
    }
}

/// Arrays and objects cannot be keys; items that have them there are kept under the undefined key.
fn key_component(value: &Value) -> KeyComponent {
    match value {
        Value::Null => KeyComponent::Null,
        Value::Bool(value) => KeyComponent::Bool(*value),
        Value::Number(number) => KeyComponent::Number(number.to_f64()),
        Value::String(text) => KeyComponent::String(text.clone()),
        Value::Array(_) | Value::Object(_) => KeyComponent::Undefined,
    }
}

fn to_ranges(keys: Keys, definition: &PartitionKeyDefinition) -> Vec<QueryRange> {
    let Keys::Some(keys) = keys else {
        return vec![QueryRange::full()];
    };
    if keys.is_empty() {
        return vec![QueryRange::empty()];
    }
    let mut ranges = Vec::new();
    for key in keys {
        match to_range(key, definition) {
            Some(range) => ranges.push(range),
            None => return vec![QueryRange::full()],
        }
    }
    // Wider ranges first, so that what they cover follows them.
    ranges.sort_by(|a, b| a.min.cmp(&b.min).then_with(|| b.max.cmp(&a.max)));
    let mut merged: Vec<QueryRange> = Vec::new();
    for range in ranges {
        let covered = merged.last().is_some_and(|last| range.min < last.max || range == *last);
        if !covered {
            merged.push(range);
        }
    }
    merged
}

/// The range of one key; `None` when it does not narrow anything.
fn to_range(key: Vec<Option<KeyComponent>>, definition: &PartitionKeyDefinition) -> Option<QueryRange> {
    let n_components = key.len();
    let prefix: Vec<KeyComponent> = key.into_iter().map_while(|component| component).collect();
    let complete = prefix.len() == n_components;
    if prefix.is_empty() || (!complete && definition.kind() == KeyKind::Hash) {
        return None;
    }
    let key = PartitionKey::new(prefix);
    if complete {
        return Some(QueryRange::point(orrery_model::Epk::of(definition, &key)));
    }
    let range = EpkRange::of_key(definition, &key);
    Some(QueryRange {
        min: range.min,
        max: range.max,
        min_inclusive: true,
        max_inclusive: false,
    })
}
