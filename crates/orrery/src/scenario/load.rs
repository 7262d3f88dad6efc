//! Clients that write and read at a rate while a scenario is played, through the account's own endpoint and without a client's
//! cleverness: what fails is counted and not tried again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::file::Load;
use crate::client::{Call, Client};

/// Longer than this nobody waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests under way at a time; those that would be more are not sent, and count as failed.
const AT_ONCE_MAX: usize = 256;

/// What became of what clients asked for.
#[derive(Debug, Default)]
pub struct Tally {
    /// Numbers of writes that were acknowledged.
    pub acknowledged: Vec<u64>,
    pub latencies_ms: Vec<u64>,
    pub n_refused: u64,
    pub n_unknown: u64,
    pub n_read: u64,
    pub n_reads_failed: u64,
}

impl Tally {
    pub fn n_writes_failed(&self) -> u64 {
        self.n_refused + self.n_unknown
    }

    /// Of a hundred acknowledged writes, the slowest but one.
    pub fn latency_p99_ms(&self) -> u64 {
        let mut sorted = self.latencies_ms.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * 99).div_ceil(100).saturating_sub(1);
        sorted.get(at).copied().unwrap_or(0)
    }

    pub fn shown(&self) -> Value {
        json!({
            "writesAcknowledged": self.acknowledged.len(),
            "writesRefused": self.n_refused,
            "writesUnknown": self.n_unknown,
            "writeLatencyP99Ms": self.latency_p99_ms(),
            "reads": self.n_read,
            "readsFailed": self.n_reads_failed,
        })
    }

    fn add(&mut self, done: Done) {
        match done {
            Done::Write(number, Outcome::Good, took) => {
                self.acknowledged.push(number);
                self.latencies_ms.push(took.as_millis() as u64);
            }
            Done::Write(_, Outcome::Refused, _) => self.n_refused += 1,
            Done::Write(_, Outcome::Unknown, _) => self.n_unknown += 1,
            Done::Read(outcome) => {
                self.n_read += 1;
                self.n_reads_failed += u64::from(outcome != Outcome::Good);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Good,
    Refused,
    Unknown,
}

enum Done {
    Write(u64, Outcome, Duration),
    Read(Outcome),
}

/// Makes the container if it is missing.
pub async fn prepare(load: &Load, client: &Arc<Client>) -> Result<()> {
    let mut connection = client.connection();
    let database = Call::children(Method::POST, &[], "dbs").json(json!({"id": load.database}).to_string());
    let key = json!({"paths": ["/pk"], "kind": "Hash", "version": 2});
    let container = json!({"id": load.container, "partitionKey": key}).to_string();
    let container = Call::children(Method::POST, &["dbs", &load.database], "colls").json(container);
    for call in [database, container] {
        let answer = connection.call_until_answered(&call).await?;
        ensure!(
            answer.status.is_success() || answer.status.as_u16() == 409,
            "the load cannot be prepared: {}",
            answer.refusal()
        );
    }
    Ok(())
}

/// Keeps on for as long as the load says.
pub async fn run(load: &Load, seed: u64, client: &Arc<Client>) -> Tally {
    let (started, mut tally, mut asking) = (Instant::now(), Tally::default(), JoinSet::new());
    let (room, mut dice) = (Arc::new(Semaphore::new(AT_ONCE_MAX)), Dice(seed | 1));
    for (at, is_write) in timetable(load) {
        sleep_until(started + at).await;
        while let Some(done) = asking.try_join_next() {
            done.into_iter().for_each(|done| tally.add(done));
        }
        // A number is written once, and its key follows from it.
        let n_written = asked_so_far(load.writes_per_second, at);
        let number = if is_write {
            n_written
        } else {
            dice.roll(n_written.max(1))
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            match is_write {
                true => tally.n_refused += 1,
                false => tally.n_reads_failed += 1,
            }
            continue;
        };
        let (load, client) = (load.clone(), Arc::clone(client));
        asking.spawn(async move {
            let _place = place;
            match is_write {
                true => write(&load, number, &client).await,
                false => read(&load, number, &client).await,
            }
        });
    }
    sleep_until(started + Duration::from_millis(load.for_ms)).await;
    while let Some(done) = asking.join_next().await {
        done.into_iter().for_each(|done| tally.add(done));
    }
    tally
}

/// When something is asked, and whether it is a write.
fn timetable(load: &Load) -> Vec<(Duration, bool)> {
    let every = |per_second: u32, is_write: bool| {
        let n = load.for_ms * u64::from(per_second) / 1000;
        (0..n).map(move |index| {
            (
                Duration::from_micros(index * 1_000_000 / u64::from(per_second)),
                is_write,
            )
        })
    };
    let mut all: Vec<_> = every(load.writes_per_second, true)
        .chain(every(load.reads_per_second, false))
        .collect();
    all.sort_by_key(|(at, is_write)| (*at, !is_write));
    all
}

/// How many were asked before a time.
fn asked_so_far(per_second: u32, at: Duration) -> u64 {
    (at.as_micros() as u64 * u64::from(per_second)).div_ceil(1_000_000)
}

async fn write(load: &Load, number: u64, client: &Arc<Client>) -> Done {
    let (id, key) = (id_of(number), key_of(load, number));
    let body = json!({"id": id, "pk": key, "n": number}).to_string();
    let call = Call::children(Method::POST, &["dbs", &load.database, "colls", &load.container], "docs")
        .header("x-ms-documentdb-partitionkey", json!([key]).to_string())
        .header("x-ms-documentdb-is-upsert", "true")
        .json(body);
    let started = Instant::now();
    let outcome = match ask(&call, client).await {
        Some(200..=299) => Outcome::Good,
        Some(408) | None => Outcome::Unknown,
        Some(_) => Outcome::Refused,
    };
    Done::Write(number, outcome, started.elapsed())
}

async fn read(load: &Load, number: u64, client: &Arc<Client>) -> Done {
    Done::Read(match ask(&read_call(load, number), client).await {
        // That something is not there, or not yet, is an answer.
        Some(200..=299 | 404) => Outcome::Good,
        Some(_) => Outcome::Refused,
        None => Outcome::Unknown,
    })
}

/// Whether a write that was acknowledged is still there.
pub async fn is_there(load: &Load, number: u64, client: &Arc<Client>) -> Result<bool> {
    let answer = client
        .connection()
        .call_until_answered(&read_call(load, number))
        .await?;
    match answer.status.as_u16() {
        404 => Ok(false),
        _ => answer.success().map(|_| true),
    }
}

fn read_call(load: &Load, number: u64) -> Call {
    let (id, key) = (id_of(number), key_of(load, number));
    let path = ["dbs", &load.database, "colls", &load.container, "docs", &id];
    Call::resource(Method::GET, &path).header("x-ms-documentdb-partitionkey", json!([key]).to_string())
}

fn id_of(number: u64) -> String {
    format!("scenario-{number}")
}

fn key_of(load: &Load, number: u64) -> String {
    format!("key-{}", number % u64::from(load.keys))
}

/// The status of an answer; `None` when there was none.
async fn ask(call: &Call, client: &Arc<Client>) -> Option<u16> {
    let mut connection = client.connection();
    let answer = timeout(PATIENCE, connection.call(call)).await.ok()?.ok()?;
    Some(answer.status.as_u16())
}

/// Chance that repeats itself.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Load {
        Load {
            database: "db".to_owned(),
            container: "c".to_owned(),
            for_ms: 1_000,
            writes_per_second: 4,
            reads_per_second: 2,
            keys: 3,
        }
    }

    #[test]
    fn a_timetable_has_the_rate_it_was_asked_for_and_numbers_every_write_once() {
        let table = timetable(&load());
        assert_eq!(table.iter().filter(|(_, is_write)| *is_write).count(), 4);
        assert_eq!(table.len(), 6);
        let writes = table.iter().filter(|(_, is_write)| *is_write);
        let numbers: Vec<u64> = writes.map(|(at, _)| asked_so_far(4, *at)).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
    }

    #[test]
    fn the_slowest_but_one_of_a_hundred_counts() {
        let mut tally = Tally::default();
        assert_eq!(tally.latency_p99_ms(), 0);
        tally.latencies_ms = (1..=100).rev().collect();
        assert_eq!(tally.latency_p99_ms(), 99);
    }
}
