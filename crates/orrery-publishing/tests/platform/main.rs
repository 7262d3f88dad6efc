//! The platform over three regions, each account a server process of its own with slow links between its regions, all of it
//! through the official SDK. `world` starts it, `original` is the data access layer as first published, for comparison.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where by panicking")]

mod admin;
mod articles;
mod backfill;
mod defects;
mod fanout;
mod feeds;
mod large;
mod moving;
mod original;
mod outages;
mod scenario;
mod totals;
#[path = "../../examples/walkthrough.rs"]
mod walkthrough;
mod world;
