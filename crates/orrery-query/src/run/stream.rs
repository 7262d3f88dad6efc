//! Plans whose rows come out as the items go in.
//!
//! A full page looks a little further, so that the last one says that it is the last. Where none of the next items has a row it does
//! not go through all the others, and the page after it may be empty.

use std::ops::ControlFlow;

use orrery_model::Value;

use super::budget::Pace;
use super::cursor::Cursor;
use super::evaluate::Evaluator;
use super::item::{Ready, Row};
use super::rows::{Flow, Seen};
use super::{PageLimits, Resume};
use crate::error::{QueryError, Result};
use crate::plan::{Expr, Plan};
use crate::values::is_finite;

/// What a full page looks at to find out whether there is another row: items, their bytes, and work in units of about a nanosecond,
/// for the rest of its last item and for the items after it. The next page reads all of it again.
const LOOK_AHEAD_ITEMS: usize = 32;
const LOOK_AHEAD_BYTES: usize = 64 * 1024;
const LOOK_AHEAD_WORK: u64 = 1 << 20;

/// A page being filled.
struct Filling<'p, 'm> {
    plan: &'p Plan,
    /// What DISTINCT has let pass on this page.
    seen: Seen<'m>,
    limits: PageLimits,
    resume: Resume,
    rows: Vec<Row>,
    bytes: usize,
    /// Rows of the current item seen so far.
    row_of_item: u64,
    /// Rows of the current item that an earlier page has dealt with.
    already_done: u64,
}

/// Why filling stopped in the middle of an item.
enum Outcome {
    /// A row was met that belongs to the next page.
    More,
    LimitReached,
}

pub(super) fn page(
    plan: &Plan,
    cursor: &mut dyn Cursor,
    evaluator: &Evaluator<'_>,
    limits: PageLimits,
    resume: Resume,
) -> Result<(Vec<Row>, Option<Resume>)> {
    let already_done = resume.rows_of_item;
    let mut filling = Filling {
        plan,
        seen: Seen::new(evaluator.meter.held()),
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
        let item = Ready::new(plan, item)?;
        filling.row_of_item = 0;
        let outcome = match filling.item(evaluator, &item) {
            // What goes wrong after the last row is for the next page to tell.
            Err(_) if filling.full() => Some(Outcome::More),
            outcome => outcome?,
        };
        match outcome {
            Some(Outcome::LimitReached) => return Ok((filling.rows, None)),
            Some(Outcome::More) => {
                filling.resume.rows_of_item = filling.row_of_item;
                return Ok((filling.rows, Some(filling.resume)));
            }
            None => filling.already_done = 0,
        }
        filling.resume.rows_of_item = 0;
        if pace == Pace::Pause {
            return Ok((filling.rows, Some(filling.resume)));
        }
        if filling.full() {
            let may_have_more = filling.may_have_more(cursor, evaluator);
            return Ok((filling.rows, may_have_more.then_some(filling.resume)));
        }
    }
    Ok((filling.rows, None))
}

impl Filling<'_, '_> {
    /// Whether items after a full page have another row, or might.
    fn may_have_more(&mut self, cursor: &mut dyn Cursor, evaluator: &Evaluator<'_>) -> bool {
        if !self.may_look_ahead() {
            return true;
        }
        cursor.look_ahead();
        evaluator
            .meter
            .aside(LOOK_AHEAD_WORK, || self.finds_more(cursor, evaluator))
    }

    fn may_look_ahead(&self) -> bool {
        // Nobody knows how long they take.
        let calls_users = self.plan.user_functions().next().is_some();
        !calls_users && self.bytes < self.limits.bytes_max
    }

    fn finds_more(&mut self, cursor: &mut dyn Cursor, evaluator: &Evaluator<'_>) -> bool {
        let mut bytes = 0;
        for _ in 0..LOOK_AHEAD_ITEMS {
            let item = match cursor.next() {
                Ok(Some(item)) => item,
                Ok(None) => return false,
                Err(_) => return true,
            };
            bytes += item.size_bytes();
            let (Ok(Pace::GoOn), Ok(item)) = (evaluator.meter.item(), Ready::new(self.plan, item)) else {
                return true;
            };
            self.row_of_item = 0;
            if !matches!(self.item(evaluator, &item), Ok(None)) || bytes > LOOK_AHEAD_BYTES {
                return true;
            }
        }
        true
    }

    fn item(&mut self, evaluator: &Evaluator<'_>, item: &Ready<'_>) -> Result<Option<Outcome>> {
        let mut outcome = None;
        let plan = self.plan;
        let frame = item.frame();
        if let Some(text) = item.as_row() {
            _ = evaluator.matches(&plan.block, &frame, &mut |_| {
                self.row(evaluator, &mut outcome, || Ok(Row::Text(text.clone())))
            })?;
        } else {
            _ = evaluator.rows(&plan.block, &frame, &mut |value| {
                self.row(evaluator, &mut outcome, || {
                    check_finite(&plan.block.output, &value)?;
                    Ok(Row::Value(value.into_owned()))
                })
            })?;
        }
        Ok(outcome)
    }

    /// Takes one row, unless an earlier page had it, OFFSET skips it, or this page has one like it.
    fn row(
        &mut self,
        evaluator: &Evaluator<'_>,
        outcome: &mut Option<Outcome>,
        row: impl FnOnce() -> Result<Row>,
    ) -> Result<Flow> {
        if self.full() {
            *outcome = Some(Outcome::More);
            return Ok(ControlFlow::Break(()));
        }
        self.row_of_item += 1;
        if self.row_of_item <= self.already_done {
            return Ok(Flow::Continue(()));
        }
        if self.resume.skipped < self.plan.window.offset {
            self.resume.skipped += 1;
            return Ok(Flow::Continue(()));
        }
        let row = row()?;
        if let (true, Row::Value(value)) = (self.plan.block.distinct, &row)
            && !self.seen.is_new(value)?
        {
            return Ok(Flow::Continue(()));
        }
        evaluator.meter.row();
        self.bytes += row.size_bytes();
        self.rows.push(row);
        self.resume.emitted += 1;
        if self.limit_reached() {
            *outcome = Some(Outcome::LimitReached);
            return Ok(ControlFlow::Break(()));
        }
        if !self.full() {
            return Ok(Flow::Continue(()));
        }
        if self.plan.block.is_one_to_one() {
            return Ok(ControlFlow::Break(()));
        }
        if !self.may_look_ahead() {
            *outcome = Some(Outcome::More);
            return Ok(ControlFlow::Break(()));
        }
        evaluator.meter.end_after(LOOK_AHEAD_WORK);
        Ok(Flow::Continue(()))
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
