//! Hosts that come, go, die and stand still.

use std::collections::BTreeMap;
use std::time::Duration;

use orrery_processor::balance::BalanceSettings;
use orrery_processor::operations::{Operations, ResetTo};
use orrery_processor::{Event, Processor, StartFrom};
use serde_json::json;

use crate::scene::{Scene, TIMING, next};
use crate::way::Way;

const GRACE: Duration = Duration::from_secs(30);

fn is_even(scene: &Scene, n_hosts: usize) -> bool {
    let shares = scene.shares();
    let (least, most) = (
        shares.values().min().copied().unwrap_or(0),
        shares.values().max().copied().unwrap_or(0),
    );
    shares.len() == n_hosts && most - least <= 1
}

#[tokio::test(start_paused = true)]
async fn twelve_leases_follow_one_to_four_hosts_and_back() {
    let scene = Scene::new(12);
    let mut hosts = Vec::new();
    for n in 1..=4 {
        hosts.push(scene.start(&format!("host{n}")).await);
        let began = tokio::time::Instant::now();
        scene.until("equal shares", || is_even(&scene, n)).await;
        assert!(began.elapsed() <= 4 * TIMING.acquire, "{:?}", began.elapsed());
        scene.write(60);
        scene.until_complete().await;
    }
    while let Some(host) = hosts.pop() {
        let stopped = host.stop(GRACE).await;
        assert_eq!(stopped.not_released, Vec::<String>::new());
        if !hosts.is_empty() {
            scene.until("equal shares", || is_even(&scene, hosts.len())).await;
        }
    }
    assert_eq!(scene.shares().len(), 0);
    scene.assert_complete();
    assert!(
        scene.ledger.repeated().is_empty(),
        "hand-overs and stops repeat nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn a_graceful_stop_is_taken_over_within_one_cycle_and_repeats_nothing() {
    let scene = Scene::new(4);
    let first = scene.start("a").await;
    scene.write(100);
    scene.until_complete().await;
    let second = scene.start("b").await;
    scene.until("equal shares", || is_even(&scene, 2)).await;
    scene.write(100);
    first.stop(GRACE).await;
    let began = tokio::time::Instant::now();
    scene.until("b has all", || scene.shares().get("b") == Some(&4)).await;
    assert!(began.elapsed() <= TIMING.acquire + Duration::from_secs(1));
    scene.until_complete().await;
    assert!(scene.ledger.repeated().is_empty());
    second.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn two_units_on_one_container_each_see_everything_and_do_not_move_each_other() {
    let (one, mut other) = (Scene::new(3), Scene::new(0));
    other.feed = one.feed.clone();
    other.leases = one.leases.clone();
    let first = one.start("a").await;
    let named = Processor::builder("second")
        .source(other.feed.clone())
        .leases(other.leases.clone())
        .instance(orrery_processor::InstanceName::new("a").unwrap())
        .start_from(StartFrom::Beginning)
        .lease_timing(TIMING);
    let second = other.try_start(named, "a").await.unwrap();
    one.write(50);
    one.until_complete().await;
    other.until_complete().await;
    assert!(one.ledger.repeated().is_empty() && other.ledger.repeated().is_empty());
    let unit = Operations::open("unit", one.feed.clone(), one.leases.clone(), TIMING.expiry);
    let beginning = ResetTo::Start(StartFrom::Beginning);
    assert_eq!(unit.await.unwrap().reset(&beginning, true).await.unwrap(), 3);
    one.until("everything comes again", || one.ledger.repeated().len() == 50)
        .await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(other.ledger.repeated().is_empty(), "the other one is not moved");
    first.stop(GRACE).await;
    second.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn idle_hosts_do_not_read_the_container_and_take_over_when_the_worker_dies_or_stops() {
    for dies in [true, false] {
        let scene = Scene::new(1);
        let way = Way::new(&scene.leases, 0);
        let worker = scene.try_start(scene.host("a").leases(way.clone()), "a").await.unwrap();
        let idle = scene.start("b").await;
        let n_before = scene.feed.n_reads();
        tokio::time::sleep(Duration::from_secs(100)).await;
        // One reader at one read a second; a second reader would double it.
        assert!(scene.feed.n_reads() - n_before <= 102);
        assert_eq!(scene.shares().get("b"), None);
        if dies {
            way.cut();
        } else {
            worker.stop(GRACE).await;
        }
        scene
            .until("b takes over", || scene.shares().get("b") == Some(&1))
            .await;
        scene.write(10);
        scene.until_complete().await;
        idle.stop(GRACE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_processes_with_one_name_the_older_stops_and_says_so() {
    let scene = Scene::new(4);
    let older = scene.start("twin").await;
    let mut events = older.events();
    scene.write(20);
    scene.until_complete().await;
    // The wall clock decides who is older, and it does not move with the paused one.
    std::thread::sleep(Duration::from_millis(3));
    let newer = scene.start("twin").await;
    let named = next(&mut events, |event| match event {
        Event::DuplicateInstance { instance } => Some(instance),
        _ => None,
    });
    assert_eq!(named.await, "twin");
    tokio::time::timeout(Duration::from_secs(60), older.ended())
        .await
        .unwrap();
    scene.feed.put("later", "item", json!(1));
    scene.until_complete().await;
    assert!(newer.is_running() && !older.is_running());
    newer.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn the_most_leases_a_host_may_have_is_respected_also_right_after_a_split() {
    let scene = Scene::new(3);
    let limited = BalanceSettings {
        leases_max: Some(3),
        ..BalanceSettings::default()
    };
    let host = scene.try_start(scene.host("a").balance(limited), "a").await.unwrap();
    assert_eq!(scene.shares().get("a"), Some(&3));
    scene.feed.split(0);
    scene.until("the lease is cut", || scene.stored().len() == 4).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.shares().get("a"), Some(&3));
    host.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn no_host_is_brought_below_the_fewest_leases_it_may_have_also_right_after_a_split() {
    let scene = Scene::new(6);
    let limited = BalanceSettings {
        leases_min: 3,
        ..BalanceSettings::default()
    };
    let start = async |name: &str| {
        let host = scene.host(name).balance(limited.clone());
        scene.try_start(host, name).await.unwrap()
    };
    let shares = |wanted: &[usize]| {
        let mut shares: Vec<usize> = scene.shares().into_values().collect();
        shares.sort_unstable();
        shares == wanted
    };
    let mut hosts = vec![start("a").await, start("b").await];
    scene.until("each has three", || shares(&[3, 3])).await;
    hosts.push(start("c").await);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(shares(&[3, 3]), "{:?}", scene.shares());
    scene.feed.split(0);
    scene
        .until("the third has what is left over", || shares(&[1, 3, 3]))
        .await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(shares(&[1, 3, 3]), "{:?}", scene.shares());
    scene.write(60);
    scene.until_complete().await;
    for host in hosts {
        host.stop(GRACE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_unit_delivers_nothing_keeps_its_leases_and_goes_on_where_it_was() {
    let scene = Scene::new(2);
    let (one, other) = (scene.start("a").await, scene.start("b").await);
    scene.until("equal shares", || is_even(&scene, 2)).await;
    let mut events = other.events();
    one.pause().await.unwrap();
    next(&mut events, |event| matches!(event, Event::Paused).then_some(())).await;
    tokio::time::sleep(TIMING.acquire).await;
    scene.write(10);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(scene.ledger.is_empty());
    assert!(is_even(&scene, 2));
    one.resume().await.unwrap();
    scene.until_complete().await;
    assert!(scene.ledger.repeated().is_empty());
    one.stop(GRACE).await;
    other.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn leases_that_a_host_at_its_limit_leaves_are_read_by_one_that_may_have_more() {
    let scene = Scene::new(8);
    let limited = BalanceSettings {
        leases_max: Some(2),
        ..BalanceSettings::default()
    };
    let few = scene
        .try_start(scene.host("few").balance(limited), "few")
        .await
        .unwrap();
    let many = scene.start("many").await;
    scene.write(80);
    scene.until_complete().await;
    assert_eq!(scene.shares(), BTreeMap::from([("few".into(), 2), ("many".into(), 6)]));
    // Also by its successor, whose equal share would be less.
    many.stop(GRACE).await;
    let other = scene.start("other").await;
    scene.write(80);
    scene.until_complete().await;
    assert_eq!(scene.shares(), BTreeMap::from([("few".into(), 2), ("other".into(), 6)]));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(scene.shares(), BTreeMap::from([("few".into(), 2), ("other".into(), 6)]));
    few.stop(GRACE).await;
    other.stop(GRACE).await;
}
