//! Groups in pieces: those of the items of one page, for a caller that adds up the pieces.

use std::ops::ControlFlow;

use super::budget::Pace;
use super::cursor::Cursor;
use super::evaluate::Evaluator;
use super::frame::Frame;
use super::groups::Groups;
use super::item::{Ready, Row};
use super::stream::check_finite;
use super::{PageLimits, Resume};
use crate::error::Result;
use crate::plan::{Grouping, Plan};

/// A page may have so many groups even when fewer rows were asked for: a piece for every few items would only cost more.
const GROUPS_MIN: usize = 100;

pub(super) fn page(
    plan: &Plan,
    grouping: &Grouping,
    cursor: &mut dyn Cursor,
    evaluator: &Evaluator<'_>,
    limits: PageLimits,
) -> Result<(Vec<Row>, Option<Resume>)> {
    let groups_max = limits.rows_max.max(GROUPS_MIN);
    let mut groups = Groups::new(grouping, evaluator.meter.held());
    let mut resume = None;
    while let Some(item) = cursor.next()? {
        let pace = evaluator.meter.item()?;
        let item = Ready::new(plan, item)?;
        _ = evaluator.matches(&plan.block, &item.frame(), &mut |inner| {
            groups.add(evaluator, inner)?;
            Ok(ControlFlow::Continue(()))
        })?;
        if pace == Pace::Pause || groups.len() > groups_max {
            resume = Some(Resume::default());
            break;
        }
    }
    let mut rows = Vec::new();
    _ = groups.finish(evaluator, &plan.block.output, &Frame::root(None), &mut |value, _| {
        check_finite(&plan.block.output, &value)?;
        evaluator.meter.row();
        rows.push(Row::Value(value.into_owned()));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((rows, resume))
}
