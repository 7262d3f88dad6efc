//! What a call that is true says about the terms of an item.

use orrery_model::Value;

use super::condition::{Analysis, Condition};
use super::encode::{ARRAY, FALSE, NULL, NUMBER, OBJECT, STRING, TRUE};
use super::path::{Segment, TermPath};
use super::range::TermRange;
use super::texts::TextTest;
use super::{places, words};
use crate::functions::Scalar;
use crate::plan::Expr;

/// Functions that are true for strings only.
const OF_STRINGS: [&str; 9] = [
    "CONTAINS",
    "ENDSWITH",
    "REGEXMATCH",
    "CONTAINS_ALL_CS",
    "CONTAINS_ALL_CI",
    "CONTAINS_ANY_CS",
    "CONTAINS_ANY_CI",
    "IS_DATETIME",
    "STRINGEQUALS",
];

pub(super) fn condition(analysis: &Analysis<'_>, function: Scalar, arguments: &[Expr]) -> Condition {
    let name = function.name;
    match name {
        "FULLTEXTCONTAINS" | "FULLTEXTCONTAINSALL" => return words::condition(analysis, arguments, Condition::all),
        "FULLTEXTCONTAINSANY" => return words::condition(analysis, arguments, Condition::one_of),
        "ST_WITHIN" | "ST_INTERSECTS" => return places::condition(analysis, arguments),
        _ => {}
    }
    let Some(path) = arguments.first().and_then(|argument| analysis.path(argument)) else {
        return Condition::Any;
    };
    if let "ARRAY_CONTAINS" | "ARRAY_CONTAINS_ANY" | "ARRAY_CONTAINS_ALL" = name {
        return contains(analysis, name, path, arguments);
    }
    let Some(path) = arguments.first().and_then(|argument| analysis.indexed(argument)) else {
        return Condition::Any;
    };
    let types = |first, last| Condition::Range(TermRange::types(&path, first, last));
    let tested = || {
        let test = TextTest::of_call(analysis, function, arguments);
        Condition::Range(TermRange::types(&path, STRING, STRING).passing(test))
    };
    match name {
        "IS_DEFINED" => Condition::Range(TermRange::defined(&path)),
        "IS_NULL" => types(NULL, NULL),
        "IS_BOOL" => types(FALSE, TRUE),
        "IS_NUMBER" | "IS_INTEGER" | "IS_FINITE_NUMBER" => types(NUMBER, NUMBER),
        "IS_STRING" => types(STRING, STRING),
        "IS_ARRAY" => types(ARRAY, ARRAY),
        "IS_OBJECT" => types(OBJECT, OBJECT),
        "IS_PRIMITIVE" => types(NULL, STRING),
        "STARTSWITH" if is_case_sensitive(arguments) => match text(arguments.get(1)) {
            Some(text) => Condition::Range(TermRange::string_start(&path, text)),
            None => types(STRING, STRING),
        },
        "STRINGEQUALS" if is_case_sensitive(arguments) && text(arguments.get(1)).is_some() => {
            let value = arguments.get(1).and_then(Expr::constant);
            value.map_or_else(
                || types(STRING, STRING),
                |value| Condition::Range(TermRange::equal(&path, value)),
            )
        }
        "STARTSWITH" => tested(),
        _ if OF_STRINGS.contains(&name) => tested(),
        _ => Condition::Any,
    }
}

fn is_case_sensitive(arguments: &[Expr]) -> bool {
    match arguments.get(2) {
        None => true,
        Some(flag) => flag.constant() == Some(&Value::Bool(false)),
    }
}

fn text(argument: Option<&Expr>) -> Option<&str> {
    argument.and_then(Expr::constant).and_then(Value::as_str)
}

/// An array that contains a value has an element with that value's term. What is looked for in part is only known by type.
fn contains(analysis: &Analysis<'_>, name: &str, mut path: TermPath, arguments: &[Expr]) -> Condition {
    path.segments.push(Segment::Elements);
    if !analysis.is_covered(&path) {
        return Condition::Any;
    }
    let wanted = |argument: &Expr| match argument {
        Expr::Constant(Some(value)) => Condition::Range(TermRange::equal(&path, value)),
        _ => Condition::Any,
    };
    match (name, &arguments[1..]) {
        ("ARRAY_CONTAINS", [value, ..]) => wanted(value),
        ("ARRAY_CONTAINS_ALL", values) => Condition::all(values.iter().map(wanted).collect()),
        ("ARRAY_CONTAINS_ANY", values) => Condition::one_of(values.iter().map(wanted).collect()),
        _ => Condition::Any,
    }
}
