//! `orrery config show`: what is in force, and where each value came from.

use anyhow::Result;
use clap::Subcommand;

use crate::config::{Raw, ServerConfig, ServerFlags};

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print every setting, its value and its source
    Show(ServerFlags),
}

pub fn run(command: &ConfigCommand) -> Result<()> {
    let ConfigCommand::Show(flags) = command;
    let raw = Raw::gather(flags, std::env::vars())?;
    for [name, value, source, meaning] in raw.rows() {
        println!("{name:<20} {value:<24} {source:<16} {meaning}");
    }
    ServerConfig::new(&raw).map(drop)
}
