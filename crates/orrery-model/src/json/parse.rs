//! The strict parser. It also notices whether the text it read was already canonical, so that a writer can copy the
//! bytes instead of printing the tree again.

use memchr::memchr2;

use super::{Number, Object, Value};

/// Where and why a text is not JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at byte {offset}")]
pub struct JsonError {
    pub reason: &'static str,
    pub offset: usize,
}

/// A value and what its text looked like.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub value: Value,
    /// Printing `value` gives exactly the bytes that were read.
    pub canonical: bool,
}

/// Deepest nesting of arrays and objects that a text may have.
pub const DEPTH_MAX: usize = crate::limits::NESTING_LEVELS_MAX;

/// Parses one JSON text, nothing before or after it but blanks.
pub fn parse_value(text: &[u8]) -> Result<Value, JsonError> {
    parse(text).map(|parsed| parsed.value)
}

/// Parses a JSON text that has items, or values of items, in it.
pub fn parse_envelope(text: &[u8]) -> Result<Value, JsonError> {
    parse_to_depth(text, DEPTH_MAX + crate::limits::ENVELOPE_LEVELS_MAX).map(|parsed| parsed.value)
}

/// Parses one JSON text and tells whether it was canonical.
pub fn parse(text: &[u8]) -> Result<Parsed, JsonError> {
    parse_to_depth(text, DEPTH_MAX)
}

fn parse_to_depth(text: &[u8], depth_max: usize) -> Result<Parsed, JsonError> {
    let text = std::str::from_utf8(text).map_err(|error| JsonError {
        reason: "invalid UTF-8",
        offset: error.valid_up_to(),
    })?;
    let mut parser = Parser {
        text,
        bytes: text.as_bytes(),
        at: 0,
        canonical: true,
        depth_max,
    };
    parser.skip_blanks();
    let value = parser.value(0)?;
    parser.skip_blanks();
    if parser.at < parser.bytes.len() {
        return Err(parser.error("text after the value"));
    }
    Ok(Parsed {
        value,
        canonical: parser.canonical,
    })
}

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    canonical: bool,
    depth_max: usize,
}

