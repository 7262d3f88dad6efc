//! The scenarios, in the order of the list.

mod account;
mod batch;
mod change_feed;
mod containers;
mod databases;
mod feed_promises;
mod item_conditions;
mod item_keys;
mod item_lifetime;
mod items;
mod partitions;
mod patch;
mod queries;
mod regions;
mod throughput;
mod tls;

use crate::harness::{Cases, cases};

pub fn all() -> Cases {
    let groups = [
        account::cases(),
        tls::cases(),
        databases::cases(),
        containers::cases(),
        throughput::cases(),
        items::cases(),
        item_keys::cases(),
        item_conditions::cases(),
        item_lifetime::cases(),
        patch::cases(),
        batch::cases(),
        users(),
        partitions::cases(),
        queries::cases(),
        change_feed::cases(),
        feed_promises::cases(),
        processors(),
    ];
    groups.into_iter().flatten().collect()
}

/// Scenarios that change what others would see.
pub fn one_by_one() -> Cases {
    [account::rotations(), regions::cases()].concat()
}

fn users() -> Cases {
    const REASON: &str = "The SDK has no users, permissions or resource tokens.";
    cases![
        "user-create-read-replace-delete" => [skip REASON],
        "permission-create-read-delete" => [skip REASON],
        "permission-token-reads" => [skip REASON],
        "permission-token-cannot-write" => [skip REASON],
        "permission-of-one-partition-key" => [skip REASON],
        "permission-of-one-item" => [skip REASON],
        "read-only-key-cannot-read-permissions" => [skip REASON],
    ]
}

fn processors() -> Cases {
    const REASON: &str = "The SDK has no change feed processor.";
    cases![
        "processor-latest-versions" => [skip REASON],
        "processor-latest-versions-killed" => [skip REASON],
        "processor-all-versions" => [skip REASON],
        "processor-all-versions-killed" => [skip REASON],
    ]
}
