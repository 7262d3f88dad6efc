//! One region alive: a catalogue of databases and containers, a task per physical partition, and the way from an
//! operation to the partitions it concerns.
//!
//! Reading order: [`node`] is the front door; [`catalogue`] and [`control`] say what exists; [`items`], [`batch`], [`feed`]
//! and [`metadata`] execute operations; [`partition`] and [`writer`] are one physical partition; [`reshard`] splits and
//! merges them; [`cluster`] lets several nodes share a store, [`geo`] several regions an account; [`snapshots`] saves and restores the whole account; [`scripts`] runs user-defined functions; [`events`] and
//! [`meters`] tell what goes on.

pub mod account;
pub mod admin;
pub mod api;
mod authorize;
mod batch;
mod cache;
mod caches;
mod catalogue;
mod change_feed;
pub mod clock;
pub mod cluster;
mod continuation;
mod control;
pub mod events;
mod feed;
pub mod geo;
mod hot_snapshot;
mod items;
mod metadata;
pub mod meters;
pub mod node;
mod opening;
mod partition;
mod purge;
mod query;
mod quota;
mod ranges;
mod recent;
mod recovery;
mod reindex;
mod reshard;
mod scripts;
mod snapshots;
mod sync;
mod tasks;
mod throttle;
mod watched;
mod writer;

pub use api::{Failure, Reply, Request};
pub use clock::{Clock, ManualClock, SystemClock};
pub use metadata::conflicts::ConflictLimits;
pub use node::{Node, NodeSettings};
