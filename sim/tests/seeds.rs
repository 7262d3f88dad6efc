//! Many seeds of both simulations. A failing seed is named before it runs; `ORRERY_SIM_SEED` runs it alone.

use orrery_sim::{Trace, cores, nodes, regions, seeds};

const SEEDS: u64 = 60;
/// Five consistency levels share these.
const REGION_SEEDS: u64 = 200;

/// Runs all seeds. Together they must meet everything in `events`: a simulation in which nothing goes wrong proves nothing.
fn check(name: &str, n_seeds: u64, run: fn(u64) -> Trace, events: &[&str]) {
    let seeds = seeds(n_seeds);
    let mut missing: Vec<&str> = events.to_vec();
    for seed in &seeds {
        println!("{name}, seed {seed}");
        let trace = run(*seed);
        missing.retain(|event| !trace.lines.iter().any(|line| line.contains(event)));
    }
    assert!(
        seeds.len() < n_seeds as usize || missing.is_empty(),
        "never met: {missing:?}"
    );
}

/// The simulation itself is tested: one seed is one run.
fn check_determinism(run: fn(u64) -> Trace, seeds: impl IntoIterator<Item = u64>) {
    for seed in seeds {
        let (first, second) = (run(seed), run(seed));
        for (line, (one, other)) in first.lines.iter().zip(&second.lines).enumerate() {
            assert_eq!(one, other, "seed {seed}, line {line}");
        }
        assert_eq!(first.lines.len(), second.lines.len());
    }
    assert_ne!(run(1), run(2));
}

#[test]
fn partitions_keep_their_promises_on_a_disk_that_fails() {
    let outcomes = ["appended: done", "appended: unknown", "appended: full", "refused"];
    let crashes = ["unsynced Lost", "unsynced Torn", "unsynced Kept", "unsynced Holed"];
    let events = ["reopened: done", "checkpoint: done"];
    check("cores", SEEDS, cores::run, &[&outcomes[..], &crashes, &events].concat());
}

#[test]
fn a_node_keeps_its_promises_when_it_is_cut_off() {
    let outcomes = ["at Some", ": 408", ": 409", ": 404", "refused"];
    let reshards = [
        "split of 0: true",
        "split of 0: false",
        "merge of 0: true",
        "merge of 0: false",
        "split of 2",
    ];
    check(
        "nodes",
        SEEDS,
        nodes::run,
        &[&outcomes[..], &reshards, &["restarted with"]].concat(),
    );
}

#[test]
fn regions_keep_the_promises_of_every_consistency_level() {
    let answers = [
        "Written",
        "Refused(412",
        "Refused(403, 3)",
        "Refused(429, 3075)",
        "Refused(404, 1002)",
        "Refused(503",
        "catalogue Write",
        "catalogue Read",
        "Unknown",
    ];
    let trouble = [
        "is cut",
        "is paused",
        ": done",
        "comes back: true",
        "offline, 0 trans",
        "offline, 1 trans",
        "is killed: true",
        "lives again: true",
    ];
    let reshards = ["split of 0: true", "merge of", "split of 2"];
    check(
        "regions",
        REGION_SEEDS,
        regions::run,
        &[&answers[..], &trouble, &reshards].concat(),
    );
}

/// Found among thousands, too rare for the first two hundred to meet again: a region that took over while the one before it had
/// replaced a log twice, one that took over from a copy without a beginning, one where strong writes counted on nobody, one
/// where a strong read waited in vain to be told what its own region had come to count by then, and one that lacked a partition for good
/// because the region it copied it from was killed meanwhile.
#[test]
fn regions_keep_their_promises_in_runs_that_once_broke_them() {
    for seed in [905, 1313, 2807, 4639, 6480] {
        println!("regions, seed {seed}");
        regions::run(seed);
    }
}

#[test]
fn one_seed_of_the_regions_is_one_run() {
    // Every level four times, two of them with splits and merges, and those that once broke a promise.
    let special = [1 << 40, 905, 1313, 2807, 4639, 6480];
    check_determinism(regions::run, (0..20).chain(special));
}

#[test]
fn one_seed_of_the_cores_is_one_run() {
    check_determinism(cores::run, [3, 1 << 40]);
}

#[test]
fn one_seed_of_the_node_is_one_run() {
    check_determinism(nodes::run, [3, 1 << 40]);
}
