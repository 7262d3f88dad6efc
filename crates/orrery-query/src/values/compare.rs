//! Equality, the comparisons of filters, and the total order of ORDER BY.

use std::cmp::Ordering;

use orrery_model::json::Object;
use orrery_model::{Number, Value};

/// Deep equality. Values of different types are unequal; not-a-number equals nothing.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Number(a), Value::Number(b)) => numbers_equal(*a, *b),
        (Value::String(a), Value::String(b)) => a == b,
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (Value::Object(a), Value::Object(b)) => a.len() == b.len() && objects_equal(a, b),
        _ => false,
    }
}

/// Of objects with equally many members.
fn objects_equal(a: &Object, b: &Object) -> bool {
    if a.len() <= SEARCHED_MAX {
        let has = |(name, member): (&str, &Value)| b.get(name).is_some_and(|other| equal(member, other));
        return a.iter().all(has);
    }
    let same = |((a_name, a), (b_name, b)): ((&str, &Value), (&str, &Value))| a_name == b_name && equal(a, b);
    sorted(a).into_iter().zip(sorted(b)).all(same)
}

/// Members of an object in which each of as many names may be searched.
const SEARCHED_MAX: usize = 16;

fn sorted(object: &Object) -> Vec<(&str, &Value)> {
    let mut members: Vec<(&str, &Value)> = object.iter().collect();
    members.sort_unstable_by_key(|(name, _)| *name);
    members
}

fn numbers_equal(a: Number, b: Number) -> bool {
    !is_nan(a) && !is_nan(b) && compare_numbers(a, b) == Ordering::Equal
}

/// By value, as far as queries see it: beyond 64 signed bits they know doubles only, in literals as in results.
fn compare_numbers(a: Number, b: Number) -> Ordering {
    let seen = |number: Number| match number {
        Number::UInt(uint) => Number::Double(uint as f64),
        other => other,
    };
    seen(a).compare(seen(b))
}

fn is_nan(number: Number) -> bool {
    matches!(number, Number::Double(double) if double.is_nan())
}

/// The order that `<` and its kin see: defined between two numbers, strings, booleans or nulls, and nothing else.
/// The inner `None` stands for a pair that has no order although its types have one (not-a-number).
pub(crate) fn compare_scalars(a: &Value, b: &Value) -> Option<Option<Ordering>> {
    match (a, b) {
        (Value::Null, Value::Null) => Some(Some(Ordering::Equal)),
        (Value::Bool(a), Value::Bool(b)) => Some(Some(a.cmp(b))),
        (Value::Number(a), Value::Number(b)) if is_nan(*a) || is_nan(*b) => Some(None),
        (Value::Number(a), Value::Number(b)) => Some(Some(compare_numbers(*a, *b))),
        (Value::String(a), Value::String(b)) => Some(Some(compare_strings(a, b))),
        _ => None,
    }
}

/// By UTF-16 unit. UTF-8 bytes sort like code points, which differs only where surrogates meet U+E000 and above.
pub(crate) fn compare_strings(a: &str, b: &str) -> Ordering {
    let n_common = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    if n_common == a.len() || n_common == b.len() {
        return a.len().cmp(&b.len());
    }
    // Back to the start of the character in which they differ.
    let start = (0..=n_common).rev().find(|at| a.is_char_boundary(*at)).unwrap_or(0);
    a[start..].encode_utf16().cmp(b[start..].encode_utf16())
}

pub(crate) fn is_primitive(value: &Value) -> bool {
    !matches!(value, Value::Array(_) | Value::Object(_))
}

/// The place of a value's type in ORDER BY.
fn type_rank(value: Option<&Value>) -> u8 {
    match value {
        None => 0,
        Some(Value::Null) => 1,
        Some(Value::Bool(false)) => 2,
        Some(Value::Bool(true)) => 3,
        Some(Value::Number(_)) => 4,
        Some(Value::String(_)) => 5,
        Some(Value::Array(_)) => 6,
        Some(Value::Object(_)) => 7,
    }
}

/// The total order of ORDER BY: undefined, null, false, true, numbers, strings, arrays, objects. Arrays and objects have
/// a stable order of our own.
pub(crate) fn compare_for_order(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (Some(Value::Number(a)), Some(Value::Number(b))) => compare_numbers(*a, *b),
        (Some(Value::String(a)), Some(Value::String(b))) => compare_strings(a, b),
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            let differing = a
                .iter()
                .zip(b)
                .map(|(a, b)| compare_for_order(Some(a), Some(b)))
                .find(|order| order.is_ne());
            differing.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Some(Value::Object(a)), Some(Value::Object(b))) => compare_objects(a, b),
        _ => type_rank(a).cmp(&type_rank(b)),
    }
}

/// Members sorted by name, then compared pair by pair, so that equal objects compare equal whatever their member order.
fn compare_objects(a: &Object, b: &Object) -> Ordering {
    let pairs = sorted(a).into_iter().zip(sorted(b));
    let order = |((a_name, a), (b_name, b)): ((&str, &Value), (&str, &Value))| {
        compare_strings(a_name, b_name).then_with(|| compare_for_order(Some(a), Some(b)))
    };
    let differing = pairs.map(order).find(|order| order.is_ne());
    differing.unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// A [`Value`] that may be undefined, ordered as ORDER BY does, for sets and maps keyed by values.
pub(crate) fn order_key_cmp(a: &Option<Value>, b: &Option<Value>) -> Ordering {
    compare_for_order(a.as_ref(), b.as_ref())
}
