//! `orrery processor`, run against a unit that lives.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use serde_json::Value;

use crate::process::orrery;
use crate::scene::{Scene, until};

/// Runs `orrery processor` with the flags every command has.
fn run(scene: &Scene, arguments: &[&str]) -> Output {
    let mut command = Command::new(orrery().unwrap());
    command.arg("processor").args(arguments);
    command.args(["--endpoint", &scene.server.endpoint]);
    command.output().unwrap()
}

fn succeed(scene: &Scene, arguments: &[&str]) -> String {
    let output = run(scene, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn fail(scene: &Scene, arguments: &[&str]) -> String {
    let output = run(scene, arguments);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    String::from_utf8(output.stderr).unwrap()
}

fn status(scene: &Scene, more: &[&str]) -> Value {
    let all = [&["status", "unit", "shop", "orders", "--expiry", "2.5", "--json"], more].concat();
    serde_json::from_str(&succeed(scene, &all)).unwrap()
}

fn reset(to: &str) -> [&str; 8] {
    ["reset", "unit", "shop", "orders", "--expiry", "2.5", "--to", to]
}

/// Runs a host until everything is delivered, and stops it.
async fn work(scene: &Scene) {
    let mut host = scene.started("a").await;
    scene.until_complete().await;
    host.signal("TERM");
    until("the host ends", || host.has_ended()).await;
}

#[tokio::test]
async fn list_shows_the_units_of_a_container_with_their_leases_and_owners() {
    let scene = Scene::new(3).await;
    let _hosts = [scene.started("a").await, scene.started("b").await];
    scene.until_shares(&[("a", 2), ("b", 1)]).await;
    let other = scene.host_with("c", &[("PROCESSOR", "second")]);
    until("the other unit works", || other.printed("ready")).await;
    let listed = succeed(&scene, &["list", "shop", "orders", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let units = listed["units"].as_array().unwrap();
    let seen: Vec<(&str, u64, usize)> = units
        .iter()
        .map(|unit| {
            let owners = unit["owners"].as_array().unwrap();
            (
                unit["unit"].as_str().unwrap(),
                unit["leases"].as_u64().unwrap(),
                owners.len(),
            )
        })
        .collect();
    assert_eq!(seen, [("second", 3, 1), ("unit", 3, 2)]);
    let table = succeed(&scene, &["list", "shop"]);
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(fail(&scene, &["list", "nowhere"]).starts_with("orrery: "));
}

#[tokio::test]
async fn status_shows_owners_lag_and_the_keys_that_dead_letters_hold_up() {
    let scene = Scene::new(1).await;
    let mut host = scene.host_with("a", &[("FAIL_ON", "bad"), ("DEAD_LETTERS", "letters")]);
    scene.write(5).await;
    until("the host works", || scene.ledger().len() == 5).await;
    scene.write_one("bad".into()).await;
    until("the bad one is set aside", || host.printed("DeadLettered")).await;
    until("the position is saved", || status(&scene, &[])["transactions"] == 0).await;
    let running = status(&scene, &["--letters", "letters"]);
    assert_eq!(running["parkedKeys"], serde_json::json!(["[\"key-bad\"]"]), "{running}");
    let lease = &running["leases"][0];
    assert_eq!((&lease["owner"], &lease["state"]), (&"a".into(), &"held".into()));
    assert_eq!((&running["known"], &running["covered"]), (&true.into(), &true.into()));
    host.signal("TERM");
    until("the host ends", || host.has_ended()).await;
    scene.write(7).await;
    let stopped = status(&scene, &[]);
    assert_eq!(
        (&stopped["transactions"], &stopped["leases"][0]["state"]),
        (&7.into(), &"free".into())
    );
    assert!(stopped["waitingSeconds"].as_f64().unwrap() < 60.0, "{stopped}");
    let table = succeed(&scene, &["status", "unit", "shop", "orders", "--letters", "letters"]);
    assert!(table.contains("behind: 7 transactions"), "{table}");
    assert!(table.contains("keys with dead letters: 1: [\"key-bad\"]"), "{table}");
    let unknown = fail(&scene, &["status", "nobody", "shop", "orders"]);
    assert!(unknown.contains("no leases"), "{unknown}");
}

/// Ids of items, one in every lease, by the lease's token.
async fn one_item_per_lease(scene: &Scene, n_leases: usize) -> BTreeMap<String, String> {
    scene.write(20 * n_leases).await;
    work(scene).await;
    let deliveries = scene.ledger().deliveries().into_iter();
    let items: BTreeMap<String, String> = deliveries.map(|one| (one.lease, one.id)).collect();
    assert_eq!(items.len(), n_leases);
    items
}

#[tokio::test]
async fn leases_that_do_not_get_on_are_shown_with_the_reason_while_the_others_go_on() {
    let scene = Scene::new(5).await;
    let items = one_item_per_lease(&scene, 5).await;
    let ids: Vec<&str> = items.values().map(String::as_str).collect();
    let troubles = [
        ("PANIC_ON", ids[0]),
        ("FAIL_ON", ids[1]),
        ("HANG_ON", ids[2]),
        ("HALT_ON", ids[3]),
    ];
    let mut host = scene.host_with("a", &troubles);
    until("the host is ready", || host.printed("ready")).await;
    let n_before = scene.ledger().len();
    for id in &ids {
        scene.write_one((*id).to_owned()).await;
    }
    let expected = ["failing", "failing", "running", "halted", "held"];
    let states = |status: &Value| -> Vec<String> {
        let mut leases = status["leases"].as_array().unwrap().clone();
        leases.sort_by_key(|lease| lease["lease"].to_string());
        leases
            .iter()
            .map(|lease| lease["state"].as_str().unwrap().to_owned())
            .collect()
    };
    until("every trouble is shown", || states(&status(&scene, &[])) == expected).await;
    until("the others go on", || scene.ledger().len() == n_before + 1).await;
    let shown = status(&scene, &[]);
    let errors: Vec<&str> = shown["leases"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|lease| {
            lease["condition"]["error"]
                .as_str()
                .or(lease["condition"]["reason"].as_str())
        })
        .collect();
    for error in ["told to panic", "told to fail", "told to halt"] {
        assert!(errors.iter().any(|one| one.contains(error)), "{error}: {errors:?}");
    }
    let table = succeed(&scene, &["status", "unit", "shop", "orders"]);
    assert!(table.contains("the delegate has failed"), "{table}");
    assert!(table.contains("the delegate has been running since"), "{table}");
    assert!(table.contains(": told to halt"), "{table}");
    host.kill();
    let _again = scene.started("a").await;
    scene.until_complete().await;
    until("all is well", || {
        states(&status(&scene, &[])).iter().all(|state| state == "held")
    })
    .await;
}

#[tokio::test]
async fn a_units_place_is_exported_and_it_is_brought_back_there() {
    let scene = Scene::new(3).await;
    scene.write(20).await;
    work(&scene).await;
    let export = ["export", "unit", "shop", "orders"];
    let place = succeed(&scene, &export).trim().to_owned();
    let as_json = succeed(&scene, &[&export[..], &["--json"]].concat());
    let as_json: Value = serde_json::from_str(&as_json).unwrap();
    assert_eq!(
        (as_json["cursor"].as_str(), &as_json["leases"]),
        (Some(place.as_str()), &3.into())
    );
    for number in 0..5 {
        scene.write_one(format!("later{number}")).await;
    }
    work(&scene).await;
    assert_eq!(scene.ledger().len(), 25);
    assert_eq!(
        succeed(&scene, &reset(&place)).trim(),
        "3 leases moved to where it stood"
    );
    work(&scene).await;
    assert_eq!(scene.ledger().len(), 30, "the five after the export came again");
    let nobody = fail(&scene, &["export", "nobody", "shop", "orders"]);
    assert!(nobody.contains("no leases"), "{nobody}");
}

#[tokio::test]
async fn a_unit_is_reset_when_its_hosts_have_stopped_or_are_dead_for_long_enough() {
    let scene = Scene::new(2).await;
    scene.write(10).await;
    let mut host = scene.started("a").await;
    scene.until_complete().await;
    let refused = fail(&scene, &reset("beginning"));
    assert!(refused.contains("a live"), "{refused}");
    host.kill();
    let refused = fail(&scene, &reset("beginning"));
    assert!(refused.contains("a live"), "it may still come back: {refused}");
    until("its leases expire", || {
        run(&scene, &reset("beginning")).status.success()
    })
    .await;
    work(&scene).await;
    assert_eq!(scene.ledger().repeated().len(), 10, "everything came again");
    let moved = succeed(&scene, &reset("now"));
    assert_eq!(moved.trim(), "2 leases moved to now");
    scene.write_one("new".into()).await;
    work(&scene).await;
    assert_eq!(scene.ledger().len(), 21);
    let running = scene.started("a").await;
    let robbed = [&reset("beginning")[..], &["--from-running"]].concat();
    succeed(&scene, &robbed);
    until("everything comes again, from the running host", || {
        scene.ledger().len() == 32
    })
    .await;
    drop(running);
    let nonsense = fail(&scene, &reset("yesterday"));
    assert!(nonsense.contains("not a position"), "{nonsense}");
}

#[tokio::test]
async fn a_unit_is_reset_to_a_token_and_to_a_time() {
    let scene = Scene::new(1).await;
    scene.write(10).await;
    work(&scene).await;
    let token = status(&scene, &[])["leases"][0]["position"]
        .as_str()
        .unwrap()
        .to_owned();
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let written = now();
    // Starts are exclusive and count whole seconds: what comes next must be of a later one.
    until("the second is over", || now() > written + 1).await;
    for number in 0..3 {
        scene.write_one(format!("later{number}")).await;
    }
    work(&scene).await;
    assert_eq!(scene.ledger().len(), 13);
    succeed(&scene, &reset(&token));
    work(&scene).await;
    assert_eq!(scene.ledger().len(), 16, "the three after the token came again");
    let time = time::OffsetDateTime::from_unix_timestamp(i64::try_from(written + 1).unwrap()).unwrap();
    let time = time.format(&time::format_description::well_known::Rfc3339).unwrap();
    succeed(&scene, &reset(&time));
    work(&scene).await;
    assert_eq!(scene.ledger().len(), 19, "the three after the time came again");
    assert!(scene.ledger().repeated().values().all(|count| *count == 3));
}
