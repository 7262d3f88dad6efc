//! `orrery region`: the regions of a running server, which of them takes writes, and the links between them.

use anyhow::Result;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};

use crate::client::{Call, Client, RemoteFlags, percent_encode};
use crate::runtime;
use crate::table;

#[derive(Debug, Subcommand)]
pub enum RegionCommand {
    /// List the regions with their roles and how far they lag behind
    List(ListFlags),
    /// Let another region take the writes, without losing any
    Failover(NamedFlags),
    /// Take a region out at once; if it took writes, the next in line takes over and what it lacks is lost
    Offline(OfflineFlags),
    /// Take a region in again, as one that follows
    Online(OnlineFlags),
    /// Say in which order regions take over
    Priority(PriorityFlags),
    /// Add a region; it serves when it has everything
    Add(NamedFlags),
    /// Remove a region and its data
    Remove(RemoveFlags),
    /// Let a region's clock go wrong, or be right again
    Clock(ClockFlags),
    /// Let a region's endpoint fail in one of several ways, or kill the region
    Stop(StopFlags),
    /// Let a region's endpoint answer again; one that was killed is opened from its disk
    Start(NamedFlags),
    /// Say how far clients are from a region
    Clients(ClientsFlags),
    /// Let clients hear of old regions, every other time, for a while after each change
    Flap(FlapFlags),
    /// Delay what is on its way from one region to another, or one partition's part of it, until it is resumed
    Pause(PausedFlags),
    /// Let a paused or cut link work again, with the latency it had, or one partition on it
    Resume(PausedFlags),
    /// Let transactions pass a paused link, the next ones in their order
    Step(StepFlags),
    /// Show the links, or say how one behaves
    Link(LinkFlags),
}

