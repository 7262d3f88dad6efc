//! What a function is given: its arguments, and the world as far as a query may see it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use orrery_model::{Number, Value};

use super::string::engine::{Exhausted, NoPattern, Pattern};
use crate::values::Computed;

/// The arguments of one call.
pub(crate) struct Arguments<'a> {
    pub values: &'a [Computed<'a>],
    pub environment: &'a Environment,
}

/// What functions know besides their arguments; the same for a whole run.
#[derive(Debug)]
pub(crate) struct Environment {
    /// Now, in units of 100 ns since 1970.
    pub now_ticks: i64,
    /// Coordinates are planar instead of on the globe.
    pub planar: bool,
    random: Cell<u64>,
    patterns: RefCell<HashMap<String, Result<Pattern, NoPattern>>>,
    refused: Cell<Option<Refusal>>,
    /// What one call may take.
    work_max: usize,
    /// What calls have taken since it was last asked for.
    work: Cell<u64>,
}

/// Why a function was ended, and the run with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It would have needed more time or memory than one call may use.
    Excessive,
    /// It was given a regular expression that cannot be carried out here.
    Pattern,
}

/// Compiled patterns kept per run.
const PATTERNS_MAX: usize = 64;

/// Largest value that an expression may make.
pub(crate) const VALUE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Steps of a loop within one function, each of about a nanosecond.
const WORK_MAX: usize = 1 << 31;

impl Environment {
    pub fn new(now_ticks: i64, seed: u64, planar: bool) -> Environment {
        Environment {
            now_ticks,
            planar,
            random: Cell::new(seed),
            patterns: RefCell::default(),
            refused: Cell::new(None),
            work_max: WORK_MAX,
            work: Cell::new(0),
        }
    }

    /// The same with calls that may take less.
    pub fn with_work_max(self, work_max: u64) -> Environment {
        let work_max = usize::try_from(work_max).map_or(WORK_MAX, |max| max.min(WORK_MAX));
        Environment { work_max, ..self }
    }

    /// Asked by functions whose result can be much larger than their arguments. `None` ends the function, and the run.
    pub fn allow_bytes(&self, bytes: usize) -> Option<()> {
        self.allow(bytes <= VALUE_BYTES_MAX)
    }

    /// Asked by functions that take more than linear time.
    pub fn allow_work(&self, factors: &[usize]) -> Option<()> {
        let work = factors.iter().fold(1usize, |work, factor| work.saturating_mul(*factor));
        self.allow(work <= self.work_max)?;
        self.took(work);
        Some(())
    }

    fn took(&self, work: usize) {
        self.work.set(self.work.get().saturating_add(work as u64));
    }

    /// Whether there is so much work left, which is then taken.
    fn may_take(&self, work: usize) -> bool {
        let may = self.work.get().saturating_add(work as u64) <= self.work_max as u64;
        if may {
            self.took(work);
        }
        may
    }

    /// What calls have taken since this was last asked, besides going through their arguments once.
    pub fn take_work(&self) -> u64 {
        self.work.take()
    }

    fn allow(&self, allowed: bool) -> Option<()> {
        if !allowed {
            self.refused.set(Some(Refusal::Excessive));
        }
        allowed.then_some(())
    }

    /// Whether a function was ended instead of being undefined.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refused.get()
    }

    /// The next number of the seeded sequence (SplitMix64), in [0, 1).
    pub fn random(&self) -> f64 {
        let state = self.random.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.random.set(state);
        let mut bits = state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        const UNIT: f64 = 1.0 / (1u64 << 53) as f64;
        (bits >> 11) as f64 * UNIT
    }

    /// What `find` finds in `text` by the compiled form of a regular expression, which is kept for the next row. `None` when there
    /// is no such expression.
    pub fn with_pattern<'t, T>(
        &self,
        pattern: String,
        text: &'t str,
        find: impl Fn(&Pattern, &'t str) -> Result<Option<T>, Exhausted>,
    ) -> Option<Option<T>> {
        let mut patterns = self.patterns.borrow_mut();
        if patterns.len() >= PATTERNS_MAX && !patterns.contains_key(&pattern) {
            patterns.clear();
        }
        let compiled = patterns
            .entry(pattern)
            .or_insert_with_key(|pattern| Pattern::compile(pattern, |work| self.may_take(work)));
        let compiled = match compiled {
            Ok(compiled) => compiled,
            Err(NoPattern::Invalid) => return None,
            Err(NoPattern::TooLarge) => return self.allow(false).map(|()| None),
            Err(NoPattern::Unsupported) => {
                self.refused.set(Some(Refusal::Pattern));
                return None;
            }
        };
        let search = |text| {
            self.allow_work(&compiled.work(text))?;
            match find(compiled, text) {
                Ok(found) => Some(found),
                Err(Exhausted) => self.allow(false).map(|()| None),
            }
        };
        let found = search(text)?;
        match text.strip_suffix('\n') {
            Some(text) if found.is_none() && compiled.may_end_before_line_end => search(text),
            _ => Some(found),
        }
    }
}

impl<'a> Arguments<'a> {
    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn get(&self, index: usize) -> Option<&'a Value> {
        self.values.get(index)?.as_deref()
    }

    /// Whether the call has an argument there, defined or not.
    pub fn has(&self, index: usize) -> bool {
        index < self.values.len()
    }

    pub fn string(&self, index: usize) -> Option<&'a str> {
        self.get(index)?.as_str()
    }

    pub fn number(&self, index: usize) -> Option<Number> {
        self.get(index)?.as_number()
    }

    pub fn double(&self, index: usize) -> Option<f64> {
        self.number(index).map(Number::to_f64)
    }

    /// A number without fraction, within 64 bits.
    pub fn integer(&self, index: usize) -> Option<i64> {
        self.number(index)?.as_i64()
    }

    /// A number without fraction that says where or how much: beyond 64 bits it is as good as the nearest within.
    pub fn extent(&self, index: usize) -> Option<i64> {
        let number = self.number(index)?;
        let double = number.to_f64();
        // A cast to an integer ends at the smallest and the largest.
        let is_whole = double.is_finite() && double.fract() == 0.0;
        number.as_i64().or_else(|| is_whole.then_some(double as i64))
    }

    pub fn bool(&self, index: usize) -> Option<bool> {
        self.get(index)?.as_bool()
    }

    pub fn array(&self, index: usize) -> Option<&'a [Value]> {
        self.get(index)?.as_array()
    }

    /// An optional boolean argument: `default` when the call does not have it.
    pub fn flag(&self, index: usize, default: bool) -> Option<bool> {
        if self.has(index) {
            self.bool(index)
        } else {
            Some(default)
        }
    }
}

/// A double as a value.
pub(super) fn double(value: f64) -> Option<Value> {
    Some(Value::Number(Number::from_f64(value)))
}

pub(super) fn integer(value: i64) -> Option<Value> {
    Some(Value::Number(Number::from(value)))
}

pub(super) fn string(value: impl Into<String>) -> Option<Value> {
    Some(Value::String(value.into()))
}

pub(super) fn boolean(value: bool) -> Option<Value> {
    Some(Value::Bool(value))
}
