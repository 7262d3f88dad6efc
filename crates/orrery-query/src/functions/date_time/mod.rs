//! Dates and times: ISO 8601 strings in UTC with seven fraction digits, and ticks of 100 ns since 1970.

mod calendar;
mod format;
mod functions;
mod part;

pub(super) use calendar::DateTime;
pub(super) use functions::register;
