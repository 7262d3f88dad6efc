//! Processes of units that share containers, keep to limits, set poison aside, or hang.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use orrery_processor::StartFrom;
use orrery_processor::dead_letters::{ContainerDeadLetters, DeadLetterStore as _};
use orrery_processor::estimator::Estimator;
use orrery_processor::lease::Lease;
use orrery_processor::operations::{Operations, ResetTo};
use orrery_processor::store::ContainerLeases;
use orrery_processor::testkit::Ledger;
use serde_json::Value;

use crate::library::feed;
use crate::moving::assert_tiled;
use crate::process::{Process, until_told};
use crate::scene::{Scene, until};

const EXPIRY: Duration = Duration::from_millis(2500);

/// A process of another unit than the scene's own, with a ledger of its own.
async fn other_unit(scene: &Scene, name: &str) -> Process {
    let ledger = scene.ledger_of("other");
    let settings = [("PROCESSOR", "other"), ("LEDGER", ledger.to_str().unwrap())];
    scene.started_with(name, &settings).await
}

fn positions(leases: BTreeMap<String, Lease>) -> BTreeMap<String, Option<String>> {
    let position = |lease: Lease| lease.continuation.map(|token| token.as_str().to_owned());
    leases
        .into_iter()
        .map(|(token, lease)| (token, position(lease)))
        .collect()
}

#[tokio::test]
async fn processes_of_two_units_each_see_everything_and_moving_one_unit_does_not_move_the_other() {
    let scene = Scene::new(2).await;
    let mut first = scene.started("a").await;
    let mut second = other_unit(&scene, "a").await;
    scene.write(30).await;
    let expected = scene.expected().await;
    let is_complete = |ledger: Ledger| ledger.latest() == expected;
    until("both have everything", || {
        is_complete(scene.ledger()) && is_complete(scene.ledger_in("other"))
    })
    .await;
    // One dies and the other ends; the other is moved, and comes back alone.
    first.kill();
    second.signal("TERM");
    until("the second one ends", || second.has_ended()).await;
    let (n_first, before) = (scene.ledger().len(), positions(scene.stored().await));
    let leases = ContainerLeases::new(scene.leases.clone());
    let other = Operations::open("other", feed(&scene), leases, EXPIRY).await.unwrap();
    let beginning = ResetTo::Start(StartFrom::Beginning);
    assert_eq!(other.reset(&beginning, false).await.unwrap(), 2);
    let _second = other_unit(&scene, "b").await;
    until("it has everything again", || scene.ledger_in("other").len() == 60).await;
    assert_eq!(positions(scene.stored().await), before);
    let _first = scene.started("b").await;
    scene.write(30).await;
    scene.until_complete().await;
    let repeated = scene.ledger().repeated();
    assert!(repeated.is_empty(), "the killed one had saved everything: {repeated:?}");
    assert_eq!(scene.ledger().len(), n_first + 30);
}

