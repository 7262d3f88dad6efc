//! Cuts a query's text into tokens.
//!
//! Lexing never fails: what is not part of the language becomes an [`Token::Invalid`] token, which is reported when, and
//! only when, the parser gets that far. The last token is always [`Token::End`].

use orrery_model::Number;

use super::keyword::Keyword;
use super::span::Span;

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Keyword(Keyword),
    /// A word that is not reserved. Its text is that of its span.
    Word,
    /// `@name`
    Parameter,
    String(String),
    Number(Number),
    Symbol(Symbol),
    /// A character outside the language.
    Invalid,
    /// A string literal without its closing quote or with an unknown escape.
    InvalidString,
    /// The end of the text.
    End,
}

macro_rules! symbols {
    ($($variant:ident $text:literal),* $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Symbol { $($variant),* }

        /// Longer symbols stand before their prefixes.
        const SYMBOLS: &[(&str, Symbol)] = &[$(($text, Symbol::$variant)),*];
    };
}

symbols! {
    ShiftRightUnsigned ">>>", ShiftRight ">>", ShiftLeft "<<", LessOrEqual "<=", GreaterOrEqual ">=", NotEqual "!=",
    LessGreater "<>", Coalesce "??", Concat "||", Equal "=", Less "<", Greater ">", Question "?", Pipe "|",
    OpenParen "(", CloseParen ")", OpenBracket "[", CloseBracket "]", OpenBrace "{", CloseBrace "}", Comma ",",
    Dot ".", Colon ":", Star "*", Slash "/", Percent "%", Plus "+", Minus "-", Ampersand "&", Caret "^", Tilde "~",
}

#[derive(Clone, Debug, PartialEq)]
pub struct Lexeme {
    pub token: Token,
    pub span: Span,
}

