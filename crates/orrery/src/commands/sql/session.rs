//! What a shell remembers between statements, and the requests it makes.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Format;
use super::output::{self, Table};
use crate::client::{Answer, Call, Client, Connection};

#[derive(Debug)]
pub struct Session {
    connection: Connection,
    pub target: Option<Target>,
    pub format: Format,
    pub page_size: u16,
    /// As the header wants it, such as `["a"]`.
    pub partition_key: Option<String>,
    pub show_index: bool,
}

/// The container that is queried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub database: String,
    pub container: String,
}

impl Target {
    /// `database/container`; neither name can have a slash.
    pub fn parse(text: &str) -> Result<Target> {
        match text.split_once('/') {
            Some((database, container))
                if !database.is_empty() && !container.is_empty() && !container.contains('/') =>
            {
                Ok(Target {
                    database: database.to_owned(),
                    container: container.to_owned(),
                })
            }
            _ => bail!("'{text}' is not a container: write database/container"),
        }
    }
}

/// Decides after each page whether the next one is wanted.
pub trait WantsMore {
    fn wants_more(&mut self) -> Result<bool>;
}

#[derive(Debug)]
pub struct AllPages;

impl WantsMore for AllPages {
    fn wants_more(&mut self) -> Result<bool> {
        Ok(true)
    }
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(rename = "Documents", borrow)]
    rows: Vec<&'a RawValue>,
}

/// What a query has cost so far.
#[derive(Debug, Default)]
struct Cost {
    n_rows: usize,
    n_pages: usize,
    request_units: f64,
    took: Duration,
    index: Option<String>,
}

impl Session {
    pub fn new(client: &Arc<Client>, target: Option<Target>, format: Format, page_size: u16) -> Session {
        Session {
            connection: client.connection(),
            target,
            format,
            page_size,
            partition_key: None,
            show_index: false,
        }
    }

    /// Runs one query and prints its rows page by page.
    pub async fn query(&mut self, text: &str, more: &mut dyn WantsMore) -> Result<()> {
        let mut call = self.query_call(text)?;
        let mut cost = Cost::default();
        let mut printer = Printer::new(self.format);
        loop {
            let begun = Instant::now();
            let answer = self.connection.call_until_answered(&call).await?.success()?;
            cost.add(&answer, begun.elapsed());
            let page: Page<'_> =
                serde_json::from_slice(&answer.body).context("the server's answer is no page of rows")?;
            cost.n_rows += page.rows.len();
            printer.page(&page.rows)?;
            let Some(continuation) = answer.header("x-ms-continuation") else {
                break;
            };
            // An empty page with more to come is nothing to look at.
            if !page.rows.is_empty() && !more.wants_more()? {
                break;
            }
            call.headers.retain(|(name, _)| *name != CONTINUATION);
            call = call.header(CONTINUATION, continuation);
        }
        printer.end()?;
        cost.print();
        Ok(())
    }

    fn query_call(&self, text: &str) -> Result<Call> {
        let target = self
            .target
            .as_ref()
            .context("no container is chosen: \\use DATABASE/CONTAINER, or name one on the command line")?;
        let parent = ["dbs", &target.database, "colls", &target.container];
        let body = json!({ "query": text, "parameters": [] });
        let mut call = Call::children(Method::POST, &parent, "docs")
            .json(body.to_string())
            .header("x-ms-documentdb-isquery", "True")
            .header("x-ms-max-item-count", self.page_size.to_string());
        if self.show_index {
            call = call.header("x-ms-cosmos-populateindexmetrics", "True");
        }
        Ok(match &self.partition_key {
            Some(key) => call.header("x-ms-documentdb-partitionkey", key),
            None => call.header("x-ms-documentdb-query-enablecrosspartition", "True"),
        })
    }

    /// Reads a resource.
    pub async fn read(&mut self, segments: &[&str]) -> Result<Value> {
        self.get(&Call::resource(Method::GET, segments)).await?.parse()
    }

