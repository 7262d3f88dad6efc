//! Reading at one's own pace from a real server: one key alone, and waiting at the server.

use std::time::{Duration, Instant};

use orrery_processor::StartFrom;
use orrery_processor::lease::FeedMode;
use orrery_processor::pull::{Cursor, Puller};
use orrery_processor::range::EpkRange;
use serde_json::json;

use crate::library::feed;
use crate::scene::Scene;

/// Everything that waits, by id.
async fn drain(puller: &mut Puller) -> Vec<String> {
    let mut ids = Vec::new();
    while let Some(page) = puller.next().await.unwrap() {
        ids.extend(page.changes.iter().map(|change| change.id().unwrap().to_owned()));
    }
    ids
}

#[tokio::test]
async fn the_changes_of_one_key_are_read_alone_in_both_modes_and_across_a_split() {
    for mode in [FeedMode::LatestVersion, FeedMode::AllVersionsAndDeletes] {
        let scene = Scene::new(1).await;
        scene.write(10).await;
        let key = vec![json!("key-item3")];
        let start = Puller::start_key(feed(&scene), key, StartFrom::Beginning, mode);
        let mut puller = start.await.unwrap();
        assert_eq!(drain(&mut puller).await, ["item3"], "{mode:?}");
        let kept = puller.cursor().to_text();
        let first = scene.partitions()[0];
        scene.split(first);
        scene.write(10).await;
        let cursor = Cursor::parse(&kept).unwrap();
        let mut puller = Puller::resume(feed(&scene), cursor, mode).await.unwrap();
        assert_eq!(drain(&mut puller).await, ["item3"], "{mode:?}");
    }
}

#[tokio::test]
async fn a_reader_that_waits_at_the_server_is_given_a_change_at_once() {
    let scene = Scene::new(3).await;
    let wait = Duration::from_secs(20);
    let start = Puller::start(feed(&scene), EpkRange::full(), StartFrom::Now, FeedMode::LatestVersion);
    let mut puller = start.await.unwrap().with_long_poll(wait);
    for number in 0..3 {
        let began = Instant::now();
        let writing = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            scene.write_one(format!("item{number}")).await;
        };
        let (page, ()) = tokio::join!(puller.next(), writing);
        let page = page.unwrap().expect("a change");
        assert_eq!(page.changes[0].id(), Some(format!("item{number}").as_str()));
        assert!(began.elapsed() < wait / 2, "{:?}", began.elapsed());
    }
    let mut puller = puller.with_long_poll(Duration::from_millis(300));
    let began = Instant::now();
    assert!(puller.next().await.unwrap().is_none() && puller.is_caught_up());
    assert!(began.elapsed() >= Duration::from_millis(300), "it waited");
}
