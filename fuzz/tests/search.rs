//! Every target over its corpus and over mutations of it.
//!
//! `ORRERY_FUZZ_SEED` picks other mutations, `ORRERY_FUZZ_SECONDS` searches each target that long instead of a fixed number
//! of mutations, and `ORRERY_SOAK` does so for a minute. An input that fails is printed as hex; put it into the corpus.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use orrery_fuzz::mutate::{Dice, mutate};
use orrery_fuzz::{TARGETS, Target};

/// An input that takes longer has found a loop, even on a busy machine.
const INPUT_TIME_MAX: Duration = Duration::from_secs(30);
/// Inputs of at most 64 KiB must not make the process grow beyond this.
const MEMORY_KIB_MAX: u64 = 1 << 20;

macro_rules! searches {
    ($($test:ident: $target:literal),* $(,)?) => {
        $(#[test] fn $test() { search($target); })*

        #[test]
        fn every_target_is_searched() {
            let mut searched = [$($target),*];
            let mut known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            searched.sort_unstable();
            known.sort_unstable();
            assert_eq!(searched[..], known[..]);
        }
    };
}

searches! {
    any_sql_text_parses_or_is_refused: "sql",
    any_query_ends_within_its_budget: "query",
    any_json_text_parses_or_is_refused: "json",
    any_binary_json_decodes_or_is_refused: "binary_json",
    any_hybrid_row_decodes_or_is_refused: "hybrid_row",
    any_request_is_answered: "request",
    any_token_is_read_or_refused: "token",
    any_transaction_bytes_decode_or_are_refused: "log_record",
    any_log_file_opens_or_is_corrupt: "log_file",
}

fn search(name: &str) {
    let target = *TARGETS
        .iter()
        .find(|target| target.name == name)
        .expect("the target exists");
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "corpus/{name} is empty");
    let (started, started_with) = mpsc::sync_channel(1);
    let worker = std::thread::Builder::new()
        // As small as the threads of the server are.
        .stack_size(2 << 20)
        .spawn(move || try_all(target, &corpus, &started))
        .expect("a thread can be started");
    let mut current = Vec::new();
    loop {
        match started_with.recv_timeout(INPUT_TIME_MAX) {
            Ok(input) => current = input,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("{name} hangs on {}", hex(&current)),
        }
    }
    worker
        .join()
        .expect("the worker reports failures as an answer")
        .unwrap_or_else(|input| {
            panic!(
                "{name} panics on {} ({:?})",
                hex(&input),
                String::from_utf8_lossy(&input)
            )
        });
    let peak = peak_memory_kib();
    assert!(peak < MEMORY_KIB_MAX, "the process grew to {peak} KiB");
}

/// `Err` with the input that made the target panic.
fn try_all(target: Target, corpus: &[Vec<u8>], started: &mpsc::SyncSender<Vec<u8>>) -> Result<(), Vec<u8>> {
    let run = |input: &[u8]| {
        // The receiver is gone only when the test has failed already.
        let _ = started.send(input.to_vec());
        catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|_| input.to_vec())
    };
    corpus.iter().try_for_each(|input| run(input))?;
    let mut dice = Dice::new(number("ORRERY_FUZZ_SEED").unwrap_or(1));
    let until = search_seconds().map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut n_tried = 0;
    while until.map_or(n_tried < target.n_mutations, |until| Instant::now() < until) {
        run(&mutate(&mut dice, corpus, target.words))?;
        n_tried += 1;
    }
    println!(
        "{}: {} inputs and {n_tried} mutations of them",
        target.name,
        corpus.len()
    );
    Ok(())
}

fn search_seconds() -> Option<u64> {
    number("ORRERY_FUZZ_SECONDS").or_else(|| std::env::var_os("ORRERY_SOAK").map(|_| 60))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The inputs in the target's folder, in the order of their names.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("every target has a corpus")
        .map(|entry| entry.expect("the corpus can be listed").path())
        .collect();
    paths.sort();
    let read = |path: &PathBuf| std::fs::read(path).expect("the corpus can be read");
    paths.iter().map(read).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The most memory this process ever had, where the system tells.
fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}
