//! Reading members of known type out of a definition. A null member counts as absent throughout.

use crate::error::{Error, Result};
use crate::json::{Number, Object, Value};

/// The member, unless it is absent or null.
pub(super) fn member<'a>(owner: &'a Object, name: &str) -> Option<&'a Value> {
    owner.get(name).filter(|value| **value != Value::Null)
}

pub(super) fn object<'a>(owner: &'a Object, name: &str) -> Result<Option<&'a Object>> {
    typed(owner, name, "an object", Value::as_object)
}

pub(super) fn list<'a>(owner: &'a Object, name: &str) -> Result<Option<&'a [Value]>> {
    typed(owner, name, "an array", Value::as_array)
}

pub(super) fn text<'a>(owner: &'a Object, name: &str) -> Result<Option<&'a str>> {
    typed(owner, name, "a string", Value::as_str)
}

pub(super) fn boolean(owner: &Object, name: &str) -> Result<Option<bool>> {
    typed(owner, name, "a boolean", Value::as_bool)
}

pub(super) fn integer(owner: &Object, name: &str) -> Result<Option<i64>> {
    typed(owner, name, "an integer", |value| {
        value.as_number().and_then(Number::as_i64)
    })
}

/// A string that must be there.
pub(super) fn required_text<'a>(owner: &'a Object, name: &str) -> Result<&'a str> {
    text(owner, name)?.ok_or_else(|| missing(name))
}

/// The elements of a list, each an object.
pub(super) fn objects<'a>(owner: &'a Object, name: &str) -> Result<Option<Vec<&'a Object>>> {
    let elements = |items: &'a [Value]| {
        let element = |item: &'a Value| item.as_object().ok_or_else(|| wrong(name, "an array of objects"));
        items.iter().map(element).collect::<Result<Vec<_>>>()
    };
    list(owner, name)?.map(elements).transpose()
}

/// The one of `allowed` that `given` spells, whatever its casing.
pub(super) fn choice<'a>(allowed: &[&'a str], given: &str) -> Option<&'a str> {
    allowed.iter().copied().find(|name| name.eq_ignore_ascii_case(given))
}

/// Puts a member that must be one of `allowed` into the service's casing. An absent one stays absent.
pub(super) fn normalise_choice(owner: &mut Object, name: &str, allowed: &[&str]) -> Result<()> {
    let Some(given) = text(owner, name)? else { return Ok(()) };
    let known = choice(allowed, given).ok_or_else(|| {
        Error::bad_request(format!(
            "The value '{given}' of '{name}' is not one of {}.",
            allowed.join(", ")
        ))
    })?;
    owner.insert(name, Value::from(known));
    Ok(())
}

/// Checks the type of members that are kept as they came.
pub(super) fn integer_within(owner: &Object, name: &str, range: std::ops::RangeInclusive<i64>) -> Result<Option<i64>> {
    match integer(owner, name)? {
        Some(number) if !range.contains(&number) => Err(Error::bad_request(format!(
            "The value {number} of '{name}' is out of range. The allowed range is between {} and {}.",
            range.start(),
            range.end()
        ))),
        other => Ok(other),
    }
}

pub(super) fn missing(name: &str) -> Error {
    Error::bad_request(format!(
        "The input content is invalid because the required properties - '{name}; ' - are missing"
    ))
}

/// A copy without null members.
pub(super) fn present(object: &Object) -> Object {
    let members = object.iter().filter(|(_, value)| **value != Value::Null);
    members.map(|(name, value)| (name.to_owned(), value.clone())).collect()
}

fn typed<'a, T>(owner: &'a Object, name: &str, kind: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
    member(owner, name)
        .map(|value| read(value).ok_or_else(|| wrong(name, kind)))
        .transpose()
}

fn wrong(name: &str, kind: &str) -> Error {
    Error::bad_request(format!(
        "One of the specified inputs is invalid: '{name}' must be {kind}."
    ))
}
