//! Processes that are started again over what earlier ones left, and processes whose reads are refused for a while.

use std::collections::BTreeSet;

use orrery_processor::feed::FeedSource as _;
use orrery_processor::names::UnitNames;
use serde_json::json;

use crate::library::feed;
use crate::scene::{Scene, until};

fn delivered(scene: &Scene) -> BTreeSet<String> {
    scene.ledger().latest().into_keys().map(|(_, id)| id).collect()
}

#[tokio::test]
async fn a_unit_from_now_gets_all_that_comes_after_its_first_start_also_if_its_first_batch_fails_and_it_is_killed() {
    let scene = Scene::new(2).await;
    scene.write(10).await;
    let mut first = scene.started_with("a", &[("START", "now")]).await;
    first.signal("TERM");
    until("it stops before its first batch", || first.has_ended()).await;
    let new: BTreeSet<String> = (0..6).map(|number| format!("new{number}")).collect();
    for id in &new {
        scene.write_one(id.clone()).await;
    }
    let failing = [("START", "now"), ("FAIL_ON", "new0")];
    let mut second = scene.started_with("a", &failing).await;
    until("the first batch ever fails", || second.printed("BatchFailed")).await;
    second.kill();
    // Another start, which has no effect any more.
    let third = scene.started("a").await;
    until("what came after the first start arrives", || {
        delivered(&scene).is_superset(&new)
    })
    .await;
    assert_eq!(third.n_printed("StartIgnored"), 1);
    assert_eq!(delivered(&scene), new, "and nothing from before");
}

#[tokio::test]
async fn a_unit_without_its_mark_is_verified_and_not_switched_to_the_other_mode() {
    let scene = Scene::new(2).await;
    let _running = scene.started("a").await;
    scene.write(20).await;
    scene.until_complete().await;
    let before = scene.lease_ids().await;
    let names = UnitNames::new("unit", &feed(&scene).describe().await.unwrap().identity);
    let info = names.info();
    scene.leases.delete_item(info.clone(), &info, None).await.unwrap();
    let _other = scene.started("b").await;
    scene.leases.read_item(info.clone(), &info, None).await.unwrap();
    assert_eq!(scene.lease_ids().await, before, "nothing is made twice");
    let mut switched = scene.host_with("c", &[("MODE", "all-versions")]);
    until("it is refused", || switched.has_ended()).await;
    assert!(!switched.printed("ready"));
    scene.until_shares(&[("a", 1), ("b", 1)]).await;
    scene.write(20).await;
    scene.until_complete().await;
    assert!(scene.ledger().repeated().is_empty());
}

#[tokio::test]
async fn reads_that_are_refused_late_or_dropped_lose_nothing_and_keep_the_leases() {
    let scene = Scene::new(2).await;
    let host = scene.started("a").await;
    let faults = [
        json!({"status": 429, "retryAfterMs": 20, "count": 20}),
        json!({"status": 503, "count": 8}),
        json!({"status": 410, "subStatus": 1007, "count": 8}),
        json!({"dropConnection": true, "count": 4}),
        json!({"delayMs": 1000, "count": 2}),
    ];
    for mut fault in faults {
        fault["operation"] = json!("change_feed");
        fault["container"] = json!("orders");
        scene.add_fault(&fault);
        scene.write(10).await;
        until("the faults are used up", || scene.faults_are_used_up()).await;
        scene.clear_faults();
        scene.until_complete().await;
    }
    assert_eq!(host.n_printed("LeaseReleased"), 0, "no lease was let go");
    assert!(scene.ledger().repeated().is_empty());
}
