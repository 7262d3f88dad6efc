//! Plans whose rows come out as the items go in.

use std::ops::ControlFlow;

use orrery_model::Value;

use super::budget::Pace;
use super::cursor::Cursor;
use super::evaluate::Evaluator;
use super::frame::Frame;
use super::rows::Flow;
use super::{PageLimits, Resume};
use crate::error::{QueryError, Result};
use crate::plan::{Expr, Plan};
use crate::values::{is_finite, size_bytes};

/// A page being filled.
struct Filling<'p> {
    plan: &'p Plan,
    limits: PageLimits,
    resume: Resume,
    rows: Vec<Value>,
    bytes: usize,
    /// Rows of the current item seen so far.
    row_of_item: u64,
    /// Rows of the current item that an earlier page has dealt with.
    already_done: u64,
}

/// Why filling stopped in the middle of an item.
enum Outcome {
    Full,
    LimitReached,
}

pub(super) fn page(
    plan: &Plan,
    cursor: &mut dyn Cursor,
    evaluator: &Evaluator<'_>,
    limits: PageLimits,
    resume: Resume,
) -> Result<(Vec<Value>, Option<Resume>)> {
    let already_done = resume.rows_of_item;
    let mut filling = Filling {
        plan,
        limits,
        resume,
        rows: Vec::new(),
        bytes: 0,
        row_of_item: 0,
        already_done,
    };
    if filling.limit_reached() {
        return Ok((filling.rows, None));
    }
    while let Some(item) = cursor.next()? {
        let pace = evaluator.meter.item()?;
        let frame = Frame::root(item.value);
        filling.row_of_item = 0;
        match filling.item(evaluator, &frame)? {
            Some(Outcome::LimitReached) => return Ok((filling.rows, None)),
            Some(Outcome::Full) => {
                // An item that has one row at most is done; any other may have more rows.
                filling.resume.rows_of_item = if plan.block.is_one_to_one() {
                    0
                } else {
                    filling.row_of_item
                };
                return Ok((filling.rows, Some(filling.resume)));
            }
            None => filling.already_done = 0,
        }
        filling.resume.rows_of_item = 0;
        if pace == Pace::Pause || filling.full() {
            return Ok((filling.rows, Some(filling.resume)));
        }
    }
    Ok((filling.rows, None))
}

impl Filling<'_> {
    fn item(&mut self, evaluator: &Evaluator<'_>, frame: &Frame<'_>) -> Result<Option<Outcome>> {
        let mut outcome = None;
        let block = &self.plan.block;
        _ = evaluator.rows(block, frame, &mut |value| {
            self.row_of_item += 1;
            if self.row_of_item <= self.already_done {
                return Ok(Flow::Continue(()));
            }
            if self.resume.skipped < self.plan.window.offset {
                self.resume.skipped += 1;
                return Ok(Flow::Continue(()));
            }
            check_finite(&block.output, &value)?;
            evaluator.meter.row();
            self.bytes += size_bytes(&value);
            self.rows.push(value.into_owned());
            self.resume.emitted += 1;
            outcome = if self.limit_reached() {
                Some(Outcome::LimitReached)
            } else if self.full() {
                Some(Outcome::Full)
            } else {
                return Ok(Flow::Continue(()));
            };
            Ok(ControlFlow::Break(()))
        })?;
        Ok(outcome)
    }

    fn limit_reached(&self) -> bool {
        self.plan.window.count.is_some_and(|count| self.resume.emitted >= count)
    }

    fn full(&self) -> bool {
        self.rows.len() >= self.limits.rows_max || self.bytes >= self.limits.bytes_max
    }
}

/// Refuses a row that JSON cannot hold. What comes straight from an item always can.
pub(super) fn check_finite(output: &Expr, row: &Value) -> Result<()> {
    if matches!(output, Expr::Path { .. }) || is_finite(row) {
        Ok(())
    } else {
        Err(QueryError::non_finite())
    }
}
