//! The database under a clock, a disk and a scheduler that a seed decides.
//!
//! Three simulations, all on one thread, so that one seed is one run:
//! - [`cores`]: the rules of partitions over the embedded store on a simulated disk, which loses power, fails to sync and
//!   fills up;
//! - [`nodes`]: a whole node over storage in memory, which is cut off in the middle of writes, splits and merges;
//! - [`regions`]: an account with three regions, clients in all of them, links that fail and failovers.
//!
//! The first two keep a model of what was acknowledged and what is unknown, and compares after every crash and at the end: what was
//! acknowledged persists, a transaction is there whole or not at all, what is unknown happened or did not, positions never
//! go back, and a view is what its log implies. The third records a history, which is checked against the consistency level.

pub mod cores;
pub mod dice;
pub mod nodes;
pub mod regions;
mod requests;

#[path = "../../crates/orrery-storage/tests/crash/disk.rs"]
#[allow(
    dead_code,
    missing_debug_implementations,
    clippy::unwrap_used,
    reason = "shared with the crash tests of the store"
)]
mod disk;
#[path = "../../crates/orrery-node/tests/it/failing.rs"]
#[allow(
    dead_code,
    missing_debug_implementations,
    clippy::unwrap_used,
    reason = "shared with the tests of the node"
)]
mod failing;

/// What happened, line by line. Two runs of one seed have the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub lines: Vec<String>,
}

impl Trace {
    /// Adds a line; shows it at once when one seed is looked at.
    fn push(&mut self, line: String) {
        if std::env::var_os("ORRERY_SIM_SEED").is_some() {
            println!("{line}");
        }
        self.lines.push(line);
    }
}

/// The seeds to run: one named by `ORRERY_SIM_SEED`, or the first `ORRERY_SIM_SEEDS`.
pub fn seeds(n_default: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("ORRERY_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("ORRERY_SIM_SEEDS").unwrap_or(n_default)).collect(),
    }
}
