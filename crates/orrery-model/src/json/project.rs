//! Reading parts of a text: what is wanted becomes values, the rest is passed over without looking at it closely.
//!
//! It relies on the canonical form: no blanks, and no name twice in an object. Of any other text the whole is parsed, so the
//! answer is the same, only later.

use memchr::{memchr2, memchr3};

use super::parse::DEPTH_MAX;
use super::{JsonError, Number, Object, Value, parse_value};

/// Which parts of a value are wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// The value as a whole; then the rest says nothing more.
    whole: bool,
    members: Vec<(String, Wanted)>,
    /// What of each element of an array.
    elements: Option<Box<Wanted>>,
}

/// One step of a path into a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathPart {
    Member(String),
    /// Any element of an array.
    Element,
}

impl Wanted {
    /// Everything.
    pub fn whole() -> Wanted {
        Wanted {
            whole: true,
            ..Wanted::default()
        }
    }

    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Nothing at all, not even whether it exists.
    pub fn is_nothing(&self) -> bool {
        *self == Wanted::default()
    }

    /// Adds the value at a path. Unless it is wanted as a `whole`, it counts that it is there, and of an array how many
    /// elements it has. Below the deepest level that a value has there is nothing to want.
    pub fn add(&mut self, path: &[PathPart], whole: bool) {
        match path.get(..DEPTH_MAX) {
            Some(within) if path.len() > DEPTH_MAX => self.add_within(within, false),
            _ => self.add_within(path, whole),
        }
    }

    fn add_within(&mut self, path: &[PathPart], whole: bool) {
        match path.split_first() {
            _ if self.whole => {}
            None if whole => *self = Wanted::whole(),
            None => {}
            Some((PathPart::Element, rest)) => self.elements.get_or_insert_default().add_within(rest, whole),
            Some((PathPart::Member(name), rest)) => {
                let index = self.members.iter().position(|(member, _)| member == name);
                let index = index.unwrap_or_else(|| {
                    self.members.push((name.clone(), Wanted::default()));
                    self.members.len() - 1
                });
                self.members[index].1.add_within(rest, whole);
            }
        }
    }

    /// The wanted parts of a text, in a value that has them at the same paths. Where only the parts of a value are wanted,
    /// a value of another type stands for it as null.
    pub fn read(&self, text: &[u8]) -> Result<Value, JsonError> {
        if self.whole {
            return parse_value(text);
        }
        let mut scanner = Scanner { text, at: 0 };
        match scanner.read(self, true) {
            Some(value) => Ok(value),
            None => parse_value(text),
        }
    }
}

/// A value met on a walk: a whole one, or that there is an array or an object, whose parts come next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Met<'t> {
    Null,
    Bool(bool),
    Number(Number),
    String(&'t str),
    Array,
    Object,
}

impl<'t> From<&'t Value> for Met<'t> {
    fn from(value: &'t Value) -> Met<'t> {
        match value {
            Value::Null => Met::Null,
            Value::Bool(bool) => Met::Bool(*bool),
            Value::Number(number) => Met::Number(*number),
            Value::String(text) => Met::String(text),
            Value::Array(_) => Met::Array,
            Value::Object(_) => Met::Object,
        }
    }
}

/// Someone who is shown the values of a text one after the other, without a tree being made of them.
pub trait Walk {
    /// What is known about the place of a value.
    type Place: Copy;

    /// The place of a member; `None` when nothing there is of interest.
    fn member(&mut self, parent: Self::Place, name: &str) -> Option<Self::Place>;

    /// The place of an array's elements.
    fn element(&mut self, parent: Self::Place) -> Option<Self::Place>;

    fn value(&mut self, place: Self::Place, value: Met<'_>);
}

/// Shows the parts of a text that begins at `place`, which is itself not shown. False when the text is not in the canonical
/// form: what has been shown is then worth nothing.
pub fn walk<W: Walk>(text: &[u8], walk: &mut W, place: W::Place) -> bool {
    let mut scanner = Scanner { text, at: 0 };
    scanner.walk_parts(walk, place, 0).is_some() && scanner.at == text.len()
}

/// Walks over a text. `None` means that the text is not what it should be.
struct Scanner<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Scanner<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// `last`: what follows the value is of no interest, so reading may stop when all has been found.
    fn read(&mut self, wanted: &Wanted, last: bool) -> Option<Value> {
        if wanted.whole {
            return self.leaf();
        }
        match (self.peek()?, &wanted.elements) {
            (b'{', _) if !wanted.members.is_empty() => self.object(&wanted.members, last).map(Value::Object),
            (b'[', Some(elements)) => self.array(elements).map(Value::Array),
            _ => {
                self.skip()?;
                Some(Value::Null)
            }
        }
    }

