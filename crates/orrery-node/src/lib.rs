//! One region alive: a catalogue of databases and containers, a task per physical partition, and the way from an
//! operation to the partitions it concerns.

pub mod account;
pub mod admin;
pub mod api;
pub mod clock;
pub mod node;

pub use api::{Failure, Reply, Request};
pub use clock::{Clock, ManualClock, SystemClock};
pub use node::Node;
