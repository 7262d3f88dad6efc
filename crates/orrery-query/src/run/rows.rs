//! The rows of a block: sources bound one inside the other, filtered, grouped, projected.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use orrery_model::Value;

use super::budget::Held;
use super::evaluate::Evaluator;
use super::frame::Frame;
use super::groups::Groups;
use crate::error::Result;
use crate::functions::OrderedValue;
use crate::plan::{Block, Collection, Source};
use crate::values::size_bytes;

pub(crate) type Flow = ControlFlow<()>;

impl Evaluator<'_> {
    /// Calls `sink` with every row of `block` until it breaks off.
    pub fn rows(
        &self,
        block: &Block,
        frame: &Frame<'_>,
        sink: &mut dyn FnMut(Cow<'_, Value>) -> Result<Flow>,
    ) -> Result<Flow> {
        let mut seen = Seen::new(self.meter.held());
        let mut emit = |value: Cow<'_, Value>| {
            if block.distinct && !seen.is_new(&value)? {
                return Ok(ControlFlow::Continue(()));
            }
            sink(value)
        };
        if let Some(grouping) = &block.grouping {
            let mut groups = Groups::new(grouping, self.meter.held());
            _ = self.matches(block, frame, &mut |inner| {
                groups.add(self, inner)?;
                Ok(ControlFlow::Continue(()))
            })?;
            return groups.finish(self, &block.output, frame, &mut |value, _| emit(value));
        }
        self.matches(block, frame, &mut |inner| match self.eval(&block.output, inner)? {
            Some(value) => emit(value),
            None => Ok(ControlFlow::Continue(())),
        })
    }

    /// Calls `found` with the frame of every combination of sources that passes the filter.
    pub fn matches(
        &self,
        block: &Block,
        frame: &Frame<'_>,
        found: &mut dyn FnMut(&Frame<'_>) -> Result<Flow>,
    ) -> Result<Flow> {
        self.bind(&block.sources, frame, &mut |inner| match &block.filter {
            Some(filter) if self.truth(filter, inner)? != Some(true) => Ok(ControlFlow::Continue(())),
            _ => found(inner),
        })
    }

    /// Whether the filter, or without one the output, is true for every combination of sources.
    pub fn all_rows_pass(&self, block: &Block, frame: &Frame<'_>) -> Result<bool> {
        let test = block.filter.as_ref().unwrap_or(&block.output);
        let flow = self.bind(&block.sources, frame, &mut |inner| {
            let passes = self.truth(test, inner)? == Some(true);
            Ok(if passes {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            })
        })?;
        Ok(flow.is_continue())
    }

    /// Calls `row` with the frame of every combination of sources.
    pub fn bind(
        &self,
        sources: &[Source],
        frame: &Frame<'_>,
        row: &mut dyn FnMut(&Frame<'_>) -> Result<Flow>,
    ) -> Result<Flow> {
        let Some((source, rest)) = sources.split_first() else {
            return row(frame);
        };
        match &source.collection {
            Collection::Value(expr) => match self.eval(expr, frame)? {
                Some(value) => self.bind_value(&value, source.iterate, rest, frame, row),
                None => Ok(ControlFlow::Continue(())),
            },
            Collection::Rows(block) => self.rows(block, frame, &mut |value| {
                self.bind_value(&value, source.iterate, rest, frame, row)
            }),
        }
    }

    fn bind_value(
        &self,
        value: &Value,
        iterate: bool,
        rest: &[Source],
        frame: &Frame<'_>,
        row: &mut dyn FnMut(&Frame<'_>) -> Result<Flow>,
    ) -> Result<Flow> {
        if !iterate {
            self.meter.step()?;
            return self.bind(rest, &frame.inner(Some(value)), row);
        }
        for element in value.as_array().unwrap_or_default() {
            self.meter.step()?;
            if self.bind(rest, &frame.inner(Some(element)), row)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// The rows that DISTINCT has let pass.
pub(super) struct Seen<'m> {
    rows: BTreeSet<OrderedValue>,
    held: Held<'m>,
}

impl<'m> Seen<'m> {
    pub fn new(held: Held<'m>) -> Seen<'m> {
        Seen {
            rows: BTreeSet::new(),
            held,
        }
    }

    /// Remembers a row and says whether it is the first of its kind.
    pub fn is_new(&mut self, value: &Value) -> Result<bool> {
        let new = self.rows.insert(OrderedValue(Some(value.clone())));
        if new {
            self.held.add(size_bytes(value))?;
        }
        Ok(new)
    }
}
