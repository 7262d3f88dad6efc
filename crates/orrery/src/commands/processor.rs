//! `orrery processor`: the units of a change feed processor, seen through their leases and moved by them.
//!
//! It is a user of the processor library and of the official SDK like any other, and knows nothing else about the server.
//! The SDK comes without TLS here, so the address is a plain one on this machine.

mod show;

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail, ensure};
use azure_data_cosmos::clients::{ContainerClient, CosmosClient};
use azure_data_cosmos::options::Region;
use azure_data_cosmos::{AccountReference, RoutingStrategy};
use clap::{Args, Subcommand};
use orrery_processor::dead_letters::{ContainerDeadLetters, DeadLetterStore as _};
use orrery_processor::estimator::Estimator;
use orrery_processor::feed::FeedSource as _;
use orrery_processor::feed::sdk::SdkFeed;
use orrery_processor::operations::{Operations, ResetTo, units};
use orrery_processor::store::ContainerLeases;
use orrery_processor::token::FeedToken;
use orrery_processor::{Cursor, StartFrom};

use crate::client::RemoteFlags;
use crate::runtime;

#[derive(Debug, Subcommand)]
pub enum ProcessorCommand {
    /// List the units that have leases in a container
    List(ListFlags),
    /// Show a unit: its leases, their owners, and how far each is behind
    Status(StatusFlags),
    /// Print where a unit stands, as text that `reset --to` and the library take
    Export(ExportFlags),
    /// Move a unit to another position
    Reset(ResetFlags),
}

#[derive(Args, Debug)]
struct LeaseFlags {
    /// Container that holds the leases
    #[arg(long, value_name = "CONTAINER", default_value = "leases")]
    leases: String,
    /// Its database, if it is another one than that of the monitored container
    #[arg(long, value_name = "DATABASE")]
    lease_database: Option<String>,
    #[command(flatten)]
    remote: RemoteFlags,
}

