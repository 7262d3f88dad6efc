//! Taking strings apart and putting them together.

use orrery_model::Value;

use super::text::{length, lower, substring, upper};
use crate::functions::arguments::{Arguments, integer, string};
use crate::functions::registry::{Table, at_least, between, exactly};

/// Longest result of REPLICATE.
const REPLICATE_UNITS_MAX: usize = 10_000;

pub(super) fn register(table: &mut Table) {
    table.scalar("CONCAT", at_least(2), concat);
    table.scalar("LENGTH", exactly(1), |arguments| {
        integer(length(arguments.string(0)?) as i64)
    });
    table.scalar("LOWER", exactly(1), |arguments| string(lower(arguments.string(0)?)));
    table.scalar("UPPER", exactly(1), |arguments| string(upper(arguments.string(0)?)));
    table.scalar("LEFT", exactly(2), left);
    table.scalar("RIGHT", exactly(2), right);
    table.scalar("SUBSTRING", exactly(3), substring_of);
    table.scalar("LTRIM", between(1, 2), |arguments| trim(arguments, true, false));
    table.scalar("RTRIM", between(1, 2), |arguments| trim(arguments, false, true));
    table.scalar("TRIM", between(1, 2), |arguments| trim(arguments, true, true));
    table.scalar("REPLACE", exactly(3), replace);
    table.scalar("REPLICATE", exactly(2), replicate);
    table.scalar("REVERSE", exactly(1), |arguments| {
        string(reversed(arguments.string(0)?))
    });
    table.scalar("STRINGJOIN", exactly(2), join);
    table.alias("STRING_JOIN", "STRINGJOIN");
    table.scalar("STRINGSPLIT", exactly(2), split);
    table.alias("STRING_SPLIT", "STRINGSPLIT");
    register_around(table);
}

fn register_around(table: &mut Table) {
    table.scalar("SUBSTRINGBEFORE", exactly(2), |arguments| {
        around(arguments, str::split_once, true)
    });
    table.scalar("SUBSTRINGAFTER", exactly(2), |arguments| {
        around(arguments, str::split_once, false)
    });
    table.scalar("LASTSUBSTRINGBEFORE", exactly(2), |arguments| {
        around(arguments, str::rsplit_once, true)
    });
    table.scalar("LASTSUBSTRINGAFTER", exactly(2), |arguments| {
        around(arguments, str::rsplit_once, false)
    });
}

fn concat(arguments: &Arguments<'_>) -> Option<Value> {
    let parts = (0..arguments.len())
        .map(|index| arguments.string(index))
        .collect::<Option<Vec<_>>>()?;
    let n_bytes = parts.iter().fold(0usize, |sum, part| sum.saturating_add(part.len()));
    arguments.environment.allow_bytes(n_bytes)?;
    string(parts.concat())
}

fn left(arguments: &Arguments<'_>) -> Option<Value> {
    let text = arguments.string(0)?;
    let n = usize::try_from(arguments.extent(1)?).unwrap_or(0);
    string(substring(text, 0, n))
}

fn right(arguments: &Arguments<'_>) -> Option<Value> {
    let text = arguments.string(0)?;
    let n = usize::try_from(arguments.extent(1)?).unwrap_or(0);
    let n_units = length(text);
    string(substring(text, n_units.saturating_sub(n), n_units))
}

fn substring_of(arguments: &Arguments<'_>) -> Option<Value> {
    let text = arguments.string(0)?;
    let (start, n) = (arguments.extent(1)?, arguments.extent(2)?);
    match (usize::try_from(start), usize::try_from(n)) {
        (Ok(start), Ok(n)) => string(substring(text, start, start.saturating_add(n))),
        _ => string(""),
    }
}

/// Strips white space, or the characters of a set.
fn trim(arguments: &Arguments<'_>, at_start: bool, at_end: bool) -> Option<Value> {
    let mut text = arguments.string(0)?;
    let set = if arguments.has(1) {
        Some(arguments.string(1)?)
    } else {
        None
    };
    arguments
        .environment
        .allow_work(&[text.len(), set.map_or(1, str::len)])?;
    let strips = |character: char| set.map_or(character.is_whitespace(), |set| set.contains(character));
    if at_start {
        text = text.trim_start_matches(strips);
    }
    if at_end {
        text = text.trim_end_matches(strips);
    }
    string(text)
}

fn replace(arguments: &Arguments<'_>) -> Option<Value> {
    let (text, find, with) = (arguments.string(0)?, arguments.string(1)?, arguments.string(2)?);
    if find.is_empty() {
        return None;
    }
    if with.len() > find.len() {
        let n_found = text.matches(find).count();
        let added = n_found.saturating_mul(with.len() - find.len());
        arguments.environment.allow_bytes(text.len().saturating_add(added))?;
    }
    string(text.replace(find, with))
}

fn replicate(arguments: &Arguments<'_>) -> Option<Value> {
    let text = arguments.string(0)?;
    let times = arguments.double(1)?.trunc();
    if !(0.0..=f64::from(u32::MAX)).contains(&times) {
        return None;
    }
    let times = times as usize;
    let fits = length(text)
        .checked_mul(times)
        .is_some_and(|n_units| n_units <= REPLICATE_UNITS_MAX);
    if fits { string(text.repeat(times)) } else { None }
}

/// Reverses the units. Pairs that would come out the wrong way round stay together.
fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

fn join(arguments: &Arguments<'_>) -> Option<Value> {
    let parts = arguments
        .array(0)?
        .iter()
        .map(Value::as_str)
        .collect::<Option<Vec<_>>>()?;
    let separator = arguments.string(1)?;
    let between = separator.len().saturating_mul(parts.len());
    let n_bytes = parts.iter().fold(between, |sum, part| sum.saturating_add(part.len()));
    arguments.environment.allow_bytes(n_bytes)?;
    string(parts.join(separator))
}

fn split(arguments: &Arguments<'_>) -> Option<Value> {
    let (text, separator) = (arguments.string(0)?, arguments.string(1)?);
    let parts = match separator.is_empty() {
        true => vec![Value::from(text)],
        false => {
            let n_parts = text.matches(separator).count();
            let n_bytes = n_parts.saturating_mul(size_of::<Value>());
            arguments.environment.allow_bytes(n_bytes.saturating_add(text.len()))?;
            text.split(separator).map(Value::from).collect()
        }
    };
    Some(Value::Array(parts))
}

/// The text before or after a separator; undefined when the text does not have it.
fn around<'a>(
    arguments: &Arguments<'a>,
    cut: impl Fn(&'a str, &'a str) -> Option<(&'a str, &'a str)>,
    before: bool,
) -> Option<Value> {
    let (head, tail) = cut(arguments.string(0)?, arguments.string(1)?)?;
    string(if before { head } else { tail })
}
