//! `orrery topology`: settings for one account per region.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};

use crate::host::fresh_secret;
use crate::topology::{Plan, regions_wanted};

#[derive(Debug, Subcommand)]
pub enum TopologyCommand {
    /// Print the settings of a server with one account per region, for `orrery emulator --config`
    Generate(GenerateFlags),
}

#[derive(Args, Debug)]
pub struct GenerateFlags {
    /// Names of regions, or how many of the well-known ones
    #[arg(long, value_name = "N|A,B,C", default_value = "3")]
    regions: String,
    /// What the accounts' names begin with
    #[arg(long, value_name = "NAME", default_value = "contentpubdatabase")]
    name: String,
    /// Make links as slow as the distance between their ends suggests
    #[arg(long)]
    links: bool,
    /// Give every account a fresh key instead of the development key
    #[arg(long)]
    keys: bool,
    /// Print the settings of clients instead: where each region writes and prefers to read
    #[arg(long, conflicts_with_all = ["links", "keys"])]
    clients: bool,
}

pub fn run(command: &TopologyCommand) -> Result<()> {
    let TopologyCommand::Generate(flags) = command;
    let mut plan = Plan::new(&regions_wanted(&flags.regions)?, &flags.name)?;
    if flags.keys {
        for account in &mut plan.accounts {
            account.key = Some(STANDARD.encode(fresh_secret()));
        }
    }
    let text = match flags.clients {
        true => plan.to_client_settings(),
        false => plan.to_server_settings(flags.links),
    };
    print!("{text}");
    Ok(())
}
