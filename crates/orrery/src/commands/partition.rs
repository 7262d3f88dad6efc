//! `orrery partition`: the physical partitions of a running server.

use anyhow::Result;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use crate::client::{Call, Client, RemoteFlags};
use crate::{runtime, table};

#[derive(Debug, Subcommand)]
pub enum PartitionCommand {
    /// List the partitions of a container, or of all
    List(ListFlags),
    /// Split a partition in two
    Split(SplitFlags),
    /// Merge two neighbouring partitions into one
    Merge(MergeFlags),
    /// Lead a split or merge that was begun by hand to its next phase
    Advance(AdvanceFlags),
}

#[derive(Args, Debug)]
pub struct ListFlags {
    /// Name of the database
    #[arg(value_name = "DATABASE", requires = "container")]
    database: Option<String>,
    /// Name of the container
    #[arg(value_name = "CONTAINER")]
    container: Option<String>,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct SplitFlags {
    /// Name of the database
    #[arg(value_name = "DATABASE")]
    database: String,
    /// Name of the container
    #[arg(value_name = "CONTAINER")]
    container: String,
    /// Number of the partition, as the list shows it
    #[arg(value_name = "PARTITION")]
    partition: u32,
    /// Wait at every phase for `orrery partition advance`
    #[arg(long)]
    manual: bool,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct AdvanceFlags {
    /// Name of the database
    #[arg(value_name = "DATABASE")]
    database: String,
    /// Name of the container
    #[arg(value_name = "CONTAINER")]
    container: String,
    /// Number of a partition that is being replaced
    #[arg(value_name = "PARTITION")]
    partition: u32,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct MergeFlags {
    /// Name of the database
    #[arg(value_name = "DATABASE")]
    database: String,
    /// Name of the container
    #[arg(value_name = "CONTAINER")]
    container: String,
    /// Number of one partition
    #[arg(value_name = "PARTITION")]
    first: u32,
    /// Number of its neighbour
    #[arg(value_name = "NEIGHBOUR")]
    second: u32,
    /// Wait at every phase for `orrery partition advance`
    #[arg(long)]
    manual: bool,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Args, Debug)]
struct OutputFlags {
    /// Print the server's answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: RemoteFlags,
}

pub fn run(command: &PartitionCommand) -> Result<()> {
    let (call, output) = match command {
        PartitionCommand::List(flags) => {
            let container = flags.database.as_deref().zip(flags.container.as_deref());
            let query = container.map(|(database, container)| vec![("database", database), ("container", container)]);
            (
                Call::administration(Method::GET, "partitions", &query.unwrap_or_default()),
                &flags.output,
            )
        }
        PartitionCommand::Split(SplitFlags {
            database,
            container,
            partition,
            manual,
            output,
        }) => {
            let form =
                json!({ "database": database, "container": container, "partition": partition, "manual": manual });
            (post("partitions/split", &form), output)
        }
        PartitionCommand::Merge(MergeFlags {
            database,
            container,
            first,
            second,
            manual,
            output,
        }) => {
            let partitions = [first, second];
            let form =
                json!({ "database": database, "container": container, "partitions": partitions, "manual": manual });
            (post("partitions/merge", &form), output)
        }
        PartitionCommand::Advance(AdvanceFlags {
            database,
            container,
            partition,
            output,
        }) => {
            let form = json!({ "database": database, "container": container, "partition": partition });
            (post("partitions/advance", &form), output)
        }
    };
    let client = Client::new(&output.remote)?;
    let answer = runtime::run(async move { client.connection().call(&call).await?.success()?.parse() })?;
    if output.json {
        println!("{answer}");
    } else if let Some(phase) = answer["phase"].as_str() {
        println!("{phase}");
    } else {
        table::print(&COLUMNS, answer["partitions"].as_array().map_or(&[], Vec::as_slice));
    }
    Ok(())
}

fn post(path: &str, form: &Value) -> Call {
    Call::administration(Method::POST, path, &[]).json(form.to_string())
}

const COLUMNS: [&str; 9] = [
    "database",
    "container",
    "partition",
    "minInclusive",
    "maxExclusive",
    "items",
    "sizeBytes",
    "lsn",
    "parents",
];
