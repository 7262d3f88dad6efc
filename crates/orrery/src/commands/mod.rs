//! One file per command.

pub mod config;
pub mod serve;
