//! Conditions of patch requests and change feeds: `FROM c WHERE …` over one item.
//!
//! A condition is looked at where others wait for the answer, such as a partition's only writer, so what it may take is
//! counted, not timed: the same condition over the same item is answered or refused wherever and whenever it is asked.

use orrery_model::Value;

use crate::Query;
use crate::definition::Definition;
use crate::error::{QueryError, Result};
use crate::parameters::Parameters;
use crate::parse::ast::{Expr, ExprKind, SelectList, Statement};
use crate::parse::{self, Span};
use crate::plan::{Plan, plan};
use crate::run::{self, Budget, Context, Effort, ListCursor, Pace, PageLimits, Progress, STEP_WORK};

/// Longest text of a condition.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// What conditions may take together, in units of about a nanosecond.
const WORK_MAX: u64 = 1 << 26;
/// What understanding a byte of a condition's text takes, and what it may take each time it is evaluated.
const PLANNING_WORK: u64 = 128;
const EVALUATION_WORK: u64 = 8;
/// What a condition may hold while it is evaluated.
const MEMORY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What is left of the work that conditions may do: one allowance for everything that one request asks.
#[derive(Debug)]
pub struct Allowance {
    work: u64,
}

impl Default for Allowance {
    fn default() -> Allowance {
        Allowance { work: WORK_MAX }
    }
}

impl Allowance {
    fn take(&mut self, work: u64) -> Result<()> {
        let left = self.work.checked_sub(work);
        self.work = left.unwrap_or(0);
        left.map(drop).ok_or_else(exhausted)
    }
}

/// Ends a run that has used up its allowance.
struct Limit {
    work_max: u64,
}

impl Budget for Limit {
    fn check(&mut self, progress: &Progress) -> orrery_model::Result<Pace> {
        match progress.work <= self.work_max {
            true => Ok(Pace::GoOn),
            false => Err(exhausted().into()),
        }
    }
}

fn exhausted() -> QueryError {
    QueryError::plain("The condition takes more work than a condition may. Make it simpler, or the item smaller.")
}

/// A condition that can be asked of items.
#[derive(Clone, Debug)]
pub struct Condition {
    plan: Plan,
    text_bytes: u64,
}

/// Parses a condition. Unknown names and functions are mistakes in the text too, so they are found here and not at the first
/// item.
pub fn parse_condition(text: &str, allowance: &mut Allowance) -> Result<Condition> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(QueryError::plain(format!(
            "The condition is longer than the allowed {TEXT_BYTES_MAX} bytes."
        )));
    }
    let text_bytes = text.len() as u64;
    allowance.take(text_bytes * PLANNING_WORK)?;
    let (from, filter) = parse::parse_condition(text)?;
    let span = Span::new(0, text.len());
    let statement = Statement {
        distinct: false,
        top: None,
        list: SelectList::Value(Expr::new(ExprKind::Bool(true), span)),
        from: Some(from),
        filter,
        group_by: Vec::new(),
        order_by: None,
        window: None,
        span,
    };
    let query = Query {
        text: text.to_owned(),
        statement,
    };
    let mut plan = plan(&query, &Definition::plain(), &Parameters::none())?;
    // One row tells; with it the run ends, wherever in the item it is.
    plan.window.count = Some(1);
    Ok(Condition { plan, text_bytes })
}

impl Condition {
    /// Whether the condition is true for `item`.
    pub fn holds(&self, item: &Value, context: &Context<'_>, allowance: &mut Allowance) -> Result<bool> {
        // Each combination of sources has all of the filter evaluated, and that is as long as its text at most.
        let step_work = STEP_WORK + self.text_bytes * EVALUATION_WORK;
        let limits = PageLimits {
            memory_bytes_max: MEMORY_BYTES_MAX,
            ..PageLimits::unlimited()
        };
        let mut limit = Limit {
            work_max: allowance.work,
        };
        let effort = Effort {
            step_work,
            work_max: allowance.work,
        };
        let mut cursor = ListCursor::new(std::slice::from_ref(item));
        let (page, work) = run::run_counted(&self.plan, &mut cursor, context, limits, effort, &mut limit);
        allowance.take(work)?;
        Ok(!page?.rows.is_empty())
    }
}
