//! Ranges of terms that comparisons ask for.

use orrery_model::{Number, Value};

use super::encode::{self, encode, encode_string_start, read_code, read_string, successor};
use super::path::{Aspect, PathHash, Segment, TermPath};
use super::texts::TextTest;

/// The terms of one path from `from` up to but not including `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermRange {
    pub path: TermPath,
    pub from: Vec<u8>,
    pub to: Vec<u8>,
    /// There is just one term in the range.
    pub is_exact: bool,
    /// Strings in the range that fail one of these are not asked for.
    pub tests: Vec<TextTest>,
}

/// Which side of a value a range lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Below { inclusive: bool },
    Above { inclusive: bool },
}

impl TermRange {
    /// Everything at a path.
    pub(super) fn defined(path: &TermPath) -> TermRange {
        TermRange::starting(path, &[])
    }

    /// Values of the types from one to another.
    pub(super) fn types(path: &TermPath, first: u8, last: u8) -> TermRange {
        TermRange {
            from: code(path, &[first]),
            to: code(path, &[last + 1]),
            path: path.clone(),
            is_exact: false,
            tests: Vec::new(),
        }
    }

    /// One value, or for an array or object all of its type.
    pub(super) fn equal(path: &TermPath, value: &Value) -> TermRange {
        let mut bytes = Vec::new();
        encode(Some(value), &mut bytes);
        let is_exact = !matches!(value, Value::Array(_) | Value::Object(_));
        TermRange {
            is_exact,
            ..TermRange::starting(path, &bytes)
        }
    }

    /// Strings that begin with a text.
    pub(super) fn string_start(path: &TermPath, text: &str) -> TermRange {
        let mut bytes = Vec::new();
        encode_string_start(text, &mut bytes);
        TermRange::starting(path, &bytes)
    }

    /// Values of the same type on one side of a value; `None` when nothing can be.
    pub(super) fn beside(path: &TermPath, value: &Value, side: Side) -> Option<TermRange> {
        let (first, last) = match value {
            Value::Null => (encode::NULL, encode::NULL),
            Value::Bool(_) => (encode::FALSE, encode::TRUE),
            Value::Number(Number::Double(double)) if double.is_nan() => return None,
            Value::Number(_) => (encode::NUMBER, encode::NUMBER),
            Value::String(_) => (encode::STRING, encode::STRING),
            Value::Array(_) | Value::Object(_) => return None,
        };
        let mut range = TermRange::types(path, first, last);
        let mut bytes = Vec::new();
        encode(Some(value), &mut bytes);
        // Cut strings share a place whatever follows, so both sides of it include it.
        let place = read_code(&bytes, false).expect("a code was just written");
        let at = code(path, &bytes[..place.ordered]);
        match side {
            Side::Below { inclusive } if inclusive || place.is_loose => range.to = successor(at),
            Side::Below { .. } => range.to = at,
            Side::Above { inclusive } if inclusive || place.is_loose => range.from = at,
            Side::Above { .. } => range.from = successor(at),
        }
        Some(range)
    }

    /// What lies in both; `None` when they speak of different paths.
    pub(super) fn intersection(&self, other: &TermRange) -> Option<TermRange> {
        (self.path == other.path).then(|| TermRange {
            path: self.path.clone(),
            from: self.from.clone().max(other.from.clone()),
            to: self.to.clone().min(other.to.clone()),
            is_exact: self.is_exact || other.is_exact,
            tests: [self.tests.as_slice(), &other.tests].concat(),
        })
    }

    /// The part of the range that passes a test.
    pub(super) fn passing(mut self, test: Option<TextTest>) -> TermRange {
        self.tests.extend(test);
        self
    }

    /// Whether a value in the range, by its code, may be what is asked for.
    pub fn admits(&self, code: &[u8]) -> bool {
        let passes = |text: String| self.tests.iter().all(|test| test.passes(&text));
        self.tests.is_empty() || read_string(code).is_none_or(passes)
    }

    /// The one id that items in this range have, if it is a range of ids.
    pub(super) fn id(&self) -> Option<String> {
        match (self.path.segments.as_slice(), &self.path.aspect) {
            ([Segment::Name(name)], Aspect::Value) if name == "id" && self.is_exact => {
                read_string(&self.from[size_of::<PathHash>()..])
            }
            _ => None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.from >= self.to
    }

    fn starting(path: &TermPath, bytes: &[u8]) -> TermRange {
        let from = code(path, bytes);
        TermRange {
            to: successor(from.clone()),
            from,
            path: path.clone(),
            is_exact: false,
            tests: Vec::new(),
        }
    }
}

fn code(path: &TermPath, bytes: &[u8]) -> Vec<u8> {
    [path.hash().to_bytes().as_slice(), bytes].concat()
}
