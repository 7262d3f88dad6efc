//! Sorted plans over items that come in the order of the result: rows go out as the items go in, and the page ends as soon
//! as it is known whether another follows.

use std::ops::ControlFlow;

use super::budget::Pace;
use super::collect::sort_values;
use super::cursor::Cursor;
use super::evaluate::Evaluator;
use super::frame::Frame;
use super::item::{Ready, Row};
use super::resume::SortPosition;
use super::rows::Flow;
use super::sort::SortBuffer;
use super::stream::check_finite;
use super::{PageLimits, Resume};
use crate::error::Result;
use crate::plan::{Plan, SortKey};

struct Filling<'p> {
    plan: &'p Plan,
    limits: PageLimits,
    /// Knows the order of positions; holds no rows.
    order: SortBuffer,
    resume: Resume,
    rows: Vec<Row>,
    bytes: usize,
    outcome: Option<Outcome>,
}

enum Outcome {
    /// A row was met that belongs to the next page.
    More,
    LimitReached,
}

pub(super) fn page(
    plan: &Plan,
    keys: &[SortKey],
    cursor: &mut dyn Cursor,
    evaluator: &Evaluator<'_>,
    limits: PageLimits,
    resume: Resume,
) -> Result<(Vec<Row>, Option<Resume>)> {
    let mut filling = Filling {
        plan,
        limits,
        order: SortBuffer::new(keys, Some(0)),
        resume,
        rows: Vec::new(),
        bytes: 0,
        outcome: None,
    };
    if filling.limit_reached() {
        return Ok((filling.rows, None));
    }
    while let Some(item) = cursor.next()? {
        let pace = evaluator.meter.item()?;
        let item = Ready::new(plan, item)?;
        let mut n_rows = 0;
        _ = evaluator.matches(&plan.block, &item.frame(), &mut |inner| {
            let position = SortPosition {
                keys: sort_values(evaluator, keys, inner)?,
                rank: item.rank,
                row: n_rows,
            };
            n_rows += 1;
            filling.row(evaluator, &item, inner, position)
        })?;
        match filling.outcome {
            Some(Outcome::LimitReached) => return Ok((filling.rows, None)),
            Some(Outcome::More) => return Ok((filling.rows, Some(filling.resume))),
            None => {}
        }
        if pace == Pace::Pause
            && let Some(after) = after_item(plan, keys, evaluator, &item)?
        {
            filling.resume.after = Some(after);
            return Ok((filling.rows, Some(filling.resume)));
        }
    }
    Ok((filling.rows, None))
}

/// The place after all rows of an item. An item whose sources are empty has none.
fn after_item(
    plan: &Plan,
    keys: &[SortKey],
    evaluator: &Evaluator<'_>,
    item: &Ready<'_>,
) -> Result<Option<SortPosition>> {
    let mut after = None;
    _ = evaluator.bind(&plan.block.sources, &item.frame(), &mut |inner| {
        after = Some(SortPosition {
            keys: sort_values(evaluator, keys, inner)?,
            rank: item.rank,
            row: i64::MAX as u64,
        });
        Ok(ControlFlow::Break(()))
    })?;
    Ok(after)
}

impl Filling<'_> {
    fn row(
        &mut self,
        evaluator: &Evaluator<'_>,
        item: &Ready<'_>,
        frame: &Frame<'_>,
        position: SortPosition,
    ) -> Result<Flow> {
        let done = match (&self.resume.after, &self.resume.start) {
            (Some(after), _) => self.order.compare(&position, after).is_le(),
            (None, Some(start)) => self.order.is_before(&position, start),
            (None, None) => false,
        };
        if done {
            return Ok(ControlFlow::Continue(()));
        }
        let Some(row) = item.row(self.plan, evaluator, frame)? else {
            return Ok(ControlFlow::Continue(()));
        };
        if self.resume.skipped < self.plan.window.offset {
            self.resume.skipped += 1;
            self.resume.after = Some(position);
            return Ok(ControlFlow::Continue(()));
        }
        if self.rows.len() >= self.limits.rows_max || self.bytes >= self.limits.bytes_max {
            self.outcome = Some(Outcome::More);
            return Ok(ControlFlow::Break(()));
        }
        if let Row::Value(value) = &row {
            check_finite(&self.plan.block.output, value)?;
        }
        evaluator.meter.row();
        self.bytes += row.size_bytes();
        self.rows.push(row);
        self.resume.emitted += 1;
        self.resume.after = Some(position);
        if self.limit_reached() {
            self.outcome = Some(Outcome::LimitReached);
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn limit_reached(&self) -> bool {
        self.plan.window.count.is_some_and(|count| self.resume.emitted >= count)
    }
}
