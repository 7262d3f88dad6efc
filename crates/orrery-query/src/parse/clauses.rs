//! The clauses of a statement.

use super::ast::{
    Collection, Count, CountValue, Direction, ExprKind, From, Name, OrderBy, OrderKey, PathStep, SelectItem,
    SelectList, Source, Statement, Top, Window,
};
use super::keyword::Keyword;
use super::lexer::{Symbol, Token};
use super::parser::Parser;
use crate::error::Result;

impl Parser<'_> {
    pub fn statement(&mut self) -> Result<Statement> {
        self.nested(Self::statement_clauses)
    }

    fn statement_clauses(&mut self) -> Result<Statement> {
        let start = self.span();
        let mut tallest = 0;
        self.expect_keyword(Keyword::Select)?;
        let distinct = self.eat_keyword(Keyword::Distinct);
        let top = self.top()?;
        let list = self.tracked(&mut tallest, Self::select_list)?;
        let from = match self.at_keyword(Keyword::From) {
            true => Some(self.tracked(&mut tallest, Self::sources_clause)?),
            false => None,
        };
        let filter = self.tracked(&mut tallest, Self::where_clause)?;
        let group_by = self.tracked(&mut tallest, Self::group_by)?;
        let order_by = self.tracked(&mut tallest, Self::order_by)?;
        let window = self.window()?;
        self.grow(tallest)?;
        let span = start.to(self.last_span());
        Ok(Statement {
            distinct,
            top,
            list,
            from,
            filter,
            group_by,
            order_by,
            window,
            span,
        })
    }

    /// Parses a part and keeps the largest height seen.
    fn tracked<T>(&mut self, tallest: &mut u32, part: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.height = 0;
        let parsed = part(self)?;
        *tallest = (*tallest).max(self.height);
        Ok(parsed)
    }

    fn top(&mut self) -> Result<Option<Top>> {
        let start = self.span();
        if !self.eat_keyword(Keyword::Top) {
            return Ok(None);
        }
        let count = self.count()?;
        Ok(Some(Top {
            span: start.to(count.span),
            count,
        }))
    }

    /// A count that must look like a whole number; one of TOP is only refused when it is no such number.
    fn whole_count(&mut self) -> Result<Count> {
        let is_whole = self.slice().bytes().all(|digit| digit.is_ascii_digit());
        match self.token() {
            Token::Number(_) if !is_whole => Err(self.unexpected()),
            _ => self.count(),
        }
    }

    fn count(&mut self) -> Result<Count> {
        let value = match self.token() {
            Token::Number(number) => CountValue::Literal(*number),
            Token::Parameter => CountValue::Parameter(self.slice().to_owned()),
            _ => return Err(self.unexpected()),
        };
        let span = self.span();
        self.bump();
        Ok(Count { value, span })
    }

    fn select_list(&mut self) -> Result<SelectList> {
        let start = self.span();
        if self.eat_symbol(Symbol::Star) {
            return Ok(SelectList::Star(start));
        }
        if self.eat_keyword(Keyword::Value) {
            return self.expr().map(SelectList::Value);
        }
        self.list(Self::select_item).map(SelectList::Items)
    }

    fn select_item(&mut self) -> Result<SelectItem> {
        let expr = self.expr()?;
        let required = self.eat_keyword(Keyword::As);
        let span = self.span();
        let text = match self.token() {
            Token::Word => self.slice().to_owned(),
            Token::String(text) => text.clone(),
            _ if required => return Err(self.unexpected()),
            _ => return Ok(SelectItem { expr, alias: None }),
        };
        self.bump();
        Ok(SelectItem {
            expr,
            alias: Some(Name { text, span }),
        })
    }

    /// One or more, separated by commas. The height is that of the tallest.
    pub fn list<T>(&mut self, one: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut tallest = 0;
        let mut all = Vec::new();
        loop {
            all.push(self.tracked(&mut tallest, &one)?);
            if !self.eat_symbol(Symbol::Comma) {
                self.height = tallest;
                return Ok(all);
            }
        }
    }

    pub fn identifier(&mut self) -> Result<Name> {
        if *self.token() != Token::Word {
            return Err(self.unexpected());
        }
        let name = Name {
            text: self.slice().to_owned(),
            span: self.span(),
        };
        self.bump();
        Ok(name)
    }

    pub fn sources_clause(&mut self) -> Result<From> {
        let start = self.span();
        self.expect_keyword(Keyword::From)?;
        let mut tallest = 0;
        let mut sources = vec![self.tracked(&mut tallest, Self::source)?];
        while self.eat_keyword(Keyword::Join) {
            sources.push(self.tracked(&mut tallest, Self::source)?);
        }
        self.height = tallest;
        Ok(From {
            sources,
            span: start.to(self.last_span()),
        })
    }

    fn source(&mut self) -> Result<Source> {
        let start = self.span();
        if *self.token() == Token::Word && *self.ahead(1) == Token::Keyword(Keyword::In) {
            let alias = Some(self.identifier()?);
            self.bump();
            let collection = self.iterated_collection()?;
            return Ok(Source {
                alias,
                collection,
                iterate: true,
                span: start.to(self.last_span()),
            });
        }
        let collection = self.collection()?;
        let alias = match self.eat_keyword(Keyword::As) || *self.token() == Token::Word {
            true => Some(self.identifier()?),
            false => None,
        };
        Ok(Source {
            alias,
            collection,
            iterate: false,
            span: start.to(self.last_span()),
        })
    }

    fn iterated_collection(&mut self) -> Result<Collection> {
        let is_path = *self.token() == Token::Word && *self.ahead(1) != Token::Symbol(Symbol::OpenParen);
        let is_subquery = self.at_symbol(Symbol::OpenParen) && *self.ahead(1) == Token::Keyword(Keyword::Select);
        if is_path || is_subquery {
            return self.collection();
        }
        let expr = self.operand()?;
        match expr.kind {
            ExprKind::Call { .. } | ExprKind::Subquery { .. } | ExprKind::Array(_) | ExprKind::Parameter(_) => {
                Ok(Collection::Expr(Box::new(expr)))
            }
            _ => Err(self.unexpected()),
        }
    }

    fn collection(&mut self) -> Result<Collection> {
        if self.eat_symbol(Symbol::OpenParen) {
            let query = self.statement()?;
            self.expect_symbol(Symbol::CloseParen)?;
            return Ok(Collection::Subquery(Box::new(query)));
        }
        let root = self.identifier()?;
        let mut steps = Vec::new();
        loop {
            if self.eat_symbol(Symbol::Dot) {
                steps.push(PathStep::Member(self.identifier()?.text));
            } else if self.eat_symbol(Symbol::OpenBracket) {
                steps.push(self.path_index()?);
            } else {
                return Ok(Collection::Path { root, steps });
            }
            self.grow(self.height)?;
        }
    }

    fn path_index(&mut self) -> Result<PathStep> {
        let step = match self.token() {
            Token::String(name) => PathStep::Name(name.clone()),
            Token::Number(number) if number.as_i64().is_some() => PathStep::Index(*number),
            _ => return Err(self.unexpected()),
        };
        self.bump();
        self.expect_symbol(Symbol::CloseBracket)?;
        Ok(step)
    }

    pub fn where_clause(&mut self) -> Result<Option<super::ast::Expr>> {
        if self.eat_keyword(Keyword::Where) {
            self.expr().map(Some)
        } else {
            Ok(None)
        }
    }

    fn group_by(&mut self) -> Result<Vec<super::ast::Expr>> {
        if !self.eat_keyword(Keyword::Group) {
            return Ok(Vec::new());
        }
        self.expect_keyword(Keyword::By)?;
        self.list(Self::expr)
    }

    fn order_by(&mut self) -> Result<Option<OrderBy>> {
        let start = self.span();
        if !self.eat_keyword(Keyword::Order) {
            return Ok(None);
        }
        self.expect_keyword(Keyword::By)?;
        // RANK is also an ordinary name; only a following call makes it the word of the clause.
        let rank = self.at_word("RANK") && matches!(self.ahead(1), Token::Word | Token::Number(_) | Token::String(_));
        if rank {
            self.bump();
        }
        let keys = self.list(|parser| parser.order_key(rank))?;
        Ok(Some(OrderBy {
            rank,
            keys,
            span: start.to(self.last_span()),
        }))
    }

    fn order_key(&mut self, rank: bool) -> Result<OrderKey> {
        if rank && !(*self.token() == Token::Word && *self.ahead(1) == Token::Symbol(Symbol::OpenParen)) {
            return Err(self.unexpected());
        }
        let expr = self.expr()?;
        let direction = match self.token() {
            Token::Keyword(Keyword::Asc) => Some(Direction::Ascending),
            Token::Keyword(Keyword::Desc) => Some(Direction::Descending),
            _ => None,
        };
        if direction.is_some() {
            self.bump();
        }
        Ok(OrderKey { expr, direction })
    }

    fn window(&mut self) -> Result<Option<Window>> {
        let start = self.span();
        if !self.eat_keyword(Keyword::Offset) {
            return Ok(None);
        }
        let offset = self.whole_count()?;
        self.expect_keyword(Keyword::Limit)?;
        let limit = self.whole_count()?;
        Ok(Some(Window {
            span: start.to(limit.span),
            offset,
            limit,
        }))
    }
}
