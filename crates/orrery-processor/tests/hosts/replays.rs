//! Dead letters that go through the delegate again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orrery_processor::dead_letters::MemoryDeadLetters;
use orrery_processor::feed::Change;
use orrery_processor::lease::FeedMode;
use orrery_processor::retry::RetryPolicy;
use orrery_processor::{BatchContext, Concurrency, RawBatch, StartFrom};
use serde_json::{Value, json};

use crate::scene::Scene;

const GRACE: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_processor_replays_its_letters_through_its_own_delegate_in_order() {
    let scene = Scene::new(1);
    for (key, id) in [("bad", "one"), ("good", "item"), ("bad", "two"), ("worse", "one")] {
        scene.feed.put(key, id, json!(1));
    }
    let (note, is_mended) = (scene.noting("a"), Arc::new(AtomicBool::new(false)));
    let mended = Arc::clone(&is_mended);
    let delegate = move |batch: RawBatch, context: BatchContext| {
        let key = |change: &Change| change.current.as_ref().unwrap()["key"].clone();
        let is_mended = mended.load(Ordering::SeqCst);
        assert!(
            !is_mended || batch.iter().all(|change| key(change) != "worse"),
            "told to panic"
        );
        if !is_mended && batch.iter().any(|change| key(change) != "good") {
            return std::future::ready(Err("no".to_owned()));
        }
        note(batch, context)
    };
    let letters = MemoryDeadLetters::default();
    let retry = RetryPolicy {
        attempts: 1,
        ..RetryPolicy::default()
    };
    let host = scene.host("a").dead_letters(letters.clone()).retry(retry);
    let processor = host.build_raw(delegate).unwrap();
    let running = processor.start().await.unwrap();
    scene.until("three are letters", || letters.letters().len() == 3).await;
    running.stop(GRACE).await;
    is_mended.store(true, Ordering::SeqCst);
    let done = processor.replay(|letter| letter.key != "[\"nobody\"]").await.unwrap();
    assert_eq!(done.handled, 2);
    assert!(
        done.failed.len() == 1 && done.failed[0].0 == "[\"worse\"]",
        "{:?}",
        done.failed
    );
    assert_eq!(letters.letters().len(), 1, "what fails again stays");
    let ids: Vec<String> = scene.ledger.deliveries().into_iter().map(|one| one.id).collect();
    assert_eq!(ids, ["item", "one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn letters_of_one_transaction_are_kept_apart_and_come_back_in_the_order_of_its_operations() {
    for concurrency in [Concurrency::Sequential, Concurrency::ByPartitionKey(4)] {
        let scene = Scene::new(1);
        let letters = MemoryDeadLetters::default();
        let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (is_mended, told) = (Arc::new(AtomicBool::new(false)), Arc::clone(&seen));
        let mended = Arc::clone(&is_mended);
        let delegate = move |batch: RawBatch, _: BatchContext| {
            if !mended.load(Ordering::SeqCst) {
                return std::future::ready(Err("no".to_owned()));
            }
            let value = |change: &Change| change.current.as_ref().unwrap()["value"].clone();
            told.lock().unwrap().extend(batch.iter().map(value));
            std::future::ready(Ok(()))
        };
        let host = scene.host("a").dead_letters(letters.clone()).concurrency(concurrency);
        let host = host.mode(FeedMode::AllVersionsAndDeletes).start_from(StartFrom::Now);
        let processor = host.build_raw(delegate).unwrap();
        let running = processor.start().await.unwrap();
        // Ids in an order of their own, and every item twice.
        let ids = ["m", "z", "a", "q", "z", "m", "q", "a"];
        let items: Vec<_> = ids.iter().zip(0..).map(|(id, number)| (*id, json!(number))).collect();
        scene.feed.put_together("key", &items);
        scene
            .until("all are letters", || letters.letters().len() == ids.len())
            .await;
        running.stop(GRACE).await;
        is_mended.store(true, Ordering::SeqCst);
        assert_eq!(processor.replay(|_| true).await.unwrap().handled, ids.len());
        let expected: Vec<Value> = (0..ids.len()).map(|number| json!(number)).collect();
        assert_eq!(*seen.lock().unwrap(), expected);
    }
}
