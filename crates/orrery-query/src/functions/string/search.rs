//! Looking for strings in strings.

use orrery_model::Value;

use super::text::{byte_position, fold, unit_position};
use crate::functions::arguments::{Arguments, boolean, integer};
use crate::functions::registry::{Table, at_least, between};

pub(super) fn register(table: &mut Table) {
    let two_or_three = between(2, 3);
    table.scalar("CONTAINS", two_or_three, |arguments| {
        test(arguments, |text, part| text.contains(part))
    });
    table.scalar("STARTSWITH", two_or_three, |arguments| {
        test(arguments, |text, part| text.starts_with(part))
    });
    table.scalar("ENDSWITH", two_or_three, |arguments| {
        test(arguments, |text, part| text.ends_with(part))
    });
    table.scalar("STRINGEQUALS", two_or_three, |arguments| {
        test(arguments, |text, part| text == part)
    });
    table.alias("STRING_EQUALS", "STRINGEQUALS");
    table.scalar("CONTAINS_ALL_CS", at_least(2), |arguments| {
        contains_each(arguments, false, false)
    });
    table.scalar("CONTAINS_ALL_CI", at_least(2), |arguments| {
        contains_each(arguments, false, true)
    });
    table.scalar("CONTAINS_ANY_CS", at_least(2), |arguments| {
        contains_each(arguments, true, false)
    });
    table.scalar("CONTAINS_ANY_CI", at_least(2), |arguments| {
        contains_each(arguments, true, true)
    });
    table.scalar("INDEX_OF", two_or_three, index_of);
    table.scalar("LASTINDEXOF", two_or_three, last_index_of);
    table.alias("LAST_INDEX_OF", "LASTINDEXOF");
}

/// A test of two strings with an optional third argument that makes it ignore case.
fn test(arguments: &Arguments<'_>, is_so: impl Fn(&str, &str) -> bool) -> Option<Value> {
    let (text, part) = (arguments.string(0)?, arguments.string(1)?);
    boolean(match arguments.flag(2, false)? {
        true => is_so(&fold(text), &fold(part)),
        false => is_so(text, part),
    })
}

/// Three-valued AND or OR of CONTAINS.
fn contains_each(arguments: &Arguments<'_>, any: bool, ignore_case: bool) -> Option<Value> {
    let text = arguments.string(0)?;
    let folded = if ignore_case { fold(text) } else { text.to_owned() };
    arguments.environment.allow_work(&[text.len(), arguments.len()])?;
    let mut result = Some(!any);
    for index in 1..arguments.len() {
        let found = arguments.string(index).map(|part| match ignore_case {
            true => folded.contains(&fold(part)),
            false => folded.contains(part),
        });
        match found {
            Some(found) if found == any => return boolean(any),
            Some(_) => {}
            None => result = None,
        }
    }
    result.and_then(boolean)
}

fn index_of(arguments: &Arguments<'_>) -> Option<Value> {
    let (text, part) = (arguments.string(0)?, arguments.string(1)?);
    let start = if arguments.has(2) { arguments.integer(2)? } else { 0 };
    let start = usize::try_from(start).unwrap_or(0);
    // Nothing is behind the end, not even the empty string.
    if part.is_empty() && start > text.encode_utf16().count() {
        return integer(-1);
    }
    let start = byte_position(text, start);
    let found = text[start..]
        .find(part)
        .map(|at| unit_position(text, start + at) as i64);
    integer(found.unwrap_or(-1))
}

fn last_index_of(arguments: &Arguments<'_>) -> Option<Value> {
    let (text, part) = (arguments.string(0)?, arguments.string(1)?);
    let end = match arguments.has(2) {
        true => match usize::try_from(arguments.integer(2)?) {
            // The search goes backwards from that unit, so what is found ends there at the latest.
            Ok(start) => byte_position(text, start.saturating_add(1)),
            Err(_) => return integer(-1),
        },
        false => text.len(),
    };
    let found = text[..end].rfind(part).map(|at| unit_position(text, at) as i64);
    integer(found.unwrap_or(-1))
}
