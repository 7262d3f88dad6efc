//! From text to syntax tree and back.
//!
//! The parser accepts exactly the language; whether names resolve and functions exist is asked later, by `plan`. Parsing
//! what [`print`] wrote gives the same tree again.

pub mod ast;
mod clauses;
mod expressions;
mod keyword;
mod lexer;
mod parser;
mod primary;
mod print;
mod span;

pub use print::{print, print_expr};
pub use span::Span;

use crate::error::{QueryError, Result};
use ast::{From, Statement};
use parser::Parser;

/// Longest query text in UTF-16 units.
pub const TEXT_UNITS_MAX: usize = 524_288;

/// Parses one statement.
pub fn parse(text: &str) -> Result<Statement> {
    check_length(text)?;
    let mut parser = Parser::new(text);
    let statement = parser.statement()?;
    parser.end()?;
    Ok(statement)
}

/// Parses `FROM … WHERE …`, the form of a patch condition.
pub(crate) fn parse_condition(text: &str) -> Result<(From, Option<ast::Expr>)> {
    check_length(text)?;
    let mut parser = Parser::new(text);
    let from = parser.sources_clause()?;
    let filter = parser.where_clause()?;
    parser.end()?;
    Ok((from, filter))
}

/// Whether `name` can be written without quotes.
pub(crate) fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|one| one.is_ascii_alphanumeric() || one == '_')
}

fn check_length(text: &str) -> Result<()> {
    if text.len() > TEXT_UNITS_MAX && text.encode_utf16().count() > TEXT_UNITS_MAX {
        let message = format!("The SQL query text exceeded the maximum limit of {TEXT_UNITS_MAX} characters");
        return Err(QueryError::plain(message));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
