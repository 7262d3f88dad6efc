//! Tests of a string that the index itself can make, because a term holds the whole string unless that is long. What fails them
//! need not be read.

use std::borrow::Cow;

use orrery_model::Value;

use super::condition::Analysis;
use crate::functions::{Arguments, Environment, Scalar};
use crate::plan::Expr;
use crate::run::like::LikePattern;
use crate::values::Computed;

/// Functions of a string and constants that take little for a short string.
const TESTABLE: [&str; 9] = [
    "CONTAINS",
    "STARTSWITH",
    "ENDSWITH",
    "STRINGEQUALS",
    "CONTAINS_ALL_CS",
    "CONTAINS_ALL_CI",
    "CONTAINS_ANY_CS",
    "CONTAINS_ANY_CI",
    "IS_DATETIME",
];
/// What a test may have to look for: many strings are tested before anyone counts the work.
const WANTED_BYTES_MAX: usize = 256;
const WANTED_MAX: usize = 8;

/// Something that is true for some strings.
#[derive(Clone, Debug, PartialEq)]
pub struct TextTest(Test);

/// The arguments of a call are strings and booleans.
impl Eq for TextTest {}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Call { function: Scalar, others: Vec<Value> },
    Like(LikePattern),
}

impl TextTest {
    /// A call whose first argument is the string.
    pub(super) fn of_call(analysis: &Analysis<'_>, function: Scalar, arguments: &[Expr]) -> Option<TextTest> {
        let others = arguments.get(1..)?;
        if !TESTABLE.contains(&function.name) || others.len() > WANTED_MAX {
            return None;
        }
        let constant = |argument: &Expr| analysis.constant(argument).flatten().map(Cow::into_owned);
        let others = others.iter().map(constant).collect::<Option<Vec<_>>>()?;
        let size = |value: &Value| match value {
            Value::String(text) => Some(text.len()),
            Value::Bool(_) => Some(1),
            _ => None,
        };
        let n_bytes = others.iter().map(size).sum::<Option<usize>>()?;
        (n_bytes <= WANTED_BYTES_MAX).then_some(TextTest(Test::Call { function, others }))
    }

    pub(super) fn of_pattern(pattern: &LikePattern) -> Option<TextTest> {
        (pattern.work() <= WANTED_BYTES_MAX).then(|| TextTest(Test::Like(pattern.clone())))
    }

    pub(super) fn passes(&self, text: &str) -> bool {
        match &self.0 {
            Test::Like(pattern) => pattern.matches(text),
            Test::Call { function, others } => {
                let text = Value::from(text);
                let values: Vec<Computed<'_>> = std::iter::once(&text)
                    .chain(others)
                    .map(|value| Some(Cow::Borrowed(value)))
                    .collect();
                let arguments = Arguments {
                    values: &values,
                    environment: &Environment::new(0, 0, false),
                };
                (function.call)(&arguments) == Some(Value::Bool(true))
            }
        }
    }
}