impl Parser<'_> {
    fn error(&self, reason: &'static str) -> JsonError {
        JsonError {
            reason,
            offset: self.at,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
            self.canonical = false;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let matches = self.peek() == Some(byte);
        self.at += usize::from(matches);
        matches
    }

    fn value(&mut self, depth: usize) -> Result<Value, JsonError> {
        match self.peek() {
            Some(b'{') => self.object(depth + 1).map(Value::Object),
            Some(b'[') => self.array(depth + 1).map(Value::Array),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(_) => Err(self.error("unexpected character")),
            None => Err(self.error("unexpected end")),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, JsonError> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.error("unexpected character"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn array(&mut self, depth: usize) -> Result<Vec<Value>, JsonError> {
        self.enter(depth)?;
        let mut items = Vec::new();
        if self.eat(b']') {
            return Ok(items);
        }
        loop {
            items.push(self.value(depth)?);
            self.skip_blanks();
            if self.eat(b']') {
                return Ok(items);
            }
            self.comma()?;
        }
    }

    fn object(&mut self, depth: usize) -> Result<Object, JsonError> {
        self.enter(depth)?;
        let mut members = Members::default();
        if self.eat(b'}') {
            return Ok(Object::new());
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.error("a member name must be a string"));
            }
            let name = self.string()?;
            self.skip_blanks();
            if !self.eat(b':') {
                return Err(self.error("':' expected"));
            }
            self.skip_blanks();
            let value = self.value(depth)?;
            self.canonical &= members.insert(name, value);
            self.skip_blanks();
            if self.eat(b'}') {
                return Ok(members.into_object());
            }
            self.comma()?;
        }
    }

    fn enter(&mut self, depth: usize) -> Result<(), JsonError> {
        if depth > self.depth_max {
            return Err(self.error("nested too deeply"));
        }
        self.at += 1;
        self.skip_blanks();
        Ok(())
    }

    fn comma(&mut self) -> Result<(), JsonError> {
        if !self.eat(b',') {
            return Err(self.error("',' expected"));
        }
        self.skip_blanks();
        Ok(())
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.at += 1;
        let start = self.at;
        let mut text = String::new();
        let mut copied = start;
        loop {
            self.pass_plain()?;
            text.push_str(&self.text[copied..self.at]);
            self.at += 1;
            if self.bytes[self.at - 1] == b'"' {
                return Ok(text);
            }
            self.escape(&mut text)?;
            copied = self.at;
        }
    }

    /// Goes to the next quote or escape of a string.
    fn pass_plain(&mut self) -> Result<(), JsonError> {
        let rest = &self.bytes[self.at..];
        let length = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
        // Looks at every byte, so that it can look at many at once; where it is, is only asked when there is one.
        let has_control = rest[..length].iter().fold(false, |found, byte| found | (*byte < 0x20));
        if has_control {
            self.at += rest.iter().position(|byte| *byte < 0x20).unwrap_or(0);
            return Err(self.error("a control character must be escaped"));
        }
        self.at += length;
        match length == rest.len() {
            true => Err(self.error("unexpected end")),
            false => Ok(()),
        }
    }

    fn escape(&mut self, text: &mut String) -> Result<(), JsonError> {
        let byte = self.peek().ok_or_else(|| self.error("unexpected end"))?;
        self.at += 1;
        let character = match byte {
            b'"' | b'\\' => char::from(byte),
            b'/' => {
                self.canonical = false;
                '/'
            }
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                // Only control characters without a short form keep this escape, and those are rare.
                self.canonical = false;
                self.unicode_escape()?
            }
            _ => return Err(self.error("unknown escape")),
        };
        text.push(character);
        Ok(())
    }

    /// A lone surrogate becomes U+FFFD, as the service stores it.
    fn unicode_escape(&mut self) -> Result<char, JsonError> {
        let first = self.four_hex()?;
        if let 0xD800..=0xDBFF = first
            && self.bytes[self.at..].starts_with(b"\\u")
        {
            let back = self.at;
            self.at += 2;
            let second = self.four_hex()?;
            if let 0xDC00..=0xDFFF = second {
                let code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = back;
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn four_hex(&mut self) -> Result<u32, JsonError> {
        let digits = self
            .bytes
            .get(self.at..self.at + 4)
            .ok_or_else(|| self.error("unexpected end"))?;
        let mut code = 0;
        for &digit in digits {
            let digit = char::from(digit)
                .to_digit(16)
                .ok_or_else(|| self.error("four hex digits expected"))?;
            code = code * 16 + digit;
        }
        self.at += 4;
        Ok(code)
    }

    fn number(&mut self) -> Result<Number, JsonError> {
        let start = self.at;
        self.eat(b'-');
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.error("digit expected")),
        }
        let mut whole = true;
        if self.eat(b'.') {
            whole = false;
            self.some_digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            whole = false;
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.some_digits()?;
        }
        let text = &self.text[start..self.at];
        let number = if whole { integer(text) } else { None };
        if let Some(number) = number {
            self.canonical &= text != "-0";
            return Ok(number);
        }
        let double: f64 = text.parse().map_err(|_| JsonError {
            reason: "not a number",
            offset: start,
        })?;
        if !double.is_finite() {
            return Err(JsonError {
                reason: "number out of range",
                offset: start,
            });
        }
        let number = Number::from_f64(double);
        if self.canonical {
            let mut printed = Vec::with_capacity(text.len());
            number.print(&mut printed);
            self.canonical = printed == text.as_bytes();
        }
        Ok(number)
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        self.digits();
        if self.at == start {
            Err(self.error("digit expected"))
        } else {
            Ok(())
        }
    }
}

fn integer(text: &str) -> Option<Number> {
    text.parse::<i64>()
        .map(Number::Int)
        .or_else(|_| text.parse::<u64>().map(Number::UInt))
        .ok()
}

/// Members while an object is built. Small objects are searched; large ones, which a stranger may send to make the search
/// quadratic, get an index.
#[derive(Default)]
pub(super) struct Members {
    members: Vec<(String, Value)>,
    index: std::collections::HashMap<String, usize>,
}

const INDEXED_FROM: usize = 32;

impl Members {
    /// False when the name was there already: the value then replaces the earlier one.
    pub(super) fn insert(&mut self, name: String, value: Value) -> bool {
        let known = if self.members.len() < INDEXED_FROM {
            self.members.iter().position(|(key, _)| *key == name)
        } else {
            if self.index.is_empty() {
                let numbered = self.members.iter().enumerate();
                self.index = numbered.map(|(index, (key, _))| (key.clone(), index)).collect();
            }
            self.index.get(&name).copied()
        };
        match known {
            Some(index) => self.members[index].1 = value,
            None => {
                if self.members.len() >= INDEXED_FROM {
                    self.index.insert(name.clone(), self.members.len());
                }
                self.members.push((name, value));
            }
        }
        known.is_none()
    }

    pub(super) fn into_object(self) -> Object {
        Object { members: self.members }
    }
}
