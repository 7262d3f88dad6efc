//! What can be wrong with a query, in the service's words.
//!
//! Problems found in the text carry a code and mostly a location; problems found while running are plain sentences. Both
//! know their JSON form, which clients parse. The crate's edge is the conversion into [`orrery_model::Error`].

use std::fmt;

use orrery_model::json::print_string;
use orrery_model::{Error, Status};

use crate::parse::Span;

/// Everything that can go wrong between a query's text and its rows.
#[derive(Debug)]
pub struct QueryError(Box<Kind>);

#[derive(Debug)]
enum Kind {
    /// `{"errors":[…]}`
    Located(Vec<Problem>),
    /// `{"Errors":[…]}`
    Plain(String),
    /// A sentence of the gateway, sent as it is.
    Sentence(Status, String),
    /// The cursor, the budget or a user-defined function failed.
    Caller(Error),
}

/// One entry of a located error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub code: Code,
    /// Half-open, in UTF-16 units of the query text.
    pub location: Option<(usize, usize)>,
    pub message: String,
}

/// The service uses names for what its compiler finds and numbers for what its engine finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Name(&'static str),
    Number(u32),
}

pub type Result<T, E = QueryError> = std::result::Result<T, E>;

const NON_FINITE: u32 = 4001;

impl QueryError {
    pub fn plain(message: impl Into<String>) -> QueryError {
        QueryError(Box::new(Kind::Plain(message.into())))
    }

    pub(crate) fn sentence(status: Status, message: impl Into<String>) -> QueryError {
        QueryError(Box::new(Kind::Sentence(status, message.into())))
    }

    pub(crate) fn located(problems: Vec<Problem>) -> QueryError {
        QueryError(Box::new(Kind::Located(problems)))
    }

    pub(crate) fn numbered(code: u32, message: &str) -> QueryError {
        QueryError::located(vec![Problem {
            code: Code::Number(code),
            location: None,
            message: message.to_owned(),
        }])
    }

    pub(crate) fn non_finite() -> QueryError {
        QueryError::numbered(
            NON_FINITE,
            "The response content contains a numeric value that cannot be represented in JSON (e.g. Infinity and NaN).",
        )
    }

    /// The located problems, none for the other kinds.
    pub fn problems(&self) -> &[Problem] {
        match &*self.0 {
            Kind::Located(problems) => problems,
            _ => &[],
        }
    }

    pub fn status(&self) -> Status {
        match &*self.0 {
            Kind::Located(problems) if problems.iter().any(|one| one.code == Code::Number(NON_FINITE)) => {
                Status::NON_FINITE_NUMBER
            }
            Kind::Located(_) | Kind::Plain(_) => Status::BAD_REQUEST,
            Kind::Sentence(status, _) => *status,
            Kind::Caller(error) => error.status(),
        }
    }

    /// The inner text of an error body: JSON for what the query engine says, the sentence itself otherwise.
    pub fn inner(&self) -> String {
        match &*self.0 {
            Kind::Located(problems) => {
                let entries: Vec<String> = problems.iter().map(Problem::json).collect();
                format!(r#"{{"errors":[{}]}}"#, entries.join(","))
            }
            Kind::Plain(message) => format!(r#"{{"Errors":[{}]}}"#, quoted(message)),
            Kind::Sentence(_, message) => message.clone(),
            Kind::Caller(error) => error.message().to_owned(),
        }
    }
}

impl Problem {
    /// A problem at a place of `text`.
    pub(crate) fn at(text: &str, span: Span, code: &'static str, message: impl Into<String>) -> Problem {
        let units = |end: usize| text.get(..end).map_or(0, |head| head.encode_utf16().count());
        let location = Some((units(span.start), units(span.end)));
        Problem {
            code: Code::Name(code),
            location,
            message: message.into(),
        }
    }

    fn json(&self) -> String {
        let location = self
            .location
            .map(|(start, end)| format!(r#""location":{{"start":{start},"end":{end}}},"#))
            .unwrap_or_default();
        let code = match self.code {
            Code::Name(name) => format!(r#""{name}""#),
            Code::Number(number) => number.to_string(),
        };
        format!(
            r#"{{"severity":"Error",{location}"code":{code},"message":{}}}"#,
            quoted(&self.message)
        )
    }
}

fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    print_string(text, &mut out);
    String::from_utf8(out).expect("a JSON string made of UTF-8 is UTF-8")
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner())
    }
}

impl std::error::Error for QueryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            Kind::Caller(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Error> for QueryError {
    fn from(error: Error) -> QueryError {
        QueryError(Box::new(Kind::Caller(error)))
    }
}

/// The error's message is the inner text, marked as such when it is JSON, and the typed error stays reachable as its source.
impl From<QueryError> for Error {
    fn from(error: QueryError) -> Error {
        let message = match *error.0 {
            Kind::Caller(error) => return error,
            Kind::Located(_) | Kind::Plain(_) => format!("Message: {}", error.inner()),
            Kind::Sentence(..) => error.inner(),
        };
        Error::new(error.status(), message).with_source(error)
    }
}
