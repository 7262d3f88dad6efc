//! Several calls of the delegate at the same time for one lease, and answers about single items.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use orrery_processor::dead_letters::MemoryDeadLetters;
use orrery_processor::lease::FeedMode;
use orrery_processor::retry::RetryPolicy;
use orrery_processor::{BatchContext, Concurrency, GiveUp, ItemFailure, Outcome, RawBatch, Saved, StartFrom};
use serde_json::json;

use crate::scene::Scene;

const GRACE: Duration = Duration::from_secs(30);

/// Counts the calls that run at the same time, and how many at most.
#[derive(Clone, Default)]
struct Calls {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

/// A delegate that takes a second, and fails once for every item named.
fn slow(
    scene: &Scene,
    calls: &Calls,
    fails_once: &[&str],
) -> impl Fn(RawBatch, BatchContext) -> BoxFuture<'static, Result<(), String>> + Send + Sync + 'static {
    let (note, calls) = (scene.noting("a"), calls.clone());
    let bad: Arc<Mutex<BTreeSet<String>>> =
        Arc::new(Mutex::new(fails_once.iter().map(|id| (*id).to_owned()).collect()));
    move |batch, context| {
        let (note, calls, bad) = (note.clone(), calls.clone(), Arc::clone(&bad));
        async move {
            let now = calls.now.fetch_add(1, Ordering::SeqCst) + 1;
            calls.most.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            calls.now.fetch_sub(1, Ordering::SeqCst);
            if batch
                .iter()
                .any(|change| bad.lock().unwrap().remove(change.id().unwrap()))
            {
                return Err("once".to_owned());
            }
            note(batch, context).await
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn keys_are_handled_beside_each_other_and_each_in_order() {
    let scene = Scene::new(1);
    let calls = Calls::default();
    let host = scene
        .host("a")
        .mode(FeedMode::AllVersionsAndDeletes)
        .start_from(StartFrom::Now)
        .concurrency(Concurrency::ByPartitionKey(8));
    let running = host
        .build_raw(slow(&scene, &calls, &[]))
        .unwrap()
        .start()
        .await
        .unwrap();
    for _ in 0..10 {
        scene.write(30);
    }
    scene.until("every version arrives", || scene.ledger.len() == 300).await;
    scene.assert_complete();
    assert!(scene.ledger.repeated().is_empty());
    assert_eq!(calls.most.load(Ordering::SeqCst), 8);
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_fails_is_tried_again_without_the_others() {
    let scene = Scene::new(1);
    for number in 0..20 {
        scene
            .feed
            .put(&format!("key{number}"), &format!("item{number}"), json!(number));
    }
    let calls = Calls::default();
    let host = scene.host("a").concurrency(Concurrency::ByPartitionKey(4));
    let delegate = slow(&scene, &calls, &["item3"]);
    let running = host.build_raw(delegate).unwrap().start().await.unwrap();
    scene.until_complete().await;
    assert!(
        scene.ledger.repeated().is_empty(),
        "what was handled does not come again"
    );
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn later_changes_of_a_key_follow_its_dead_letter_within_one_page_too() {
    for concurrency in [Concurrency::Sequential, Concurrency::ByPartitionKey(3)] {
        let scene = Scene::new(1);
        for (key, id) in [
            ("k", "first"),
            ("k", "poison"),
            ("o", "other"),
            ("k", "later"),
            ("k", "last"),
        ] {
            scene.feed.put(key, id, json!(1));
        }
        let letters = MemoryDeadLetters::default();
        let note = scene.noting("a");
        let delegate = move |batch: RawBatch, context: BatchContext| {
            if batch.iter().any(|change| change.id() == Some("poison")) {
                return std::future::ready(Err("no".to_owned()));
            }
            note(batch, context)
        };
        let host = scene.host("a").dead_letters(letters.clone()).concurrency(concurrency);
        let running = host.build_raw(delegate).unwrap().start().await.unwrap();
        scene.until("three letters", || letters.letters().len() == 3).await;
        scene
            .until("the others are delivered", || scene.ledger.len() == 2)
            .await;
        let parked = letters.letters().into_iter().filter(|letter| letter.parked);
        let parked: BTreeSet<_> = parked.filter_map(|letter| letter.item_id).collect();
        assert_eq!(parked, BTreeSet::from(["last".to_owned(), "later".to_owned()]));
        let handled: BTreeSet<_> = scene.ledger.deliveries().into_iter().map(|one| one.id).collect();
        assert_eq!(handled, BTreeSet::from(["first".to_owned(), "other".to_owned()]));
        running.stop(GRACE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_items_a_delegate_names_come_again_and_the_hopeless_one_is_set_aside() {
    let scene = Scene::new(1);
    for number in 0..10 {
        scene
            .feed
            .put(&format!("key{number}"), &format!("item{number}"), json!(number));
    }
    let letters = MemoryDeadLetters::default();
    let (ledger, n_calls) = (scene.ledger.clone(), Arc::new(AtomicUsize::new(0)));
    let delegate = move |batch: RawBatch, context: BatchContext| {
        let is_first = n_calls.fetch_add(1, Ordering::SeqCst) == 0;
        // One fails for ever, one only the first time.
        let fails = |id: Option<&str>| id == Some("item7") || (is_first && id == Some("item3"));
        let places = batch.iter().enumerate().filter(|(_, change)| fails(change.id()));
        let failed: Vec<_> = places.map(|(place, _)| ItemFailure::retry(place, "no")).collect();
        let handled: Vec<_> = batch.iter().filter(|change| !fails(change.id())).cloned().collect();
        ledger.note("a", &context.lease, "/key", &handled);
        std::future::ready(Ok::<_, String>(Outcome::Failed(failed)))
    };
    let host = scene.host("a").dead_letters(letters.clone());
    let running = host.build_raw(delegate).unwrap().start().await.unwrap();
    scene.until("nine are handled", || scene.ledger.len() == 9).await;
    scene.until("one is set aside", || letters.letters().len() == 1).await;
    assert!(
        scene.ledger.repeated().is_empty(),
        "what was handled does not come again"
    );
    assert_eq!(letters.letters()[0].item_id.as_deref(), Some("item7"));
    assert_eq!(letters.letters()[0].error, "no");
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_cannot_save_what_another_one_beside_it_has_not_handled() {
    let scene = Scene::new(1);
    for key in ["first", "second"] {
        scene.feed.put(key, key, json!(1));
    }
    let answers: Arc<Mutex<Vec<Saved>>> = Arc::default();
    let (note, told) = (scene.noting("a"), Arc::clone(&answers));
    // The lane that lies last saves its position at once; the other one fails, and its host lets go of the lease.
    let delegate = move |batch: RawBatch, context: BatchContext| {
        let (note, told) = (note.clone(), Arc::clone(&told));
        async move {
            if batch.iter().any(|change| change.id() == Some("first")) {
                return Err("not yet".to_owned());
            }
            let saved = context.checkpoint().await.map_err(|error| error.to_string())?;
            told.lock().unwrap().push(saved);
            note(batch, context).await
        }
        .boxed()
    };
    let host = scene.host("a").concurrency(Concurrency::ByPartitionKey(2));
    let host = host.give_up(GiveUp::Release).retry(RetryPolicy {
        attempts: 1,
        ..RetryPolicy::default()
    });
    let running = host.build_raw(delegate).unwrap().start().await.unwrap();
    scene.until("one is handled", || !scene.ledger.is_empty()).await;
    running.stop(GRACE).await;
    assert!(answers.lock().unwrap().iter().all(|saved| *saved == Saved::WithTheRest));
    assert_eq!(scene.stored()["-FF"].continuation, None, "nothing is behind us yet");
    let running = scene.start("b").await;
    scene.until_complete().await;
    running.stop(GRACE).await;
    scene.assert_complete();
}

#[tokio::test(start_paused = true)]
async fn the_last_call_that_is_left_of_a_page_saves_it() {
    for concurrency in [Concurrency::Sequential, Concurrency::ByPartitionKey(2)] {
        let scene = Scene::new(1);
        for key in ["first", "second"] {
            scene.feed.put(key, key, json!(1));
        }
        let (has_failed, saved) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let told = Arc::clone(&saved);
        // The first item comes once more, on its own: then it is all that is left, although it does not lie last.
        let delegate = move |batch: RawBatch, context: BatchContext| {
            let place = batch.iter().position(|change| change.id() == Some("first"));
            let failed = place.filter(|_| !has_failed.swap(true, Ordering::SeqCst));
            let told = Arc::clone(&told);
            async move {
                if let Some(place) = failed {
                    return Ok(Outcome::Failed(vec![ItemFailure::retry(place, "once more")]));
                }
                let saved = context.checkpoint().await.map_err(|error| error.to_string())?;
                told.lock().unwrap().push(saved);
                Ok::<_, String>(Outcome::Done)
            }
            .boxed()
        };
        let host = scene.host("a").concurrency(concurrency);
        let running = host.build_raw(delegate).unwrap().start().await.unwrap();
        scene
            .until("the page is saved", || scene.stored()["-FF"].continuation.is_some())
            .await;
        assert_eq!(saved.lock().unwrap().last(), Some(&Saved::Now), "{concurrency:?}");
        running.stop(GRACE).await;
    }
}
