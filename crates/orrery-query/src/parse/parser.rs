//! The parser's place in the token list, and the errors it reports there.

use super::keyword::Keyword;
use super::lexer::{Lexeme, Symbol, Token, lex};
use super::span::Span;
use crate::error::{Problem, QueryError, Result};

/// Highest tree, counted in nested expressions. It bounds the stack that parsing, planning and running use.
const HEIGHT_MAX: u32 = 250;

pub(super) struct Parser<'a> {
    pub text: &'a str,
    lexemes: Vec<Lexeme>,
    at: usize,
    /// Expressions being parsed right now.
    depth: u32,
    /// Height of the expression or statement parsed last.
    pub height: u32,
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str) -> Parser<'a> {
        Parser {
            text,
            lexemes: lex(text),
            at: 0,
            depth: 0,
            height: 0,
        }
    }

    pub fn token(&self) -> &Token {
        &self.lexemes[self.at].token
    }

    /// The token `n` places ahead.
    pub fn ahead(&self, n: usize) -> &Token {
        &self.lexemes[(self.at + n).min(self.lexemes.len() - 1)].token
    }

    pub fn span(&self) -> Span {
        self.lexemes[self.at].span
    }

    /// The span of the token consumed last.
    pub fn last_span(&self) -> Span {
        self.lexemes[self.at.saturating_sub(1)].span
    }

    /// The text of the current token.
    pub fn slice(&self) -> &'a str {
        let span = self.span();
        &self.text[span.start..span.end]
    }

    /// Consumes the current token. The end is never passed.
    pub fn bump(&mut self) {
        self.at = (self.at + 1).min(self.lexemes.len() - 1);
    }

    pub fn at_keyword(&self, keyword: Keyword) -> bool {
        *self.token() == Token::Keyword(keyword)
    }

    pub fn at_symbol(&self, symbol: Symbol) -> bool {
        *self.token() == Token::Symbol(symbol)
    }

    /// Whether the current token is this unreserved word, in any case.
    pub fn at_word(&self, word: &str) -> bool {
        *self.token() == Token::Word && self.slice().eq_ignore_ascii_case(word)
    }

    pub fn eat_keyword(&mut self, keyword: Keyword) -> bool {
        let found = self.at_keyword(keyword);
        if found {
            self.bump();
        }
        found
    }

    pub fn eat_symbol(&mut self, symbol: Symbol) -> bool {
        let found = self.at_symbol(symbol);
        if found {
            self.bump();
        }
        found
    }

    pub fn expect_keyword(&mut self, keyword: Keyword) -> Result<()> {
        if self.eat_keyword(keyword) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    pub fn expect_symbol(&mut self, symbol: Symbol) -> Result<()> {
        if self.eat_symbol(symbol) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    pub fn end(&mut self) -> Result<()> {
        if *self.token() == Token::End {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    /// The error for the current token standing where it does.
    pub fn unexpected(&self) -> QueryError {
        let near = self.slice();
        let (code, message) = match self.token() {
            Token::End => ("SC1002", "Syntax error, unexpected end-of-file.".to_owned()),
            Token::Invalid => ("SC1010", format!("Syntax error, invalid token '{near}'.")),
            Token::InvalidString => (
                "SC1012",
                format!("Syntax error, invalid string literal token '{near}'."),
            ),
            _ => ("SC1001", format!("Syntax error, incorrect syntax near '{near}'.")),
        };
        QueryError::located(vec![Problem::at(self.text, self.span(), code, message)])
    }

    /// Runs `parse` one level deeper.
    pub fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= HEIGHT_MAX {
            return Err(self.too_deep());
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// Records that a node was built over children of which the tallest has this height.
    pub fn grow(&mut self, tallest_child: u32) -> Result<()> {
        self.height = tallest_child + 1;
        if self.height > HEIGHT_MAX {
            Err(self.too_deep())
        } else {
            Ok(())
        }
    }

    fn too_deep(&self) -> QueryError {
        QueryError::plain(format!(
            "The SQL query is nested too deeply. The allowed limit is {HEIGHT_MAX} levels."
        ))
    }
}
