//! Aggregates: one value out of many rows.
//!
//! Undefined inputs are skipped by all of them.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use orrery_model::{Number, Value};

use crate::parse::ast::BinaryOperator;
use crate::values::{calculate, compare_for_order, is_primitive, order_key_cmp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateKind {
    Count,
    CountIf,
    Sum,
    Average,
    Min,
    Max,
    MakeList,
    MakeSet,
}

impl AggregateKind {
    pub const ALL: [(&'static str, AggregateKind); 8] = [
        ("COUNT", AggregateKind::Count),
        ("COUNTIF", AggregateKind::CountIf),
        ("SUM", AggregateKind::Sum),
        ("AVG", AggregateKind::Average),
        ("MIN", AggregateKind::Min),
        ("MAX", AggregateKind::Max),
        ("MAKELIST", AggregateKind::MakeList),
        ("MAKESET", AggregateKind::MakeSet),
    ];

    /// The name in query plans.
    pub fn plan_name(self) -> &'static str {
        match self {
            AggregateKind::Count => "Count",
            AggregateKind::CountIf => "CountIf",
            AggregateKind::Sum => "Sum",
            AggregateKind::Average => "Average",
            AggregateKind::Min => "Min",
            AggregateKind::Max => "Max",
            AggregateKind::MakeList => "MakeList",
            AggregateKind::MakeSet => "MakeSet",
        }
    }
}

/// An aggregate under way.
#[derive(Debug)]
pub(crate) struct Accumulator {
    kind: AggregateKind,
    n_values: i64,
    /// Sum so far, smallest or largest so far.
    value: Option<Value>,
    /// A value was met for which the result is undefined.
    spoiled: bool,
    list: Vec<Value>,
    seen: BTreeSet<OrderedValue>,
}

/// A value with the order of ORDER BY, under which equal values are the same.
#[derive(Clone, Debug)]
pub(crate) struct OrderedValue(pub Option<Value>);

impl Ord for OrderedValue {
    fn cmp(&self, other: &OrderedValue) -> Ordering {
        order_key_cmp(&self.0, &other.0)
    }
}

impl PartialOrd for OrderedValue {
    fn partial_cmp(&self, other: &OrderedValue) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for OrderedValue {
    fn eq(&self, other: &OrderedValue) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for OrderedValue {}

impl Accumulator {
    pub fn new(kind: AggregateKind) -> Accumulator {
        Accumulator {
            kind,
            n_values: 0,
            value: None,
            spoiled: false,
            list: Vec::new(),
            seen: BTreeSet::new(),
        }
    }

    /// Takes one row's value, unless it is undefined. Says whether the value is kept in memory.
    pub fn add(&mut self, value: &Value) -> bool {
        match self.kind {
            AggregateKind::Count => self.n_values += 1,
            AggregateKind::CountIf => self.n_values += i64::from(*value == Value::Bool(true)),
            AggregateKind::Sum | AggregateKind::Average => self.add_number(value),
            AggregateKind::Min => self.keep_if(value, Ordering::Less),
            AggregateKind::Max => self.keep_if(value, Ordering::Greater),
            AggregateKind::MakeList => {
                self.list.push(value.clone());
                return true;
            }
            AggregateKind::MakeSet => {
                let new = self.seen.insert(OrderedValue(Some(value.clone())));
                if new {
                    self.list.push(value.clone());
                }
                return new;
            }
        }
        false
    }

    fn add_number(&mut self, value: &Value) {
        self.n_values += 1;
        let sum = self.value.take().unwrap_or(Value::from(0));
        self.value = calculate(BinaryOperator::Add, &sum, value);
        self.spoiled |= self.value.is_none();
    }

    fn keep_if(&mut self, value: &Value, wanted: Ordering) {
        self.spoiled |= !is_primitive(value);
        let better = match &self.value {
            None => true,
            Some(best) => compare_for_order(Some(value), Some(best)) == wanted,
        };
        if better && !self.spoiled {
            self.value = Some(value.clone());
        }
    }

    pub fn finish(self) -> Option<Value> {
        match self.kind {
            AggregateKind::Count | AggregateKind::CountIf => Some(Value::from(self.n_values)),
            AggregateKind::Sum if !self.spoiled => Some(self.value.unwrap_or(Value::from(0))),
            AggregateKind::Average if !self.spoiled => {
                let sum = self.value?.as_number()?.to_f64();
                Some(Value::Number(Number::from_f64(sum / self.n_values as f64)))
            }
            AggregateKind::Min | AggregateKind::Max if !self.spoiled => self.value,
            AggregateKind::MakeList | AggregateKind::MakeSet => Some(Value::Array(self.list)),
            _ => None,
        }
    }
}