    fn object(&mut self, members: &[(String, Wanted)], last: bool) -> Option<Object> {
        let start = self.at;
        self.at += 1;
        let mut object = Object::new();
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(object);
        }
        loop {
            let name = self.name()?;
            self.expect(b':')?;
            match members.iter().find(|(member, _)| name.is(member)) {
                None => self.skip()?,
                Some((member, wanted)) => {
                    object.push_unique(member.as_str(), self.read(wanted, false)?);
                    if object.len() == members.len() {
                        if !last {
                            self.at = start;
                            self.skip()?;
                        }
                        return Some(object);
                    }
                }
            }
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Some(object);
                }
                _ => return None,
            }
        }
    }

    fn array(&mut self, elements: &Wanted) -> Option<Vec<Value>> {
        self.at += 1;
        let mut values = Vec::new();
        if self.peek()? == b']' {
            self.at += 1;
            return Some(values);
        }
        loop {
            values.push(self.read(elements, false)?);
            match self.peek()? {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    return Some(values);
                }
                _ => return None,
            }
        }
    }

    fn walk_value<W: Walk>(&mut self, walk: &mut W, place: Option<W::Place>, depth: usize) -> Option<()> {
        let Some(place) = place else { return self.skip() };
        match self.peek()? {
            b'{' => walk.value(place, Met::Object),
            b'[' => walk.value(place, Met::Array),
            b'"' => {
                let start = self.at;
                let escaped = self.skip_string()?;
                let text = &self.text[start..self.at];
                match escaped {
                    false => walk.value(place, Met::String(str::from_utf8(&text[1..text.len() - 1]).ok()?)),
                    true => walk.value(place, Met::from(&parse_value(text).ok()?)),
                }
                return Some(());
            }
            _ => {
                walk.value(place, Met::from(&self.leaf()?));
                return Some(());
            }
        }
        self.walk_parts(walk, place, depth)
    }

    fn walk_parts<W: Walk>(&mut self, walk: &mut W, place: W::Place, depth: usize) -> Option<()> {
        let (is_object, end) = match self.peek()? {
            b'{' => (true, b'}'),
            b'[' => (false, b']'),
            _ => return self.skip(),
        };
        if depth == DEPTH_MAX {
            return None;
        }
        self.at += 1;
        if self.peek()? == end {
            self.at += 1;
            return Some(());
        }
        let element = if is_object { None } else { walk.element(place) };
        loop {
            let part = match is_object {
                false => element,
                true => {
                    let name = self.name()?;
                    self.expect(b':')?;
                    walk.member(place, name.as_str()?)
                }
            };
            self.walk_value(walk, part, depth + 1)?;
            match self.peek()? {
                b',' => self.at += 1,
                byte if byte == end => {
                    self.at += 1;
                    return Some(());
                }
                _ => return None,
            }
        }
    }

    fn name(&mut self) -> Option<Name<'t>> {
        let start = self.at;
        let escaped = self.skip_string()?;
        let text = &self.text[start..self.at];
        Some(match escaped {
            false => Name::Plain(&text[1..text.len() - 1]),
            true => Name::Escaped(parse_value(text).ok()?),
        })
    }

    /// A value as a whole.
    fn leaf(&mut self) -> Option<Value> {
        let start = self.at;
        let first = self.peek()?;
        if first == b'"' {
            let escaped = self.skip_string()?;
            let text = &self.text[start..self.at];
            return match escaped {
                false => Some(Value::String(str::from_utf8(&text[1..text.len() - 1]).ok()?.to_owned())),
                true => parse_value(text).ok(),
            };
        }
        self.skip()?;
        let text = &self.text[start..self.at];
        match small_integer(text) {
            Some(integer) => Some(Value::Number(Number::Int(integer))),
            None => parse_value(text).ok(),
        }
    }

    fn skip(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.skip_string().map(drop),
            b'{' => self.skip_nested(b'{', b'}'),
            b'[' => self.skip_nested(b'[', b']'),
            _ => {
                let rest = &self.text[self.at..];
                let end = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']'));
                let length = end.unwrap_or(rest.len());
                self.at += length;
                (length > 0).then_some(())
            }
        }
    }

    /// Passes over a string. True when it has escapes.
    fn skip_string(&mut self) -> Option<bool> {
        self.expect(b'"')?;
        let mut escaped = false;
        loop {
            self.at += memchr2(b'"', b'\\', self.text.get(self.at..)?)?;
            if self.text[self.at] == b'"' {
                self.at += 1;
                return Some(escaped);
            }
            escaped = true;
            self.at += 2;
        }
    }

    /// Passes over an array or object: its end is where its own kind of bracket closes.
    fn skip_nested(&mut self, open: u8, close: u8) -> Option<()> {
        let mut depth = 0usize;
        loop {
            self.at += memchr3(b'"', open, close, self.text.get(self.at..)?)?;
            let found = self.text[self.at];
            if found == b'"' {
                self.skip_string()?;
                continue;
            }
            self.at += 1;
            depth = if found == open { depth + 1 } else { depth - 1 };
            if depth == 0 {
                return Some(());
            }
        }
    }
}

enum Name<'t> {
    Plain(&'t [u8]),
    Escaped(Value),
}

impl Name<'_> {
    fn as_str(&self) -> Option<&str> {
        match self {
            Name::Plain(bytes) => str::from_utf8(bytes).ok(),
            Name::Escaped(value) => value.as_str(),
        }
    }

    fn is(&self, name: &str) -> bool {
        match self {
            Name::Plain(bytes) => *bytes == name.as_bytes(),
            Name::Escaped(value) => value.as_str() == Some(name),
        }
    }
}

/// An integer of few digits, which is what most numbers are.
fn small_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.split_first()? {
        (b'-', digits) => (true, digits),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 17 || (digits[0] == b'0' && (digits.len() > 1 || negative)) {
        return None;
    }
    let mut integer = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        integer = integer * 10 + i64::from(digit - b'0');
    }
    Some(if negative { -integer } else { integer })
}

#[cfg(test)]
mod tests;
