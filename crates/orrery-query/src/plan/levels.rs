//! How deeply the values of a plan can be nested.
//!
//! The text of a statement is of bounded height, but names can stand for values that are made of other names, and so on: a
//! value may have far more levels than any expression. Going through one uses stack for each level, so the levels are counted
//! before anything runs. Each count is the most that a value can have.

use orrery_model::limits::{ENVELOPE_LEVELS_MAX, NESTING_LEVELS_MAX};

use super::expr::{Block, Collection, Expr};
use super::{Input, Ordering, Plan, Score};
use crate::parse::ast::SubqueryForm;

/// Levels of what has been read from a text: an item, a parameter, the answer of a function.
const READ_LEVELS_MAX: usize = NESTING_LEVELS_MAX + ENVELOPE_LEVELS_MAX;

/// The most levels that any value has while the plan runs.
pub(super) fn of_values(plan: &Plan) -> usize {
    let mut levels = Levels {
        frames: Vec::new(),
        most: 0,
    };
    levels.plan(plan);
    levels.most
}

struct Levels {
    /// Of what each frame is bound to.
    frames: Vec<usize>,
    most: usize,
}

impl Levels {
    /// The levels of a row.
    fn plan(&mut self, plan: &Plan) -> usize {
        let item = match &plan.input {
            Input::Nothing => 0,
            Input::Items => READ_LEVELS_MAX,
            Input::Rows(inner) => self.plan(inner),
        };
        self.frames = vec![item];
        let row = self.block(&plan.block, &plan.ordering);
        self.frames.clear();
        row
    }

    /// The levels of a block's rows. What they are sorted by sees the frames that the output sees.
    fn block(&mut self, block: &Block, ordering: &Ordering) -> usize {
        let n_outer = self.frames.len();
        for source in &block.sources {
            let value = match &source.collection {
                Collection::Value(value) => self.expr(value),
                Collection::Rows(inner) => self.block(inner, &Ordering::None),
            };
            self.frames.push(value.saturating_sub(usize::from(source.iterate)));
        }
        self.most_of(&block.filter);
        if let Some(grouping) = &block.grouping {
            let keys = self.most_of(&grouping.keys);
            // An aggregate may be a list of its arguments.
            let aggregates = 1 + self.most_of(grouping.aggregates.iter().map(|(_, argument)| argument));
            self.frames.truncate(n_outer);
            let group = self.seen(keys.max(aggregates));
            self.frames.push(group);
        }
        let row = self.expr(&block.output);
        match ordering {
            Ordering::None => {}
            Ordering::Keys(keys) => _ = self.most_of(keys.iter().map(|key| &key.expr)),
            Ordering::Rank(ranking) => {
                _ = self.most_of(ranking.scores.iter().map(|score| match score {
                    Score::FullText { text, .. } => text,
                    Score::Vector { distance, .. } => distance,
                }));
            }
        }
        self.frames.truncate(n_outer);
        row
    }

    fn seen(&mut self, levels: usize) -> usize {
        self.most = self.most.max(levels);
        levels
    }

    fn frame(&self, up: usize) -> usize {
        let index = self.frames.len().checked_sub(up + 1);
        index.and_then(|index| self.frames.get(index)).copied().unwrap_or(0)
    }

    fn most_of<'e>(&mut self, exprs: impl IntoIterator<Item = &'e Expr>) -> usize {
        exprs.into_iter().map(|expr| self.expr(expr)).max().unwrap_or(0)
    }

    fn expr(&mut self, expr: &Expr) -> usize {
        let levels = match expr {
            Expr::Constant(value) => value.as_ref().map_or(0, |value| value.depth()),
            Expr::Path { up, steps } => self.frame(*up).saturating_sub(steps.len()),
            Expr::Computed(property) => {
                let item = self.frames.first().copied().unwrap_or(0);
                let around = std::mem::replace(&mut self.frames, vec![item; 2]);
                let value = self.expr(property.value());
                self.frames = around;
                value
            }
            Expr::Access { base, steps } => self.expr(base).saturating_sub(steps.len()),
            Expr::Index { base, index } => {
                self.expr(index);
                self.expr(base).saturating_sub(1)
            }
            Expr::GroupKey { up, .. } | Expr::Aggregate { up, .. } => self.frame(*up),
            Expr::Array(items) => 1 + self.most_of(items),
            Expr::Object(members) => 1 + self.most_of(members.iter().map(|(_, member)| member)),
            Expr::Coalesce(operands) => self.most_of(operands),
            Expr::Conditional {
                condition,
                then,
                otherwise,
            } => {
                self.expr(condition);
                self.most_of([&**then, otherwise])
            }
            Expr::Let { value, body } => {
                let value = self.expr(value);
                self.frames.push(value);
                let body = self.expr(body);
                self.frames.pop();
                body
            }
            Expr::Subquery { form, block } => {
                let row = self.block(block, &Ordering::None);
                match form {
                    SubqueryForm::Exists | SubqueryForm::All => 0,
                    SubqueryForm::Array => 1 + row,
                    SubqueryForm::Scalar | SubqueryForm::First | SubqueryForm::Last => row,
                }
            }
            // What a function makes of its arguments has at most a level more, unless it is read from a text.
            Expr::Call { arguments, .. } => (1 + self.most_of(arguments)).max(READ_LEVELS_MAX),
            Expr::UserCall { arguments, .. } => {
                self.most_of(arguments);
                READ_LEVELS_MAX
            }
            Expr::Negate(operand) | Expr::Plus(operand) | Expr::BitNot(operand) | Expr::Not(operand) => {
                self.expr(operand);
                0
            }
            Expr::And(operands) | Expr::Or(operands) => {
                self.most_of(operands);
                0
            }
            Expr::Chain { first, rest } => {
                self.expr(first);
                self.most_of(rest.iter().map(|(_, operand)| operand));
                0
            }
            Expr::Between { value, low, high } => {
                self.most_of([&**value, low, high]);
                0
            }
            Expr::In { value, list, .. } => {
                self.expr(value);
                self.most_of(list);
                0
            }
            Expr::Like { value, pattern, .. } => {
                self.most_of([&**value, pattern]);
                0
            }
        };
        self.seen(levels)
    }
}
