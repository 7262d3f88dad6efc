//! The built-in functions: one table of names and argument counts, one file per family.
//!
//! A function gets its arguments evaluated, each of them possibly undefined, and never fails: what it cannot do is
//! undefined. That makes `?` on `Option` the natural way to write them.

mod aggregate;
mod arguments;
mod array;
mod conditional;
mod date_time;
pub(crate) mod full_text;
mod item;
mod math;
mod registry;
pub(crate) mod spatial;
mod string;
mod type_check;
pub(crate) mod vector;

pub(crate) use aggregate::{Accumulator, AggregateKind, OrderedValue};
pub(crate) use arguments::{Arguments, Environment, Refusal, VALUE_BYTES_MAX};
pub use registry::{FunctionName, function_names};
pub(crate) use registry::{Kind, Scalar, ScoreKind, find};
