//! One page of a query over items: how its items are best found, and the rows they give, within a budget of time, memory
//! and rows.
//!
//! Every way gives the same rows in the same order and the same place to go on from, so each page is free to choose anew.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use orrery_model::{Charge, EpkRange, Error, Result, Status, Timestamp};
use orrery_partition::decide::unreadable;
use orrery_partition::index::{Access, Ordered};
use orrery_partition::keys::EpkForm;
use orrery_query::Context;
use orrery_query::index::{Condition, IndexOrder};
use orrery_query::run::{self, Budget, Pace, PageLimits, Progress, Resume, Row};

use super::context;
use super::cursor::{ItemCursor, Part};
use super::load::Admission;
use super::ordered::OrderedCursor;
use super::prepared::Prepared;
use super::token::{self, QueryContinuation};
use crate::api::QueryMetrics;
use crate::catalogue::ContainerEntry;
use crate::scripts::{Calls, Scripts};

/// A page that can be continued ends after this long; one that cannot goes on until its query has no time left.
const PAGE_TIME: Duration = Duration::from_secs(4);
/// From here on a query counts as heavy, and waits this long until it may go on as one.
const LIGHT_TIME: Duration = Duration::from_millis(50);
const HEAVY_WAIT: Duration = Duration::from_secs(10);
/// Items that a sorted query may rather read and sort than find in order.
const SORTED_ITEMS_MAX: usize = 2_048;
/// Items that are read without handing the work to another thread.
const SMALL_ITEMS_MAX: usize = 8;
const SMALL_EFFORT: usize = 64;
/// What reading an item costs, in entries of an index passed over.
const ENTRIES_PER_ITEM: usize = 8;

/// Everything one page needs, to be taken to another thread.
pub struct PageWork {
    pub time_max: Duration,
    pub container: Arc<ContainerEntry>,
    pub prepared: Prepared,
    pub scripts: Scripts,
    pub parts: Vec<Part>,
    pub after: Option<QueryContinuation>,
    /// All parts together.
    pub range: EpkRange,
    pub limits: PageLimits,
    pub now: Timestamp,
}

#[derive(Debug)]
pub struct PageDone {
    pub rows: Vec<Bytes>,
    pub after: Option<QueryContinuation>,
    pub charge: Charge,
    pub metrics: QueryMetrics,
}

/// What a cursor did.
struct Run {
    page: run::Page,
    bytes_read: usize,
    last: Option<crate::continuation::Continuation>,
}

impl PageWork {
    /// Decides how the items are found if that takes little, and says whether few are and each takes little work. The
    /// decision is kept.
    pub fn is_small(&mut self) -> Result<bool> {
        let Prepared { plan, condition, .. } = &self.prepared;
        let form = EpkForm::of(self.container.definition.partition_key());
        let [part] = self.parts.as_mut_slice() else {
            return Ok(false);
        };
        if condition.is_any() || !plan.is_simple() {
            return Ok(false);
        }
        let access = Access::choose(part.scope(form), condition, SMALL_EFFORT).map_err(unreadable)?;
        let small = matches!(&access, Access::Listed(keys) if keys.len() <= SMALL_ITEMS_MAX);
        if small {
            part.access = Some(access);
        }
        Ok(small)
    }

    /// Makes the page. `admission` grows with what it takes.
    pub fn run(mut self, admission: &mut Admission) -> Result<PageDone> {
        let started = Instant::now();
        let calls = Calls::new(std::mem::take(&mut self.scripts), self.time_max);
        let context = Context {
            functions: Some(&calls),
            ..context(self.now)
        };
        let order = self.order()?;
        let looked_up = started.elapsed();
        let in_order = match order {
            Some(order) => self.run_in_order(order, &context, started, admission)?,
            None => None,
        };
        let (streaming, by_place) = (self.prepared.plan.is_streaming(), self.prepared.plan.resumes_by_place());
        let before = self.after.as_ref().and_then(|after| after.last.clone());
        let done = match in_order {
            Some(done) => done,
            None => self.run_by_key(&context, started, admission)?,
        };
        let n_steps = done.page.progress.steps;
        let rows: Vec<Bytes> = done.page.rows.into_iter().map(Row::into_text).collect();
        let last = done.last.or(before);
        let after = done.page.resume.map(|resume| QueryContinuation {
            resume,
            last: last.filter(|_| streaming),
            counted_over: (!by_place).then(|| token::range_hash(&self.range)),
        });
        let metrics = QueryMetrics {
            n_items_read: done.page.progress.items_read,
            bytes_read: done.bytes_read,
            n_rows: rows.len() as u64,
            bytes_given: rows.iter().map(Bytes::len).sum(),
            prepare: Duration::ZERO,
            index_lookup: looked_up,
            execute: started.elapsed() - looked_up,
        };
        Ok(PageDone {
            charge: Charge::query(metrics.bytes_read, metrics.n_items_read, rows.len(), n_steps),
            rows,
            after,
            metrics,
        })
    }

    fn resume(&self) -> Option<&Resume> {
        self.after.as_ref().map(|after| &after.resume)
    }

    fn form(&self) -> EpkForm {
        EpkForm::of(self.container.definition.partition_key())
    }