#[derive(Args, Debug)]
pub struct ListFlags {
    /// Name of the database
    #[arg(value_name = "DATABASE")]
    database: String,
    /// Only the units that read this container
    #[arg(value_name = "CONTAINER")]
    container: Option<String>,
    #[command(flatten)]
    leases: LeaseFlags,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct UnitFlags {
    /// Name of the processor
    #[arg(value_name = "PROCESSOR")]
    processor: String,
    /// Name of the database
    #[arg(value_name = "DATABASE")]
    database: String,
    /// Name of the monitored container
    #[arg(value_name = "CONTAINER")]
    container: String,
    #[command(flatten)]
    leases: LeaseFlags,
    /// Lease expiry of the unit's hosts, to tell the living from the dead
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    expiry: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub struct StatusFlags {
    #[command(flatten)]
    unit: UnitFlags,
    /// Container with the unit's dead letters, in the database of the monitored one: also show the keys they hold up
    #[arg(long, value_name = "CONTAINER")]
    letters: Option<String>,
}

#[derive(Args, Debug)]
pub struct ExportFlags {
    #[command(flatten)]
    unit: UnitFlags,
}

#[derive(Args, Debug)]
pub struct ResetFlags {
    #[command(flatten)]
    unit: UnitFlags,
    /// `beginning`, `now`, a time such as `2026-08-20T09:15:02Z`, a feed token such as `"48213"`, or what `export` printed
    #[arg(long, value_name = "POSITION")]
    to: String,
    /// Take the leases from hosts that are running; they go on from the new position
    #[arg(long)]
    from_running: bool,
}

pub fn run(command: &ProcessorCommand) -> Result<()> {
    runtime::run(async {
        match command {
            ProcessorCommand::List(flags) => list(flags).await,
            ProcessorCommand::Status(flags) => status(flags).await,
            ProcessorCommand::Export(flags) => export(flags).await,
            ProcessorCommand::Reset(flags) => reset(flags).await,
        }
    })
}

/// A client and the container of leases.
async fn connect(flags: &LeaseFlags, database: &str) -> Result<(CosmosClient, ContainerLeases)> {
    let endpoint = flags.remote.endpoint();
    ensure!(
        endpoint.starts_with("http://"),
        "this command speaks plain HTTP to a server on this machine; '{endpoint}' is not such an address"
    );
    let account = AccountReference::with_authentication_key(
        endpoint
            .parse()
            .with_context(|| format!("'{endpoint}' is not an address"))?,
        flags.remote.key().to_owned(),
    );
    // Which region is nearest is the server's business: it names its own.
    let routing = RoutingStrategy::ProximityTo(Region::WEST_US);
    let client = CosmosClient::builder().build(account, routing).await?;
    let database = flags.lease_database.as_deref().unwrap_or(database);
    let leases = container(&client, database, &flags.leases).await?;
    Ok((client, ContainerLeases::new(leases)))
}

async fn container(client: &CosmosClient, database: &str, name: &str) -> Result<ContainerClient> {
    let found = client.database_client(database).container_client(name, None).await;
    found.with_context(|| format!("cannot open the container '{name}' of '{database}'"))
}

async fn list(flags: &ListFlags) -> Result<()> {
    let (client, leases) = connect(&flags.leases, &flags.database).await?;
    let found = units(&leases).await?;
    let source = match &flags.container {
        Some(name) => {
            let feed = SdkFeed::new(&client, container(&client, &flags.database, name).await?);
            Some(feed.describe().await?.identity)
        }
        None => None,
    };
    let rows: Vec<(String, usize, Vec<String>)> = found
        .into_iter()
        .filter_map(|unit| {
            let name = match &source {
                Some(source) => unit.processor(source)?.to_owned(),
                None => unit.prefix.clone(),
            };
            Some((name, unit.n_leases, unit.owners))
        })
        .collect();
    show::units(&rows, flags.json);
    Ok(())
}

async fn status(StatusFlags { unit: flags, letters }: &StatusFlags) -> Result<()> {
    let (client, leases) = connect(&flags.leases, &flags.database).await?;
    let feed = || async {
        Ok::<_, anyhow::Error>(SdkFeed::new(
            &client,
            container(&client, &flags.database, &flags.container).await?,
        ))
    };
    let operations = Operations::open(&flags.processor, feed().await?, leases.clone(), expiry(flags)?).await?;
    let (statuses, paused) = operations.status().await?;
    ensure!(
        !statuses.is_empty(),
        "the processor '{}' has no leases here",
        flags.processor
    );
    let lag = Estimator::new(&flags.processor, feed().await?, leases)?
        .snapshot()
        .await?;
    let parked = match letters {
        Some(name) => {
            let letters = ContainerDeadLetters::new(container(&client, &flags.database, name).await?);
            Some(letters.keys(&flags.processor).await?)
        }
        None => None,
    };
    let unit = show::Unit {
        leases: statuses,
        lag,
        tiling: operations.tiling().await?,
        paused,
        parked,
    };
    show::status(&unit, flags.json);
    Ok(())
}

fn expiry(flags: &UnitFlags) -> Result<Duration> {
    Duration::try_from_secs_f64(flags.expiry).context("the expiry is a number of seconds")
}

async fn open(unit: &UnitFlags) -> Result<Operations> {
    let (client, leases) = connect(&unit.leases, &unit.database).await?;
    let feed = SdkFeed::new(&client, container(&client, &unit.database, &unit.container).await?);
    Ok(Operations::open(&unit.processor, feed, leases, expiry(unit)?).await?)
}

async fn export(ExportFlags { unit }: &ExportFlags) -> Result<()> {
    let operations = open(unit).await?;
    let (leases, _) = operations.status().await?;
    ensure!(
        !leases.is_empty(),
        "the processor '{}' has no leases here",
        unit.processor
    );
    let cursor = operations.cursor().await?.to_text();
    if unit.json {
        println!("{}", serde_json::json!({ "cursor": cursor, "leases": leases.len() }));
    } else {
        println!("{cursor}");
    }
    Ok(())
}

async fn reset(flags: &ResetFlags) -> Result<()> {
    let to = position(&flags.to)?;
    let unit = &flags.unit;
    let n_leases = open(unit).await?.reset(&to, flags.from_running).await?;
    ensure!(n_leases > 0, "the processor '{}' has no leases here", unit.processor);
    let place = match to {
        ResetTo::Cursor(_) => "where it stood",
        _ => flags.to.as_str(),
    };
    println!("{n_leases} leases moved to {place}");
    Ok(())
}

fn position(text: &str) -> Result<ResetTo> {
    if text.trim_matches('"').bytes().all(|byte| byte.is_ascii_digit())
        && text.bytes().any(|byte| byte.is_ascii_digit())
    {
        return Ok(ResetTo::Token(FeedToken::new(text)));
    }
    if let Ok(cursor) = Cursor::parse(text) {
        return Ok(ResetTo::Cursor(cursor));
    }
    match StartFrom::parse(text) {
        Some(StartFrom::Now) => Ok(ResetTo::Now),
        Some(StartFrom::Time(time)) if time < SystemTime::UNIX_EPOCH => bail!("'{text}' is before 1970"),
        Some(start) => Ok(ResetTo::Start(start)),
        None => bail!(
            "'{text}' is not a position: beginning, now, a time like 2026-08-20T09:15:02Z, a feed token, or what `export` printed"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_words_times_and_tokens() {
        assert_eq!(position("now").unwrap(), ResetTo::Now);
        assert_eq!(position("beginning").unwrap(), ResetTo::Start(StartFrom::Beginning));
        assert_eq!(position("\"48213\"").unwrap(), ResetTo::Token(FeedToken::at(48213)));
        assert!(matches!(
            position("2026-08-20T09:15:02Z").unwrap(),
            ResetTo::Start(StartFrom::Time(_))
        ));
        for text in ["", "\"\"", "yesterday", "1969-08-20T09:15:02Z"] {
            assert!(position(text).is_err(), "{text}");
        }
    }
}
