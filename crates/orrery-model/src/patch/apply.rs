//! What each operation does to an item.

use super::{PatchOperation, Pointer};
use crate::error::{Error, Result};
use crate::json::{Number, Object, Value};
use crate::limits::NESTING_LEVELS_MAX;

/// The item with all operations applied.
pub(super) fn all(operations: &[PatchOperation], item: &Object) -> Result<Object> {
    let mut root = Value::Object(item.clone());
    for (index, operation) in operations.iter().enumerate() {
        one(operation, &mut root)
            .map_err(|reason| Error::bad_request(format!("For Operation({}): {reason}", index + 1)))?;
    }
    if root.depth() > NESTING_LEVELS_MAX {
        return Err(Error::bad_request(format!(
            "The item would be nested more than {NESTING_LEVELS_MAX} levels deep."
        )));
    }
    match root {
        Value::Object(item) => Ok(item),
        _ => unreachable!("a pointer has a segment, so the root is never replaced"),
    }
}

/// Why an operation cannot be applied, in the service's words.
type Applied<T = ()> = Result<T, String>;

fn one(operation: &PatchOperation, root: &mut Value) -> Applied {
    match operation {
        PatchOperation::Add { path, value } => add(root, path, value.clone()),
        PatchOperation::Set { path, value } => set(root, path, value.clone()),
        PatchOperation::Replace { path, value } => {
            *existing(root, path, "replaced")? = value.clone();
            Ok(())
        }
        PatchOperation::Remove { path } => remove(root, path).map(drop),
        PatchOperation::Increment { path, by } => increment(root, path, *by),
        PatchOperation::Move { from, path } => {
            if from == path {
                return existing(root, from, "moved").map(drop);
            }
            let value = remove(root, from)?;
            add(root, path, value)
        }
    }
}

/// A place a pointer leads to: a member, which need not exist, or an element of an array.
enum Place<'a> {
    Member(&'a mut Object, &'a str),
    Element(&'a mut Vec<Value>, Index),
}

enum Index {
    At(usize),
    End,
}

fn place<'a>(root: &'a mut Value, path: &'a Pointer) -> Applied<Place<'a>> {
    let (last, parents) = path.split_last();
    let mut value = root;
    for (n_found, segment) in parents.iter().enumerate() {
        value = child(value, segment).ok_or_else(|| no_parent(&path.segments()[..n_found]))?;
    }
    match value {
        Value::Object(object) => Ok(Place::Member(object, last)),
        Value::Array(items) => match last {
            "-" => Ok(Place::Element(items, Index::End)),
            digits => Ok(Place::Element(
                items,
                Index::At(array_index(digits).ok_or_else(|| out_of_bounds(digits))?),
            )),
        },
        _ => Err(no_parent(parents)),
    }
}

fn child<'a>(value: &'a mut Value, segment: &str) -> Option<&'a mut Value> {
    match value {
        Value::Object(object) => object.get_mut(segment),
        Value::Array(items) => items.get_mut(array_index(segment)?),
        _ => None,
    }
}

/// Digits without a sign or leading zeros.
fn array_index(text: &str) -> Option<usize> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if digits { text.parse().ok() } else { None }
}

fn add(root: &mut Value, path: &Pointer, value: Value) -> Applied {
    match place(root, path)? {
        Place::Member(object, name) => object.insert(name, value),
        Place::Element(items, Index::End) => items.push(value),
        Place::Element(items, Index::At(index)) if index <= items.len() => items.insert(index, value),
        Place::Element(_, Index::At(index)) => return Err(out_of_bounds(&index.to_string())),
    }
    Ok(())
}

fn set(root: &mut Value, path: &Pointer, value: Value) -> Applied {
    match place(root, path)? {
        Place::Member(object, name) => object.insert(name, value),
        Place::Element(items, Index::End) => items.push(value),
        Place::Element(items, Index::At(index)) => {
            *items.get_mut(index).ok_or_else(|| out_of_bounds(&index.to_string()))? = value;
        }
    }
    Ok(())
}

fn existing<'a>(root: &'a mut Value, path: &'a Pointer, what: &str) -> Applied<&'a mut Value> {
    let absent = || format!("Node({path}) to be {what} is absent.");
    match place(root, path).map_err(|_| absent())? {
        Place::Member(object, name) => object.get_mut(name).ok_or_else(absent),
        Place::Element(items, Index::At(index)) => {
            items.get_mut(index).ok_or_else(|| out_of_bounds(&index.to_string()))
        }
        Place::Element(_, Index::End) => Err(absent()),
    }
}

fn remove(root: &mut Value, path: &Pointer) -> Applied<Value> {
    let absent = || {
        format!("Node({path}) to be removed is absent. Note: it may also have been removed earlier in the transaction.")
    };
    match place(root, path).map_err(|_| absent())? {
        Place::Member(object, name) => object.remove(name).ok_or_else(absent),
        Place::Element(items, Index::At(index)) if index < items.len() => Ok(items.remove(index)),
        Place::Element(_, Index::At(index)) => Err(out_of_bounds(&index.to_string())),
        Place::Element(_, Index::End) => Err(absent()),
    }
}

fn increment(root: &mut Value, path: &Pointer, by: Number) -> Applied {
    let slot = match place(root, path)? {
        Place::Member(object, name) => {
            if !object.contains(name) {
                object.insert(name, Value::Number(by));
                return Ok(());
            }
            object.get_mut(name)
        }
        Place::Element(items, Index::At(index)) => {
            Some(items.get_mut(index).ok_or_else(|| out_of_bounds(&index.to_string()))?)
        }
        Place::Element(_, Index::End) => None,
    };
    let slot = slot.ok_or_else(|| format!("Node({path}) to be incremented is absent."))?;
    let current = slot
        .as_number()
        .ok_or_else(|| format!("Node({path}) is not a number."))?;
    let total = sum(current, by).ok_or_else(|| format!("Node({path}) incremented is out of range."))?;
    *slot = Value::Number(total);
    Ok(())
}

/// Integers add exactly while the result is one of 64 bits, and as doubles beyond. `None` when that is not finite.
fn sum(a: Number, b: Number) -> Option<Number> {
    let exact = integer(a).zip(integer(b)).map(|(a, b)| a + b);
    let signed = exact.and_then(|total| i64::try_from(total).ok());
    let unsigned_operand = matches!(a, Number::UInt(_)) || matches!(b, Number::UInt(_));
    let unsigned = exact
        .filter(|_| unsigned_operand)
        .and_then(|total| u64::try_from(total).ok());
    signed.map(Number::from).or(unsigned.map(Number::from)).or_else(|| {
        let total = a.to_f64() + b.to_f64();
        total.is_finite().then(|| Number::from_f64(total))
    })
}

fn integer(number: Number) -> Option<i128> {
    match number {
        Number::Int(int) => Some(i128::from(int)),
        Number::UInt(uint) => Some(i128::from(uint)),
        Number::Double(_) => None,
    }
}

fn out_of_bounds(index: &str) -> String {
    format!("Index({}) to operate on is out of array bounds.", super::shorten(index))
}

fn no_parent(found: &[String]) -> String {
    let found: String = found.iter().map(|segment| format!("/{segment}")).collect();
    format!(
        "Given Operation can only create a child object of an existing node(array or object) and cannot create path \
         recursively, no path found beyond: '{}'.",
        super::shorten(if found.is_empty() { "/" } else { &found })
    )
}