/// All tokens of `text`, up to the first invalid one, and the end.
pub fn lex(text: &str) -> Vec<Lexeme> {
    let mut lexer = Lexer { text, at: 0 };
    let mut lexemes = Vec::new();
    loop {
        lexer.skip_blanks();
        let start = lexer.at;
        let token = lexer.token();
        let over = matches!(token, Token::End | Token::Invalid | Token::InvalidString);
        lexemes.push(Lexeme {
            token,
            span: Span::new(start, lexer.at),
        });
        if over {
            break;
        }
    }
    if lexemes.last().is_none_or(|last| last.token != Token::End) {
        lexemes.push(Lexeme {
            token: Token::End,
            span: Span::new(text.len(), text.len()),
        });
    }
    lexemes
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Advances over the characters that satisfy `belongs`, and gives their number of bytes.
    fn skip_while(&mut self, belongs: impl Fn(char) -> bool) -> usize {
        let rest = self.rest();
        let n_bytes = rest.find(|character| !belongs(character)).unwrap_or(rest.len());
        self.at += n_bytes;
        n_bytes
    }

    fn skip_blanks(&mut self) {
        loop {
            self.skip_while(char::is_whitespace);
            if !self.rest().starts_with("--") {
                return;
            }
            self.skip_while(|character| character != '\n');
        }
    }

    fn token(&mut self) -> Token {
        let Some(first) = self.peek() else { return Token::End };
        match first {
            'A'..='Z' | 'a'..='z' | '_' => self.word(),
            '0'..='9' => self.number(),
            '.' if self.rest()[1..].starts_with(|next: char| next.is_ascii_digit()) => self.number(),
            '\'' | '"' => self.string(first),
            '@' => self.parameter(),
            _ => self.symbol(first),
        }
    }

    fn word(&mut self) -> Token {
        let start = self.at;
        self.skip_while(is_word);
        Keyword::of(&self.text[start..self.at]).map_or(Token::Word, Token::Keyword)
    }

    fn parameter(&mut self) -> Token {
        self.at += 1;
        let begins_with_digit = self.rest().starts_with(|first: char| first.is_ascii_digit());
        if self.skip_while(is_word) > 0 && !begins_with_digit {
            Token::Parameter
        } else {
            Token::Invalid
        }
    }

    fn symbol(&mut self, first: char) -> Token {
        let found = SYMBOLS.iter().find(|(text, _)| self.rest().starts_with(text));
        self.at += found.map_or(first.len_utf8(), |(text, _)| text.len());
        found.map_or(Token::Invalid, |(_, symbol)| Token::Symbol(*symbol))
    }

    fn number(&mut self) -> Token {
        let start = self.at;
        if let Some(hex) = self.hexadecimal() {
            return Token::Number(hex);
        }
        self.skip_while(|digit| digit.is_ascii_digit());
        if self.peek() == Some('.') {
            self.at += 1;
            self.skip_while(|digit| digit.is_ascii_digit());
        }
        self.exponent();
        let text = &self.text[start..self.at];
        let double = || text.parse().map_or(Number::from_f64(f64::NAN), Number::from_f64);
        Token::Number(text.parse::<i64>().map_or_else(|_| double(), Number::from))
    }

    /// `e`, an optional sign and digits; nothing is consumed when the digits are missing.
    fn exponent(&mut self) {
        let Some(after) = self.rest().strip_prefix(['e', 'E']) else {
            return;
        };
        let digits = after.strip_prefix(['+', '-']).unwrap_or(after);
        if digits.starts_with(|digit: char| digit.is_ascii_digit()) {
            self.at += self.rest().len() - digits.len();
            self.skip_while(|digit| digit.is_ascii_digit());
        }
    }

    fn hexadecimal(&mut self) -> Option<Number> {
        let digits = self
            .rest()
            .strip_prefix("0x")
            .or_else(|| self.rest().strip_prefix("0X"))?;
        if !digits.starts_with(|digit: char| digit.is_ascii_hexdigit()) {
            return None;
        }
        self.at += 2;
        let start = self.at;
        self.skip_while(|digit| digit.is_ascii_hexdigit());
        let digits = &self.text[start..self.at];
        let double = || {
            digits
                .bytes()
                .fold(0.0, |sum, digit| sum * 16.0 + f64::from(hex_digit(digit)))
        };
        Some(i64::from_str_radix(digits, 16).map_or_else(|_| Number::from_f64(double()), Number::from))
    }

    fn string(&mut self, quote: char) -> Token {
        self.at += 1;
        let mut units: Vec<u16> = Vec::new();
        let mut value = String::new();
        loop {
            let Some(character) = self.peek() else {
                return Token::InvalidString;
            };
            self.at += character.len_utf8();
            if character == '\\' {
                match self.escape() {
                    Some(unit) => units.push(unit),
                    None => return Token::InvalidString,
                }
                continue;
            }
            // Escaped surrogates only make sense next to each other, so they are joined when the run of escapes ends.
            value.push_str(&String::from_utf16_lossy(&units));
            units.clear();
            if character == quote {
                return Token::String(value);
            }
            value.push(character);
        }
    }

    /// What follows a backslash, as one UTF-16 unit.
    fn escape(&mut self) -> Option<u16> {
        let character = self.peek()?;
        self.at += character.len_utf8();
        Some(match character {
            '\'' | '"' | '\\' | '/' => character as u16,
            'b' => 0x08,
            'f' => 0x0C,
            'n' => 0x0A,
            'r' => 0x0D,
            't' => 0x09,
            'u' => {
                let digits = self.rest().get(..4)?;
                let unit = digits
                    .bytes()
                    .all(|digit| digit.is_ascii_hexdigit())
                    .then_some(digits)?;
                let unit = u16::from_str_radix(unit, 16).ok()?;
                self.at += 4;
                unit
            }
            _ => return None,
        })
    }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn hex_digit(digit: u8) -> u8 {
    (digit as char).to_digit(16).map_or(0, |value| value as u8)
}
