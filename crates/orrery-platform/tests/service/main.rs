//! The services of two regions over two accounts, through HTTP as a browser would use them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where by panicking")]

mod client;
mod hostile;
mod limits;
mod story;
mod world;