    /// The order to read items in, where that is better than sorting them.
    fn order(&mut self) -> Result<Option<IndexOrder>> {
        let Some(order) = self.prepared.order.clone() else {
            return Ok(None);
        };
        let condition = &self.prepared.condition;
        if *condition == Condition::Never {
            return Ok(None);
        }
        let form = self.form();
        let rows = self.prepared.rows_at_most(self.limits.rows_max);
        if let [part] = self.parts.as_mut_slice()
            && sorting_is_cheaper(part, form, rows)?
        {
            return Ok(None);
        }
        // A filter on nothing but the path sorted by only says where to begin and end.
        let says_more = |order: &IndexOrder| {
            let path = order.path();
            condition.has_lacks() || condition.ranges().iter().any(|range| Some(&range.path) != path)
        };
        if !condition.is_any() && says_more(&order) {
            let (mut n_items, mut n_all) = (0, 0);
            for part in &mut self.parts {
                n_all += part.state()?.map_or(0, |state| state.n_items as usize);
                let access = Access::choose(part.scope(form), condition, SORTED_ITEMS_MAX).map_err(unreadable)?;
                n_items += match &access {
                    Access::Listed(keys) => keys.len(),
                    _ => usize::MAX / 2,
                };
                part.access = Some(access);
                if n_items > SORTED_ITEMS_MAX {
                    break;
                }
            }
            // Items in order are read until enough of them pass the filter.
            let n_in_order = rows.saturating_mul(n_all) / n_items.max(1);
            if n_items <= SORTED_ITEMS_MAX && n_items <= n_in_order.max(rows) {
                return Ok(None);
            }
            self.parts.iter_mut().for_each(|part| part.access = None);
        }
        Ok(Some(order))
    }

    /// `None` when the index cannot serve after all.
    fn run_in_order(
        &self,
        order: IndexOrder,
        context: &Context<'_>,
        started: Instant,
        admission: &mut Admission,
    ) -> Result<Option<Run>> {
        let form = self.form();
        let scopes = self.parts.iter().map(|part| part.scope(form)).collect();
        let within = order.path().and_then(|path| self.prepared.condition.hull(path));
        let start = self.resume().and_then(|resume| order.start(resume));
        let Some(ordered) = Ordered::open(order, scopes, start, within).map_err(unreadable)? else {
            return Ok(None);
        };
        let mut cursor = OrderedCursor::new(&self.container, ordered, self.now);
        let mut budget = TimeBudget {
            started,
            time_max: self.time_max,
            admission,
            streaming: true,
            items_seen: 0,
        };
        let plan = &self.prepared.plan;
        let page = run::run_in_order(plan, &mut cursor, context, self.limits, self.resume(), &mut budget)?;
        Ok((!cursor.gave_up()).then_some(Run {
            page,
            bytes_read: cursor.bytes_read,
            last: None,
        }))
    }

    fn run_by_key(&mut self, context: &Context<'_>, started: Instant, admission: &mut Admission) -> Result<Run> {
        let parts = std::mem::take(&mut self.parts);
        let plan = &self.prepared.plan;
        let streaming = plan.is_streaming();
        let start = self.after.as_ref().filter(|_| streaming);
        let start = start.and_then(|after| after.last.clone());
        let inclusive = self.resume().is_some_and(Resume::repeats_item);
        let condition = &self.prepared.condition;
        let mut cursor = ItemCursor::new(&self.container, condition, parts, start, inclusive, self.now);
        let mut budget = TimeBudget {
            started,
            time_max: self.time_max,
            admission,
            streaming,
            items_seen: 0,
        };
        let page = run::run(plan, &mut cursor, context, self.limits, self.resume(), &mut budget)?;
        Ok(Run {
            page,
            bytes_read: cursor.bytes_read,
            last: cursor.last(),
        })
    }
}

/// Whether a part of a partition has so few items that reading and sorting them costs less than passing over the entries of
/// all the others.
fn sorting_is_cheaper(part: &mut Part, form: EpkForm, rows: usize) -> Result<bool> {
    let Some(n_all) = part.state()?.map(|state| state.n_items as usize) else {
        return Ok(true);
    };
    let scope = part.scope(form);
    part.n_items = match scope.state {
        Some(state) => scope.n_items(state).map_err(unreadable)?,
        None => None,
    };
    let Some(n_items) = part.n_items else {
        return Ok(false);
    };
    let n_entries = rows.saturating_mul(n_all) / n_items.max(1);
    Ok(n_items.saturating_mul(ENTRIES_PER_ITEM) < n_entries.saturating_add(rows.saturating_mul(ENTRIES_PER_ITEM)))
}

/// Ends pages in time.
pub struct TimeBudget<'a> {
    started: Instant,
    time_max: Duration,
    admission: &'a mut Admission,
    streaming: bool,
    items_seen: u64,
}

impl<'a> TimeBudget<'a> {
    /// For a page that begins now and is made as a whole.
    pub fn new(time_max: Duration, admission: &'a mut Admission) -> TimeBudget<'a> {
        TimeBudget {
            started: Instant::now(),
            time_max,
            admission,
            streaming: false,
            items_seen: 0,
        }
    }
}

impl Budget for TimeBudget<'_> {
    fn check(&mut self, progress: &Progress) -> Result<Pace> {
        // Looking at the clock for every item would cost more than the item. A question within one item means much work.
        let within_item = std::mem::replace(&mut self.items_seen, progress.items_read) == progress.items_read;
        if !within_item && !progress.items_read.is_multiple_of(8) {
            return Ok(Pace::GoOn);
        }
        self.admission.hold(progress.memory_bytes)?;
        let elapsed = self.started.elapsed();
        if elapsed > self.time_max {
            return Err(Error::new(Status::REQUEST_TIMEOUT, "The query takes too long."));
        }
        if elapsed > LIGHT_TIME && !self.admission.is_heavy() && !self.admission.try_become_heavy() {
            if self.streaming && !within_item {
                return Ok(Pace::Pause);
            }
            self.admission.become_heavy(HEAVY_WAIT)?;
        }
        Ok(if self.streaming && elapsed > PAGE_TIME {
            Pace::Pause
        } else {
            Pace::GoOn
        })
    }
}
