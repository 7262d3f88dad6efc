//! The `orrery` binary: picks the parts, wires them, serves, and offers the command line.

mod client;
mod cluster;
mod commands;
mod config;
mod host;
mod json_items;
mod logging;
#[cfg(feature = "platform")]
mod platform;
mod position;
mod progress;
mod runtime;
mod scenario;
mod seed;
mod table;
mod topology;

use clap::{Parser, Subcommand};

/// A request makes and drops many small buffers on several threads; the system's allocator spends a third of a point read
/// on that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(
    name = "orrery",
    version,
    about = "A document database that speaks the Azure Cosmos DB for NoSQL API"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The publishing platform: one account per region, a service for each, and the web application
    #[cfg(feature = "platform")]
    Up(commands::up::UpFlags),
    /// The publishing service of one region, on accounts that are elsewhere, such as Azure's
    #[cfg(feature = "platform")]
    Platform(commands::platform::PlatformFlags),
    /// One account with the development key, ready for any SDK
    Emulator(config::ServerFlags),
    /// One node of a cluster on NATS JetStream
    Node(commands::node::NodeFlags),
    /// The NATS servers and nodes of a cluster
    #[command(subcommand)]
    Cluster(commands::cluster::ClusterCommand),
    /// Physical partitions of a running server
    #[command(subcommand)]
    Partition(commands::partition::PartitionCommand),
    /// Query shell for a running server
    Sql(commands::sql::SqlFlags),
    /// Regions of a running server and the links between them
    #[command(subcommand)]
    Region(commands::region::RegionCommand),
    /// What is simulated about a running server, and scenarios
    #[command(subcommand)]
    Sim(commands::sim::SimCommand),
    /// Settings for one account per region
    #[command(subcommand)]
    Topology(commands::topology::TopologyCommand),
    /// Items from NDJSON or a JSON array into a container of a running server
    Import(commands::import::ImportFlags),
    /// Items of a container of a running server as NDJSON or a JSON array
    Export(commands::export::ExportFlags),
    /// Changes of a container of a running server, as they happen
    #[command(subcommand)]
    Feed(commands::feed::FeedCommand),
    /// Units of the change feed processor, through a running server
    #[cfg(feature = "processor")]
    #[command(subcommand)]
    Processor(commands::processor::ProcessorCommand),
    /// Settings in force and where each comes from
    #[command(subcommand)]
    Config(commands::config::ConfigCommand),
}

fn main() -> std::process::ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        #[cfg(feature = "platform")]
        Command::Up(flags) => commands::up::run(&flags),
        #[cfg(feature = "platform")]
        Command::Platform(flags) => commands::platform::run(&flags),
        Command::Emulator(flags) => commands::serve::run(&flags),
        Command::Node(flags) => commands::node::run(&flags),
        Command::Cluster(command) => commands::cluster::run(&command),
        Command::Partition(command) => commands::partition::run(&command),
        Command::Sql(flags) => commands::sql::run(&flags),
        Command::Region(command) => commands::region::run(&command),
        Command::Sim(command) => commands::sim::run(&command),
        Command::Topology(command) => commands::topology::run(&command),
        Command::Import(flags) => commands::import::run(&flags),
        Command::Export(flags) => commands::export::run(&flags),
        Command::Feed(command) => commands::feed::run(&command),
        #[cfg(feature = "processor")]
        Command::Processor(command) => commands::processor::run(&command),
        Command::Config(command) => commands::config::run(&command),
    };
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            // One line: the chain of causes, outermost first.
            eprintln!("orrery: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
