//! Whole hosts on a scripted feed and a shared store in memory, under a paused clock: what happens in hours takes
//! milliseconds, and nothing depends on how busy the machine is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where by panicking")]

mod answers;
mod attempts;
mod balancing;
mod bootstrap;
mod by_ids;
mod clocks;
mod cursors;
mod delegates;
mod door;
mod dotnet;
mod fences;
mod foreign;
mod history;
mod jobs;
mod lanes;
mod namesakes;
mod pace;
mod panics;
mod repairs;
mod replays;
mod resets;
mod resharding;
mod scene;
mod stopping;
mod targets;
mod trouble;
mod way;
