//! The store on JetStream against real servers: what survives a lost directory, a killed server, a process that stood still.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod support;

/// Stores, writers that remember what was acknowledged, and the check that it is all there.
mod rig;

/// Servers killed under appends.
mod faults;
/// Owners in processes of their own.
mod fencing;
/// Nodes that stand by.
mod following;
/// Directories lost, snapshots saved, logs trimmed.
mod rebuild;
/// Mirrors in other regions.
mod regions;
/// Servers that are not fit.
mod servers;
/// Requests from node to node, and the records they share.
mod talking;
