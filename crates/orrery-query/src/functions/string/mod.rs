//! Strings. Lengths and positions count UTF-16 units.

mod convert;
mod dialect;
pub(super) mod engine;
mod parts;
mod patterns;
mod search;
pub(crate) mod text;

use super::registry::Table;

pub(super) fn register(table: &mut Table) {
    search::register(table);
    parts::register(table);
    convert::register(table);
    patterns::register(table);
}
