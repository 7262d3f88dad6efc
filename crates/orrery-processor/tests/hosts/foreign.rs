//! Leases of the Java processor: looked at, never written, and brought in under another name.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use orrery_processor::balance::Liveness;
use orrery_processor::error::StartError;
use orrery_processor::estimator::Estimator;
use orrery_processor::lease::Lease;
use orrery_processor::operations::{Operations, ResetError, ResetTo};
use orrery_processor::range::EpkRange;
use orrery_processor::{Position, StartFrom};
use serde_json::{Value, json};

use crate::scene::{Scene, TIMING};

async fn operations(scene: &Scene, name: &str) -> Operations {
    let (feed, leases) = (scene.feed.clone(), scene.leases.clone());
    Operations::open(name, feed, leases, TIMING.expiry).await.unwrap()
}

/// A lease as Java's processor writes it; without a state if nothing was read yet.
fn java(range: &EpkRange, state: Option<Value>) -> Value {
    json!({
        "id": format!("unitscripted_d_c1..{range}"), "LeaseToken": range.to_string(), "version": 1, "Owner": "pod-3",
        "feedRange": {"Range": range}, "timestamp": "2026-08-20T09:15:02.123Z",
        "ContinuationToken": state.map(|state| URL_SAFE.encode(state.to_string())),
    })
}

/// The state of a range: a token, or where it starts.
fn state(range: &EpkRange, token: Option<&str>, start: &Value) -> Value {
    json!({
        "V": 1, "Rid": "c1", "Mode": "INCREMENTAL", "StartFrom": start,
        "Continuation": {"V": 1, "Rid": "c1", "Continuation": [{"token": token, "range": range}], "Range": range},
    })
}

fn halves() -> Vec<EpkRange> {
    EpkRange::full().split_evenly(2)
}

#[tokio::test(start_paused = true)]
async fn a_unit_of_the_java_processor_is_looked_at_and_not_touched() {
    let scene = Scene::new(2);
    scene.write(20);
    let leases: Vec<Value> = halves()
        .iter()
        .map(|range| java(range, Some(state(range, Some("\"15\""), &json!({"Type": "NOW"})))))
        .collect();
    scene.leases.restore(leases);
    let before = scene.leases.documents();
    let unit = operations(&scene, "unit").await;
    let (statuses, _) = unit.status().await.unwrap();
    let seen: Vec<_> = statuses
        .iter()
        .map(|status| (status.lease.owner(), status.liveness, status.age.is_some()))
        .collect();
    assert_eq!(seen, [(Some("pod-3"), Liveness::Live, true); 2]);
    assert!(unit.tiling().await.unwrap().is_exact());
    let estimator = Estimator::new("unit", scene.feed.clone(), scene.leases.clone()).unwrap();
    let lag = estimator.snapshot().await.unwrap();
    assert!(lag.is_known() && (5..=10).contains(&lag.signal()), "{lag:?}");
    let cursor = unit.cursor().await.unwrap();
    let at = Position::After(orrery_processor::token::FeedToken::at(15));
    assert!(cursor.ranges().count() == 2 && cursor.ranges().all(|(_, position)| *position == at));
    let refused = unit.reset(&ResetTo::Now, true).await.unwrap_err();
    assert!(matches!(refused, ResetError::Foreign), "{refused}");
    assert_eq!(scene.leases.documents(), before);
}

#[tokio::test(start_paused = true)]
async fn an_imported_lease_begins_where_the_java_lease_would() {
    let scene = Scene::new(1);
    scene.write(10);
    let whole = EpkRange::full();
    for (number, (token, start, expected)) in [
        (Some("\"7\""), json!({"Type": "NOW"}), (Some(7), None)),
        (None, json!({"Type": "BEGINNING"}), (None, Some("beginning"))),
        (
            None,
            json!({"Type": "POINT_IN_TIME", "PointInTimeMs": 1_755_681_302_000_u64}),
            (None, Some("2025-08-20T09:15:02Z")),
        ),
        (None, json!({"Type": "LEASE", "Etag": "\"4\""}), (Some(4), None)),
        // Now is the moment of the import, and does not move.
        (None, json!({"Type": "NOW"}), (Some(10), None)),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("imported{number}");
        let unit = operations(&scene, &name).await;
        let lease = java(&whole, Some(state(&whole, token, &start)));
        assert_eq!(unit.import(&[lease]).await.unwrap(), 1);
        let documents = scene.leases.documents();
        let made = documents
            .iter()
            .find(|one| one["id"].as_str().unwrap().starts_with(&name));
        let made = Lease::from_document(made.unwrap()).unwrap();
        let position = made.continuation.as_ref().and_then(|token| token.lsn());
        assert_eq!((position, made.start()), expected, "{start}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_never_read_is_imported_only_with_a_place_to_begin() {
    let scene = Scene::new(2);
    scene.write(10);
    let dotnet = json!({
        "id": "anyscripted_d_c1..0", "LeaseToken": "0", "version": 0, "Owner": null, "ContinuationToken": null,
        "properties": {}, "timestamp": null,
    });
    let left = [dotnet, java(&halves()[1], None)];
    let unit = operations(&scene, "unit").await;
    let refused = unit.import(&left).await.unwrap_err();
    assert!(matches!(refused, StartError::NoPosition(_)), "{refused}");
    assert!(scene.leases.documents().is_empty(), "nothing is made of it");
    assert_eq!(unit.import_from(&left, StartFrom::Beginning).await.unwrap(), 2);
    let running = scene
        .try_start(scene.host("a").start_from(StartFrom::Now), "a")
        .await
        .unwrap();
    scene.until_complete().await;
    running.stop(Duration::from_secs(5)).await;
}
