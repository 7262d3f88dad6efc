//! `orrery feed tail`: a container's changes as they happen, from any point of the past that is kept.
//!
//! Reads the server's events of changes and follows them over lost connections. What it prints on its way out resumes it.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::Value;

use crate::client::{Call, Client, Connection, RemoteFlags};
use crate::runtime;

/// Pause before a lost connection is opened again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// Longest line a server may send; changes are far smaller.
const LINE_BYTES_MAX: usize = 64 << 20;

#[derive(Debug, Subcommand)]
pub enum FeedCommand {
    /// Follow a container's changes until interrupted
    Tail(TailFlags),
}

#[derive(Args, Debug)]
pub struct TailFlags {
    /// Name of the database
    #[arg(value_name = "DATABASE")]
    database: String,
    /// Name of the container
    #[arg(value_name = "CONTAINER")]
    container: String,
    /// beginning, now, a time such as 2026-01-31T12:00:00Z, or the token of an earlier run
    #[arg(long, value_name = "START", default_value = "now")]
    from: String,
    /// Latest versions, or all versions and deletes
    #[arg(long, value_enum, default_value_t = Mode::Latest)]
    mode: Mode,
    /// Condition over c.current, c.previous and c.metadata
    #[arg(long, value_name = "CONDITION")]
    filter: Option<String>,
    /// Only changes that every region of the account has
    #[arg(long)]
    committed: bool,
    /// Print each change as the server sends it: one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: RemoteFlags,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Latest,
    All,
}

pub fn run(command: &FeedCommand) -> Result<()> {
    let FeedCommand::Tail(flags) = command;
    runtime::run(async {
        let stop = runtime::stop_signal()?;
        let mut tail = Tail {
            flags,
            from: start(&flags.from)?,
            resume: flags.from.clone(),
            text: Vec::new(),
        };
        let result = tokio::select! {
            // Safe to drop: what was printed is covered by the last token or comes again.
            followed = tail.follow() => followed,
            () = stop => Ok(()),
        };
        eprintln!("resume with --from {}", tail.resume);
        result
    })
}

/// A start as the server takes it.
fn start(text: &str) -> Result<String> {
    if matches!(text, "beginning" | "now") || text.starts_with("f1.") {
        return Ok(text.to_owned());
    }
    let seconds = seconds_of(text).with_context(|| {
        format!("'{text}' is neither beginning, now, a time such as 2026-01-31T12:00:00Z nor a token of an earlier run")
    })?;
    Ok(seconds.to_string())
}

/// Seconds since 1970 of a time in UTC.
fn seconds_of(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let in_range = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    // Days since 1970 by the calendar's rule, counted in years that begin in March.
    let (years, months) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = years * 365 + years / 4 - years / 100 + years / 400 + (months * 153 + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    in_range.then_some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

fn numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let numbers: Option<Vec<u64>> = text.split(separator).map(|part| part.parse().ok()).collect();
    numbers?.try_into().ok()
}

struct Tail<'a> {
    flags: &'a TailFlags,
    /// Where to begin, or to go on.
    from: String,
    /// The same as a user says it.
    resume: String,
    /// What came and is not a whole line yet.
    text: Vec<u8>,
}

impl Tail<'_> {
    /// Follows the feed for as long as the server knows it.
    async fn follow(&mut self) -> Result<()> {
        let mut connection = Client::new(&self.flags.remote)?.connection();
        // A server that was never there is not worth waiting for; one that was there comes back.
        self.listen(&mut connection).await?;
        loop {
            tokio::time::sleep(RECONNECT_PAUSE).await;
            connection = Client::new(&self.flags.remote)?.connection();
            if let Err(error) = self.listen(&mut connection).await
                && error.downcast_ref::<Refused>().is_some()
            {
                return Err(error);
            }
        }
    }

    /// Prints changes until the connection ends.
    async fn listen(&mut self, connection: &mut Connection) -> Result<()> {
        let body = connection.listen(&self.call()).await?;
        let mut body = body.map_err(|answer| Refused(answer.refusal()))?;
        self.text.clear();
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(data) = frame.into_data() {
                self.text.extend_from_slice(&data);
                self.lines()?;
            }
        }
        Ok(())
    }

    fn call(&self) -> Call {
        let flags = self.flags;
        let mode = match flags.mode {
            Mode::Latest => "latest",
            Mode::All => "all",
        };
        let mut query = vec![
            ("database", flags.database.as_str()),
            ("container", flags.container.as_str()),
            ("mode", mode),
            ("from", self.from.as_str()),
        ];
        query.extend(flags.filter.as_deref().map(|filter| ("filter", filter)));
        query.extend(flags.committed.then_some(("committed", "true")));
        Call::administration(Method::GET, "feed", &query)
    }

    fn lines(&mut self) -> Result<()> {
        let mut rest = std::mem::take(&mut self.text);
        let mut is_error = false;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let line = std::str::from_utf8(&line)
                .context("the server sent no text")?
                .trim_end();
            match line.split_once(": ") {
                Some(("id", token)) => (self.from, self.resume) = (token.to_owned(), token.to_owned()),
                Some(("event", "error")) => is_error = true,
                Some(("data", data)) if is_error => return Err(refusal(data).into()),
                Some(("data", data)) => self.print(data)?,
                _ => {}
            }
        }
        if rest.len() > LINE_BYTES_MAX {
            bail!("the server sends a line without an end");
        }
        self.text = rest;
        Ok(())
    }

    fn print(&self, data: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if self.flags.json {
            writeln!(out, "{data}")?;
        } else {
            let change: Value = serde_json::from_str(data).context("the server sent no JSON")?;
            let metadata = &change["metadata"];
            let kind = metadata["operationType"].as_str().unwrap_or("write");
            let shown = if kind == "delete" { metadata } else { &change["current"] };
            writeln!(out, "{:>8} {kind:<7} {shown}", metadata["lsn"])?;
        }
        out.flush().context("cannot write to standard output")
    }
}

/// What the server does not give: asking again would not help.
#[derive(Debug)]
struct Refused(String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

fn refusal(data: &str) -> Refused {
    let message = serde_json::from_str::<Value>(data).ok();
    let message = message.as_ref().and_then(|data| data["message"].as_str());
    Refused(message.unwrap_or(data).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_given_in_utc() {
        assert_eq!(seconds_of("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(seconds_of("2000-02-29T12:34:56Z"), Some(951_827_696));
        assert_eq!(seconds_of("2026-11-16T00:00:00Z"), Some(1_794_787_200));
        for bad in [
            "",
            "2026-11-16",
            "2026-13-01T00:00:00Z",
            "2026-11-16T00:00:00",
            "1969-12-31T00:00:00Z",
        ] {
            assert_eq!(seconds_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_start_is_a_word_a_time_or_a_token() {
        assert_eq!(start("now").unwrap(), "now");
        assert_eq!(start("f1.abc").unwrap(), "f1.abc");
        assert_eq!(start("1970-01-02T00:00:00Z").unwrap(), "86400");
        assert!(start("yesterday").is_err());
    }
}
