//! Arrays, sets, and objects as arrays.

use std::collections::BTreeSet;

use orrery_model::json::Object;
use orrery_model::{Number, Value};

use super::aggregate::{Accumulator, AggregateKind, OrderedValue};
use super::arguments::{Arguments, boolean, double, integer};
use super::registry::{Table, at_least, between, exactly};
use crate::values::{equal, size_bytes};

pub(super) fn register(table: &mut Table) {
    table.scalar("ARRAY_CONCAT", at_least(2), concat);
    table.scalar("ARRAY_CONTAINS", between(2, 3), contains);
    table.alias("_TRY_ARRAY_CONTAINS", "ARRAY_CONTAINS");
    table.scalar("ARRAY_CONTAINS_ALL", at_least(2), |arguments| {
        contains_each(arguments, false)
    });
    table.scalar("ARRAY_CONTAINS_ANY", at_least(2), |arguments| {
        contains_each(arguments, true)
    });
    table.scalar("ARRAY_LENGTH", exactly(1), |arguments| {
        integer(arguments.array(0)?.len() as i64)
    });
    table.scalar("ARRAY_SLICE", between(2, 3), slice);
    table.scalar("ARRAY_AVG", exactly(1), |arguments| {
        aggregate(arguments, AggregateKind::Average)
    });
    table.scalar("ARRAY_SUM", exactly(1), |arguments| {
        aggregate(arguments, AggregateKind::Sum)
    });
    table.scalar("ARRAY_MIN", exactly(1), |arguments| {
        aggregate(arguments, AggregateKind::Min)
    });
    table.scalar("ARRAY_MAX", exactly(1), |arguments| {
        aggregate(arguments, AggregateKind::Max)
    });
    table.scalar("ARRAY_MEDIAN", exactly(1), median);
    register_sets(table);
    table.scalar("OBJECTTOARRAY", between(1, 3), object_to_array);
    table.alias("OBJECT_TO_ARRAY", "OBJECTTOARRAY");
}

fn register_sets(table: &mut Table) {
    table.scalar("SETUNION", exactly(2), |arguments| {
        Some(distinct(arguments.array(0)?.iter().chain(arguments.array(1)?)))
    });
    table.alias("SET_UNION", "SETUNION");
    table.scalar("SETINTERSECT", exactly(2), |arguments| {
        let kept = set(arguments.array(0)?);
        Some(distinct(
            arguments.array(1)?.iter().filter(|value| kept.contains(&member(value))),
        ))
    });
    table.alias("SET_INTERSECT", "SETINTERSECT");
    table.scalar("SETDIFFERENCE", exactly(2), |arguments| {
        let removed = set(arguments.array(1)?);
        Some(distinct(
            arguments
                .array(0)?
                .iter()
                .filter(|value| !removed.contains(&member(value))),
        ))
    });
    table.alias("SET_DIFFERENCE", "SETDIFFERENCE");
    table.scalar("SETEQUAL", exactly(2), |arguments| {
        boolean(set(arguments.array(0)?) == set(arguments.array(1)?))
    });
    table.alias("SET_EQUAL", "SETEQUAL");
}

fn member(value: &Value) -> OrderedValue {
    OrderedValue(Some(value.clone()))
}

fn set(values: &[Value]) -> BTreeSet<OrderedValue> {
    values.iter().map(member).collect()
}

/// The values without repetitions, in the order of their first occurrence.
fn distinct<'v>(values: impl Iterator<Item = &'v Value>) -> Value {
    let mut seen = BTreeSet::new();
    Value::Array(values.filter(|value| seen.insert(member(value))).cloned().collect())
}

fn concat(arguments: &Arguments<'_>) -> Option<Value> {
    let arrays = (0..arguments.len())
        .map(|index| arguments.array(index))
        .collect::<Option<Vec<_>>>()?;
    let n_bytes = arrays.iter().copied().flatten().map(size_bytes).sum();
    arguments.environment.allow_bytes(n_bytes)?;
    Some(Value::Array(arrays.concat()))
}

fn contains(arguments: &Arguments<'_>) -> Option<Value> {
    let array = arguments.array(0)?;
    let wanted = arguments.get(1)?;
    let partial = arguments.flag(2, false)?;
    boolean(match wanted {
        Value::Object(wanted) if partial => array.iter().any(|element| has_members(element, wanted)),
        _ => array.iter().any(|element| equal(element, wanted)),
    })
}

/// Whether a value is an object with at least these members.
fn has_members(value: &Value, wanted: &Object) -> bool {
    value.as_object().is_some_and(|object| {
        wanted
            .iter()
            .all(|(name, member)| object.get(name).is_some_and(|own| equal(own, member)))
    })
}

/// Three-valued AND or OR over the wanted values.
fn contains_each(arguments: &Arguments<'_>, any: bool) -> Option<Value> {
    let array = arguments.array(0)?;
    arguments.environment.allow_work(&[array.len(), arguments.len()])?;
    let mut result = Some(!any);
    for index in 1..arguments.len() {
        match arguments
            .get(index)
            .map(|wanted| array.iter().any(|element| equal(element, wanted)))
        {
            Some(found) if found == any => return boolean(any),
            Some(_) => {}
            None => result = None,
        }
    }
    result.and_then(boolean)
}

fn slice(arguments: &Arguments<'_>) -> Option<Value> {
    let array = arguments.array(0)?;
    let start = arguments.extent(1)?;
    let n_elements = array.len() as i64;
    let start = if start < 0 {
        start.saturating_add(n_elements).max(0)
    } else {
        start.min(n_elements)
    };
    let n = if arguments.has(2) {
        arguments.extent(2)?.clamp(0, n_elements - start)
    } else {
        n_elements - start
    };
    Some(Value::Array(array[start as usize..(start + n) as usize].to_vec()))
}

fn aggregate(arguments: &Arguments<'_>, kind: AggregateKind) -> Option<Value> {
    let array = arguments.array(0)?;
    if array.is_empty() {
        return None;
    }
    let mut accumulator = Accumulator::new(kind);
    for value in array {
        accumulator.add(value);
    }
    accumulator.finish()
}

fn median(arguments: &Arguments<'_>) -> Option<Value> {
    let array = arguments.array(0)?;
    let mut numbers: Vec<Number> = array.iter().map(Value::as_number).collect::<Option<_>>()?;
    if numbers.is_empty() {
        return None;
    }
    numbers.sort_by(|a, b| a.compare(*b));
    let middle = numbers.len() / 2;
    match numbers.len() % 2 {
        1 => Some(Value::Number(numbers[middle])),
        _ => double((numbers[middle - 1].to_f64() + numbers[middle].to_f64()) / 2.0),
    }
}

fn object_to_array(arguments: &Arguments<'_>) -> Option<Value> {
    let object = arguments.get(0)?.as_object()?;
    let name_of_key = if arguments.has(1) { arguments.string(1)? } else { "k" };
    let name_of_value = if arguments.has(2) { arguments.string(2)? } else { "v" };
    let names = (name_of_key.len() + name_of_value.len()).saturating_mul(object.len());
    arguments.environment.allow_bytes(names)?;
    let entry = |(name, value): (&str, &Value)| {
        let mut entry = Object::new();
        entry.insert(name_of_key, Value::from(name));
        entry.insert(name_of_value, value.clone());
        Value::Object(entry)
    };
    Some(Value::Array(object.iter().map(entry).collect()))
}
