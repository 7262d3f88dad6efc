//! Operands: literals, names, calls, subqueries, and the member access that follows them.

use super::ast::{Expr, ExprKind, Name, Step, SubqueryForm};
use super::keyword::Keyword;
use super::lexer::{Symbol, Token};
use super::parser::Parser;
use super::span::Span;
use crate::error::Result;

impl Parser<'_> {
    pub fn operand(&mut self) -> Result<Expr> {
        let primary = self.primary()?;
        self.postfix(primary)
    }

    /// Continues an operand with the steps after it. Each is a level: it applies to all before it.
    pub fn postfix(&mut self, primary: Expr) -> Result<Expr> {
        let mut steps = Vec::new();
        loop {
            let height = self.height;
            if self.eat_symbol(Symbol::Dot) {
                steps.push(Step::Member(self.identifier()?));
                self.grow(height)?;
            } else if self.eat_symbol(Symbol::OpenBracket) {
                steps.push(Step::Index(self.expr()?));
                self.expect_symbol(Symbol::CloseBracket)?;
                self.grow(height.max(self.height))?;
            } else {
                break;
            }
        }
        if steps.is_empty() {
            return Ok(primary);
        }
        let span = primary.span.to(self.last_span());
        let (base, steps) = match primary.kind {
            ExprKind::Postfix {
                base,
                steps: mut earlier,
            } => {
                earlier.extend(steps);
                (base, earlier)
            }
            kind => (Box::new(Expr::new(kind, primary.span)), steps),
        };
        Ok(Expr::new(ExprKind::Postfix { base, steps }, span))
    }

    fn primary(&mut self) -> Result<Expr> {
        self.height = 1;
        let start = self.span();
        let literal = match self.token() {
            Token::Number(number) => ExprKind::Number(*number),
            Token::String(text) => ExprKind::String(text.clone()),
            Token::Parameter => ExprKind::Parameter(self.slice().to_owned()),
            Token::Keyword(Keyword::True) => ExprKind::Bool(true),
            Token::Keyword(Keyword::False) => ExprKind::Bool(false),
            Token::Keyword(Keyword::Null) => ExprKind::Null,
            Token::Keyword(Keyword::Undefined) => ExprKind::Undefined,
            Token::Symbol(Symbol::OpenBracket) => return self.array(),
            Token::Symbol(Symbol::OpenBrace) => return self.object(),
            Token::Symbol(Symbol::OpenParen) => return self.in_parentheses(),
            Token::Word => return self.name(),
            Token::Keyword(keyword) => return self.keyword_primary(*keyword),
            _ => return Err(self.unexpected()),
        };
        self.bump();
        Ok(Expr::new(literal, start))
    }

    fn keyword_primary(&mut self, keyword: Keyword) -> Result<Expr> {
        let calls = *self.ahead(1) == Token::Symbol(Symbol::OpenParen);
        match keyword {
            Keyword::Exists => self.subquery(SubqueryForm::Exists),
            Keyword::Array => self.subquery(SubqueryForm::Array),
            Keyword::Left | Keyword::Right if calls => self.call(false),
            Keyword::Udf if self.slice() == "udf" => {
                self.bump();
                self.expect_symbol(Symbol::Dot)?;
                self.call(true)
            }
            _ => Err(self.unexpected()),
        }
    }

    fn array(&mut self) -> Result<Expr> {
        let start = self.span();
        self.bump();
        let mut items = Vec::new();
        if !self.at_symbol(Symbol::CloseBracket) {
            items = self.list(Self::expr)?;
            self.grow(self.height)?;
        }
        self.expect_symbol(Symbol::CloseBracket)?;
        Ok(Expr::new(ExprKind::Array(items), start.to(self.last_span())))
    }

    fn object(&mut self) -> Result<Expr> {
        let start = self.span();
        self.bump();
        let mut members = Vec::new();
        if !self.at_symbol(Symbol::CloseBrace) {
            members = self.list(Self::member)?;
            self.grow(self.height)?;
        }
        self.expect_symbol(Symbol::CloseBrace)?;
        Ok(Expr::new(ExprKind::Object(members), start.to(self.last_span())))
    }

    fn member(&mut self) -> Result<(Name, Expr)> {
        let text = match self.token() {
            Token::Word => self.slice().to_owned(),
            Token::String(text) => text.clone(),
            _ => return Err(self.unexpected()),
        };
        let name = Name {
            text,
            span: self.span(),
        };
        self.bump();
        self.expect_symbol(Symbol::Colon)?;
        Ok((name, self.expr()?))
    }

    fn name(&mut self) -> Result<Expr> {
        if *self.ahead(1) != Token::Symbol(Symbol::OpenParen) {
            let name = self.identifier()?;
            return Ok(Expr::new(ExprKind::Name(name.text), name.span));
        }
        let form = [
            ("ALL", SubqueryForm::All),
            ("FIRST", SubqueryForm::First),
            ("LAST", SubqueryForm::Last),
        ]
        .into_iter()
        .find(|(word, _)| self.at_word(word));
        match form {
            Some((_, form)) if *self.ahead(2) == Token::Keyword(Keyword::Select) => self.subquery(form),
            _ => self.call(false),
        }
    }

    /// A call, at the function's name.
    fn call(&mut self, udf: bool) -> Result<Expr> {
        // The function names LEFT and RIGHT are reserved words.
        let is_function = matches!(
            self.token(),
            Token::Word | Token::Keyword(Keyword::Left | Keyword::Right)
        );
        if !is_function {
            return Err(self.unexpected());
        }
        let name = Name {
            text: self.slice().to_owned(),
            span: self.span(),
        };
        self.bump();
        self.expect_symbol(Symbol::OpenParen)?;
        let mut arguments = Vec::new();
        if !self.at_symbol(Symbol::CloseParen) {
            arguments = self.list(Self::expr)?;
            self.grow(self.height)?;
        }
        self.expect_symbol(Symbol::CloseParen)?;
        let span = name.span.to(self.last_span());
        Ok(Expr::new(ExprKind::Call { name, udf, arguments }, span))
    }

    /// `EXISTS (SELECT …)` and the like, at the word.
    fn subquery(&mut self, form: SubqueryForm) -> Result<Expr> {
        let start = self.span();
        self.bump();
        self.expect_symbol(Symbol::OpenParen)?;
        self.subquery_body(form, start)
    }

    fn subquery_body(&mut self, form: SubqueryForm, start: Span) -> Result<Expr> {
        let query = Box::new(self.statement()?);
        self.expect_symbol(Symbol::CloseParen)?;
        self.grow(self.height)?;
        Ok(Expr::new(
            ExprKind::Subquery { form, query },
            start.to(self.last_span()),
        ))
    }

    /// Whether the parenthesis here opens a subquery or a LET.
    pub fn at_parenthesised_form(&self) -> bool {
        *self.ahead(1) == Token::Keyword(Keyword::Select) || self.at_let()
    }

    fn at_let(&self) -> bool {
        let words = [self.ahead(1), self.ahead(2)]
            .iter()
            .all(|token| **token == Token::Word);
        words && *self.ahead(3) == Token::Symbol(Symbol::Equal) && self.word_ahead_is_let()
    }

    fn word_ahead_is_let(&self) -> bool {
        let after = &self.text[self.span().end..];
        after
            .trim_start()
            .get(..3)
            .is_some_and(|word| word.eq_ignore_ascii_case("LET"))
    }

    fn in_parentheses(&mut self) -> Result<Expr> {
        let start = self.span();
        if *self.ahead(1) == Token::Keyword(Keyword::Select) {
            self.bump();
            return self.subquery_body(SubqueryForm::Scalar, start);
        }
        if self.at_let() {
            self.let_in(start)
        } else {
            self.parenthesised()
        }
    }

    /// `(LET name = value IN body)`
    fn let_in(&mut self, start: Span) -> Result<Expr> {
        self.bump();
        self.bump();
        let name = self.identifier()?;
        self.expect_symbol(Symbol::Equal)?;
        let value = Box::new(self.comparison_operand()?);
        let tallest = self.height;
        self.expect_keyword(Keyword::In)?;
        let body = Box::new(self.comparison_operand()?);
        self.expect_symbol(Symbol::CloseParen)?;
        self.grow(tallest.max(self.height))?;
        Ok(Expr::new(
            ExprKind::Let { name, value, body },
            start.to(self.last_span()),
        ))
    }
}
