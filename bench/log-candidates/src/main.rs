//! Measures where an embedded store should keep its log. See `docs/adr/001-embedded-log.md`.
//!
//! Sixty-four writers, one log each and one append in flight, hand 1 KB documents to one committer, which takes
//! everything waiting as a group. Every candidate stores the same bytes: one log record and, per document, an item, an id
//! entry, a by-LSN entry and ten index entries, with one position entry per log and group.
//!
//! `cargo run --release -p bench-log-candidates [-- SECONDS ROUNDS]`

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

mod candidates;
mod load;
mod usage;

use candidates::{Candidate, SegmentsAndFjall, SegmentsAndTree, WithinFjall};
use load::{Document, document};
use usage::Usage;

const WRITERS: u64 = 64;

struct Request {
    document: Document,
    answer: SyncSender<()>,
}

/// What one run of one candidate showed.
struct Run {
    documents_per_second: f64,
    p50: Duration,
    p99: Duration,
    slowest: Duration,
    group: f64,
    cpu_us: f64,
    written_bytes: f64,
}

type Open = fn(&Path) -> Box<dyn Candidate>;

const CANDIDATES: [(&str, Open); 3] = [
    ("a: segments, fjall unsynced", |dir| {
        Box::new(SegmentsAndFjall::open(dir))
    }),
    ("b: log inside synced fjall", |dir| Box::new(WithinFjall::open(dir))),
    ("c: segments, bare lsm-tree", |dir| Box::new(SegmentsAndTree::open(dir))),
];

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|text| text.parse().expect("SECONDS and ROUNDS are numbers"));
    let seconds = Duration::from_secs(arguments.next().unwrap_or(10));
    let rounds = arguments.next().unwrap_or(3);
    println!(
        "{:<29} {:>8} {:>8} {:>8} {:>9} {:>7} {:>8} {:>9}",
        "", "docs/s", "p50", "p99", "slowest", "group", "CPU", "written"
    );
    let mut results: [Vec<f64>; 3] = Default::default();
    for _ in 0..rounds {
        for ((name, open), results) in CANDIDATES.iter().zip(&mut results) {
            let run = measure(*open, seconds);
            println!(
                "{name:<29} {:>8.0} {:>6.2}ms {:>6.2}ms {:>7.0}ms {:>7.1} {:>6.0}µs {:>7.1}KB",
                run.documents_per_second,
                run.p50.as_secs_f64() * 1e3,
                run.p99.as_secs_f64() * 1e3,
                run.slowest.as_secs_f64() * 1e3,
                run.group,
                run.cpu_us,
                run.written_bytes / 1024.0,
            );
            results.push(run.documents_per_second);
        }
    }
    for ((name, _), mut results) in CANDIDATES.iter().zip(results) {
        results.sort_by(f64::total_cmp);
        println!("median  {name:<29} {:>8.0} docs/s", results[results.len() / 2]);
    }
}

fn measure(open: Open, length: Duration) -> Run {
    let dir = tempfile::tempdir_in(".").expect("the working directory is writable");
    let mut candidate = open(dir.path());
    let (sender, receiver) = sync_channel(WRITERS as usize);
    let stop = Arc::new(AtomicBool::new(false));
    let before = Usage::now();
    let started = Instant::now();
    let committer = std::thread::spawn(move || commit_groups(candidate.as_mut(), &receiver));
    let writers: Vec<_> = (0..WRITERS)
        .map(|log| {
            let (sender, stop) = (sender.clone(), stop.clone());
            std::thread::spawn(move || write(log, &sender, &stop))
        })
        .collect();
    drop(sender);
    std::thread::sleep(length);
    stop.store(true, Ordering::Relaxed);
    let mut latencies: Vec<Duration> = writers
        .into_iter()
        .flat_map(|writer| writer.join().expect("a writer does not panic"))
        .collect();
    let n_groups = committer.join().expect("the committer does not panic");
    let elapsed = started.elapsed();
    let used = Usage::now().since(&before);
    latencies.sort();
    let n = latencies.len();
    Run {
        documents_per_second: n as f64 / elapsed.as_secs_f64(),
        p50: latencies[n / 2],
        p99: latencies[n * 99 / 100],
        slowest: latencies[n - 1],
        group: n as f64 / n_groups as f64,
        cpu_us: used.cpu.as_secs_f64() * 1e6 / n as f64,
        written_bytes: used.written_bytes as f64 / n as f64,
    }
}

/// Takes everything waiting, makes it durable and visible, answers. Returns the number of groups.
fn commit_groups(candidate: &mut dyn Candidate, requests: &Receiver<Request>) -> u64 {
    let mut n_groups = 0;
    while let Ok(first) = requests.recv() {
        let mut group = vec![first];
        group.extend(requests.try_iter());
        let documents: Vec<&Document> = group.iter().map(|request| &request.document).collect();
        candidate.commit(&documents);
        n_groups += 1;
        for request in group {
            request.answer.send(()).expect("the writer waits for its answer");
        }
    }
    n_groups
}

fn write(log: u64, committer: &SyncSender<Request>, stop: &AtomicBool) -> Vec<Duration> {
    let (answer, answered) = sync_channel(1);
    let mut latencies = Vec::new();
    for lsn in 1.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let document = document(log, lsn);
        let started = Instant::now();
        committer
            .send(Request {
                document,
                answer: answer.clone(),
            })
            .expect("the committer outlives the writers");
        answered.recv().expect("the committer answers");
        latencies.push(started.elapsed());
    }
    latencies
}
