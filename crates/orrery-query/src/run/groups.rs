//! Groups under construction.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use orrery_model::Value;

use super::budget::Held;
use super::evaluate::Evaluator;
use super::frame::{Bound, Frame, GroupRow};
use super::rows::Flow;
use crate::error::Result;
use crate::functions::{Accumulator, OrderedValue};
use crate::plan::{Expr, Grouping};
use crate::values::size_bytes;

pub(crate) struct Groups<'p, 'm> {
    grouping: &'p Grouping,
    /// In the order in which the groups were met.
    groups: Vec<(Vec<Option<Value>>, Vec<Accumulator>)>,
    by_key: BTreeMap<Vec<OrderedValue>, usize>,
    held: Held<'m>,
}

impl<'p, 'm> Groups<'p, 'm> {
    pub fn new(grouping: &'p Grouping, held: Held<'m>) -> Groups<'p, 'm> {
        let mut groups = Groups {
            grouping,
            groups: Vec::new(),
            by_key: BTreeMap::new(),
            held,
        };
        if grouping.keys.is_empty() {
            // Aggregates without GROUP BY have one row, also over nothing.
            groups.open(Vec::new());
        }
        groups
    }

    pub fn len(&self) -> usize {
        self.groups.len()
    }

    fn open(&mut self, key: Vec<Option<Value>>) -> usize {
        let accumulators = self
            .grouping
            .aggregates
            .iter()
            .map(|(kind, _)| Accumulator::new(*kind))
            .collect();
        self.by_key
            .insert(key.iter().cloned().map(OrderedValue).collect(), self.groups.len());
        self.groups.push((key, accumulators));
        self.groups.len() - 1
    }

    /// Adds one combination of sources to its group.
    pub fn add(&mut self, evaluator: &Evaluator<'_>, frame: &Frame<'_>) -> Result<()> {
        let mut key = Vec::with_capacity(self.grouping.keys.len());
        for expr in &self.grouping.keys {
            key.push(OrderedValue(evaluator.eval(expr, frame)?.map(Cow::into_owned)));
        }
        let index = match self.by_key.get(&key) {
            Some(index) => *index,
            None => {
                let bytes: usize = key.iter().flat_map(|part| &part.0).map(size_bytes).sum();
                self.held
                    .add(2 * bytes + self.grouping.aggregates.len() * size_of::<Accumulator>())?;
                self.open(key.into_iter().map(|part| part.0).collect())
            }
        };
        let accumulators = &mut self.groups[index].1;
        for ((_, argument), accumulator) in self.grouping.aggregates.iter().zip(accumulators) {
            if let Some(value) = evaluator.eval(argument, frame)?
                && accumulator.add(&value)
            {
                self.held.add(size_bytes(&value))?;
            }
        }
        Ok(())
    }

    /// Projects every group. The sink also sees the group's frame.
    pub fn finish(
        self,
        evaluator: &Evaluator<'_>,
        output: &Expr,
        outer: &Frame<'_>,
        sink: &mut dyn FnMut(Cow<'_, Value>, &Frame<'_>) -> Result<Flow>,
    ) -> Result<Flow> {
        for (keys, accumulators) in self.groups {
            let aggregates = accumulators.into_iter().map(Accumulator::finish).collect();
            let group = GroupRow { keys, aggregates };
            let frame = Frame {
                bound: Bound::Group(&group),
                up: Some(outer),
            };
            if let Some(value) = evaluator.eval(output, &frame)?
                && sink(value, &frame)?.is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
