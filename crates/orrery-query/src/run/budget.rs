//! How much a run may use, and who decides.

use std::cell::{Cell, RefCell};

use crate::error::{QueryError, Result};

/// What a run has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub items_read: u64,
    pub rows: u64,
    /// Bindings made; a measure of work.
    pub steps: u64,
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

/// Steps between two questions.
const STEPS_PER_CHECK: u64 = 1024;

/// Counts what a run uses and asks the budget.
pub(crate) struct Meter<'b> {
    budget: RefCell<&'b mut dyn Budget>,
    progress: Cell<Progress>,
    memory_bytes_max: usize,
}

impl<'b> Meter<'b> {
    pub fn new(budget: &'b mut dyn Budget, memory_bytes_max: usize) -> Meter<'b> {
        Meter {
            budget: RefCell::new(budget),
            progress: Cell::default(),
            memory_bytes_max,
        }
    }

    /// A share of the memory that is given back when it is dropped.
    pub fn held(&self) -> Held<'_> {
        Held { meter: self, bytes: 0 }
    }

    pub fn progress(&self) -> Progress {
        self.progress.get()
    }

    /// Counts one item about to be read.
    pub fn item(&self) -> Result<Pace> {
        let mut progress = self.progress.get();
        progress.items_read += 1;
        self.progress.set(progress);
        self.check()
    }

    pub fn row(&self) {
        let mut progress = self.progress.get();
        progress.rows += 1;
        self.progress.set(progress);
    }

    /// Counts one binding.
    pub fn step(&self) -> Result<()> {
        let mut progress = self.progress.get();
        progress.steps += 1;
        self.progress.set(progress);
        if progress.steps.is_multiple_of(STEPS_PER_CHECK) {
            self.check()?;
        }
        Ok(())
    }

    /// Counts memory that stays held until the run ends.
    pub fn hold(&self, bytes: usize) -> Result<()> {
        let mut progress = self.progress.get();
        progress.memory_bytes += bytes;
        self.progress.set(progress);
        if progress.memory_bytes > self.memory_bytes_max {
            return Err(QueryError::plain(format!(
                "The query needs more than the allowed {} bytes of memory. Narrow its filter or limit its rows.",
                self.memory_bytes_max
            )));
        }
        Ok(())
    }

    /// Gives back memory counted before.
    pub fn release(&self, bytes: usize) {
        let mut progress = self.progress.get();
        progress.memory_bytes = progress.memory_bytes.saturating_sub(bytes);
        self.progress.set(progress);
    }

    fn check(&self) -> Result<Pace> {
        let progress = self.progress.get();
        Ok(self.budget.borrow_mut().check(&progress)?)
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
