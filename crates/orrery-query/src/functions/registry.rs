//! The table of all functions.

use std::collections::HashMap;
use std::sync::LazyLock;

use orrery_model::Value;

use super::aggregate::AggregateKind;
use super::arguments::Arguments;
use super::{array, conditional, date_time, full_text, item, math, spatial, string, type_check, vector};

/// A built-in function by the name it is called by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionName {
    pub name: &'static str,
    /// Set when this is only another name of that function.
    pub alias_of: Option<&'static str>,
}

/// All built-in functions and their other names, in alphabetical order.
pub fn function_names() -> Vec<FunctionName> {
    let name = |(name, function): (&&'static str, &Function)| FunctionName {
        name,
        alias_of: function.alias_of,
    };
    let mut names: Vec<FunctionName> = TABLE.functions.iter().map(name).collect();
    names.sort_by_key(|function| function.name);
    names
}

/// A built-in function.
#[derive(Debug)]
pub(crate) struct Function {
    alias_of: Option<&'static str>,
    arguments_min: usize,
    /// `None`: any number.
    arguments_max: Option<usize>,
    /// The least or the most, nothing in between.
    all_or_none: bool,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Scalar(Scalar),
    Aggregate(AggregateKind),
    /// `IIF`, of which only the chosen branch is evaluated.
    Conditional,
    /// A score, which exists only in `ORDER BY RANK`.
    Score(ScoreKind),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScoreKind {
    FullText,
    Fusion,
}

/// The code of a function, equal to another by name.
#[derive(Clone, Copy)]
pub(crate) struct Scalar {
    pub name: &'static str,
    pub call: fn(&Arguments<'_>) -> Option<Value>,
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        self.name == other.name
    }
}

impl std::fmt::Debug for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// How many arguments a function takes.
type Counts = (usize, Option<usize>);

const ANY_FROM_2: Counts = (2, None);

pub(super) fn exactly(n: usize) -> Counts {
    (n, Some(n))
}

pub(super) fn between(min: usize, max: usize) -> Counts {
    (min, Some(max))
}

pub(super) fn at_least(min: usize) -> Counts {
    (min, None)
}

/// Where the families put their functions.
pub(super) struct Table {
    functions: HashMap<&'static str, Function>,
}

impl Table {
    pub fn scalar(&mut self, name: &'static str, counts: Counts, call: fn(&Arguments<'_>) -> Option<Value>) {
        self.add(name, counts, Kind::Scalar(Scalar { name, call }));
    }

    /// A function that takes all of its arguments or none.
    pub fn all_or_none(&mut self, name: &'static str, n: usize, call: fn(&Arguments<'_>) -> Option<Value>) {
        self.scalar(name, between(0, n), call);
        let function = self.functions.get_mut(name).expect("it was put there just now");
        function.all_or_none = true;
    }

    /// The same function under another name.
    pub fn alias(&mut self, alias: &'static str, name: &'static str) {
        let original = self
            .functions
            .get(name)
            .expect("an alias follows the function it names");
        let counts = (original.arguments_min, original.arguments_max);
        let kind = original.kind;
        self.insert(alias, Some(name), counts, kind);
    }

    pub fn add(&mut self, name: &'static str, counts: Counts, kind: Kind) {
        self.insert(name, None, counts, kind);
    }

    fn insert(&mut self, name: &'static str, alias_of: Option<&'static str>, counts: Counts, kind: Kind) {
        let function = Function {
            alias_of,
            arguments_min: counts.0,
            arguments_max: counts.1,
            all_or_none: false,
            kind,
        };
        let earlier = self.functions.insert(name, function);
        debug_assert!(earlier.is_none(), "{name} is in the table twice");
    }
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table {
        functions: HashMap::new(),
    };
    for (name, kind) in AggregateKind::ALL {
        table.add(name, exactly(1), Kind::Aggregate(kind));
    }
    table.add("IIF", exactly(3), Kind::Conditional);
    table.add("FULLTEXTSCORE", ANY_FROM_2, Kind::Score(ScoreKind::FullText));
    table.add("RRF", ANY_FROM_2, Kind::Score(ScoreKind::Fusion));
    type_check::register(&mut table);
    string::register(&mut table);
    array::register(&mut table);
    conditional::register(&mut table);
    math::register(&mut table);
    date_time::register(&mut table);
    item::register(&mut table);
    vector::register(&mut table);
    full_text::register(&mut table);
    spatial::register(&mut table);
    table
});

/// Finds a function by its name in any case.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    TABLE.functions.get(name.to_ascii_uppercase().as_str())
}

impl Function {
    /// What is wrong with a call of `n` arguments, if anything, in the service's words.
    pub fn count_problem(&self, called_as: &str, n: usize) -> Option<String> {
        let within = n >= self.arguments_min && self.arguments_max.is_none_or(|max| n <= max);
        let fits = within && (!self.all_or_none || n == self.arguments_min || Some(n) == self.arguments_max);
        if fits {
            return None;
        }
        let min = self.arguments_min;
        let wanted = match self.arguments_max {
            None => format!("at least {min}"),
            Some(max) if self.all_or_none => format!("{min} or {max}"),
            Some(max) if max == min => min.to_string(),
            Some(max) => format!("{min} to {max}"),
        };
        Some(format!(
            "The {} function requires {wanted} argument(s).",
            called_as.to_ascii_uppercase()
        ))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Context, Parameters, Query, evaluate_list};

    /// Arguments that are easy to get wrong.
    const AWKWARD: &[&str] = &[
        "undefined",
        "null",
        "true",
        "0",
        "-1",
        "1.5",
        "9223372036854775807",
        "-9223372036854775807 - 1",
        "1e308",
        "NaN",
        "-Infinity",
        "''",
        "'😀a'",
        "'a,b'",
        "'[1]'",
        "'day'",
        "'month'",
        "'ns'",
        "'2024-02-29T23:59:59.9999999Z'",
        "'0001-01-01'",
        "'9999-12-31T23:59:59.9999999Z'",
        "'('",
        "'\\\\'",
        "[]",
        "[1, 'a', [2], null]",
        "[3, 1, 2]",
        "['a', 'b']",
        "{}",
        "{'a': 1}",
        "{'type': 'Point', 'coordinates': [180, 90]}",
        "{'type': 'Polygon', 'coordinates': [[[0, 0], [1, 0], [1, 1], [0, 0]]]}",
        "{'type': 'LineString', 'coordinates': [[0, 0], [0, 0]]}",
    ];

    fn call() -> impl Strategy<Value = String> {
        let names: Vec<&'static str> = TABLE.functions.keys().copied().collect();
        (
            prop::sample::select(names),
            prop::collection::vec(prop::sample::select(AWKWARD), 0..6),
        )
            .prop_map(|(name, arguments)| format!("{name}({})", arguments.join(", ")))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn no_function_panics_on_any_arguments(call in call()) {
            let query = Query::parse(&format!("SELECT VALUE {call}")).map_err(|error| TestCaseError::fail(error.inner()))?;
            let _ = evaluate_list(&query, &[], &Parameters::none(), &Context::default());
        }
    }
}
