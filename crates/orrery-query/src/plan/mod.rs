//! From a syntax tree to something that can run: names resolved, functions looked up, rules of the language checked.
//!
//! A plan owns everything it needs, parameters included, and is immutable: one plan can serve many pages and partitions.
//! Planning reports all problems it finds, in the order the service does.

mod calls;
mod compiler;
mod counts;
mod expr;
mod expressions;
pub mod fan_out;
mod grouping;
mod levels;
mod limits;
mod needs;
mod order;
mod rank;
mod scope;
mod select;
mod similarity;
mod simple;

pub(crate) use expr::{Block, Collection, Expr, Grouping, Source, Step};
pub(crate) use expressions::negated;
pub use fan_out::{Feature, Features, QueryPlan, check_compositions, query_plan};
pub(crate) use needs::survey_value;
pub(crate) use order::{Ordering, SortKey};
pub(crate) use rank::{Ranking, Score};

use orrery_model::json::Wanted;

use crate::Query;
use crate::definition::Definition;
use crate::error::Result;
use crate::parameters::Parameters;

/// A query that can run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) input: Input,
    pub(crate) block: Block,
    pub(crate) ordering: Ordering,
    pub(crate) window: RowWindow,
    /// The bound count of TOP.
    pub(crate) top: Option<u64>,
    pub(crate) planar: bool,
    /// The user-defined functions it calls, each once.
    pub(crate) user_functions: Vec<String>,
    /// The parts of an item that have to be read for it.
    pub(crate) wanted: Wanted,
    /// Each row is the item itself, unchanged.
    pub(crate) gives_items: bool,
    /// Groups and distinct rows are those of a page, not of all pages together.
    pub(crate) in_pieces: bool,
}

/// What feeds the outermost block.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// There is no FROM clause: evaluated once, without an item.
    Nothing,
    Items,
    /// The rows of an inner query that needs all items before it has any row.
    Rows(Box<Plan>),
}

/// Which of the rows are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowWindow {
    pub offset: u64,
    /// `None`: all.
    pub count: Option<u64>,
}

/// Plans `query` for a container.
pub fn plan(query: &Query, definition: &Definition, parameters: &Parameters) -> Result<Plan> {
    compiler::compile(query, definition, parameters)
}

impl Plan {
    /// The plan for a caller that puts rows together itself, because it asks several partitions: each page has the groups, or
    /// the distinct rows, of the items it has read, and the next page goes on with the next item, wherever that lies by then.
    /// A window counts whole rows, so a plan with one stays as it is.
    pub fn in_pieces(mut self) -> Plan {
        self.in_pieces = self.window == RowWindow::default() && matches!(self.input, Input::Items);
        self
    }

    /// The plan for the rows that follow the first `n` of this one's.
    pub(crate) fn skipping(mut self, n: u64) -> Plan {
        self.window.offset = self.window.offset.saturating_add(n);
        self.window.count = self.window.count.map(|count| count.saturating_sub(n));
        self
    }

    /// Whether rows come out in the order of the items, each item's before the next one's.
    pub fn is_streaming(&self) -> bool {
        let is_whole = (self.block.grouping.is_some() || self.block.distinct) && !self.in_pieces;
        !is_whole && self.ordering.is_none() && matches!(self.input, Input::Items)
    }

    /// Whether a page goes on after the last row given; otherwise rows are made again and those given counted off, which is
    /// right only over the same items.
    pub fn resumes_by_place(&self) -> bool {
        let is_sorted = matches!(self.ordering, Ordering::Keys(_));
        let is_whole = self.block.distinct && !self.in_pieces;
        self.is_streaming() || (is_sorted && !is_whole && self.block.grouping.is_none())
    }

    /// Whether rows are groups.
    pub fn is_grouped(&self) -> bool {
        self.block.grouping.is_some()
    }

    /// Names of the user-defined functions that the query calls.
    pub fn user_functions(&self) -> impl Iterator<Item = &str> {
        self.user_functions.iter().map(String::as_str)
    }

    /// Rows of the whole result at most, those that OFFSET skips included.
    pub fn rows_at_most(&self) -> Option<u64> {
        self.window.count.map(|count| count.saturating_add(self.window.offset))
    }

    /// Whether the query reads items at all.
    pub fn reads_items(&self) -> bool {
        match &self.input {
            Input::Nothing => false,
            Input::Items => true,
            Input::Rows(inner) => inner.reads_items(),
        }
    }
}

#[cfg(test)]
mod tests;
