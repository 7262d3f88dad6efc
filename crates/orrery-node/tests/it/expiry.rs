//! Time to live: an item whose time has run out is absent for everyone at once, and its space comes back later.

use std::time::Duration;

use orrery_model::etag::Precondition;
use orrery_model::json;
use orrery_node::api::{ItemSelector, ItemVerb, MetadataVerb, ResourceKind};

use crate::support::{World, body_of, code, item, named, settings};

/// A node that purges only when the test advances its paused clock far enough.
async fn world(extra: &str) -> World {
    let world = World::with(orrery_node::NodeSettings {
        purge_interval: Duration::from_secs(3600),
        ..settings()
    })
    .await;
    world.with_container(extra).await;
    world
}

async fn set_default_ttl(world: &World, ttl: &str) {
    let body = format!(r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}{ttl}}}"#);
    let verb = MetadataVerb::Replace {
        target: named("c"),
        body: json::parse_value(body.as_bytes()).unwrap(),
        precondition: Precondition::None,
        migration: orrery_model::offer::Migration::None,
    };
    world
        .metadata(ResourceKind::Container, vec![named("db")], verb)
        .await
        .unwrap();
}

async fn create(world: &World, id: &str, ttl: &str) {
    world
        .create("p", &format!(r#"{{"id":"{id}","pk":"p"{ttl}}}"#))
        .await
        .unwrap();
}

/// Ids that reading one by one and reading the feed both find.
async fn present(world: &World, ids: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for id in ids {
        match code(world.read("p", id).await) {
            200 => found.push((*id).to_owned()),
            404 => {}
            other => panic!("{id}: {other}"),
        }
    }
    let mut fed: Vec<String> = world
        .all(100)
        .await
        .iter()
        .map(|item| item.get("id").unwrap().as_str().unwrap().to_owned())
        .collect();
    fed.sort();
    let mut sorted = found.clone();
    sorted.sort();
    assert_eq!(fed, sorted, "the feed and point reads agree");
    found
}

fn n_stored(world: &World) -> u64 {
    world
        .node
        .partitions(None)
        .unwrap()
        .iter()
        .map(|partition| partition.n_items)
        .sum()
}

#[tokio::test]
async fn items_end_by_their_own_time_or_the_container_s_default() {
    let world = world(r#","defaultTtl":100"#).await;
    create(&world, "default", "").await;
    create(&world, "short", r#","ttl":10"#).await;
    create(&world, "long", r#","ttl":1000"#).await;
    create(&world, "never", r#","ttl":-1"#).await;
    let all = ["default", "short", "long", "never"];
    for (advance_s, expected) in [
        (9, &all[..]),
        (1, &["default", "long", "never"]),
        (89, &["default", "long", "never"]),
        (1, &["long", "never"]),
        (900, &["never"]),
        (1_000_000_000, &["never"]),
    ] {
        world.clock.advance_ms(advance_s * 1000);
        assert_eq!(present(&world, &all).await, expected);
    }
}

#[tokio::test]
async fn without_a_default_nothing_ends() {
    let world = world("").await;
    create(&world, "short", r#","ttl":10"#).await;
    world.clock.advance_ms(1_000_000);
    assert_eq!(present(&world, &["short"]).await, ["short"]);
}

#[tokio::test]
async fn with_a_default_of_never_only_items_with_a_time_of_their_own_end() {
    let world = world(r#","defaultTtl":-1"#).await;
    create(&world, "default", "").await;
    create(&world, "short", r#","ttl":10"#).await;
    world.clock.advance_ms(1_000_000);
    assert_eq!(present(&world, &["default", "short"]).await, ["default"]);
}

#[tokio::test]
async fn changing_the_default_applies_at_once_in_both_directions() {
    let world = world(r#","defaultTtl":100"#).await;
    create(&world, "a", "").await;
    world.clock.advance_ms(50_000);
    set_default_ttl(&world, r#","defaultTtl":50"#).await;
    assert_eq!(present(&world, &["a"]).await, [""; 0]);
    set_default_ttl(&world, r#","defaultTtl":51"#).await;
    assert_eq!(present(&world, &["a"]).await, ["a"]);
    set_default_ttl(&world, "").await;
    world.clock.advance_ms(1_000_000);
    assert_eq!(present(&world, &["a"]).await, ["a"]);
}

#[tokio::test]
async fn a_write_starts_the_time_anew() {
    let world = world(r#","defaultTtl":10"#).await;
    create(&world, "a", "").await;
    world.clock.advance_ms(9_000);
    let body = item(r#"{"id":"a","pk":"p"}"#);
    world
        .item(
            "p",
            ItemVerb::Replace {
                item: ItemSelector::Id("a".into()),
                body,
            },
        )
        .await
        .unwrap();
    world.clock.advance_ms(9_000);
    assert_eq!(present(&world, &["a"]).await, ["a"]);
}

#[tokio::test]
async fn writes_treat_an_expired_item_as_absent() {
    let world = world(r#","defaultTtl":10,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/email"]}]}"#).await;
    let target = || ItemSelector::Id("a".into());
    let body = || item(r#"{"id":"a","pk":"p","email":"x"}"#);
    let first = body_of(world.item("p", ItemVerb::Create { body: body() }).await.unwrap());
    world.clock.advance_ms(10_000);
    assert_eq!(
        code(
            world
                .item(
                    "p",
                    ItemVerb::Replace {
                        item: target(),
                        body: body()
                    }
                )
                .await
        ),
        404
    );
    assert_eq!(code(world.item("p", ItemVerb::Delete { item: target() }).await), 404);
    // Another item may take its unique value, and the id is free again: as a new item.
    assert_eq!(code(world.create("p", r#"{"id":"b","pk":"p","email":"x"}"#).await), 201);
    let second = body_of(world.create("p", r#"{"id":"a","pk":"p","email":"y"}"#).await.unwrap());
    assert_ne!(first.get("_rid"), second.get("_rid"));
    world.clock.advance_ms(10_000);
    assert_eq!(code(world.item("p", ItemVerb::Upsert { body: body() }).await), 201);
    assert_eq!(present(&world, &["a", "b"]).await, ["a"]);
}

/// Lets `intervals` of the purger pass, at a paused clock, with the node's clock moving along.
async fn let_purge(world: &World, interval: Duration, intervals: u32) {
    for _ in 0..intervals {
        world.clock.advance_ms(interval.as_millis() as u64);
        tokio::time::sleep(interval).await;
    }
}

#[tokio::test(start_paused = true)]
async fn purging_gives_the_space_of_expired_items_back() {
    let interval = Duration::from_secs(1);
    let world = World::with(orrery_node::NodeSettings {
        purge_interval: interval,
        ..settings()
    })
    .await;
    world.with_container(r#","defaultTtl":20"#).await;
    for n in 0..900 {
        let ttl = ["", r#","ttl":10"#, r#","ttl":-1"#][n % 3];
        create(&world, &n.to_string(), ttl).await;
    }
    let_purge(&world, interval, 9).await;
    assert_eq!(n_stored(&world), 900);
    let_purge(&world, interval, 5).await;
    assert_eq!(
        n_stored(&world),
        600,
        "items of ten seconds are gone, two hundred a round"
    );
    let_purge(&world, interval, 12).await;
    assert_eq!(n_stored(&world), 300, "items of the default are gone");
    let_purge(&world, interval, 100).await;
    assert_eq!(n_stored(&world), 300, "items that never end stay");
}

#[tokio::test(start_paused = true)]
async fn what_ends_soon_is_removed_in_time_however_long_nothing_has_ended_before() {
    let interval = Duration::from_secs(1);
    let world = World::with(orrery_node::NodeSettings {
        purge_interval: interval,
        ..settings()
    })
    .await;
    world.with_container(r#","defaultTtl":-1"#).await;
    create(&world, "stays", "").await;
    create(&world, "later", r#","ttl":600"#).await;
    for intervals in [95, 103, 107] {
        let_purge(&world, interval, intervals).await;
        create(&world, "soon", r#","ttl":5"#).await;
        let_purge(&world, interval, 4).await;
        assert_eq!(n_stored(&world), 3);
        let_purge(&world, interval, 3).await;
        assert_eq!(n_stored(&world), 2, "{intervals}");
    }
    let_purge(&world, interval, 290).await;
    assert_eq!(n_stored(&world), 1, "what ended later is gone as well");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_forward_destroys_nothing_at_once() {
    let interval = Duration::from_secs(1);
    let world = World::with(orrery_node::NodeSettings {
        purge_interval: interval,
        ..settings()
    })
    .await;
    world.with_container(r#","defaultTtl":1000"#).await;
    create(&world, "a", "").await;
    let_purge(&world, interval, 3).await;
    world.clock.advance_ms(2_000_000);
    let_purge(&world, interval, 30).await;
    assert_eq!(present(&world, &["a"]).await, [""; 0]);
    assert_eq!(n_stored(&world), 1, "absent, but still there");
    let_purge(&world, interval, 60).await;
    assert_eq!(
        n_stored(&world),
        0,
        "the clock has shown the same time for a while: it is believed"
    );
}

#[tokio::test(start_paused = true)]
async fn many_items_that_expire_at_once_are_removed_in_steps_that_follow_one_another() {
    let world = World::with(orrery_node::NodeSettings {
        purge_interval: Duration::from_secs(1),
        ..settings()
    })
    .await;
    world.with_container(r#","defaultTtl":10"#).await;
    for n in 0..2_000 {
        create(&world, &n.to_string(), "").await;
    }
    assert_eq!(n_stored(&world), 2_000);
    world.clock.advance_ms(30_000);
    let begun = tokio::time::Instant::now();
    while n_stored(&world) > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(
            begun.elapsed() < Duration::from_secs(3),
            "{} of 2,000 are left: items expire faster than they are removed",
            n_stored(&world)
        );
    }
}
