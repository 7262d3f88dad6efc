//! Host processes that begin at the same time on a store without leases, and one that is killed while it makes them.

use std::collections::{BTreeMap, BTreeSet};

use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::models::{ContainerProperties, TimeToLive};
use orrery_processor::range::Tiling;
use orrery_processor::store::{ContainerLeases, LeaseStore as _};
use serde_json::json;

use crate::process::{Process, until_told};
use crate::scene::{Scene, until};

/// How many documents the unit has whose ids end like this.
async fn n_ending(leases: &ContainerClient, end: &str) -> usize {
    let found = ContainerLeases::new(leases.clone()).list("unit").await.unwrap();
    let ids = found.documents.iter().map(|document| document["id"].as_str().unwrap());
    ids.filter(|id| id.ends_with(end)).count()
}

/// One mark, no lock, and leases that cover every key once.
async fn assert_initialised(leases: &ContainerClient, n_leases: usize) {
    let stored = Scene::stored_in(leases).await;
    let ranges: Vec<_> = stored.values().filter_map(|lease| lease.range.clone()).collect();
    assert_eq!(stored.len(), n_leases);
    assert!(Tiling::of(&ranges).is_exact(), "{ranges:?}");
    let marks = (n_ending(leases, ".info").await, n_ending(leases, ".lock").await);
    assert_eq!(marks, (1, 0), "marks and locks");
}

fn all_are_ready(hosts: &BTreeMap<String, Process>) -> bool {
    hosts.values().all(|host| host.printed("ready"))
}

#[tokio::test]
async fn ten_processes_that_start_at_once_make_one_set_of_leases() {
    let scene = Scene::new(8).await;
    let names = (0..10).map(|number| format!("host{number}"));
    let hosts: BTreeMap<String, Process> = names.map(|name| (name.clone(), scene.host(&name))).collect();
    until("all are ready", || all_are_ready(&hosts)).await;
    assert_initialised(&scene.leases, 8).await;
    scene.write(40).await;
    scene.until_complete().await;
}

/// Kills the process that makes the leases after the second of eight, while two others wait for it. The unit begins now: what
/// was written before is nobody's business, whoever made the lease of its key.
async fn kill_the_initialiser(leases_expire: bool) {
    let scene = Scene::new(8).await;
    scene.write(40).await;
    let mut properties = ContainerProperties::new("own-leases", "/id".into());
    if leases_expire {
        properties = properties.with_default_ttl(TimeToLive::NoDefault);
    }
    let database = scene.client.database_client("shop");
    database.create_container(properties, None).await.unwrap();
    let leases = database.container_client("own-leases", None).await.unwrap();
    let settings = [("LEASES", "own-leases"), ("LOCK_MS", "4000"), ("START", "now")];
    // The lock and two leases are made at once, everything else takes its time.
    let slow = |delay_ms: u64, count: u64| json!({"operation": "create_item", "container": "own-leases", "delayMs": delay_ms, "count": count});
    scene.add_fault(&slow(1, 3));
    scene.add_fault(&slow(4000, 100));
    let mut first = scene.host_with("first", &settings);
    until_told("two leases are made", async || {
        Scene::stored_in(&leases).await.len() >= 2
    })
    .await;
    let names = ["second", "third"].map(str::to_owned);
    let others: BTreeMap<String, Process> = names
        .map(|name| (name.clone(), scene.host_with(&name, &settings)))
        .into();
    first.kill();
    assert_eq!(n_ending(&leases, ".info").await, 0, "it was not done");
    scene.clear_faults();
    assert_eq!(Scene::stored_in(&leases).await.len(), 2, "it was in the middle");
    until("the others are ready", || all_are_ready(&others)).await;
    assert_initialised(&leases, 8).await;
    for number in 0..40 {
        scene.write_one(format!("new{number}")).await;
    }
    let delivered = || {
        scene
            .notes()
            .into_iter()
            .map(|note| note.delivery.id)
            .collect::<BTreeSet<_>>()
    };
    let new: BTreeSet<String> = (0..40).map(|number| format!("new{number}")).collect();
    until("what is new is delivered", || delivered().is_superset(&new)).await;
    assert_eq!(
        delivered(),
        new,
        "and nothing else: within a lease, what is older would have come first"
    );
    scene.assert_in_order();
}

#[tokio::test]
async fn leases_are_made_by_another_process_when_the_one_that_began_is_killed() {
    kill_the_initialiser(true).await;
}

#[tokio::test]
async fn leases_are_made_by_another_process_also_where_the_lock_of_the_killed_one_does_not_expire() {
    kill_the_initialiser(false).await;
}
