//! Operators, by precedence climbing.
//!
//! A run of opening parentheses is consumed in a loop, and chains of one precedence are flat, so that neither
//! `((((a OR b) OR c) OR d) …` nor `a OR b OR c …` uses stack per term.

use super::ast::{BinaryOperator, Expr, ExprKind, Name, Precedence, UnaryOperator};
use super::keyword::Keyword;
use super::lexer::{Symbol, Token};
use super::parser::Parser;
use crate::error::Result;

impl Parser<'_> {
    pub fn expr(&mut self) -> Result<Expr> {
        self.expr_above(Precedence::Conditional)
    }

    /// An expression whose operators all bind at least as tightly as `loosest`.
    fn expr_above(&mut self, loosest: Precedence) -> Result<Expr> {
        self.nested(|parser| {
            let first = parser.unary()?;
            parser.operators(loosest, first)
        })
    }

    /// An operand as LET takes it: without IN, LIKE, BETWEEN and everything looser.
    pub fn comparison_operand(&mut self) -> Result<Expr> {
        self.expr_above(Precedence::Comparison)
    }

    /// Continues an expression after its first operand.
    fn operators(&mut self, loosest: Precedence, first: Expr) -> Result<Expr> {
        let mut left = first;
        // After an operator only equally or less tight ones may follow: `a IN (1) = 2` is no expression.
        let mut tightest = Precedence::Unary;
        loop {
            let fits = |precedence| loosest <= precedence && precedence <= tightest;
            if let Some(operator) = self.binary_operator() {
                if !fits(operator.precedence()) {
                    return Ok(left);
                }
                tightest = operator.precedence();
                left = self.binary(left, operator)?;
            } else if self.at_membership() && fits(Precedence::Member) {
                // Just below: membership does not associate.
                tightest = Precedence::And;
                left = self.membership(left)?;
            } else if self.at_symbol(Symbol::Coalesce) && fits(Precedence::Coalesce) {
                tightest = Precedence::Conditional;
                left = self.coalesce(left)?;
            } else if self.at_symbol(Symbol::Question) && fits(Precedence::Conditional) {
                return self.conditional(left);
            } else {
                return Ok(left);
            }
        }
    }

    fn binary_operator(&self) -> Option<BinaryOperator> {
        Some(match self.token() {
            Token::Keyword(Keyword::Or) => BinaryOperator::Or,
            Token::Keyword(Keyword::And) => BinaryOperator::And,
            Token::Symbol(symbol) => match symbol {
                Symbol::Equal => BinaryOperator::Equal,
                Symbol::NotEqual | Symbol::LessGreater => BinaryOperator::NotEqual,
                Symbol::Less => BinaryOperator::Less,
                Symbol::LessOrEqual => BinaryOperator::LessOrEqual,
                Symbol::Greater => BinaryOperator::Greater,
                Symbol::GreaterOrEqual => BinaryOperator::GreaterOrEqual,
                Symbol::ShiftLeft => BinaryOperator::ShiftLeft,
                Symbol::ShiftRight => BinaryOperator::ShiftRight,
                Symbol::ShiftRightUnsigned => BinaryOperator::ShiftRightUnsigned,
                Symbol::Concat => BinaryOperator::Concat,
                Symbol::Plus => BinaryOperator::Add,
                Symbol::Minus => BinaryOperator::Subtract,
                Symbol::Ampersand => BinaryOperator::BitAnd,
                Symbol::Pipe => BinaryOperator::BitOr,
                Symbol::Caret => BinaryOperator::BitXor,
                Symbol::Star => BinaryOperator::Multiply,
                Symbol::Slash => BinaryOperator::Divide,
                Symbol::Percent => BinaryOperator::Remainder,
                _ => return None,
            },
            _ => return None,
        })
    }

    fn binary(&mut self, left: Expr, operator: BinaryOperator) -> Result<Expr> {
        let left_height = self.height;
        self.bump();
        let right = self.expr_above(tighter(operator.precedence()))?;
        let span = left.span.to(right.span);
        match left.kind {
            ExprKind::Chain { first, mut rest } if is_chain_of(&rest, operator) => {
                rest.push((operator, right));
                // The left side is a chain already, so only the new operand can add height.
                self.height = left_height.max(self.height + 1);
                Ok(Expr::new(ExprKind::Chain { first, rest }, span))
            }
            kind => {
                self.grow(left_height.max(self.height))?;
                let first = Box::new(Expr::new(kind, left.span));
                Ok(Expr::new(
                    ExprKind::Chain {
                        first,
                        rest: vec![(operator, right)],
                    },
                    span,
                ))
            }
        }
    }

    fn at_membership(&self) -> bool {
        let token = if self.at_keyword(Keyword::Not) {
            self.ahead(1)
        } else {
            self.token()
        };
        matches!(token, Token::Keyword(Keyword::In | Keyword::Like | Keyword::Between))
    }

    fn membership(&mut self, value: Expr) -> Result<Expr> {
        let mut tallest = self.height;
        let start = value.span;
        let value = Box::new(value);
        let negated = self.eat_keyword(Keyword::Not);
        let kind = if self.eat_keyword(Keyword::In) {
            self.expect_symbol(Symbol::OpenParen)?;
            let list = self.list(Self::expr)?;
            self.expect_symbol(Symbol::CloseParen)?;
            ExprKind::In { value, list, negated }
        } else if self.eat_keyword(Keyword::Like) {
            let pattern = Box::new(self.expr_above(Precedence::Comparison)?);
            ExprKind::Like {
                value,
                pattern,
                escape: self.escape()?,
                negated,
            }
        } else {
            self.expect_keyword(Keyword::Between)?;
            let low = Box::new(self.expr_above(Precedence::Comparison)?);
            tallest = tallest.max(self.height);
            self.expect_keyword(Keyword::And)?;
            let high = Box::new(self.expr_above(Precedence::Comparison)?);
            ExprKind::Between {
                value,
                low,
                high,
                negated,
            }
        };
        self.grow(tallest.max(self.height))?;
        Ok(Expr::new(kind, start.to(self.last_span())))
    }

    fn escape(&mut self) -> Result<Option<Name>> {
        if !self.eat_keyword(Keyword::Escape) {
            return Ok(None);
        }
        let Token::String(text) = self.token() else {
            return Err(self.unexpected());
        };
        if text.encode_utf16().count() != 1 {
            return Err(self.unexpected());
        }
        let escape = Name {
            text: text.clone(),
            span: self.span(),
        };
        self.bump();
        Ok(Some(escape))
    }

    /// `a ?? b`, which associates to the right and is kept as one list.
    fn coalesce(&mut self, left: Expr) -> Result<Expr> {
        let left_height = self.height;
        self.bump();
        let right = self.expr_above(Precedence::Coalesce)?;
        let span = left.span.to(right.span);
        let mut operands = vec![left];
        match right.kind {
            ExprKind::Coalesce(more) => operands.extend(more),
            kind => operands.push(Expr::new(kind, right.span)),
        }
        self.grow(left_height.max(self.height))?;
        Ok(Expr::new(ExprKind::Coalesce(operands), span))
    }

    fn conditional(&mut self, condition: Expr) -> Result<Expr> {
        let mut tallest = self.height;
        self.bump();
        let then = Box::new(self.expr()?);
        tallest = tallest.max(self.height);
        self.expect_symbol(Symbol::Colon)?;
        let otherwise = Box::new(self.expr()?);
        self.grow(tallest.max(self.height))?;
        let span = condition.span.to(otherwise.span);
        Ok(Expr::new(
            ExprKind::Conditional {
                condition: Box::new(condition),
                then,
                otherwise,
            },
            span,
        ))
    }

    fn unary(&mut self) -> Result<Expr> {
        let operator = match self.token() {
            Token::Symbol(Symbol::Minus) => UnaryOperator::Minus,
            Token::Symbol(Symbol::Plus) => UnaryOperator::Plus,
            Token::Symbol(Symbol::Tilde) => UnaryOperator::BitNot,
            Token::Keyword(Keyword::Not) => UnaryOperator::Not,
            _ => return self.operand(),
        };
        let start = self.span();
        self.bump();
        let operand = Box::new(self.nested(Self::unary)?);
        self.grow(self.height)?;
        let span = start.to(operand.span);
        Ok(Expr::new(ExprKind::Unary { operator, operand }, span))
    }

    /// What stands inside parentheses, with all opening ones of a run taken at once.
    pub fn parenthesised(&mut self) -> Result<Expr> {
        let mut n_open = 0;
        while self.at_symbol(Symbol::OpenParen) && !self.at_parenthesised_form() {
            self.bump();
            n_open += 1;
        }
        let mut inner = self.expr()?;
        loop {
            self.expect_symbol(Symbol::CloseParen)?;
            n_open -= 1;
            if n_open == 0 {
                return Ok(inner);
            }
            let operand = self.postfix(inner)?;
            inner = self.operators(Precedence::Conditional, operand)?;
        }
    }
}

fn is_chain_of(rest: &[(BinaryOperator, Expr)], operator: BinaryOperator) -> bool {
    rest.first()
        .is_some_and(|(first, _)| first.precedence() == operator.precedence())
}

/// The precedence that the right operand of a left-associative operator needs.
fn tighter(precedence: Precedence) -> Precedence {
    match precedence {
        Precedence::Conditional => Precedence::Coalesce,
        Precedence::Coalesce => Precedence::Or,
        Precedence::Or => Precedence::And,
        Precedence::And => Precedence::Member,
        Precedence::Member => Precedence::Comparison,
        Precedence::Comparison => Precedence::Concat,
        Precedence::Concat => Precedence::Additive,
        Precedence::Additive => Precedence::Multiplicative,
        Precedence::Multiplicative | Precedence::Unary => Precedence::Unary,
    }
}
