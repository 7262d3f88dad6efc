//! Following that is ended in the middle of a step: what the step has made durable happens all the same.

use orrery_node::meters::Reading;

use super::*;
use crate::failing::FailingStore;
use crate::support::item;

/// Three regions, of which Asia hears late of what its store has done.
async fn with_late_asia() -> (Regions, Arc<FailingStore>) {
    let mut stores = memory();
    let late = FailingStore::new(Arc::clone(&stores[2]));
    stores[2] = late.clone();
    (Regions::on(stores, Consistency::Session, 1).await, late)
}

/// Where a region's logs stand.
fn heads(world: &World) -> Vec<orrery_model::Position> {
    let logs = world.store.list().unwrap();
    logs.iter().map(|log| log.position).collect()
}

/// Waits until everything the writer has is durable in Asia, whoever has heard of it.
async fn until_durable_in_asia(regions: &Regions) {
    until(|| async { heads(&regions.at(ASIA)) == heads(&regions.writer()) }).await;
}

async fn knows_database(world: &World, name: &str) -> bool {
    let verb = orrery_node::api::MetadataVerb::Read {
        target: named(name),
        precondition: orrery_model::etag::Precondition::None,
    };
    world.metadata(ResourceKind::Database, vec![], verb).await.is_ok()
}

#[tokio::test]
async fn a_change_of_the_catalogue_shows_where_following_was_ended_after_it_was_durable() {
    for is_forced in [false, true] {
        let (regions, asia) = with_late_asia().await;
        regions.with_container().await;
        asia.answer_late(true);
        regions
            .writer()
            .metadata(ResourceKind::Database, vec![], create(r#"{"id":"late"}"#))
            .await
            .unwrap();
        until_durable_in_asia(&regions).await;
        until(|| async { knows_database(&regions.at(NORTH), "late").await }).await;
        match is_forced {
            true => drop(regions.fleet.clone().take_offline(WEST).await.unwrap()),
            false => regions.fleet.clone().change_writer(NORTH).await.unwrap(),
        }
        asia.answer_late(false);
        until(|| async { knows_database(&regions.at(ASIA), "late").await }).await;
        // And so does what comes after it.
        regions
            .writer()
            .metadata(ResourceKind::Database, vec![], create(r#"{"id":"later"}"#))
            .await
            .unwrap();
        until(|| async { knows_database(&regions.at(ASIA), "later").await }).await;
        assert!(knows_database(&regions.at(ASIA), "late").await);
    }
}

fn cache_hits(world: &World) -> u64 {
    let measures = world.node.measures();
    let hits = measures.iter().find(|one| one.name == "orrery_item_cache_hits_total");
    match hits.expect("the node counts what its cache answers").reading {
        Reading::Counter(n) => n,
        ref other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn items_of_a_step_that_was_cut_off_are_read_in_their_new_version_and_cached_again() {
    const N_ITEMS: usize = 200;
    let (regions, asia) = with_late_asia().await;
    regions.with_container().await;
    fill(&regions.writer(), 0..N_ITEMS).await;
    regions.all_equal().await;
    asia.answer_late(true);
    for n in 0..N_ITEMS {
        let key = format!("k{}", n % 7);
        let body = format!(r#"{{"id":"{n}","pk":"{key}","n":"new"}}"#);
        let verb = ItemVerb::Upsert { body: item(&body) };
        regions.writer().item(&key, verb).await.unwrap();
        if n == 0 {
            until_durable_in_asia(&regions).await;
        }
    }
    regions.fleet.clone().change_writer(NORTH).await.unwrap();
    asia.answer_late(false);
    regions.all_equal().await;
    let asia = regions.at(ASIA);
    let are_all_cached = || async {
        let before = cache_hits(&asia);
        for n in 0..N_ITEMS {
            read_with(&asia, Options::default(), n).await.unwrap();
        }
        cache_hits(&asia) - before == N_ITEMS as u64
    };
    until(are_all_cached).await;
}
