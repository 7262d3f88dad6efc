//! The storage traits implemented: [`memory`], which keeps nothing, and [`embedded`], which keeps everything in one
//! directory; [`shared`] lets several accounts have either of them together.
//!
//! A store moves bytes and keeps promises; it does not know what a transaction means. What it promises is written down in
//! [`orrery_partition::storage`] and checked by the contract suite in `tests/contract/`, which runs against every
//! implementation here.

pub mod embedded;
pub mod memory;
pub mod shared;

mod fence;
mod head;
mod holds;
mod range;

pub use embedded::{EmbeddedSettings, EmbeddedStore, ViewCache};
pub use memory::MemoryStore;
pub use shared::SharedStore;
