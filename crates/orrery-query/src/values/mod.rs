//! JSON values as queries see them: compared, ordered, calculated with and printed.
//!
//! A value that may be undefined is an `Option`, and undefined is `None`; nothing here ever fails.

mod arithmetic;
mod compare;
mod print;
mod size;

pub(crate) use arithmetic::{bit_not, calculate};
pub(crate) use compare::{compare_for_order, compare_scalars, equal, is_primitive, order_key_cmp};
pub(crate) use print::{is_finite, print_number, to_string};
pub use print::{print_row, row_text};
pub(crate) use size::size_bytes;

use std::borrow::Cow;

use orrery_model::Value;

/// The result of an expression: borrowed from the item or the plan wherever possible.
pub(crate) type Computed<'a> = Option<Cow<'a, Value>>;