#[tokio::test]
async fn a_process_never_has_more_leases_than_it_may_also_after_a_split_and_when_another_is_killed() {
    let scene = Scene::new(4).await;
    let settings = [("LEASES_MAX", "2")];
    let _limited = scene.started_with("a", &settings).await;
    scene.until_shares(&[("a", 2)]).await;
    let mut free = scene.started("b").await;
    scene.until_shares(&[("a", 2), ("b", 2)]).await;
    scene.write(40).await;
    for partition in scene.partitions() {
        scene.split(partition);
    }
    scene.write(40).await;
    scene.until_complete().await;
    assert_tiled(&scene, 8).await;
    scene.until_shares(&[("a", 2), ("b", 6)]).await;
    free.kill();
    // Long enough to find the leases of the dead one expired, and to look at them several times.
    let watched_until = Instant::now() + 2 * EXPIRY;
    while Instant::now() < watched_until {
        let shares = scene.shares().await;
        assert!(shares["a"] <= 2, "{shares:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let _another = scene.started("c").await;
    scene.until_shares(&[("a", 2), ("c", 6)]).await;
    scene.write(40).await;
    scene.until_complete().await;
}

#[tokio::test]
async fn no_process_is_brought_below_the_fewest_leases_it_may_have_also_after_a_split() {
    let scene = Scene::new(4).await;
    let settings = [("LEASES_MIN", "3")];
    let _first = scene.started_with("a", &settings).await;
    scene.until_shares(&[("a", 4)]).await;
    let _second = scene.started_with("b", &settings).await;
    scene.until_shares(&[("a", 3), ("b", 1)]).await;
    scene.write(40).await;
    let last = *scene.partitions().last().unwrap();
    scene.split(last);
    scene.write(40).await;
    scene.until_complete().await;
    assert_tiled(&scene, 5).await;
    scene.until_shares(&[("a", 3), ("b", 2)]).await;
}

#[tokio::test]
async fn of_a_hundred_items_with_a_poison_one_a_process_handles_the_others_once_and_sets_that_one_aside() {
    let scene = Scene::new(1).await;
    scene.write(50).await;
    scene.write_one("poison".into()).await;
    for number in 50..99 {
        scene.write_one(format!("item{number}")).await;
    }
    let settings = [("FAIL_ON", "poison"), ("DEAD_LETTERS", "letters"), ("MAX_ITEMS", "100")];
    let mut host = scene.started_with("a", &settings).await;
    let handled = || {
        scene
            .ledger()
            .deliveries()
            .into_iter()
            .map(|one| one.id)
            .collect::<BTreeSet<_>>()
    };
    until("the others are handled", || handled().len() == 99).await;
    let container = scene
        .client
        .database_client("shop")
        .container_client("letters", None)
        .await;
    let letters = ContainerDeadLetters::new(container.unwrap());
    until_told("one is a letter", async || {
        letters.list("unit", 10).await.unwrap().len() == 1
    })
    .await;
    let letter = letters.list("unit", 10).await.unwrap().remove(0);
    assert_eq!((letter.item_id.as_deref(), letter.parked), (Some("poison"), false));
    let raw = letter.current.clone().unwrap();
    assert_eq!(
        (&raw["id"], &raw["version"], &raw["pk"]),
        (&"poison".into(), &1.into(), &"key-poison".into())
    );
    assert!(
        letter.error.contains("told to fail") && letter.attempts >= 2,
        "{letter:?}"
    );
    // The range has moved on: what was handled or set aside does not come again, whoever reads it.
    until_told("the position is saved", async || {
        let saved = scene.stored().await.into_values().next().unwrap().continuation;
        saved.and_then(|token| token.lsn()) >= letter.lsn
    })
    .await;
    scene.write_one("later".into()).await;
    until("what comes later is handled", || handled().contains("later")).await;
    host.kill();
    let _again = scene.started_with("b", &settings).await;
    scene.write_one("last".into()).await;
    until("what comes last is handled", || handled().contains("last")).await;
    assert!(!handled().contains("poison"));
    let repeated = scene.ledger().repeated();
    assert!(
        repeated.len() <= 1,
        "at most the batch that was not saved: {repeated:?}"
    );
    assert_eq!(letters.list("unit", 10).await.unwrap(), [letter]);
}

/// What a process last printed of its health.
fn health(host: &Process) -> Option<Value> {
    let output = host.output.lock().unwrap();
    let told = output.iter().rev().find_map(|line| line.strip_prefix("health "))?;
    serde_json::from_str(told).ok()
}

#[tokio::test]
async fn a_process_whose_handler_is_frozen_turns_unhealthy_and_its_lag_grows_while_an_idle_lease_stays_near_its_poll() {
    let scene = Scene::new(2).await;
    let settings = [("HANG_ON", "frozen"), ("STUCK_MS", "3000"), ("HEALTH_MS", "50")];
    let mut host = scene.started_with("a", &settings).await;
    scene.until_shares(&[("a", 2)]).await;
    until("it is healthy", || {
        health(&host).is_some_and(|health| health["healthy"] == true)
    })
    .await;
    scene.write_one("frozen".into()).await;
    let waiting = |health: &Value| -> BTreeMap<String, u64> {
        let leases = health["leases"].as_object().unwrap().iter();
        leases
            .map(|(token, lease)| (token.clone(), lease["waiting"].as_u64().unwrap_or(0)))
            .collect()
    };
    until("it is unhealthy", || {
        health(&host).is_some_and(|health| health["healthy"] == false)
    })
    .await;
    assert!(host.printed("Stuck"), "it is also told");
    let told = health(&host).unwrap();
    let leases = told["leases"].as_object().unwrap();
    let (frozen, _) = leases.iter().find(|(_, lease)| lease["stuck"] == true).unwrap();
    let (idle, _) = leases.iter().find(|(_, lease)| lease["stuck"] == false).unwrap();
    assert!(leases[frozen]["lastPoll"].as_u64().unwrap() >= 3000, "{told}");
    let before = waiting(&told)[frozen];
    until("its lag grows", || {
        health(&host).is_some_and(|health| waiting(&health)[frozen] >= before + 2000)
    })
    .await;
    // However busy the machine is, the idle one is found near its poll again and again.
    until("the idle one is read", || {
        health(&host).is_some_and(|health| waiting(&health)[idle] < 1000)
    })
    .await;
    let leases = ContainerLeases::new(scene.leases.clone());
    let estimator = Estimator::new("unit", feed(&scene), leases).unwrap();
    let seen = estimator.snapshot().await.unwrap();
    let lag = |token: &str| seen.leases.iter().find(|lease| lease.token == token).unwrap();
    assert!(lag(frozen).waiting.unwrap() >= Duration::from_secs(3), "{seen:?}");
    assert_eq!(lag(idle).waiting, Some(Duration::ZERO), "{seen:?}");
    // Another process, whose handler is not frozen, gets on once this one is dead.
    host.kill();
    let _again = scene.started("b").await;
    scene.until_complete().await;
}
