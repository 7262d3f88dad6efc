//! Whole hosts on a scripted feed and a shared store in memory, under a paused clock: what happens in hours takes
//! milliseconds, and nothing depends on how busy the machine is.

mod balancing;
mod bootstrap;
mod delegates;
mod resharding;
mod scene;
