//! The rules of one physical partition: what a command does to it, what view its log implies, and what it needs of a
//! store.
//!
//! Everything but the traits in [`storage`] is a pure function of its arguments: no clock, no randomness, no IO.

pub mod storage;
