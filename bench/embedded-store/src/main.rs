//! Measures the embedded store by itself: durable writes of 1 KB documents with the view entries a default indexing policy
//! implies, the start of an empty store, after a clean stop and after a crash, and memory at rest.
//!
//! `cargo run --release -p bench-embedded-store [-- MEGABYTES WRITERS]`

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use orrery_model::log::{Operation, Transaction};
use orrery_model::{Epoch, LogId, Timestamp};
use orrery_partition::storage::{Log, Project, Result, Role, Staged, Store, View, ViewWrite};
use orrery_storage::{EmbeddedSettings, EmbeddedStore};

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|text| text.parse().expect("MEGABYTES and WRITERS are numbers"));
    let megabytes: u64 = arguments.next().unwrap_or(256);
    let writers: u64 = arguments.next().unwrap_or(64);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .build()
        .expect("a runtime can be made");
    let dir = tempfile::tempdir_in(".").expect("the working directory is writable");

    let store = timed("open an empty store", || open(dir.path()));
    println!("{:<28} {:>10} KB", "memory of an empty store", resident_kb());
    let load = || runtime.block_on(load(store.clone(), megabytes * 1024, writers));
    let (elapsed, mut latencies) = timed("load", load);
    latencies.sort();
    let n = latencies.len();
    println!("{:<28} {:>10.0} documents/s", "write", n as f64 / elapsed.as_secs_f64());
    for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("slowest", 1.0)] {
        println!(
            "{name:<28} {:>10.2} ms",
            latencies[((n - 1) as f64 * share) as usize].as_secs_f64() * 1e3
        );
    }
    println!("{:<28} {:>10} KB", "memory after writing", resident_kb());
    println!("{:<28} {:>10} MB", "size", store.size_bytes() >> 20);

    // Giving up the store leaves what a kill leaves: no flush, the log as it was.
    timed("give up the store", || drop(store));
    let store = timed("open after a crash", || open(dir.path()));
    timed("close", || runtime.block_on(store.close()).expect("the store closes"));
    drop(store);
    let store = timed("open after a clean stop", || open(dir.path()));
    println!("{:<28} {:>10} KB", "memory after opening", resident_kb());
    let logs = store.list().expect("the logs are listed");
    assert_eq!(
        logs.iter().map(|info| info.position.lsn.0).sum::<u64>(),
        n as u64,
        "every document is there"
    );
}

fn open(dir: &Path) -> Arc<EmbeddedStore> {
    EmbeddedStore::open(dir, EmbeddedSettings::default(), Arc::new(Documents)).expect("the store opens")
}

/// Prints how long the work took and, because machines are shared, what it cost.
fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (started, cpu_before) = (Instant::now(), cpu());
    let result = work();
    let (elapsed, used) = (started.elapsed(), cpu() - cpu_before);
    println!(
        "{what:<28} {:>10.1} ms {:>8.0} ms CPU",
        elapsed.as_secs_f64() * 1e3,
        used.as_secs_f64() * 1e3
    );
    result
}

/// Processor time of this process, in the kernel's ticks of 10 ms.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux tells a process its own state");
    let fields = stat.rsplit(')').next().expect("never empty").split_whitespace();
    let ticks: u64 = fields
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().expect("a number of ticks"))
        .sum();
    Duration::from_millis(ticks * 10)
}

/// Projects a document into its item, id and by-LSN entries and ten index entries.
struct Documents;

impl Project for Documents {
    fn project(&self, _: &dyn View, transaction: &Transaction) -> Result<Vec<ViewWrite>> {
        let lsn = transaction.lsn.0.to_be_bytes();
        let mut writes = Vec::with_capacity(13);
        for operation in &transaction.operations {
            let Operation::Record { key, value } = operation else {
                continue;
            };
            writes.push((joined(&[b"i", key]), value.clone()));
            writes.push((joined(&[b"d", key]), Some(Bytes::copy_from_slice(&lsn))));
            writes.push((joined(&[b"l", &lsn]), Some(key.clone())));
            for path in 0..10u64 {
                let term = (transaction.lsn.0 ^ path << 32)
                    .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                    .to_be_bytes();
                writes.push((joined(&[b"x", &path.to_be_bytes(), &term, key]), Some(Bytes::new())));
            }
        }
        Ok(writes)
    }
}

fn joined(parts: &[&[u8]]) -> Bytes {
    parts.concat().into()
}

async fn load(store: Arc<EmbeddedStore>, documents: u64, writers: u64) -> (Duration, Vec<Duration>) {
    let left = Arc::new(AtomicU64::new(documents));
    let started = Instant::now();
    let mut tasks = Vec::new();
    for id in 0..writers {
        let role = Role::Own { epoch: Epoch(1) };
        let log = store.open(LogId(id), role).await.expect("the log opens");
        let left = left.clone();
        tasks.push(tokio::task::spawn(async move { write(log.as_ref(), &left).await }));
    }
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.expect("a writer does not panic"));
    }
    (started.elapsed(), latencies)
}

async fn write(log: &dyn Log, left: &AtomicU64) -> Vec<Duration> {
    let body = Bytes::from("{\"name\":\"orrery\",\"tags\":[\"a\",\"b\"]}".repeat(32).into_bytes()).slice(..1024);
    let mut latencies = Vec::new();
    while left
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
        .is_ok()
    {
        let started = Instant::now();
        let head = log.head();
        let mut value = Vec::with_capacity(1100);
        value.extend_from_slice(&(head.lsn.0 * 0x9E37_79B9).to_be_bytes());
        value.extend_from_slice(&body);
        let key = Bytes::from(format!(
            "document {:08x}",
            (head.lsn.0 as u32).wrapping_mul(0x9E37_79B9)
        ));
        let operation = Operation::Record {
            key,
            value: Some(Bytes::from(value)),
        };
        let transaction = Transaction::following(head, Timestamp(1), vec![operation]);
        let snapshot = log.snapshot().expect("a snapshot can be taken");
        let writes = Documents
            .project(snapshot.as_ref(), &transaction)
            .expect("documents can be projected");
        log.append(
            head,
            vec![Staged {
                transaction: Arc::new(transaction),
                writes,
            }],
        )
        .await
        .expect("the append succeeds");
        latencies.push(started.elapsed());
    }
    latencies
}

/// Memory in use by this process.
fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells a process its own state");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("the field is always there");
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number of kilobytes")
}
