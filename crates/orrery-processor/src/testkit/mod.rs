//! What tests of a delegate need: a container without a server, and a ledger that proves what was delivered.
//!
//! [`ScriptedFeed`] is a deterministic change feed in memory with partitions that split and merge and reads that fail on
//! demand; with [`crate::store::MemoryLeases`] and a paused clock, a whole unit runs in a test without waiting.

mod ledger;
mod scripted;

pub use ledger::{Delivery, Ledger};
pub use scripted::{Fault, ScriptedFeed};
