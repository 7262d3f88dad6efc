//! JSON values as the database means them: 64-bit integers stay exact, members keep their order, the last of two equal
//! names wins, and every value has one canonical text.
//!
//! Parsing is strict, bounded in depth, and never panics on hostile bytes. What it deliberately is not: a serde format.
//! Configuration and envelopes use `serde_json`; items use this.

mod number;
mod parse;
mod print;
mod project;

pub use number::Number;
pub use parse::{JsonError, Parsed, parse, parse_envelope, parse_value};
pub use print::{print, print_string, print_with};
pub use project::{Met, PathPart, Walk, Wanted, walk};

/// Any JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Array(Vec<Value>),
    Object(Object),
}

/// The members of an object in their order. Names are unique.
#[derive(Clone, Debug, Default)]
pub struct Object {
    members: Vec<(String, Value)>,
}

impl Object {
    pub fn new() -> Object {
        Object::default()
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.members.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.members
            .iter_mut()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Sets a member: in place when the name exists, at the end otherwise.
    pub fn insert(&mut self, name: impl Into<String>, value: Value) {
        let name = name.into();
        match self.get_mut(&name) {
            Some(slot) => *slot = value,
            None => self.members.push((name, value)),
        }
    }

    /// Appends a member whose name the caller knows to be new.
    pub fn push_unique(&mut self, name: impl Into<String>, value: Value) {
        let name = name.into();
        debug_assert!(!self.contains(&name));
        self.members.push((name, value));
    }

    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let index = self.members.iter().position(|(key, _)| key == name)?;
        Some(self.members.remove(index).1)
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.members.retain(|(name, _)| keep(name));
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> + DoubleEndedIterator {
        self.members.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub fn into_members(self) -> Vec<(String, Value)> {
        self.members
    }
}

/// Member order does not take part in equality.
impl PartialEq for Object {
    fn eq(&self, other: &Object) -> bool {
        self.len() == other.len() && self.iter().all(|(name, value)| other.get(name) == Some(value))
    }
}

/// The last of two equal names wins. Takes linear time, so it is also the way to build an object from strangers' names.
impl FromIterator<(String, Value)> for Object {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(members: I) -> Object {
        let mut unique = parse::Members::default();
        for (name, value) in members {
            unique.insert(name, value);
        }
        unique.into_object()
    }
}

impl Value {
    /// How many arrays and objects lie inside each other at most.
    pub fn depth(&self) -> usize {
        match self {
            Value::Array(items) => 1 + items.iter().map(Value::depth).max().unwrap_or(0),
            Value::Object(object) => 1 + object.iter().map(|(_, member)| member.depth()).max().unwrap_or(0),
            _ => 0,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_number(&self) -> Option<Number> {
        match self {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The member of that name, if this is an object that has one.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_object()?.get(name)
    }

    /// Canonical text.
    pub fn to_text(&self) -> String {
        let mut out = Vec::new();
        print(self, &mut out);
        String::from_utf8(out).expect("printing yields UTF-8 from UTF-8 parts")
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Number(Number::from(number))
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod differential;
