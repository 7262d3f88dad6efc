//! Items on their way in, and rows on their way out.

use std::borrow::Cow;

use bytes::Bytes;
use orrery_model::{Error, Status, Value, json};

use super::cursor::{Content, Item};
use super::evaluate::Evaluator;
use super::frame::Frame;
use crate::error::Result;
use crate::plan::Plan;
use crate::values::{row_text, size_bytes};

/// One row of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    Value(Value),
    /// An item exactly as the cursor gave it.
    Text(Bytes),
}

impl Row {
    /// The row as it is sent.
    pub fn into_text(self) -> Bytes {
        match self {
            Row::Value(value) => row_text(&value).into(),
            Row::Text(text) => text,
        }
    }

    pub fn into_value(self) -> Result<Value> {
        match self {
            Row::Value(value) => Ok(value),
            Row::Text(text) => Ok(json::parse_value(&text).map_err(malformed)?),
        }
    }

    pub(super) fn size_bytes(&self) -> usize {
        match self {
            Row::Value(value) => size_bytes(value),
            Row::Text(text) => text.len(),
        }
    }
}

/// An item of which the parts that a plan needs have been read.
pub(super) struct Ready<'c> {
    value: Option<Cow<'c, Value>>,
    /// The rows of the plan are the items, and this is the item.
    row: Option<&'c Bytes>,
    pub rank: u64,
}

impl<'c> Ready<'c> {
    pub fn new(plan: &Plan, item: Item<'c>) -> Result<Ready<'c>> {
        let (value, row) = match item.content {
            Content::Nothing => (None, None),
            Content::Value(value) => (Some(Cow::Borrowed(value)), None),
            Content::Text(text) => {
                let value = plan.wanted.read(text).map_err(malformed)?;
                (Some(Cow::Owned(value)), plan.gives_items.then_some(text))
            }
        };
        Ok(Ready {
            value,
            row,
            rank: item.rank,
        })
    }

    pub fn frame(&self) -> Frame<'_> {
        Frame::root(self.value.as_deref())
    }

    /// What the plan makes of one combination of sources.
    pub fn row(&self, plan: &Plan, evaluator: &Evaluator<'_>, frame: &Frame<'_>) -> Result<Option<Row>> {
        if let Some(text) = self.row {
            return Ok(Some(Row::Text(text.clone())));
        }
        let value = evaluator.eval(&plan.block.output, frame)?;
        Ok(value.map(|value| Row::Value(value.into_owned())))
    }

    /// The item itself, when it is the row of every combination of sources.
    pub fn as_row(&self) -> Option<&'c Bytes> {
        self.row
    }
}

fn malformed(error: json::JsonError) -> Error {
    Error::new(Status::INTERNAL, "a stored item is malformed").with_source(error)
}
