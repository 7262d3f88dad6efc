//! What can be told to the shell itself: lines that begin with a backslash.

use anyhow::{Result, bail};
use clap::ValueEnum as _;

use super::Format;
use super::session::{Session, Target, write_out};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    GoOn,
    Quit,
}

const HELP: &str = "\
SELECT ... ;                 a query; it may take many lines and ends with a semicolon
\\d                           databases and their containers
\\d DATABASE/CONTAINER        the definition of a container
\\use DATABASE/CONTAINER      query this container
\\key [\"a\"]                   query this partition key only; without a key, all
\\format table|json|ndjson    how rows are printed
\\page N                      rows per page, 1 to 1000
\\index on|off                show which index a query uses
\\q                           leave
";

pub async fn run(session: &mut Session, line: &str) -> Result<Next> {
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let argument = argument.trim();
    match name {
        "q" | "quit" => return Ok(Next::Quit),
        "?" | "h" | "help" => write_out(HELP)?,
        "d" if argument.is_empty() => list(session).await?,
        "d" => describe(session, &Target::parse(argument)?).await?,
        "use" => session.choose(Target::parse(argument)?).await?,
        "key" => session.set_partition_key(argument)?,
        "format" => match Format::from_str(argument, true) {
            Ok(format) => session.format = format,
            Err(_) => bail!("a format is one of table, json and ndjson"),
        },
        "page" => match argument.parse() {
            Ok(size @ 1..=1000) => session.page_size = size,
            _ => bail!("a page has 1 to 1000 rows"),
        },
        "index" => match argument {
            "on" => session.show_index = true,
            "off" => session.show_index = false,
            _ => bail!("\\index on, or \\index off"),
        },
        _ => bail!("there is no \\{name}; \\? lists what there is"),
    }
    Ok(Next::GoOn)
}

async fn list(session: &mut Session) -> Result<()> {
    for database in session.names(&[], "dbs", "Databases").await? {
        let containers = session
            .names(&["dbs", &database], "colls", "DocumentCollections")
            .await?;
        if containers.is_empty() {
            write_out(&format!("{database}/\n"))?;
        }
        for container in containers {
            write_out(&format!("{database}/{container}\n"))?;
        }
    }
    Ok(())
}

async fn describe(session: &mut Session, target: &Target) -> Result<()> {
    let segments = ["dbs", &target.database, "colls", &target.container];
    let definition = session.read(&segments).await?;
    write_out(&format!("{definition:#}\n"))
}
