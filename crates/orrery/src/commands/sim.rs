//! `orrery sim`: what is simulated about a running server, and scenarios that are played on it.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};
use http::Method;
use serde_json::Value;

use crate::client::{Call, Client, RemoteFlags};
use crate::scenario::{Scenario, play};
use crate::{runtime, table};

#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Show where every control stands, as JSON
    Show(ShowFlags),
    /// Play a scenario: steps at their times, clients meanwhile, and what must hold in the end
    Run(RunFlags),
}

#[derive(Args, Debug)]
pub struct ShowFlags {
    #[command(flatten)]
    remote: RemoteFlags,
}

#[derive(Args, Debug)]
pub struct RunFlags {
    /// TOML, or JSON if its name ends so
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: RemoteFlags,
}

pub fn run(command: &SimCommand) -> Result<()> {
    match command {
        SimCommand::Show(flags) => show(flags),
        SimCommand::Run(flags) => run_scenario(flags),
    }
}

fn show(flags: &ShowFlags) -> Result<()> {
    let client = Client::new(&flags.remote)?;
    let call = Call::administration(Method::GET, "simulation", &[]);
    let answer: Value = runtime::run(async move { client.connection().call(&call).await?.success()?.parse() })?;
    println!("{answer:#}");
    Ok(())
}

fn run_scenario(flags: &RunFlags) -> Result<()> {
    let scenario = Scenario::read(&flags.file)?;
    let client = Client::new(&flags.remote)?;
    let report = runtime::run(async move { play(&scenario, &client).await })?;
    if flags.json {
        println!("{}", report.shown);
    } else {
        let rows = |name: &str| report.shown[name].as_array().cloned().unwrap_or_default();
        table::print(&["atMs", "do", "endedAtMs", "failure"], &rows("steps"));
        println!("{:#}", report.shown["load"]);
        table::print(&["that", "holds", "found"], &rows("asserts"));
    }
    ensure!(report.holds, "what the scenario demands does not hold");
    Ok(())
}
