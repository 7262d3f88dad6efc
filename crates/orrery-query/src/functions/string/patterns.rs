//! Regular expressions.

use orrery_model::Value;

use crate::functions::arguments::{Arguments, VALUE_BYTES_MAX, boolean, string};
use crate::functions::registry::{Table, between};

/// More matches than these do not fit into a value.
const MATCHES_MAX: usize = VALUE_BYTES_MAX / size_of::<Value>();

pub(super) fn register(table: &mut Table) {
    table.scalar("REGEXMATCH", between(2, 3), |arguments| {
        let text = arguments.string(0)?;
        boolean(
            arguments
                .environment
                .with_pattern(pattern(arguments)?, |regex| regex.is_match(text))?,
        )
    });
    table.scalar("REGEXEXTRACT", between(2, 3), |arguments| {
        let text = arguments.string(0)?;
        let found = arguments
            .environment
            .with_pattern(pattern(arguments)?, |regex| regex.find(text))?;
        string(found?.as_str())
    });
    table.scalar("REGEXEXTRACTALL", between(2, 3), |arguments| {
        let text = arguments.string(0)?;
        let all = |regex: &regex::Regex| {
            let found = regex.find_iter(text).take(MATCHES_MAX + 1);
            found.map(|found| Value::from(found.as_str())).collect::<Vec<_>>()
        };
        let found = arguments.environment.with_pattern(pattern(arguments)?, all)?;
        arguments
            .environment
            .allow_bytes(found.len().saturating_mul(size_of::<Value>()))?;
        Some(Value::Array(found))
    });
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
