//! Regular expressions.

use orrery_model::Value;

use crate::functions::arguments::{Arguments, boolean, string};
use crate::functions::registry::{Table, between};

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
        let all = |regex: &regex::Regex| regex.find_iter(text).map(|found| Value::from(found.as_str())).collect();
        Some(Value::Array(
            arguments.environment.with_pattern(pattern(arguments)?, all)?,
        ))
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
