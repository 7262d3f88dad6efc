//! Patterns are written for PCRE, and carried out by `regex`, which reads some of them differently: silently, where a sign means
//! something else to it. Here a pattern is put into words that mean there what they mean in PCRE; one that cannot be is refused, and
//! a function of it is undefined.
//!
//! What differs: classes like `\d` know ASCII only; a set has no operators (`&&`, `--`, `~~`) and no sets within it; a brace that is
//! no quantifier is a brace; a quantifier of a quantifier is none, or possessive; white space within a set counts even where it
//! is left out elsewhere; and `$` also stands before a line end that ends the text.
//! Look-around, back references, atomic groups and possessive quantifiers need another engine.

use std::iter::Peekable;
use std::str::Chars;

/// A pattern in the words of `regex`.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::functions) struct Translated {
    pub text: String,
    /// It has an end that may also lie before the line end that ends a text.
    pub may_end_before_line_end: bool,
}

/// `None` for what is no pattern, or none that can be carried out.
pub(in crate::functions) fn translate(pattern: &str) -> Option<Translated> {
    let mut translator = Translator {
        rest: pattern.chars().peekable(),
        out: String::with_capacity(pattern.len() + 16),
        may_end_before_line_end: false,
        extended: vec![false],
        before: Before::Nothing,
    };
    while let Some(sign) = translator.rest.next() {
        translator.sign(sign)?;
    }
    Some(Translated {
        text: translator.out,
        may_end_before_line_end: translator.may_end_before_line_end,
    })
}

const DIGITS: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
const SPACE: &str = r"\t\n\x0B\x0C\r\x20";
const HORIZONTAL: &str = r"\t\x20\x{A0}\x{1680}\x{180E}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}";
const VERTICAL: &str = r"\n\x0B\x0C\r\x{85}\x{2028}\x{2029}";

/// What a quantifier would apply to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Something,
    Quantifier,
    /// One that has been made lazy.
    Lazy,
}

struct Translator<'p> {
    rest: Peekable<Chars<'p>>,
    out: String,
    may_end_before_line_end: bool,
    /// Whether white space is left out, by group.
    extended: Vec<bool>,
    before: Before,
}

/// What an escape stands for.
enum Escaped {
    One(char),
    /// The content of a set, and whether it is meant to be outside of it.
    Set {
        content: &'static str,
        negated: bool,
    },
    /// The same to `regex`.
    Property(String),
    Other(char),
}

