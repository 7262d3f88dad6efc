//! Measures the targets that concern one region. Every number stands beside what the same machine could do in the same
//! run, because the machines are shared and noisy; `bench/README.md` says how each row is made.

mod documents;
mod limit;
mod load;
mod measure;
mod postgres;
mod process;
mod report;
mod requests;
mod rows;
mod sign;
mod svg;
mod tls;
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum as _};

use rows::{Group, Settings};

/// The server's own, so that clients, limits and roles that run here are as they would be there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(name = "orrery-bench", about = "Measures OrreryDB against what the machine could do")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve as a limit; the bench starts this itself
    #[command(hide = true)]
    Limit(limit::LimitFlags),
}

#[derive(Args, Debug)]
struct Flags {
    /// Measure only these groups
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Group>,
    /// Length of one run
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    seconds: u64,
    /// Alternating runs of each subject
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Items that point reads choose from; growth has ten times as many
    #[arg(long, default_value_t = 10_000)]
    items: u64,
    /// Size of the data set for start and churn [default: 64, or 1024 with --full]
    #[arg(long)]
    megabytes: Option<u64>,
    /// Length of the stall run [default: 20, or 600 with --full]
    #[arg(long, value_name = "SECONDS")]
    stall_seconds: Option<u64>,
    /// Items in the containers that queries are measured on
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000])]
    query_sizes: Vec<u64>,
    /// Notifications of the publishing platform; a tenth as many articles, and a tenth of all to begin with
    #[arg(long, default_value_t = 1_000_000)]
    notifications: u64,
    /// The sizes and lengths the targets are written for
    #[arg(long)]
    full: bool,
    /// Where data goes while it is measured [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where charts go
    #[arg(long, value_name = "DIR", default_value = "bench/plots")]
    plots: PathBuf,
    /// Where results go
    #[arg(long, value_name = "FILE", default_value = "bench/results/latest.json")]
    results: PathBuf,
}

impl Flags {
    fn settings(&self) -> Settings {
        Settings {
            length: Duration::from_secs(self.seconds.max(1)),
            n_rounds: self.rounds.max(1),
            n_items: self.items.max(1),
            megabytes: self.megabytes.unwrap_or(if self.full { 1024 } else { 64 }).max(1),
            stall_length: Duration::from_secs(self.stall_seconds.unwrap_or(if self.full { 600 } else { 20 })),
            query_sizes: self.query_sizes.clone(),
            n_notifications: self.notifications.max(1000),
            plots: self.plots.clone(),
            directory: self.dir.clone().unwrap_or_else(std::env::temp_dir),
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Some(Command::Limit(flags)) => limit::run(flags).map(|()| true),
        None => bench(&cli.flags),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("orrery-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures, prints and keeps what was asked for; false when something could not be measured.
fn bench(flags: &Flags) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let settings = flags.settings();
    let machine = report::machine();
    let groups = if flags.only.is_empty() {
        Group::value_variants()
    } else {
        &flags.only
    };
    let (mut rows, mut plots, mut is_complete) = (Vec::new(), String::new(), true);
    for group in groups {
        eprintln!("measuring {group:?} (load average {})", report::load_average());
        match runtime.block_on(rows::measure(*group, &settings)) {
            Ok((measured, plot)) => {
                eprint!("{}", report::table(&measured));
                rows.extend(measured);
                plots.push_str(&plot);
            }
            Err(error) => {
                is_complete = false;
                rows.push(report::Row::skipped(&format!("{group:?}"), &format!("{error:#}")));
            }
        }
    }
    println!("{}\n{plots}", report::table(&rows));
    report::write(&flags.results, &sign::date_now(), &machine, &rows, &plots)?;
    Ok(is_complete)
}
