//! What tests of a delegate need: a container without a server, a server of their own, and a ledger that proves what was
//! delivered.
//!
//! [`ScriptedFeed`] is a deterministic change feed in memory with partitions that split and merge and reads that fail on
//! demand; with [`crate::store::MemoryLeases`] and a paused clock, a whole unit runs in a test without waiting.
//! [`Emulator`] is a real server.

mod emulator;
mod ledger;
mod scripted;

pub use emulator::{EMULATOR_KEY, Emulator, binary, port_of};
pub use ledger::{Delivery, Ledger};
pub use scripted::{Fault, ScriptedFeed};
