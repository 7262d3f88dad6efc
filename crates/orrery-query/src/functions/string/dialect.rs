//! Patterns are written for PCRE, and carried out by `regex`, which reads some of them differently: silently, where a sign means
//! something else to it. Here a pattern is put into words that mean there what they mean in PCRE. Look-around, back references, atomic groups
//! and possessive quantifiers need an engine that tries and goes back (`fancy-regex`), whose words are the same but for what
//! is said below. What is no pattern makes a function undefined; what is one and can be carried out by neither is an error.
//!
//! What differs: classes like `\d` know ASCII only; a set has no operators (`&&`, `--`, `~~`) and no sets within it; a brace that is
//! no quantifier is a brace; a quantifier of a quantifier is none, or possessive; white space within a set counts even where it
//! is left out elsewhere; and `$` also stands before a line end that ends the text. To `fancy-regex` an edge of a word is always one of
//! Unicode, so it is put as what lies on both sides of it.

use std::iter::Peekable;
use std::str::Chars;

mod escapes;
mod sets;

/// A pattern in the words of the engines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Translated {
    pub text: String,
    /// It has an end that may also lie before the line end that ends a text.
    pub may_end_before_line_end: bool,
    /// Only an engine that goes back can carry it out.
    pub goes_back: bool,
}

/// Why a pattern is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is none.
    Invalid,
    /// It is one for PCRE and for none of the engines here.
    Unsupported,
}

pub(super) fn translate(pattern: &str) -> Result<Translated, Refused> {
    let translated = Translator::new(pattern, false).run()?;
    match translated.goes_back {
        // Edges of words are put differently.
        true => Translator::new(pattern, true).run(),
        false => Ok(translated),
    }
}

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
    goes_back: bool,
    is_unsupported: bool,
    n_groups: usize,
    /// Whether white space is left out, by group.
    extended: Vec<bool>,
    before: Before,
}

impl<'p> Translator<'p> {
    fn new(pattern: &'p str, goes_back: bool) -> Translator<'p> {
        Translator {
            rest: pattern.chars().peekable(),
            out: String::with_capacity(pattern.len() + 16),
            may_end_before_line_end: false,
            goes_back,
            is_unsupported: false,
            n_groups: 0,
            extended: vec![false],
            before: Before::Nothing,
        }
    }

    fn run(mut self) -> Result<Translated, Refused> {
        while let Some(sign) = self.rest.next() {
            if self.sign(sign).is_none() {
                return Err(match self.is_unsupported {
                    true => Refused::Unsupported,
                    false => Refused::Invalid,
                });
            }
        }
        Ok(Translated {
            text: self.out,
            may_end_before_line_end: self.may_end_before_line_end,
            goes_back: self.goes_back,
        })
    }

    fn unsupported<T>(&mut self) -> Option<T> {
        self.is_unsupported = true;
        None
    }

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
            (Before::Quantifier, '+') => {
                self.goes_back = true;
                self.out.push(sign);
                self.before = Before::Lazy;
                Some(())
            }
            // Nothing to repeat.
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
            Some('*') => return self.unsupported(),
            Some('?') => {
                self.rest.next();
            }
            _ => {
                self.n_groups += 1;
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
                match self.rest.next()? {
                    '<' => self.named('>')?,
                    '=' => {
                        let name = self.name(')')?;
                        self.refer(&name);
                        return Some(());
                    }
                    '>' => return self.unsupported(),
                    _ => return None,
                }
            }
            '<' => {
                self.rest.next();
                match self.rest.next_if(|sign| matches!(sign, '=' | '!')) {
                    Some(kind) => self.look(&['<', kind]),
                    None => self.named('>')?,
                }
            }
            '\'' => {
                self.rest.next();
                self.named('\'')?;
            }
            kind @ ('=' | '!' | '>') => {
                let kind = *kind;
                self.rest.next();
                self.look(&[kind]);
            }
            // Groups that are called, counted anew, chosen by a condition, or call outside.
            'R' | '&' | '+' | '0'..='9' | '|' | '(' | 'C' => return self.unsupported(),
            _ => return self.flags(),
        }
        self.extended.push(outer);
        Some(())
    }

    /// Begins a group that looks around, or that is not gone back into.
    fn look(&mut self, kind: &[char]) {
        self.goes_back = true;
        self.out.push_str("(?");
        self.out.extend(kind);
    }

    fn named(&mut self, end: char) -> Option<()> {
        let name = self.name(end)?;
        self.n_groups += 1;
        self.out.extend(["(?<", &name, ">"]);
        Some(())
    }

    /// A name up to `end`.
    fn name(&mut self, end: char) -> Option<String> {
        let mut name = String::new();
        loop {
            match self.rest.next()? {
                sign if sign == end => return is_name(&name).then_some(name),
                sign => name.push(sign),
            }
        }
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
                // Calls a group that lies before it.
                '0'..='9' if is_off => return self.unsupported(),
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
}

fn is_name(text: &str) -> bool {
    let is_word = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    text.chars().all(is_word) && text.chars().next().is_some_and(|first| !first.is_ascii_digit())
}

#[cfg(test)]
mod tests;