    /// The names of a resource's children of one kind.
    pub async fn names(&mut self, parent: &[&str], child: &str, member: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let mut continuation = None::<String>;
        loop {
            let mut call = Call::children(Method::GET, parent, child);
            if let Some(continuation) = continuation {
                call = call.header(CONTINUATION, continuation);
            }
            let answer = self.get(&call).await?;
            let body = answer.parse()?;
            let children = body[member].as_array().context("the server's answer is no feed")?;
            names.extend(
                children
                    .iter()
                    .filter_map(|child| child["id"].as_str().map(str::to_owned)),
            );
            continuation = answer.header(CONTINUATION).map(str::to_owned);
            if continuation.is_none() {
                return Ok(names);
            }
        }
    }

    async fn get(&mut self, call: &Call) -> Result<Answer> {
        self.connection.call_until_answered(call).await?.success()
    }

    /// Chooses a container that exists.
    pub async fn choose(&mut self, target: Target) -> Result<()> {
        self.read(&["dbs", &target.database, "colls", &target.container])
            .await?;
        self.target = Some(target);
        Ok(())
    }

    pub fn set_partition_key(&mut self, text: &str) -> Result<()> {
        self.partition_key = match text {
            "" => None,
            text => {
                let key: Value = serde_json::from_str(text).with_context(|| format!("'{text}' is not JSON"))?;
                ensure!(key.is_array(), "a partition key is an array, such as [\"a\"]");
                Some(key.to_string())
            }
        };
        Ok(())
    }
}

const CONTINUATION: &str = "x-ms-continuation";

impl Cost {
    fn add(&mut self, answer: &Answer, took: Duration) {
        self.n_pages += 1;
        self.took += took;
        let charge = answer
            .header("x-ms-request-charge")
            .and_then(|charge| charge.parse::<f64>().ok());
        self.request_units += charge.unwrap_or(0.0);
        if let Some(index) = answer.header("x-ms-cosmos-index-utilization") {
            let decoded = STANDARD
                .decode(index)
                .ok()
                .and_then(|bytes| String::from_utf8(bytes).ok());
            self.index = Some(decoded.unwrap_or_else(|| index.to_owned()));
        }
    }

    fn print(&self) {
        let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        eprintln!(
            "{} in {}, {:.2} RU, {:.1} ms",
            plural(self.n_rows, "row"),
            plural(self.n_pages, "page"),
            self.request_units,
            self.took.as_secs_f64() * 1e3
        );
        if let Some(index) = &self.index {
            eprintln!("index: {index}");
        }
    }
}

/// Prints the rows of one query.
struct Printer {
    format: Format,
    n_rows: usize,
}

impl Printer {
    fn new(format: Format) -> Printer {
        Printer { format, n_rows: 0 }
    }

    fn page(&mut self, rows: &[&RawValue]) -> Result<()> {
        let mut out = String::new();
        match self.format {
            Format::Table => out = Table::of(rows).to_string(),
            Format::Ndjson => rows.iter().for_each(|row| {
                out.push_str(&output::one_line(row));
                out.push('\n');
            }),
            Format::Json => {
                for (n, row) in rows.iter().enumerate() {
                    out.push_str(if self.n_rows + n == 0 { "[\n  " } else { ",\n  " });
                    out.push_str(&output::one_line(row));
                }
            }
        }
        self.n_rows += rows.len();
        write_out(&out)
    }

    fn end(&self) -> Result<()> {
        match (self.format, self.n_rows) {
            (Format::Json, 0) => write_out("[]\n"),
            (Format::Json, _) => write_out("\n]\n"),
            _ => Ok(()),
        }
    }
}

pub fn write_out(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).context("cannot write the rows")?;
    stdout.flush().context("cannot write the rows")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_two_names_with_a_slash_between_them() {
        let target = Target::parse("shop/orders of today").unwrap();
        assert_eq!(
            (target.database.as_str(), target.container.as_str()),
            ("shop", "orders of today")
        );
        for text in ["shop", "shop/", "/orders", "a/b/c", ""] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }
}
