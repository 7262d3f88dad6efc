//! Units and leases as tables for people and as JSON for programs.

use std::time::Duration;

use orrery_processor::balance::Liveness;
use orrery_processor::estimator::{LeaseLag, UnitLag, Unknown};
use orrery_processor::lease::Condition;
use orrery_processor::operations::LeaseStatus;
use orrery_processor::range::Tiling;
use serde_json::{Value, json};

pub fn units(rows: &[(String, usize, Vec<String>)], as_json: bool) {
    if as_json {
        let unit = |(name, leases, owners): &(String, usize, Vec<String>)| json!({"unit": name, "leases": leases, "owners": owners});
        println!("{}", json!({ "units": rows.iter().map(unit).collect::<Vec<_>>() }));
        return;
    }
    let row = |(name, leases, owners): &(String, usize, Vec<String>)| {
        let owners = if owners.is_empty() {
            "-".to_owned()
        } else {
            owners.join(",")
        };
        vec![name.clone(), leases.to_string(), owners]
    };
    table(&["unit", "leases", "owners"], rows.iter().map(row).collect());
}

/// What is known of a unit.
pub struct Unit {
    pub leases: Vec<LeaseStatus>,
    pub lag: UnitLag,
    pub tiling: Tiling,
    pub paused: bool,
    /// Keys with dead letters, if it is known where those are.
    pub parked: Option<Vec<String>>,
}

pub fn status(unit: &Unit, as_json: bool) {
    let Unit {
        leases,
        lag,
        tiling,
        paused,
        parked,
    } = unit;
    let lag_of = |token: &str| lag.leases.iter().find(|lag| lag.token == token);
    if as_json {
        let leases: Vec<Value> = leases
            .iter()
            .map(|status| lease_json(status, lag_of(&status.lease.token)))
            .collect();
        let waiting = lag.waiting().map(|waiting| waiting.as_secs_f64());
        println!(
            "{}",
            json!({"leases": leases, "paused": paused, "known": lag.is_known(), "transactions": lag.transactions(),
                   "waitingSeconds": waiting, "covered": tiling.is_exact(), "parkedKeys": parked})
        );
        return;
    }
    let row = |status: &LeaseStatus| lease_row(status, lag_of(&status.lease.token));
    let head = [
        "lease", "owner", "state", "position", "behind", "waiting", "renewed", "epoch", "crashes",
    ];
    table(&head, leases.iter().map(row).collect());
    for (status, condition) in leases
        .iter()
        .filter_map(|status| Some((status, status.lease.condition()?)))
    {
        println!("{}: {}", status.lease.token, told(&condition));
    }
    let total = lag
        .transactions()
        .map_or_else(|| "unknown".to_owned(), |lag| lag.to_string());
    println!(
        "behind: {total} transactions{}",
        if *paused { "; the unit is paused" } else { "" }
    );
    if let Some(keys) = parked {
        let listed = if keys.is_empty() {
            String::new()
        } else {
            format!(": {}", keys.join(", "))
        };
        println!("keys with dead letters: {}{listed}", keys.len());
    }
    if !tiling.is_exact() {
        println!(
            "the leases do not cover every key once: {} holes, {} overlaps",
            tiling.holes.len(),
            tiling.overlaps.len()
        );
    }
}

fn state(status: &LeaseStatus) -> &'static str {
    match status.liveness {
        _ if status.lease.is_retired() => "being cut",
        Liveness::Free => "free",
        Liveness::Expired => "expired",
        Liveness::Live => match status.lease.condition() {
            None => "held",
            Some(Condition::Failing { .. }) => "failing",
            Some(Condition::Running { .. }) => "running",
            Some(Condition::Halted { .. }) => "halted",
        },
    }
}

/// Why a lease does not get on, in a sentence.
fn told(condition: &Condition) -> String {
    match condition {
        Condition::Failing { attempts, since, error } => {
            format!("the delegate has failed {attempts} times since {since}: {error}")
        }
        Condition::Running { since } => format!("the delegate has been running since {since}"),
        Condition::Halted { since, reason } => format!("halted at {since}: {reason}"),
    }
}

fn lease_json(status: &LeaseStatus, lag: Option<&LeaseLag>) -> Value {
    let lease = &status.lease;
    json!({
        "lease": lease.token, "owner": lease.owner, "state": state(status), "epoch": lease.epoch(),
        "crashes": lease.n_crashes(), "position": lag.and_then(|lag| lag.position.clone()),
        "transactions": lag.and_then(|lag| lag.transactions.ok()),
        "waitingSeconds": lag.and_then(|lag| lag.waiting).map(|waiting| waiting.as_secs_f64()),
        "renewedSecondsAgo": status.age.map(|age| age.as_secs_f64()), "condition": lease.condition(),
    })
}

fn lease_row(status: &LeaseStatus, lag: Option<&LeaseLag>) -> Vec<String> {
    let lease = &status.lease;
    let none = || "-".to_owned();
    let behind = match lag.map(|lag| lag.transactions) {
        Some(Ok(count)) => count.to_string(),
        Some(Err(Unknown::NoPosition)) => "not started".to_owned(),
        Some(Err(Unknown::RangeGone)) => "range was cut".to_owned(),
        Some(Err(Unknown::WindowExceeded)) => "beyond the window".to_owned(),
        Some(Err(Unknown::Uncountable)) => "across a failover".to_owned(),
        Some(Err(Unknown::Unreadable)) | None => "unknown".to_owned(),
    };
    let seconds = |time: Option<Duration>| time.map_or_else(none, |time| format!("{:.0} s", time.as_secs_f64()));
    vec![
        lease.token.clone(),
        lease.owner.clone().unwrap_or_else(none),
        state(status).to_owned(),
        lag.and_then(|lag| lag.position.clone()).unwrap_or_else(none),
        behind,
        seconds(lag.and_then(|lag| lag.waiting)),
        seconds(status.age),
        lease.epoch().to_string(),
        lease.n_crashes().to_string(),
    ]
}

fn table(head: &[&str], rows: Vec<Vec<String>>) {
    let head = head.iter().map(|cell| (*cell).to_owned()).collect();
    crate::table::print_rows(std::iter::once(head).chain(rows).collect());
}
