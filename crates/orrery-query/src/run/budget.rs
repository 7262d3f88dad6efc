//! How much a run may use, and who decides.

use std::cell::{Cell, RefCell};

use crate::error::{QueryError, Result};

/// What a run has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub items_read: u64,
    pub rows: u64,
    /// Bindings made and functions called.
    pub steps: u64,
    /// What those took, by estimate, in units of about a nanosecond. The same query over the same items takes the same.
    pub work: u64,
    /// Bytes held for sorting, grouping and removing duplicates.
    pub memory_bytes: usize,
}

/// What a run does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    GoOn,
    /// End the page at the next item, if the query can be resumed there.
    Pause,
}

/// Asked before every item and regularly in between. An error ends the run.
pub trait Budget {
    fn check(&mut self, progress: &Progress) -> orrery_model::Result<Pace>;
}

/// A budget without limits.
#[derive(Debug, Default)]
pub struct Unlimited;

impl Budget for Unlimited {
    fn check(&mut self, _: &Progress) -> orrery_model::Result<Pace> {
        Ok(Pace::GoOn)
    }
}

/// What one step takes, besides what it does with long values.
pub(crate) const STEP_WORK: u64 = 64;
/// Steps, or work, between two questions.
const STEPS_PER_CHECK: u64 = 1024;
const WORK_PER_CHECK: u64 = 1 << 24;

/// Counts what a run uses and asks the budget.
pub(crate) struct Meter<'b> {
    budget: RefCell<&'b mut dyn Budget>,
    items_read: Cell<u64>,
    rows: Cell<u64>,
    steps: Cell<u64>,
    step_work: u64,
    work: Cell<u64>,
    /// The budget is asked when so much work has been done.
    check_at: Cell<u64>,
    /// The run ends when so much work has been done.
    ends_at: Cell<u64>,
    memory_bytes: Cell<usize>,
    memory_bytes_max: usize,
}

impl<'b> Meter<'b> {
    pub fn new(budget: &'b mut dyn Budget, memory_bytes_max: usize) -> Meter<'b> {
        Meter {
            budget: RefCell::new(budget),
            items_read: Cell::new(0),
            rows: Cell::new(0),
            steps: Cell::new(0),
            step_work: STEP_WORK,
            work: Cell::new(0),
            check_at: Cell::new(WORK_PER_CHECK),
            ends_at: Cell::new(u64::MAX),
            memory_bytes: Cell::new(0),
            memory_bytes_max,
        }
    }

    /// The same for a run whose steps take longer than most.
    pub fn with_step_work(self, step_work: u64) -> Meter<'b> {
        Meter { step_work, ..self }
    }

    /// The same for a budget that ends with so much work: it is asked as soon as that is done.
    pub fn asking_after(self, work: u64) -> Meter<'b> {
        Meter {
            check_at: Cell::new(work.min(WORK_PER_CHECK)),
            ..self
        }
    }

    /// A share of the memory that is given back when it is dropped.
    pub fn held(&self) -> Held<'_> {
        Held { meter: self, bytes: 0 }
    }

    pub fn progress(&self) -> Progress {
        Progress {
            items_read: self.items_read.get(),
            rows: self.rows.get(),
            steps: self.steps.get(),
            work: self.work.get(),
            memory_bytes: self.memory_bytes.get(),
        }
    }

    /// Counts one item about to be read.
    pub fn item(&self) -> Result<Pace> {
        self.items_read.set(self.items_read.get() + 1);
        self.check()
    }

    pub fn row(&self) {
        self.rows.set(self.rows.get() + 1);
    }

    /// Counts one binding or one call of a function.
    pub fn step(&self) -> Result<()> {
        let steps = self.steps.get() + 1;
        self.steps.set(steps);
        if steps.is_multiple_of(STEPS_PER_CHECK) {
            self.check()?;
        }
        self.work(self.step_work)
    }

    /// Ends the run with an error when it has done so much more work.
    pub fn end_after(&self, work: u64) {
        self.ends_at.set(self.work.get().saturating_add(work));
    }

    /// Does something whose items, rows and steps do not count, and which ends with an error when it has done so much work.
    pub fn aside<T>(&self, work_max: u64, doing: impl FnOnce() -> T) -> T {
        let before = self.progress();
        self.end_after(work_max);
        let done = doing();
        self.ends_at.set(u64::MAX);
        self.items_read.set(before.items_read);
        self.rows.set(before.rows);
        self.steps.set(before.steps);
        done
    }

    /// Counts work that a step does with long values.
    pub fn work(&self, work: u64) -> Result<()> {
        let done = self.work.get().saturating_add(work);
        self.work.set(done);
        if done >= self.ends_at.get() {
            return Err(QueryError::plain("This takes more than is worth while."));
        }
        if done >= self.check_at.get() {
            self.check_at.set(done.saturating_add(WORK_PER_CHECK));
            self.check()?;
        }
        Ok(())
    }

    /// Counts memory that stays held until the run ends.
    pub fn hold(&self, bytes: usize) -> Result<()> {
        let held = self.memory_bytes.get().saturating_add(bytes);
        self.memory_bytes.set(held);
        if held > self.memory_bytes_max {
            return Err(QueryError::plain(format!(
                "The query needs more than the allowed {} bytes of memory. Narrow its filter or limit its rows.",
                self.memory_bytes_max
            )));
        }
        Ok(())
    }

    /// Gives back memory counted before.
    pub fn release(&self, bytes: usize) {
        self.memory_bytes.set(self.memory_bytes.get().saturating_sub(bytes));
    }

    fn check(&self) -> Result<Pace> {
        Ok(self.budget.borrow_mut().check(&self.progress())?)
    }
}

/// Memory of one operator, counted while the operator lives.
pub(crate) struct Held<'m> {
    meter: &'m dyn Memory,
    bytes: usize,
}

/// Where memory is counted; hides the lifetime of the budget.
trait Memory {
    fn hold(&self, bytes: usize) -> Result<()>;
    fn release(&self, bytes: usize);
}

impl Memory for Meter<'_> {
    fn hold(&self, bytes: usize) -> Result<()> {
        Meter::hold(self, bytes)
    }

    fn release(&self, bytes: usize) {
        Meter::release(self, bytes);
    }
}

impl Held<'_> {
    pub fn add(&mut self, bytes: usize) -> Result<()> {
        self.bytes += bytes;
        self.meter.hold(bytes)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.meter.release(self.bytes);
    }
}
