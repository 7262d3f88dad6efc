//! Running a plan: items come in through a cursor, rows go out page by page.
//!
//! Everything is synchronous and pulls: the caller decides on which thread a page is made, how long it may take and how
//! much it may hold, and gets back where to go on. The engine keeps nothing between pages.

mod budget;
mod collect;
mod constant;
mod cursor;
mod evaluate;
mod frame;
mod groups;
mod item;
pub(crate) mod like;
mod ordered;
mod pieces;
mod rank;
mod resume;
mod rows;
mod sort;
mod stream;

pub(crate) use budget::STEP_WORK;
pub use budget::{Budget, Pace, Progress, Unlimited};
pub(crate) use constant::{Constants, compute};
pub use cursor::{Content, Cursor, Item, ListCursor};
pub use evaluate::UserFunctions;
pub use item::Row;
pub use resume::{Resume, SortPosition};

use crate::error::Result;
use crate::functions::Environment;
use crate::plan::{Input, Ordering, Plan};
use budget::Meter;
use evaluate::Evaluator;

/// What the outside world contributes to a run.
#[derive(Clone, Copy, Default)]
pub struct Context<'a> {
    /// Now, in units of 100 ns since 1970.
    pub now_ticks: i64,
    /// Start of the sequence that RAND draws from.
    pub seed: u64,
    pub functions: Option<&'a dyn UserFunctions>,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("now_ticks", &self.now_ticks)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// Sizes of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    pub rows_max: usize,
    /// A page ends after the row that reaches this.
    pub bytes_max: usize,
    /// What sorting, grouping and removing duplicates may hold.
    pub memory_bytes_max: usize,
}

impl PageLimits {
    /// One page for everything.
    pub fn unlimited() -> PageLimits {
        PageLimits {
            rows_max: usize::MAX,
            bytes_max: usize::MAX,
            memory_bytes_max: usize::MAX,
        }
    }
}

/// Rows, and whether there are more.
#[derive(Debug)]
pub struct Page {
    pub rows: Vec<Row>,
    /// Where the next page begins; `None` after the last one.
    pub resume: Option<Resume>,
    pub progress: Progress,
}

/// Makes one page. `resume` is what the page before answered.
///
/// The cursor yields the items in tie order. For a streaming plan it must continue where the previous page stopped: with
/// the item after the last one it yielded, or with that very item when [`Resume::repeats_item`] says so. For other plans
/// it starts from the beginning each time.
pub fn run(
    plan: &Plan,
    cursor: &mut dyn Cursor,
    context: &Context<'_>,
    limits: PageLimits,
    resume: Option<&Resume>,
    budget: &mut dyn Budget,
) -> Result<Page> {
    let evaluator = evaluator(plan, context, limits, budget);
    let resume = resume.cloned().unwrap_or_default();
    let (rows, resume) = page(plan, cursor, &evaluator, limits, resume)?;
    Ok(Page {
        rows,
        resume,
        progress: evaluator.meter.progress(),
    })
}

/// Makes one page of a sorted plan over a cursor that yields the items in the order of the result, ties by rank. It need
/// not yield items that come before the place where `resume` goes on. Rows and places are those that [`run`] gives.
pub fn run_in_order(
    plan: &Plan,
    cursor: &mut dyn Cursor,
    context: &Context<'_>,
    limits: PageLimits,
    resume: Option<&Resume>,
    budget: &mut dyn Budget,
) -> Result<Page> {
    let Ordering::Keys(keys) = &plan.ordering else {
        return run(plan, cursor, context, limits, resume, budget);
    };
    let evaluator = evaluator(plan, context, limits, budget);
    let resume = resume.cloned().unwrap_or_default();
    let (rows, resume) = ordered::page(plan, keys, cursor, &evaluator, limits, resume)?;
    Ok(Page {
        rows,
        resume,
        progress: evaluator.meter.progress(),
    })
}

fn evaluator<'a>(plan: &Plan, context: &Context<'a>, limits: PageLimits, budget: &'a mut dyn Budget) -> Evaluator<'a> {
    Evaluator {
        environment: Environment::new(context.now_ticks, context.seed, plan.planar),
        functions: context.functions,
        meter: Meter::new(budget, limits.memory_bytes_max),
        counts_all: false,
    }
}

/// How a run counts what it does when nobody looks at a clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// What one step takes.
    pub step_work: u64,
    /// What one call of a function may take.
    pub work_max: u64,
}

/// Makes one page like [`run`], counting all that may have to be done for it, and says how much that was, also of a run that
/// failed.
pub(crate) fn run_counted(
    plan: &Plan,
    cursor: &mut dyn Cursor,
    context: &Context<'_>,
    limits: PageLimits,
    effort: Effort,
    budget: &mut dyn Budget,
) -> (Result<Page>, u64) {
    let evaluator = Evaluator {
        environment: Environment::new(context.now_ticks, context.seed, plan.planar).with_work_max(effort.work_max),
        functions: context.functions,
        meter: Meter::new(budget, limits.memory_bytes_max).with_step_work(effort.step_work),
        counts_all: true,
    };
    let made = page(plan, cursor, &evaluator, limits, Resume::default());
    let progress = evaluator.meter.progress();
    let page = made.map(|(rows, resume)| Page { rows, resume, progress });
    (page, progress.work)
}

fn page(
    plan: &Plan,
    cursor: &mut dyn Cursor,
    evaluator: &Evaluator<'_>,
    limits: PageLimits,
    resume: Resume,
) -> Result<(Vec<Row>, Option<Resume>)> {
    let mut inner_rows;
    let mut nothing = cursor::Nothing::default();
    let cursor: &mut dyn Cursor = match &plan.input {
        Input::Items => cursor,
        Input::Nothing => &mut nothing,
        Input::Rows(inner) => {
            let unlimited = PageLimits {
                memory_bytes_max: limits.memory_bytes_max,
                ..PageLimits::unlimited()
            };
            let (rows, _) = page(inner, cursor, evaluator, unlimited, Resume::default())?;
            inner_rows = cursor::OwnedList::new(rows.into_iter().map(Row::into_value).collect::<Result<_>>()?);
            &mut inner_rows
        }
    };
    match &plan.block.grouping {
        Some(grouping) if plan.is_streaming() => pieces::page(plan, grouping, cursor, evaluator, limits),
        None if plan.is_streaming() => stream::page(plan, cursor, evaluator, limits, resume),
        _ => collect::page(plan, cursor, evaluator, limits, resume),
    }
}

#[cfg(test)]
mod tests;
