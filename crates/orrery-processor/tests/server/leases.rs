//! Leases that other processors left in a container, against a real server.

use std::collections::BTreeSet;
use std::time::Duration;

use azure_data_cosmos::models::ContainerProperties;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use orrery_processor::error::StartError;
use orrery_processor::feed::{FeedSource as _, token_now};
use orrery_processor::lease::FeedMode;
use orrery_processor::names::UnitNames;
use orrery_processor::operations::Operations;
use orrery_processor::range::EpkRange;
use orrery_processor::store::{ContainerLeases, LeaseStore as _};
use serde_json::{Value, json};

use crate::library::{Seen, builder, feed, start};
use crate::process::until_told;
use crate::scene::{Scene, until};

const GRACE: Duration = Duration::from_secs(5);

/// Where a reader of this range stands that has seen everything.
async fn caught_up(scene: &Scene, range: &EpkRange) -> String {
    let token = token_now(&feed(scene), range, FeedMode::LatestVersion).await.unwrap();
    token.as_str().to_owned()
}

fn ids(seen: &Seen) -> BTreeSet<String> {
    seen.lock().unwrap().iter().map(|(id, _)| id.clone()).collect()
}

#[tokio::test]
async fn a_lease_whose_partition_key_is_an_old_random_one_is_renewed_and_moved_where_it_is() {
    const OLD_KEY: &str = "5f0f5cc8-7d0b-4d7c-9f44-0a4f6f1f7a52";
    let scene = Scene::new(1).await;
    scene.write(5).await;
    let database = scene.client.database_client("shop");
    let properties = ContainerProperties::new("by-key", "/partitionKey".into());
    database.create_container(properties, None).await.unwrap();
    let leases = database.container_client("by-key", None).await.unwrap();
    let names = UnitNames::new("unit", &feed(&scene).describe().await.unwrap().identity);
    let info = json!({"id": names.info(), "partitionKey": names.info()});
    leases
        .create_item(names.info(), &names.info(), &info, None)
        .await
        .unwrap();
    let (id, token) = (names.lease("-FF"), caught_up(&scene, &EpkRange::full()).await);
    let lease = json!({
        "id": id, "partitionKey": OLD_KEY, "version": 1, "LeaseToken": "-FF", "Owner": null,
        "FeedRange": {"Range": {"min": "", "max": "FF"}}, "ContinuationToken": token, "properties": {},
        "timestamp": "2026-08-20T09:15:02.1234567Z", "Mode": "Incremental Feed",
    });
    leases.create_item(OLD_KEY, &id, &lease, None).await.unwrap();
    let stored = async || {
        let item = leases.read_item(OLD_KEY, &id, None).await.unwrap();
        item.into_model::<Value>().unwrap()
    };
    let (running, seen) = start(builder(&scene).lease_container(leases.clone())).await.unwrap();
    scene.write_one("new".into()).await;
    until("the new one arrives", || !seen.lock().unwrap().is_empty()).await;
    assert_eq!(
        ids(&seen),
        BTreeSet::from(["new".to_owned()]),
        "it goes on where it stood"
    );
    until_told("its position is saved", async || {
        stored().await["ContinuationToken"] != token
    })
    .await;
    let saved = stored().await;
    until_told("it is renewed", async || {
        stored().await["timestamp"] != saved["timestamp"]
    })
    .await;
    let renewed = stored().await;
    assert_eq!(renewed["ContinuationToken"], saved["ContinuationToken"]);
    assert_eq!(
        (&renewed["Owner"], &renewed["partitionKey"]),
        (&json!("test"), &json!(OLD_KEY))
    );
    running.stop(GRACE).await;
    let found = ContainerLeases::new(leases.clone()).list("unit").await.unwrap();
    let n_leases = found
        .documents
        .iter()
        .filter(|one| one["LeaseToken"].is_string())
        .count();
    assert_eq!(n_leases, 1, "nothing was made beside it");
}

/// What Java's processor of latest versions keeps for a range: its whole state, in base64.
fn java_lease(names: &UnitNames, rid: &str, range: &EpkRange, token: &str) -> Value {
    let bounds = json!({"min": range.start(), "max": range.end()});
    let state = json!({
        "V": 1, "Rid": rid, "Mode": "INCREMENTAL", "StartFrom": {"Type": "BEGINNING"},
        "Continuation": {"V": 1, "Rid": rid, "Continuation": [{"token": token, "range": bounds}], "Range": bounds},
    });
    let whole = json!({
        "min": range.start(), "max": range.end(), "isMinInclusive": true, "isMaxInclusive": false,
    });
    json!({
        "id": names.lease(&range.to_string()), "version": 1, "LeaseToken": range.to_string(),
        "feedRange": {"Range": whole}, "Owner": "pod-7", "ContinuationToken": URL_SAFE.encode(state.to_string()),
        "timestamp": "2026-08-20T09:15:02.123Z",
    })
}

#[tokio::test]
async fn leases_of_java_are_refused_and_once_imported_the_next_change_comes_first() {
    let scene = Scene::new(2).await;
    scene.write(20).await;
    let identity = feed(&scene).describe().await.unwrap().identity;
    let names = UnitNames::new("unit", &identity);
    let store = ContainerLeases::new(scene.leases.clone());
    let mut left = Vec::new();
    for partition in feed(&scene).partitions().await.unwrap() {
        let token = caught_up(&scene, &partition.range).await;
        let lease = java_lease(&names, &identity.container_rid, &partition.range, &token);
        store.create(&lease).await.unwrap();
        left.push(lease);
    }
    let before = store.list("unit").await.unwrap().documents;
    let refused = start(builder(&scene)).await.err();
    assert!(matches!(refused, Some(StartError::JavaLeases)), "{refused:?}");
    assert_eq!(
        store.list("unit").await.unwrap().documents,
        before,
        "nothing was touched"
    );

    let database = scene.client.database_client("shop");
    let properties = ContainerProperties::new("imported", "/id".into());
    database.create_container(properties, None).await.unwrap();
    let imported = database.container_client("imported", None).await.unwrap();
    let own = ContainerLeases::new(imported.clone());
    let unit = Operations::open("unit", feed(&scene), own, Duration::from_secs(60))
        .await
        .unwrap();
    assert_eq!(unit.import(&left).await.unwrap(), 2);
    let new: BTreeSet<String> = (0..10).map(|number| format!("new{number}")).collect();
    for id in &new {
        scene.write_one(id.clone()).await;
    }
    let (running, seen) = start(builder(&scene).lease_container(imported)).await.unwrap();
    until("the new ones arrive", || seen.lock().unwrap().len() >= new.len()).await;
    running.stop(GRACE).await;
    assert_eq!((ids(&seen), seen.lock().unwrap().len()), (new, 10), "and nothing else");
}
