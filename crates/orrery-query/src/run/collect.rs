//! Plans that must see every item before they have their first row: sorted, grouped, without duplicates.

use std::borrow::Cow;
use std::ops::ControlFlow;

use orrery_model::Value;

use super::cursor::Cursor;
use super::evaluate::Evaluator;
use super::frame::Frame;
use super::groups::Groups;
use super::item::{Ready, Row};
use super::rank;
use super::resume::SortPosition;
use super::rows::Seen;
use super::sort::{SortBuffer, SortedRow};
use super::stream::check_finite;
use super::{PageLimits, Resume};
use crate::error::Result;
use crate::plan::{Ordering, Plan, SortKey};

pub(super) fn page(
    plan: &Plan,
    cursor: &mut dyn Cursor,
    evaluator: &Evaluator<'_>,
    limits: PageLimits,
    resume: Resume,
) -> Result<(Vec<Row>, Option<Resume>)> {
    let rows = match (&plan.block.grouping, &plan.ordering) {
        (Some(_), _) => grouped(plan, cursor, evaluator)?,
        (None, Ordering::Keys(keys)) => sorted(plan, keys, cursor, evaluator, limits, &resume)?,
        (None, Ordering::Rank(ranking)) => rank::ranked(plan, ranking, cursor, evaluator)?,
        (None, Ordering::None) => in_order(plan, cursor, evaluator)?,
    };
    cut(plan, rows, evaluator, limits, resume)
}

/// Rows in the order of the items, each with its place.
fn in_order(plan: &Plan, cursor: &mut dyn Cursor, evaluator: &Evaluator<'_>) -> Result<Vec<SortedRow>> {
    let mut rows = Vec::new();
    while let Some(item) = cursor.next()? {
        evaluator.meter.item()?;
        let item = Ready::new(plan, item)?;
        _ = evaluator.matches(&plan.block, &item.frame(), &mut |inner| {
            if let Some(row) = item.row(plan, evaluator, inner)? {
                let position = SortPosition {
                    keys: Vec::new(),
                    rank: item.rank,
                    row: rows.len() as u64,
                };
                let row = SortedRow { position, row };
                evaluator.meter.hold(row.size_bytes())?;
                rows.push(row);
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(rows)
}

fn grouped(plan: &Plan, cursor: &mut dyn Cursor, evaluator: &Evaluator<'_>) -> Result<Vec<SortedRow>> {
    let grouping = plan.block.grouping.as_ref().expect("the caller matched a grouping");
    let mut groups = Groups::new(grouping, evaluator.meter.held());
    while let Some(item) = cursor.next()? {
        evaluator.meter.item()?;
        let item = Ready::new(plan, item)?;
        _ = evaluator.matches(&plan.block, &item.frame(), &mut |inner| {
            groups.add(evaluator, inner)?;
            Ok(ControlFlow::Continue(()))
        })?;
    }
    let keys: &[SortKey] = match &plan.ordering {
        Ordering::Keys(keys) => keys,
        Ordering::None | Ordering::Rank(_) => &[],
    };
    let mut buffer = SortBuffer::new(keys, None);
    let mut n_rows = 0;
    _ = groups.finish(
        evaluator,
        &plan.block.output,
        &Frame::root(None),
        &mut |value, frame| {
            let position = SortPosition {
                keys: sort_values(evaluator, keys, frame)?,
                rank: n_rows,
                row: 0,
            };
            n_rows += 1;
            let row = SortedRow {
                position,
                row: Row::Value(value.into_owned()),
            };
            evaluator.meter.hold(row.size_bytes())?;
            buffer.add(row);
            Ok(ControlFlow::Continue(()))
        },
    )?;
    Ok(buffer.finish())
}

pub(super) fn sort_values(
    evaluator: &Evaluator<'_>,
    keys: &[SortKey],
    frame: &Frame<'_>,
) -> Result<Vec<Option<Value>>> {
    keys.iter()
        .map(|key| Ok(evaluator.eval(&key.expr, frame)?.map(Cow::into_owned)))
        .collect()
}

fn sorted(
    plan: &Plan,
    keys: &[SortKey],
    cursor: &mut dyn Cursor,
    evaluator: &Evaluator<'_>,
    limits: PageLimits,
    resume: &Resume,
) -> Result<Vec<SortedRow>> {
    let mut buffer = SortBuffer::new(keys, rows_wanted(plan, limits, resume));
    while let Some(item) = cursor.next()? {
        evaluator.meter.item()?;
        let item = Ready::new(plan, item)?;
        let mut n_rows = 0;
        _ = evaluator.matches(&plan.block, &item.frame(), &mut |inner| {
            let position = SortPosition {
                keys: sort_values(evaluator, keys, inner)?,
                rank: item.rank,
                row: n_rows,
            };
            n_rows += 1;
            let done = match (&resume.after, &resume.start) {
                (Some(after), _) => buffer.compare(&position, after).is_le(),
                (None, Some(start)) => buffer.is_before(&position, start),
                (None, None) => false,
            };
            if done || !buffer.has_room_for(&position) {
                return Ok(ControlFlow::Continue(()));
            }
            if let Some(row) = item.row(plan, evaluator, inner)? {
                let row = SortedRow { position, row };
                evaluator.meter.hold(row.size_bytes())?;
                evaluator.meter.release(buffer.add(row));
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(buffer.finish())
}

/// How many of the first rows can matter for this page. Duplicates must be seen to be removed.
fn rows_wanted(plan: &Plan, limits: PageLimits, resume: &Resume) -> Option<usize> {
    if plan.block.distinct {
        return None;
    }
    let skip = plan.window.offset.saturating_sub(resume.skipped);
    let left = plan.window.count.map(|count| count.saturating_sub(resume.emitted));
    // One more than the page tells whether there is a next one.
    let page = (limits.rows_max as u64).saturating_add(1);
    let wanted = skip.saturating_add(left.map_or(page, |left| left.min(page)));
    usize::try_from(wanted).ok().filter(|wanted| *wanted < usize::MAX)
}

/// Removes duplicates, applies the window, and cuts out the page.
fn cut(
    plan: &Plan,
    rows: Vec<SortedRow>,
    evaluator: &Evaluator<'_>,
    limits: PageLimits,
    mut resume: Resume,
) -> Result<(Vec<Row>, Option<Resume>)> {
    let by_place = plan.resumes_by_place();
    let to_skip = match by_place {
        true => plan.window.offset.saturating_sub(resume.skipped),
        false => plan.window.offset + resume.emitted,
    };
    let mut n_skipped = 0;
    let mut page = Vec::new();
    let mut bytes = 0;
    let mut seen = Seen::new(evaluator.meter.held());
    for row in rows {
        if let (true, Row::Value(value)) = (plan.block.distinct, &row.row)
            && !seen.is_new(value)?
        {
            continue;
        }
        if n_skipped < to_skip {
            n_skipped += 1;
            continue;
        }
        if plan.window.count.is_some_and(|count| resume.emitted >= count) {
            return Ok((page, None));
        }
        if page.len() >= limits.rows_max || bytes >= limits.bytes_max {
            resume.skipped = plan.window.offset;
            return Ok((page, Some(resume)));
        }
        if let Row::Value(value) = &row.row {
            check_finite(&plan.block.output, value)?;
        }
        evaluator.meter.row();
        bytes += row.row.size_bytes();
        resume.emitted += 1;
        if by_place {
            resume.after = Some(row.position);
        }
        page.push(row.row);
    }
    Ok((page, None))
}
