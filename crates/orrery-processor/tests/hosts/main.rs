//! Whole hosts on a scripted feed and a shared store in memory, under a paused clock: what happens in hours takes
//! milliseconds, and nothing depends on how busy the machine is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where by panicking")]

mod answers;
mod balancing;
mod bootstrap;
mod clocks;
mod cursors;
mod delegates;
mod dotnet;
mod history;
mod jobs;
mod lanes;
mod resharding;
mod scene;
mod targets;
mod trouble;
mod way;