#[derive(Args, Debug)]
pub struct ListFlags {
    /// A line per partition
    #[arg(long)]
    partitions: bool,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct RemoveFlags {
    /// Name of the region
    #[arg(value_name = "REGION")]
    region: String,
    /// For how long clients are still told of it, although it serves nothing
    #[arg(long, value_name = "MS", default_value_t = 0)]
    drain_ms: u64,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct ClockFlags {
    /// Name of the region
    #[arg(value_name = "REGION")]
    region: String,
    /// How far it is ahead, or behind when negative
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    skew_ms: i64,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct NamedFlags {
    /// Name of the region
    #[arg(value_name = "REGION")]
    region: String,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct OfflineFlags {
    /// Name of the region
    #[arg(value_name = "REGION")]
    region: String,
    /// Also when strong writes would be lost
    #[arg(long)]
    accept_loss: bool,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct OnlineFlags {
    /// Name of the region
    #[arg(value_name = "REGION")]
    region: String,
    /// Drop what only the region has and the conflict feeds have no room for
    #[arg(long)]
    accept_loss: bool,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct PriorityFlags {
    /// Names of all regions that are online, the one that takes writes first or not at all
    #[arg(value_name = "REGION", required = true)]
    regions: Vec<String>,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct StopFlags {
    /// Name of the region
    #[arg(value_name = "REGION")]
    region: String,
    /// unavailable: every request is refused; hang: none is answered; refuse: no connection is taken; slow: answers take longer;
    /// kill: as by kill -9, and only its disk remains
    #[arg(long, value_name = "MODE", default_value = "unavailable")]
    mode: String,
    /// How much longer answers of a slow region take [default: 1000]
    #[arg(long, value_name = "MS")]
    delay_ms: Option<f64>,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct ClientsFlags {
    /// Name of the region
    #[arg(value_name = "REGION")]
    region: String,
    /// Only clients that call themselves so, in the header x-orrery-client
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// What a request and its answer take on the way; 0 ends it
    #[arg(long, value_name = "MS")]
    round_trip_ms: f64,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct FlapFlags {
    /// For how long after a change; 0 ends it
    #[arg(long, value_name = "MS")]
    for_ms: f64,
    #[command(flatten)]
    output: OutputFlags,
}

/// A link, and what of it.
#[derive(Args, Debug)]
pub struct PausedFlags {
    /// Region where the link begins
    #[arg(value_name = "FROM")]
    from: String,
    /// Region where it ends
    #[arg(value_name = "TO")]
    to: String,
    #[command(flatten)]
    partition: PartitionFlags,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Args, Debug)]
pub struct StepFlags {
    /// Region where the link begins
    #[arg(value_name = "FROM")]
    from: String,
    /// Region where it ends
    #[arg(value_name = "TO")]
    to: String,
    /// How many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1)]
    transactions: u64,
    #[command(flatten)]
    partition: PartitionFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// One partition instead of all.
#[derive(Args, Debug)]
pub struct PartitionFlags {
    /// Database of a partition that is meant alone
    #[arg(long, value_name = "DATABASE", requires = "container")]
    database: Option<String>,
    /// Container of that partition
    #[arg(long, value_name = "CONTAINER", requires = "partition")]
    container: Option<String>,
    /// Number of that partition
    #[arg(long, value_name = "NUMBER", requires = "database")]
    partition: Option<u32>,
}

impl PartitionFlags {
    /// The members that name the partition, if one is meant.
    fn put_into(&self, form: &mut Value) -> bool {
        let (Some(database), Some(container), Some(partition)) = (&self.database, &self.container, self.partition)
        else {
            return false;
        };
        form["database"] = database.as_str().into();
        form["container"] = container.as_str().into();
        form["partition"] = partition.into();
        true
    }
}

#[derive(Args, Debug)]
pub struct LinkFlags {
    /// Region where the link begins
    #[arg(value_name = "FROM", requires = "to")]
    from: Option<String>,
    /// Region where it ends
    #[arg(value_name = "TO")]
    to: Option<String>,
    /// Time something takes on it, in milliseconds
    #[arg(long, value_name = "MS")]
    latency_ms: Option<f64>,
    /// How much more or less it may be, as the distribution has it
    #[arg(long, value_name = "MS")]
    jitter_ms: Option<f64>,
    /// fixed, uniform (at most the jitter more), normal (the jitter is the deviation) or pareto (a long tail)
    #[arg(long, value_name = "SHAPE")]
    distribution: Option<String>,
    /// How much it carries
    #[arg(long, value_name = "BYTES")]
    bytes_per_second: Option<u64>,
    /// How much may be on its way at a time
    #[arg(long, value_name = "BYTES")]
    queue_bytes: Option<u64>,
    /// Share of what is sent that breaks the connection, from 0 to 1
    #[arg(long, value_name = "SHARE")]
    loss: Option<f64>,
    /// Nothing gets through, and what is under way is lost
    #[arg(long)]
    cut: bool,
    /// Begin with a perfect link; without this, whatever is not given stays as it is
    #[arg(long)]
    reset: bool,
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

pub fn run(command: &RegionCommand) -> Result<()> {
    match command {
        RegionCommand::List(flags) if flags.partitions => list_partitions(&flags.output),
        RegionCommand::List(flags) => show(&get("regions"), &flags.output),
        RegionCommand::Add(flags) => show(&post("regions", &json!({"region": flags.region})), &flags.output),
        RegionCommand::Remove(flags) => {
            let path = format!("regions/{}", in_path(&flags.region));
            let drain_ms = flags.drain_ms.to_string();
            let call = Call::administration(Method::DELETE, &path, &[("drainMs", &drain_ms)]);
            show(&call, &flags.output)
        }
        RegionCommand::Clock(flags) => show(
            &about(&flags.region, "clock", &json!({"skewMs": flags.skew_ms})),
            &flags.output,
        ),
        RegionCommand::Failover(flags) => show(&post("failover", &json!({"region": flags.region})), &flags.output),
        RegionCommand::Offline(flags) => show(
            &about(&flags.region, "offline", &json!({"acceptLoss": flags.accept_loss})),
            &flags.output,
        ),
        RegionCommand::Online(flags) => show(
            &about(&flags.region, "online", &json!({"acceptLoss": flags.accept_loss})),
            &flags.output,
        ),
        RegionCommand::Priority(flags) => show(
            &post("regions/priority", &json!({"regions": flags.regions})),
            &flags.output,
        ),
        RegionCommand::Stop(flags) => {
            let form = json!({"mode": flags.mode, "delayMs": flags.delay_ms});
            show(&about(&flags.region, "stop", &form), &flags.output)
        }
        RegionCommand::Start(flags) => show(&about(&flags.region, "start", &json!({})), &flags.output),
        RegionCommand::Clients(flags) => {
            let form = json!({"client": flags.client, "roundTripMs": flags.round_trip_ms});
            show(&about(&flags.region, "clients", &form), &flags.output)
        }
        RegionCommand::Flap(flags) => show(
            &post("regions/flapping", &json!({"forMs": flags.for_ms})),
            &flags.output,
        ),
        RegionCommand::Pause(flags) => pause(flags, true),
        RegionCommand::Resume(flags) => pause(flags, false),
        RegionCommand::Step(flags) => {
            let mut form = json!({"from": flags.from, "to": flags.to, "transactions": flags.transactions});
            flags.partition.put_into(&mut form);
            show(&post("links/step", &form), &flags.output)
        }
        RegionCommand::Link(flags) => link(flags),
    }
}

/// Pauses a link or resumes it, or one partition on it. A link that is resumed is not cut either.
fn pause(flags: &PausedFlags, paused: bool) -> Result<()> {
    let mut form = json!({"from": flags.from, "to": flags.to, "paused": paused});
    if flags.partition.put_into(&mut form) {
        return show(&post("links/pause", &form), &flags.output);
    }
    change_link((&flags.from, &flags.to), &flags.output, |link| {
        link.insert("paused".into(), paused.into());
        if !paused {
            link.insert("cut".into(), false.into());
        }
    })
}

/// What each region lacks of each partition.
fn list_partitions(output: &OutputFlags) -> Result<()> {
    let answer = ask(&get("regions"), &output.remote)?;
    let mut rows = Vec::new();
    for region in answer["regions"].as_array().into_iter().flatten() {
        for partition in region["partitions"].as_array().into_iter().flatten() {
            let mut row = partition.clone();
            row["region"] = region["name"].clone();
            rows.push(row);
        }
    }
    if output.json {
        println!("{}", Value::from(rows));
    } else {
        let columns = [
            "region",
            "database",
            "container",
            "partition",
            "lagTransactions",
            "lagMs",
        ];
        table::print(&columns, &rows);
    }
    Ok(())
}

fn link(flags: &LinkFlags) -> Result<()> {
    let (Some(from), Some(to)) = (&flags.from, &flags.to) else {
        return show(&get("links"), &flags.output);
    };
    change_link((from, to), &flags.output, |link| {
        if flags.reset {
            link.retain(|name, _| name == "from" || name == "to");
        }
        let given = [
            ("latencyMs", flags.latency_ms.map(Value::from)),
            ("jitterMs", flags.jitter_ms.map(Value::from)),
            ("distribution", flags.distribution.clone().map(Value::from)),
            ("bytesPerSecond", flags.bytes_per_second.map(Value::from)),
            ("queueBytes", flags.queue_bytes.map(Value::from)),
            ("loss", flags.loss.map(Value::from)),
            ("cut", flags.cut.then(|| Value::from(true))),
        ];
        for (name, value) in given {
            if let Some(value) = value {
                link.insert(name.to_owned(), value);
            }
        }
    })
}

/// Changes something about a link and leaves the rest as it is.
fn change_link(
    (from, to): (&str, &str),
    output: &OutputFlags,
    change: impl FnOnce(&mut Map<String, Value>),
) -> Result<()> {
    let links = ask(&get("links"), &output.remote)?;
    let same = |link: &&Value| same_region(&link["from"], from) && same_region(&link["to"], to);
    let found = links["links"].as_array().and_then(|links| links.iter().find(same));
    let mut form = found
        .and_then(Value::as_object)
        .cloned()
        .ok_or_else(|| anyhow::anyhow!("there is no link from {from} to {to}"))?;
    // These are set in ways of their own.
    form.retain(|name, _| name != "pausedPartitions" && name != "stepsLeft");
    change(&mut form);
    show(&put("links", &Value::Object(form)), output)
}

fn same_region(name: &Value, given: &str) -> bool {
    let plain = |text: &str| text.to_lowercase().replace([' ', '-', '_'], "");
    name.as_str().is_some_and(|name| plain(name) == plain(given))
}

fn get(path: &str) -> Call {
    Call::administration(Method::GET, path, &[])
}

fn post(path: &str, form: &Value) -> Call {
    Call::administration(Method::POST, path, &[]).json(form.to_string())
}

fn put(path: &str, form: &Value) -> Call {
    Call::administration(Method::PUT, path, &[]).json(form.to_string())
}

/// Names are compared without regard to blanks, so a path needs none.
fn about(region: &str, verb: &str, form: &Value) -> Call {
    post(&format!("regions/{}/{verb}", in_path(region)), form)
}

fn in_path(region: &str) -> String {
    percent_encode(&plain(region))
}

fn plain(region: &str) -> String {
    region.replace(' ', "")
}

fn ask(call: &Call, remote: &RemoteFlags) -> Result<Value> {
    let client = Client::new(remote)?;
    runtime::run(async move { client.connection().call(call).await?.success()?.parse() })
}

fn show(call: &Call, output: &OutputFlags) -> Result<()> {
    let answer = ask(call, &output.remote)?;
    if output.json {
        println!("{answer}");
    } else if let Some(regions) = answer["regions"].as_array() {
        let columns = [
            "name",
            "role",
            "state",
            "outage",
            "lagTransactions",
            "lagMs",
            "clockSkewMs",
        ];
        table::print(&columns, regions);
        if let Some(n_dropped) = answer["droppedVersions"].as_u64().filter(|n_dropped| *n_dropped > 0) {
            println!("{n_dropped} versions that only the region had are dropped");
        }
    } else if let Some(links) = answer["links"].as_array() {
        let columns = [
            "from",
            "to",
            "latencyMs",
            "jitterMs",
            "distribution",
            "bytesPerSecond",
            "queueBytes",
            "loss",
            "cut",
            "paused",
            "stepsLeft",
        ];
        table::print(&columns, links);
    } else if let Some(partitions) = answer["partitions"].as_array() {
        match answer["lostTransactions"].as_u64() {
            Some(lost) => println!("{lost} transactions are in the region that was taken offline and in no other"),
            None => println!("the region that was taken offline has more than any other, and it is not known how much"),
        }
        if !partitions.is_empty() {
            table::print(&["database", "container", "partition", "lost"], partitions);
        }
        let alone = answer["knownAlone"].as_array().map_or(&[][..], Vec::as_slice);
        if !alone.is_empty() {
            println!("no other region knows these; they are gone with what is in them:");
            table::print(&["database", "container"], alone);
        }
    }
    Ok(())
}
