//! `orrery sql`: queries against a running server, typed at a prompt, given as an argument, or read from a file.
//!
//! A shell over the public API and nothing else. Results go to standard output in the wished format; what is said about
//! them (rows, request units, time, use of the index) goes to standard error, so that output can be piped.

mod commands;
mod output;
mod session;
mod shell;
mod splitter;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};

use crate::client::{Client, RemoteFlags};
use crate::runtime;
use session::{Session, Target};
use splitter::{Piece, Splitter};

#[derive(Args, Debug)]
pub struct SqlFlags {
    /// Where to query; \use changes it
    #[arg(value_name = "DATABASE/CONTAINER")]
    target: Option<String>,
    /// Run these statements and end
    #[arg(short, long, value_name = "SQL", conflicts_with = "file")]
    command: Option<String>,
    /// Run the statements in this file and end; '-' is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// How rows are printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Rows per page; at a prompt, output stops after each
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    page_size: u16,
    #[command(flatten)]
    remote: RemoteFlags,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns, cut to a readable width
    #[default]
    Table,
    /// One JSON array
    Json,
    /// One row per line
    Ndjson,
}

pub fn run(flags: &SqlFlags) -> Result<()> {
    let client = Client::new(&flags.remote)?;
    let target = flags.target.as_deref().map(Target::parse).transpose()?;
    let mut session = Session::new(&client, target, flags.format, flags.page_size);
    let text = match (&flags.command, &flags.file) {
        (Some(command), _) => Some(command.clone()),
        (None, Some(file)) => Some(read(file)?),
        (None, None) if !std::io::stdin().is_terminal() => Some(read(Path::new("-"))?),
        (None, None) => None,
    };
    runtime::run(async move {
        match text {
            Some(text) => run_all(&mut session, &text).await,
            None => shell::run(&mut session).await,
        }
    })
}

fn read(file: &Path) -> Result<String> {
    if file == Path::new("-") {
        return std::io::read_to_string(std::io::stdin()).context("cannot read standard input");
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Runs every statement; the first failure ends it. The last statement needs no semicolon.
async fn run_all(session: &mut Session, text: &str) -> Result<()> {
    let mut splitter = Splitter::default();
    let mut pieces = Vec::new();
    for line in text.lines() {
        pieces.extend(splitter.line(line));
    }
    pieces.extend(splitter.finish());
    for piece in pieces {
        match piece {
            Piece::Statement(statement) => session.query(&statement, &mut session::AllPages).await?,
            Piece::Command(command) => {
                if commands::run(session, &command).await? == commands::Next::Quit {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}
