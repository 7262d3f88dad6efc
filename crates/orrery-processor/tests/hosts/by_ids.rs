//! Leases of partition ids, as .NET's first version makes them, through splits and merges that only Rust hosts handle.

use std::time::Duration;

use serde_json::{Value, json};

use crate::door::Door;
use crate::scene::Scene;

const GRACE: Duration = Duration::from_secs(30);
const PREFIX: &str = "unitscripted_d_c1";

/// A unit that .NET made over the partitions of a scene, at this position.
fn made_by_dotnet(scene: &Scene, ids: &[&str], position: u64, with_ranges: bool) {
    let ranges = orrery_processor::range::EpkRange::full().split_evenly(ids.len());
    let lease = |(id, range): (&&str, orrery_processor::range::EpkRange)| {
        let mut lease = json!({
            "id": format!("{PREFIX}..{id}"), "version": 0, "LeaseToken": id, "Owner": null,
            "ContinuationToken": format!("\"{position}\""), "properties": {"team": "orders"}, "timestamp": null,
            "Mode": "Incremental Feed",
        });
        if with_ranges {
            lease["FeedRange"] = json!({"Range": range});
        }
        lease
    };
    let mut documents = vec![json!({"id": format!("{PREFIX}.info")})];
    documents.extend(ids.iter().zip(ranges).map(lease));
    scene.leases.restore(documents);
}

/// What was created, without what .NET ignores.
fn created(door: &Door) -> Vec<Value> {
    let mut created: Vec<Value> = door.created();
    for document in &mut created {
        let properties = document["properties"].as_object_mut().unwrap();
        properties.retain(|name, _| !name.starts_with("orrery."));
    }
    created.sort_by_key(|document| document["id"].to_string());
    created
}

fn tokens(scene: &Scene) -> Vec<String> {
    scene.stored().into_keys().collect()
}

#[tokio::test(start_paused = true)]
async fn partition_leases_become_after_a_split_and_a_merge_what_dotnet_would_write() {
    let golden: Value = serde_json::from_str(include_str!("../golden/dotnet_v0_resharded.json")).unwrap();
    let scene = Scene::new(2);
    scene.write(20);
    made_by_dotnet(&scene, &["0", "1"], 20, true);
    let door = Door::new(&scene.leases);
    let host = scene.host("rust").leases(door.clone());
    let running = scene.try_start(host, "rust").await.unwrap();
    scene.feed.split(0);
    scene
        .until("the lease is cut", || tokens(&scene) == ["1", "2", "3"])
        .await;
    assert_eq!(Value::from(created(&door)), golden["split of 0"]);
    scene.write(20);
    scene.until_complete().await;
    assert!(scene.ledger.deliveries().iter().all(|one| one.lsn > 20));
    scene
        .until("the positions are saved", || {
            scene
                .stored()
                .values()
                .all(|lease| lease.continuation.as_ref().unwrap().lsn() == Some(40))
        })
        .await;
    scene.feed.merge(1);
    scene
        .until("both are leases of ranges", || {
            tokens(&scene)
                == [
                    "0FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF-1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF",
                    "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF-FF",
                    "2",
                ]
        })
        .await;
    let since: Vec<Value> = created(&door).into_iter().filter(|one| one["version"] == 1).collect();
    assert_eq!(Value::from(since), golden["merge of 3 and 1"]);
    scene.write(20);
    scene.until_complete().await;
    assert!(scene.ledger.repeated().is_empty(), "no replay of history");
    running.stop(GRACE).await;
    scene.assert_complete();
}

#[tokio::test(start_paused = true)]
async fn a_partition_lease_without_a_range_is_replaced_by_its_children_after_a_split_while_all_were_stopped() {
    let scene = Scene::new(2);
    scene.write(20);
    made_by_dotnet(&scene, &["0", "1"], 20, false);
    scene.feed.split(0);
    scene.feed.split(0);
    scene.write(20);
    let running = scene.start("rust").await;
    scene.until_complete().await;
    scene
        .until("the lease is replaced", || tokens(&scene) == ["1", "3", "4", "5"])
        .await;
    assert!(
        scene.ledger.deliveries().iter().all(|one| one.lsn > 20),
        "no replay of history"
    );
    assert!(scene.ledger.repeated().is_empty());
    assert!(
        scene
            .stored()
            .values()
            .all(|lease| lease.version == 0 && lease.properties["team"] == "orders")
    );
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn partition_leases_without_ranges_whose_partitions_all_split_lose_nothing() {
    let scene = Scene::new(2);
    scene.write(20);
    made_by_dotnet(&scene, &["0", "1"], 10, false);
    scene.feed.split(1);
    scene.feed.split(0);
    scene.write(20);
    let hosts = [scene.start("one").await, scene.start("two").await];
    scene.until_complete().await;
    scene
        .until("the leases are replaced", || tokens(&scene) == ["2", "3", "4", "5"])
        .await;
    for host in hosts {
        host.stop(GRACE).await;
    }
    scene.assert_complete();
}
