//! The storage traits implemented: [`memory`], which keeps nothing, [`embedded`], which keeps everything in one directory,
//! and `nats`, whose logs are kept by NATS JetStream; [`shared`] lets several accounts have any of them together.
//!
//! A store moves bytes and keeps promises; it does not know what a transaction means. What it promises is written down in
//! [`orrery_partition::storage`] and checked by the contract suite in `tests/contract/`, which runs against every
//! implementation here.

pub mod embedded;
pub mod memory;
#[cfg(feature = "nats")]
pub mod nats;
pub mod shared;

mod body;
mod fence;
mod frame;
mod head;
mod holds;
mod range;

pub use embedded::{EmbeddedSettings, EmbeddedStore, ViewCache};
pub use memory::MemoryStore;
#[cfg(feature = "nats")]
pub use nats::{NatsSettings, NatsStore};
pub use shared::SharedStore;
