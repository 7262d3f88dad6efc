//! The `orrery` binary as its users meet it: real processes, free ports, directories of their own.
//!
//! `serving` is about starting and stopping, `settings` about configuration, `partitions` about the command of that name,
//! `transfer` about import and export, `sql` about the query shell, `seed` about data that is there from the start.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod feed;
mod partitions;
mod seed;
mod serving;
mod settings;
mod sql;
mod support;
mod transfer;
