//! One file per command.

pub mod cluster;
pub mod config;
pub mod export;
pub mod feed;
pub mod import;
pub mod node;
pub mod partition;
#[cfg(feature = "platform")]
pub mod platform;
#[cfg(feature = "processor")]
pub mod processor;
pub mod region;
pub mod serve;
pub mod sim;
pub mod sql;
pub mod topology;
#[cfg(feature = "platform")]
pub mod up;
