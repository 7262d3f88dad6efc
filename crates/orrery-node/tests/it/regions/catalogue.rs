//! What exists, in several regions: when a change of it is acknowledged, who may show it, and what a region lacks of it.

use orrery_model::etag::Precondition;
use orrery_node::account::KeyKind;
use orrery_node::api::{MetadataOperation, MetadataVerb, Operation, Page};

use super::*;

fn far() -> LinkSettings {
    LinkSettings {
        latency: Duration::from_millis(200),
        ..LinkSettings::default()
    }
}

async fn create_database(world: &World, name: &str) -> u16 {
    let body = format!(r#"{{"id":"{name}"}}"#);
    code(world.metadata(ResourceKind::Database, vec![], create(&body)).await)
}

fn delete(name: &str) -> MetadataVerb {
    MetadataVerb::Delete {
        target: named(name),
        precondition: Precondition::None,
    }
}

/// Reads a database at a level, or at the account's.
async fn read_database(world: &World, name: &str, level: Option<Consistency>) -> u16 {
    let verb = MetadataVerb::Read {
        target: named(name),
        precondition: Precondition::None,
    };
    let operation = Operation::Metadata(MetadataOperation {
        kind: ResourceKind::Database,
        path: vec![],
        verb,
    });
    let options = Options {
        consistency: level,
        ..Options::default()
    };
    let request = Request {
        principal: Principal::Account { read_only: false },
        options,
        operation,
    };
    code(world.node.execute(request).await)
}

#[tokio::test(start_paused = true)]
async fn under_strong_consistency_what_was_created_or_deleted_is_so_in_every_region_once_it_is_acknowledged() {
    let regions = Regions::with(Consistency::Strong).await;
    regions.set_links(&far());
    regions.with_container().await;
    fill(&regions.writer(), 0..1).await;
    assert_eq!(create_database(&regions.writer(), "second").await, 201);
    for name in [WEST, NORTH, ASIA] {
        assert_eq!(read_database(&regions.at(name), "second", None).await, 200, "{name}");
    }
    let path = vec![named("db")];
    let deleted = regions
        .writer()
        .metadata(ResourceKind::Container, path.clone(), delete("c"))
        .await;
    assert_eq!(code(deleted), 204);
    for name in [WEST, NORTH, ASIA] {
        let region = regions.at(name);
        assert_eq!(code(region.read(&document(0).0, "0").await), 404, "{name}");
        let list = MetadataVerb::List { page: Page::default() };
        let listed = region.metadata(ResourceKind::Container, path.clone(), list).await;
        let orrery_node::api::Outcome::Feed(feed) = listed.unwrap().outcome else {
            panic!("a list is a feed");
        };
        assert!(feed.entries.is_empty(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn under_strong_consistency_no_region_shows_what_another_may_not_have() {
    let regions = Arc::new(Regions::with(Consistency::Strong).await);
    regions.with_container().await;
    regions.fleet.set_link(WEST, ASIA, paused()).unwrap();
    let waiting = tokio::spawn({
        let regions = Arc::clone(&regions);
        async move { create_database(&regions.writer(), "second").await }
    });
    let early = tokio::spawn({
        let regions = Arc::clone(&regions);
        async move {
            let north = regions.at(NORTH);
            until(|| async { read_database(&north, "second", Some(Consistency::Eventual)).await == 200 }).await;
            read_database(&north, "second", None).await
        }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished() && !early.is_finished());
    assert_eq!(
        read_database(&regions.at(ASIA), "second", None).await,
        404,
        "nobody was told otherwise"
    );
    regions.fleet.set_link(WEST, ASIA, LinkSettings::default()).unwrap();
    assert_eq!((waiting.await.unwrap(), early.await.unwrap()), (201, 200));
    assert_eq!(read_database(&regions.at(ASIA), "second", None).await, 200);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_catalogue_goes_on_without_a_minority_which_shows_nothing_of_it_until_it_is_back() {
    let regions = Regions::with(Consistency::Strong).await;
    regions.with_container().await;
    regions.fleet.set_link(WEST, ASIA, cut()).unwrap();
    assert_eq!(create_database(&regions.writer(), "second").await, 201);
    assert_eq!(read_database(&regions.at(NORTH), "second", None).await, 200);
    let asia = regions.at(ASIA);
    assert_eq!(read_database(&asia, "second", None).await, 503);
    let relaxed = read_database(&asia, "second", Some(Consistency::Session)).await;
    assert_eq!(relaxed, 404, "who asks for less gets what there is");
    regions.fleet.set_link(WEST, ASIA, LinkSettings::default()).unwrap();
    until(|| async { read_database(&asia, "second", None).await == 200 }).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_catalogue_that_only_its_region_has_is_not_acknowledged() {
    let regions = Regions::with(Consistency::Strong).await;
    regions.with_container().await;
    regions.set_links(&cut());
    assert_eq!(create_database(&regions.writer(), "second").await, 408);
    assert_eq!(
        create_database(&regions.writer(), "second").await,
        503,
        "whether it stays is not known, so nobody is told that it is there"
    );
    let rotated = regions.writer().node.rotate_key(KeyKind::Secondary).await;
    assert_eq!(rotated.unwrap_err().status(), Status::REQUEST_TIMEOUT);
    regions.set_links(&LinkSettings::default());
    until(|| async { read_database(&regions.at(ASIA), "second", None).await == 200 }).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_region_lacks_of_the_catalogue_is_lag() {
    let regions = Regions::new().await;
    regions.with_container().await;
    regions.fleet.set_link(WEST, ASIA, cut()).unwrap();
    for name in ["one", "two", "three"] {
        assert_eq!(create_database(&regions.writer(), name).await, 201);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let lag_of = |name: &str| {
        let infos = regions.fleet.regions();
        infos.into_iter().find(|region| region.name == name).unwrap()
    };
    let asia = lag_of(ASIA);
    assert_eq!((asia.lag.transactions, asia.lag_total), (3, 3));
    assert_eq!(asia.lag.age.as_secs(), 6);
    assert_eq!(lag_of(NORTH).lag_total, 0);
    regions.fleet.set_link(WEST, ASIA, LinkSettings::default()).unwrap();
    until(|| async { lag_of(ASIA).lag_total == 0 }).await;
}
