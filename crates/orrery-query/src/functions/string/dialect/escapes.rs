//! What follows a backslash.

use super::{Before, Translator, is_name};

const DIGITS: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
const SPACE: &str = r"\t\n\x0B\x0C\r\x20";
const HORIZONTAL: &str = r"\t\x20\x{A0}\x{1680}\x{180E}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}";
const VERTICAL: &str = r"\n\x0B\x0C\r\x{85}\x{2028}\x{2029}";

/// What an escape stands for.
pub(super) enum Escaped {
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
    /// What a group has matched.
    pub(super) fn refer(&mut self, name: &str) {
        self.goes_back = true;
        match name.parse::<usize>() {
            Ok(_) => self.out.extend([r"(?:\", name, ")"]),
            Err(_) => self.out.extend([r"(?:\k<", name, ">)"]),
        }
        self.before = Before::Something;
    }

    /// A group by its number; below zero, counted backwards from here.
    pub(super) fn refer_to(&mut self, number: i64) -> Option<()> {
        let number = match usize::try_from(number) {
            Ok(number) => number,
            Err(_) => (self.n_groups + 1).checked_sub(usize::try_from(number.unsigned_abs()).ok()?)?,
        };
        (number > 0).then(|| self.refer(&number.to_string()))
    }

    /// After `\g`: a group by number or name.
    pub(super) fn numbered(&mut self) -> Option<()> {
        let text = match self.rest.peek()? {
            '{' => {
                self.rest.next();
                let mut text = String::new();
                loop {
                    match self.rest.next()? {
                        '}' => break text,
                        sign => text.push(sign),
                    }
                }
            }
            // Calls a group.
            '<' | '\'' => return self.unsupported(),
            _ => {
                let mut text: String = self.rest.next_if_eq(&'-').into_iter().collect();
                while let Some(digit) = self.rest.next_if(char::is_ascii_digit) {
                    text.push(digit);
                }
                text
            }
        };
        match text.parse::<i64>() {
            Ok(number) => self.refer_to(number),
            Err(_) if is_name(&text) => {
                self.refer(&text);
                Some(())
            }
            Err(_) => None,
        }
    }

    /// After a backslash and a digit that is not zero: a group, or an octal number where there are not so many groups.
    pub(super) fn group_or_octal(&mut self, first: char) -> Option<()> {
        let mut ahead = self.rest.clone();
        let mut digits = String::from(first);
        while let Some(digit) = ahead.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        let number: usize = digits.parse().ok()?;
        if number < 10 || matches!(first, '8' | '9') || number <= self.n_groups {
            self.rest = ahead;
            self.refer(&digits);
            return Some(());
        }
        let sign = self.octal_from(first);
        self.literal(sign);
        self.before = Before::Something;
        Some(())
    }

    pub(super) fn escape(&mut self) -> Option<()> {
        if self.quoted(|translator, literal| {
            translator.literal(literal);
            translator.before = Before::Something;
        }) {
            return Some(());
        }
        match self.rest.peek() {
            Some(digit @ '1'..='9') => {
                let digit = *digit;
                self.rest.next();
                return self.group_or_octal(digit);
            }
            Some('g') => {
                self.rest.next();
                return self.numbered();
            }
            Some('k') => {
                self.rest.next();
                return self.named_before();
            }
            _ => {}
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
                self.edge(edge == 'b');
                self.before = Before::Nothing;
                return Some(());
            }
            Escaped::Other(place @ ('G' | 'K')) => {
                self.goes_back = true;
                self.out.extend(['\\', place]);
                self.before = Before::Nothing;
                return Some(());
            }
            // Whole signs as people see them, and single bytes.
            Escaped::Other('X' | 'C') => return self.unsupported(),
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

    /// After `\k`: a group by its name.
    pub(super) fn named_before(&mut self) -> Option<()> {
        let end = match self.rest.next()? {
            '<' => '>',
            '\'' => '\'',
            '{' => '}',
            _ => return None,
        };
        let name = self.name(end)?;
        self.refer(&name);
        Some(())
    }

    /// Where a word of ASCII begins or ends, or where none does.
    pub(super) fn edge(&mut self, is_edge: bool) {
        let (sign, same) = match is_edge {
            true => ("b", ["(?!", "(?="]),
            false => ("B", ["(?=", "(?!"]),
        };
        if !self.goes_back {
            return self.out.extend([r"(?-u:\", sign, ")"]);
        }
        let [after_word, elsewhere] = same;
        self.out
            .extend(["(?:(?<=[", WORD, "])", after_word, "[", WORD, "])|(?<![", WORD, "])"]);
        self.out.extend([elsewhere, "[", WORD, "]))"]);
    }

    /// Takes a quotation (`\Q` to `\E`, or to the end) sign by sign, or an end of one; the backslash has been taken.
    pub(super) fn quoted(&mut self, mut take: impl FnMut(&mut Self, char)) -> bool {
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
    pub(super) fn escaped(&mut self) -> Option<Escaped> {
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
            // Within a set; elsewhere it may be a group.
            digit @ '1'..='7' => Escaped::One(self.octal_from(digit)),
            '8' | '9' => return None,
            sign => Escaped::One(sign),
        })
    }

    /// A property of signs by its name, or by one letter.
    pub(super) fn property(&mut self, mut negated: bool) -> Option<Escaped> {
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

    pub(super) fn hexadecimal(&mut self) -> Option<char> {
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
    pub(super) fn octal(&mut self) -> char {
        self.octal_from('0')
    }

    pub(super) fn octal_from(&mut self, first: char) -> char {
        let mut value = first.to_digit(8).unwrap_or_default();
        for _ in 0..2 {
            match self.rest.next_if(|sign| sign.is_digit(8)) {
                Some(digit) => value = value * 8 + digit.to_digit(8).unwrap_or_default(),
                None => break,
            }
        }
        char::from_u32(value).unwrap_or_default()
    }
}
