//! What survives when the power goes, the disk fails or fills, and bytes rot.
//!
//! The log lives on a simulated disk. The view's files are real: the tree syncs what it flushes and keeps nothing else, so
//! giving up a store without closing it leaves exactly what a power cut would.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../support/mod.rs"]
mod support;

/// The simulated disk.
mod disk;
/// A store on that disk, and what it must hold.
mod rig;

/// The power goes at the first write, the second, …
mod cuts;
/// Bytes are not what was written.
mod damage;
/// Writes and syncs fail, and the disk fills.
mod faults;
/// Stores are closed, given up and opened again.
mod restart;
