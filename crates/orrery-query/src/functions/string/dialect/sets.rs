//! Sets of signs, in brackets.

use super::Translator;
use super::escapes::Escaped;

impl Translator<'_> {
    pub(super) fn set(&mut self) -> Option<()> {
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
    pub(super) fn posix(&mut self) -> bool {
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
    pub(super) fn member(&mut self, sign: char) -> Option<()> {
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
    pub(super) fn one_of_set(&mut self, sign: char) -> Option<Option<char>> {
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

    pub(super) fn literal_of_set(&mut self, literal: char) {
        if literal.is_ascii_punctuation() && !matches!(literal, '<' | '>') {
            self.out.push('\\');
        }
        self.out.push(literal);
    }
}