impl Translator<'_> {
    fn sign(&mut self, sign: char) -> Option<()> {
        match sign {
            _ if self.is_extended() && (sign.is_ascii_whitespace() || sign == '\x0B') => return Some(()),
            '#' if self.is_extended() => {
                self.rest.by_ref().find(|sign| *sign == '\n');
                return Some(());
            }
            '\\' => return self.escape(),
            '[' => self.set()?,
            '(' => return self.group(),
            ')' => {
                // One too many is for `regex` to refuse.
                if self.extended.len() > 1 {
                    self.extended.pop();
                }
                self.out.push(')');
            }
            '|' | '^' => {
                self.out.push(sign);
                self.before = Before::Nothing;
                return Some(());
            }
            '$' => {
                self.end();
                return Some(());
            }
            '*' | '+' | '?' => return self.quantifier(sign),
            '{' => match self.counts() {
                Some(counts) => return self.repeat(&counts),
                None => self.out.push_str(r"\{"),
            },
            '.' => self.out.push('.'),
            literal => self.literal(literal),
        }
        self.before = Before::Something;
        Some(())
    }

    fn is_extended(&self) -> bool {
        self.extended.last().copied().unwrap_or_default()
    }

    fn literal(&mut self, literal: char) {
        let mut buffer = [0; 4];
        self.out.push_str(&regex::escape(literal.encode_utf8(&mut buffer)));
    }

    fn end(&mut self) {
        self.may_end_before_line_end = true;
        self.out.push('$');
        self.before = Before::Nothing;
    }

    fn quantifier(&mut self, sign: char) -> Option<()> {
        match (self.before, sign) {
            (Before::Something, _) => {
                self.out.push(sign);
                self.before = Before::Quantifier;
                Some(())
            }
            (Before::Quantifier, '?') => {
                self.out.push(sign);
                self.before = Before::Lazy;
                Some(())
            }
            // Possessive, or nothing to repeat.
            _ => None,
        }
    }

    fn repeat(&mut self, counts: &str) -> Option<()> {
        if self.before != Before::Something {
            return None;
        }
        self.out.push_str(counts);
        self.before = Before::Quantifier;
        Some(())
    }

    /// The rest of `{n}`, `{n,}` or `{n,m}` with both braces; nothing is taken if it is none of these.
    fn counts(&mut self) -> Option<String> {
        let mut ahead = self.rest.clone();
        let mut counts = String::from("{");
        let mut has_comma = false;
        loop {
            let sign = ahead.next()?;
            match sign {
                '0'..='9' => {}
                ',' if counts.len() > 1 && !has_comma => has_comma = true,
                '}' if counts.len() > 1 => {
                    counts.push('}');
                    self.rest = ahead;
                    return Some(counts);
                }
                _ => return None,
            }
            counts.push(sign);
        }
    }

    fn group(&mut self) -> Option<()> {
        let before = std::mem::replace(&mut self.before, Before::Nothing);
        let outer = self.is_extended();
        match self.rest.peek() {
            // A verb.
            Some('*') => return None,
            Some('?') => {
                self.rest.next();
            }
            _ => {
                self.out.push('(');
                self.extended.push(outer);
                return Some(());
            }
        }
        match self.rest.peek()? {
            '#' => {
                self.rest.find(|sign| *sign == ')')?;
                self.before = before;
                return Some(());
            }
            'P' => {
                self.rest.next();
                self.rest.next_if_eq(&'<')?;
                self.named('>')?;
            }
            '<' => {
                self.rest.next();
                self.named('>')?;
            }
            '\'' => {
                self.rest.next();
                self.named('\'')?;
            }
            _ => return self.flags(),
        }
        self.extended.push(outer);
        Some(())
    }

    fn named(&mut self, end: char) -> Option<()> {
        let mut name = String::new();
        loop {
            match self.rest.next()? {
                sign if sign == end => break,
                sign if sign.is_ascii_alphanumeric() || sign == '_' => name.push(sign),
                // Look-behind, too.
                _ => return None,
            }
        }
        self.out.push_str("(?<");
        self.out.push_str(&name);
        self.out.push('>');
        Some(())
    }

    /// Flags for the rest of a group, or for one that begins with them.
    fn flags(&mut self) -> Option<()> {
        let (mut kept, mut is_off, mut extended) = (String::new(), false, self.is_extended());
        let begins = loop {
            match self.rest.next()? {
                ')' => break false,
                ':' => break true,
                '-' if !is_off => {
                    is_off = true;
                    kept.push('-');
                }
                'x' => extended = !is_off,
                flag @ ('i' | 'm' | 's' | 'U') => {
                    // Said twice is said once.
                    if !kept.rsplit('-').next().is_some_and(|said| said.contains(flag)) {
                        kept.push(flag);
                    }
                }
                // Look-around, atomic groups, recursion.
                _ => return None,
            }
        };
        let kept = kept.strip_suffix('-').unwrap_or(&kept);
        if begins {
            self.extended.push(extended);
        } else if let Some(own) = self.extended.last_mut() {
            *own = extended;
        }
        match (begins, kept.is_empty()) {
            (false, true) => {}
            (false, false) => self.out.extend(["(?", kept, ")"]),
            (true, _) => self.out.extend(["(?", kept, ":"]),
        }
        Some(())
    }

    fn escape(&mut self) -> Option<()> {
        if self.quoted(|translator, literal| {
            translator.literal(literal);
            translator.before = Before::Something;
        }) {
            return Some(());
        }
        match self.escaped()? {
            Escaped::One(literal) => self.literal(literal),
            Escaped::Set { content, negated } => {
                let negation = if negated { "^" } else { "" };
                self.out.extend(["[", negation, content, "]"]);
            }
            Escaped::Property(property) => self.out.push_str(&property),
            Escaped::Other('R') => self.out.extend([r"(?:\r\n|[", VERTICAL, "])"]),
            Escaped::Other('N') => self.out.push_str(r"[^\n]"),
            Escaped::Other(edge @ ('b' | 'B')) => {
                self.out.extend([r"(?-u:\", if edge == 'b' { "b" } else { "B" }, ")"]);
                self.before = Before::Nothing;
                return Some(());
            }
            Escaped::Other('Z') => {
                self.may_end_before_line_end = true;
                self.out.push_str(r"\z");
                self.before = Before::Nothing;
                return Some(());
            }
            Escaped::Other(edge @ ('A' | 'z')) => {
                self.out.extend(['\\', edge]);
                self.before = Before::Nothing;
                return Some(());
            }
            Escaped::Other(_) => return None,
        }
        self.before = Before::Something;
        Some(())
    }

    /// Takes a quotation (`\Q` to `\E`, or to the end) sign by sign, or an end of one; the backslash has been taken.
    fn quoted(&mut self, mut take: impl FnMut(&mut Self, char)) -> bool {
        match self.rest.next_if(|sign| matches!(sign, 'Q' | 'E')) {
            None => return false,
            Some('Q') => {}
            Some(_) => return true,
        }
        while let Some(sign) = self.rest.next() {
            if sign == '\\' && self.rest.next_if_eq(&'E').is_some() {
                break;
            }
            take(self, sign);
        }
        true
    }

    /// What follows a backslash.
    fn escaped(&mut self) -> Option<Escaped> {
        let set = |content, negated| Escaped::Set { content, negated };
        Some(match self.rest.next()? {
            'd' => set(DIGITS, false),
            'D' => set(DIGITS, true),
            'w' => set(WORD, false),
            'W' => set(WORD, true),
            's' => set(SPACE, false),
            'S' => set(SPACE, true),
            'h' => set(HORIZONTAL, false),
            'H' => set(HORIZONTAL, true),
            'v' => set(VERTICAL, false),
            'V' => set(VERTICAL, true),
            'a' => Escaped::One('\x07'),
            'e' => Escaped::One('\x1B'),
            'f' => Escaped::One('\x0C'),
            'n' => Escaped::One('\n'),
            'r' => Escaped::One('\r'),
            't' => Escaped::One('\t'),
            'c' => {
                let sign = self.rest.next().filter(|sign| matches!(sign, ' '..='~'))?;
                Escaped::One(char::from(sign.to_ascii_uppercase() as u8 ^ 0x40))
            }
            'x' => Escaped::One(self.hexadecimal()?),
            '0' => Escaped::One(self.octal()),
            kind @ ('p' | 'P') => self.property(kind == 'P')?,
            letter if letter.is_ascii_alphabetic() => Escaped::Other(letter),
            // A back reference.
            '1'..='9' => return None,
            sign => Escaped::One(sign),
        })
    }

    /// A property of signs by its name, or by one letter.
    fn property(&mut self, mut negated: bool) -> Option<Escaped> {
        let mut name = String::new();
        match self.rest.next()? {
            '{' => {
                if self.rest.next_if_eq(&'^').is_some() {
                    negated = !negated;
                }
                loop {
                    match self.rest.next()? {
                        '}' => break,
                        sign => name.push(sign),
                    }
                }
            }
            letter => name.push(letter),
        }
        let kind = if negated { 'P' } else { 'p' };
        Some(Escaped::Property(format!("\\{kind}{{{name}}}")))
    }

    fn hexadecimal(&mut self) -> Option<char> {
        let mut digits = String::new();
        if self.rest.next_if_eq(&'{').is_some() {
            loop {
                match self.rest.next()? {
                    '}' => break,
                    digit => digits.push(digit),
                }
            }
        } else {
            while let Some(digit) = self.rest.next_if(|sign| digits.len() < 2 && sign.is_ascii_hexdigit()) {
                digits.push(digit);
            }
            if digits.is_empty() {
                digits.push('0');
            }
        }
        char::from_u32(u32::from_str_radix(&digits, 16).ok()?)
    }

    /// Up to two more digits after the zero.
    fn octal(&mut self) -> char {
        let mut value = 0;
        for _ in 0..2 {
            match self.rest.next_if(|sign| sign.is_digit(8)) {
                Some(digit) => value = value * 8 + digit.to_digit(8).unwrap_or_default(),
                None => break,
            }
        }
        char::from_u32(value).unwrap_or_default()
    }

    fn set(&mut self) -> Option<()> {
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let mut is_first = true;
        loop {
            let sign = self.rest.next()?;
            match sign {
                ']' if !is_first => break,
                '[' if self.rest.peek() == Some(&':') && self.posix() => {}
                _ => self.member(sign)?,
            }
            is_first = false;
        }
        self.out.push(']');
        Some(())
    }

    /// Takes `[:name:]`, of which the bracket has been taken; nothing is taken if there is none.
    fn posix(&mut self) -> bool {
        let mut ahead = self.rest.clone();
        let mut class = String::from("[");
        while let Some(sign) = ahead.next_if(|sign| matches!(sign, ':' | '^' | 'a'..='z')) {
            class.push(sign);
        }
        if !class.ends_with(':') || class.len() < 3 || ahead.next() != Some(']') {
            return false;
        }
        self.out.extend([class.as_str(), "]"]);
        self.rest = ahead;
        true
    }

    /// One sign or set of a set, or a range that begins with it.
    fn member(&mut self, sign: char) -> Option<()> {
        let Some(first) = self.one_of_set(sign)? else {
            return Some(());
        };
        self.literal_of_set(first);
        let mut ahead = self.rest.clone();
        let is_range = ahead.next() == Some('-') && !matches!(ahead.next(), None | Some(']'));
        if !is_range {
            return Some(());
        }
        self.rest.next();
        let last = self.rest.next()?;
        let (n_bytes, hyphen) = (self.out.len(), r"\-");
        match self.one_of_set(last)? {
            Some(last) => {
                self.out.push('-');
                self.literal_of_set(last);
            }
            // No range leads to a set.
            None => self.out.insert_str(n_bytes, hyphen),
        }
        Some(())
    }

    /// The sign that stands at this place of a set; `None` when it was more than one, which has been taken down.
    fn one_of_set(&mut self, sign: char) -> Option<Option<char>> {
        if sign != '\\' {
            return Some(Some(sign));
        }
        if self.quoted(Self::literal_of_set) {
            return Some(None);
        }
        match self.escaped()? {
            Escaped::One(literal) => return Some(Some(literal)),
            Escaped::Other('b') => return Some(Some('\x08')),
            Escaped::Set { content, negated: true } => self.out.extend(["[^", content, "]"]),
            Escaped::Set { content, .. } => self.out.push_str(content),
            Escaped::Property(property) => self.out.push_str(&property),
            Escaped::Other(_) => return None,
        }
        Some(None)
    }

    fn literal_of_set(&mut self, literal: char) {
        if literal.is_ascii_punctuation() && !matches!(literal, '<' | '>') {
            self.out.push('\\');
        }
        self.out.push(literal);
    }
}

#[cfg(test)]
mod tests;
