//! Regular expressions.

use orrery_model::Value;

use crate::functions::arguments::{Arguments, boolean, string};
use crate::functions::registry::{Table, between};

pub(super) fn register(table: &mut Table) {
    table.scalar("REGEXMATCH", between(2, 3), |arguments| {
        let text = arguments.string(0)?;
        let found = arguments
            .environment
            .with_pattern(pattern(arguments)?, text, |pattern, text| {
                Ok(pattern.is_match(text)?.then_some(()))
            })?;
        boolean(found.is_some())
    });
    table.scalar("REGEXEXTRACT", between(2, 4), |arguments| {
        let (text, group) = (arguments.string(0)?, group(arguments)?);
        let found = arguments
            .environment
            .with_pattern(pattern(arguments)?, text, |pattern, text| pattern.find(text, group))?;
        string(found?)
    });
    table.scalar("REGEXEXTRACTALL", between(2, 4), |arguments| {
        let (text, group) = (arguments.string(0)?, group(arguments)?);
        let found = arguments
            .environment
            .with_pattern(pattern(arguments)?, text, |pattern, text| {
                let all = pattern.find_all(text, group)?;
                Ok((!all.is_empty()).then_some(all))
            })?;
        let found = found.unwrap_or_default();
        arguments
            .environment
            .allow_bytes(found.len().saturating_mul(size_of::<Value>()))?;
        Some(Value::Array(found.into_iter().map(Value::from).collect()))
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
