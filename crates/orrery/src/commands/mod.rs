//! One file per command.

pub mod config;
pub mod export;
pub mod feed;
pub mod import;
pub mod partition;
pub mod processor;
pub mod region;
pub mod serve;
pub mod sql;
pub mod topology;
