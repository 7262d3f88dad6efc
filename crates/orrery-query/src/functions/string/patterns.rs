//! Regular expressions.

use orrery_model::Value;
use regex::{Match, Regex};

use crate::functions::arguments::{Arguments, VALUE_BYTES_MAX, boolean, string};
use crate::functions::registry::{Table, between};

/// More matches than these do not fit into a value.
const MATCHES_MAX: usize = VALUE_BYTES_MAX / size_of::<Value>();

pub(super) fn register(table: &mut Table) {
    table.scalar("REGEXMATCH", between(2, 3), |arguments| {
        let text = arguments.string(0)?;
        let found = arguments
            .environment
            .with_pattern(pattern(arguments)?, text, |regex, text| {
                regex.is_match(text).then_some(())
            })?;
        boolean(found.is_some())
    });
    table.scalar("REGEXEXTRACT", between(2, 4), |arguments| {
        let (text, group) = (arguments.string(0)?, group(arguments)?);
        let found = arguments
            .environment
            .with_pattern(pattern(arguments)?, text, |regex, text| match group {
                0 => regex.find(text),
                _ => regex.captures(text)?.get(group),
            })?;
        string(found?.as_str())
    });
    table.scalar("REGEXEXTRACTALL", between(2, 4), |arguments| {
        let (text, group) = (arguments.string(0)?, group(arguments)?);
        let value = |found: Match<'_>| Value::from(found.as_str());
        let all = |regex: &Regex, text: &str| -> Option<Vec<Value>> {
            let all: Vec<Value> = match group {
                0 => regex.find_iter(text).take(MATCHES_MAX + 1).map(value).collect(),
                _ => regex
                    .captures_iter(text)
                    .take(MATCHES_MAX + 1)
                    .filter_map(|found| found.get(group).map(value))
                    .collect(),
            };
            (!all.is_empty()).then_some(all)
        };
        let found = arguments.environment.with_pattern(pattern(arguments)?, text, all)?;
        let found = found.unwrap_or_default();
        arguments
            .environment
            .allow_bytes(found.len().saturating_mul(size_of::<Value>()))?;
        Some(Value::Array(found))
    });
}

/// Which group of a match is wanted; 0 is the whole match.
fn group(arguments: &Arguments<'_>) -> Option<usize> {
    if !arguments.has(3) {
        return Some(0);
    }
    usize::try_from(arguments.integer(3)?).ok()
}

/// The pattern with its modifiers in front. Modifiers other than `m s i x` make it invalid.
fn pattern(arguments: &Arguments<'_>) -> Option<String> {
    let pattern = arguments.string(1)?;
    if !arguments.has(2) {
        return Some(pattern.to_owned());
    }
    let modifiers = arguments.string(2)?;
    let known = modifiers.chars().all(|modifier| "msix".contains(modifier));
    match (known, modifiers.is_empty()) {
        (true, true) => Some(pattern.to_owned()),
        (true, false) => Some(format!("(?{modifiers}){pattern}")),
        (false, _) => None,
    }
}
