//! Delegates that fail, panic, hang and are given what they cannot read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use orrery_processor::dead_letters::{DeadLetter, DeadLetterStore, MemoryDeadLetters, replay};
use orrery_processor::error::StoreError;
use orrery_processor::retry::RetryPolicy;
use orrery_processor::testkit::Fault;
use orrery_processor::{Batch, BatchContext, Checkpoint, Event, GiveUp, KeyOrder, RawBatch};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::scene::{Scene, next};

const GRACE: Duration = Duration::from_secs(30);

/// Fails while `fails` says so, otherwise notes.
fn failing(
    scene: &Scene,
    fails: impl Fn(&RawBatch) -> bool + Send + Sync + 'static,
) -> impl Fn(RawBatch, BatchContext) -> std::future::Ready<Result<(), String>> + Send + Sync + 'static {
    let note = scene.noting("a");
    move |batch, context| {
        if fails(&batch) {
            return std::future::ready(Err("no".to_owned()));
        }
        note(batch, context)
    }
}

fn has(batch: &RawBatch, id: &str) -> bool {
    batch.iter().any(|change| change.id() == Some(id))
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_fails_three_times_comes_four_times_and_then_the_next_one() {
    let scene = Scene::new(1);
    scene.write(10);
    let n_calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&n_calls);
    let delegate = failing(&scene, move |_| counted.fetch_add(1, Ordering::SeqCst) < 3);
    let began = tokio::time::Instant::now();
    let running = scene.host("a").build_raw(delegate).unwrap().start().await.unwrap();
    scene.until_complete().await;
    assert_eq!(n_calls.load(Ordering::SeqCst), 4);
    // 200, 400 and 800 ms, each shortened by at most a half.
    assert!(began.elapsed() >= Duration::from_millis(700));
    scene.write(10);
    scene.until_complete().await;
    scene.assert_complete();
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_batch_ever_comes_again_in_the_next_process() {
    let scene = Scene::new(1);
    let from_now = || scene.host("a").start_from(orrery_processor::StartFrom::Now);
    let running = from_now()
        .build_raw(failing(&scene, |_| true))
        .unwrap()
        .start()
        .await
        .unwrap();
    let mut events = running.events();
    scene.write(3);
    next(&mut events, |event| {
        matches!(event, Event::BatchFailed { .. }).then_some(())
    })
    .await;
    running.stop(GRACE).await;
    let running = scene.try_start(from_now(), "a").await.unwrap();
    scene.until_complete().await;
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn one_poison_item_among_a_hundred_is_set_aside_and_the_others_are_handled_once() {
    let scene = Scene::new(1);
    scene.write(99);
    scene.feed.put("bad", "poison", json!("x"));
    let letters = MemoryDeadLetters::default();
    let delegate = failing(&scene, |batch| has(batch, "poison"));
    let host = scene.host("a").dead_letters(letters.clone());
    let running = host.build_raw(delegate).unwrap().start().await.unwrap();
    scene
        .until("the letter is there and the rest delivered", || {
            letters.letters().len() == 1 && scene.ledger.len() == 99
        })
        .await;
    let letter = &letters.letters()[0];
    assert_eq!(
        (letter.item_id.as_deref(), letter.error.as_str()),
        (Some("poison"), "no")
    );
    assert_eq!(letter.current.as_ref().unwrap()["value"], "x");
    assert!(scene.ledger.repeated().is_empty());
    scene.feed.put("other", "item", json!(1));
    scene.until("the range goes on", || scene.ledger.len() == 100).await;
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn later_changes_of_a_parked_key_wait_behind_it_until_they_are_replayed_in_order() {
    let scene = Scene::new(1);
    let letters = MemoryDeadLetters::default();
    let delegate = failing(&scene, |batch| has(batch, "poison"));
    let host = scene.host("a").dead_letters(letters.clone());
    let running = host.build_raw(delegate).unwrap().start().await.unwrap();
    scene.feed.put("k", "poison", json!(1));
    scene
        .until("the letter is there", || letters.letters().len() == 1)
        .await;
    scene.feed.put("k", "second", json!(2));
    scene.feed.put("k", "third", json!(3));
    scene.feed.put("free", "item", json!(4));
    scene
        .until("the others wait behind it", || letters.letters().len() == 3)
        .await;
    scene.until("other keys go on", || scene.ledger.len() == 1).await;
    let order = Mutex::new(Vec::new());
    let handle = |letter: DeadLetter| {
        order.lock().unwrap().push(letter.item_id.unwrap());
        std::future::ready(Ok::<_, String>(()))
    };
    let done = replay(&letters, "unit", |_| true, handle).await.unwrap();
    assert_eq!(
        (done.handled, order.into_inner().unwrap()),
        (3, vec!["poison".into(), "second".into(), "third".into()])
    );
    // The worker asks again before it believes that the key is still parked.
    tokio::time::sleep(Duration::from_secs(30)).await;
    scene.feed.put("k", "fourth", json!(5));
    scene.until("the key is free again", || scene.ledger.len() == 2).await;
    running.stop(GRACE).await;
}

/// Letters that cannot be stored for a while.
struct Down(MemoryDeadLetters, Arc<AtomicU32>);

impl DeadLetterStore for Down {
    fn put<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), StoreError>> {
        if self
            .1
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok()
        {
            return Box::pin(async { Err(StoreError::Unavailable("down".into())) });
        }
        self.0.put(letter)
    }

    fn of_key<'a>(
        &'a self,
        processor: &'a str,
        key: &'a str,
        after: Option<&'a DeadLetter>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadLetter>, StoreError>> {
        self.0.of_key(processor, key, after, limit)
    }

    fn keys<'a>(&'a self, processor: &'a str) -> BoxFuture<'a, Result<Vec<String>, StoreError>> {
        self.0.keys(processor)
    }

    fn delete<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), StoreError>> {
        self.0.delete(letter)
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_skipped_while_the_dead_letters_cannot_be_stored() {
    let scene = Scene::new(1);
    scene.feed.put("k", "poison", json!(1));
    scene.feed.put("after", "item", json!(2));
    let (letters, left) = (MemoryDeadLetters::default(), Arc::new(AtomicU32::new(10)));
    let host = scene.host("a").dead_letters(Down(letters.clone(), Arc::clone(&left)));
    let running = host
        .build_raw(failing(&scene, |batch| has(batch, "poison")))
        .unwrap()
        .start()
        .await
        .unwrap();
    scene
        .until("the store has been down ten times", || left.load(Ordering::SeqCst) == 0)
        .await;
    scene
        .until("then the letter is stored", || letters.letters().len() == 1)
        .await;
    scene.until("and the range goes on", || scene.ledger.len() == 1).await;
    running.stop(GRACE).await;
}

#[derive(Deserialize)]
struct Number {
    id: String,
    value: u64,
}

#[tokio::test(start_paused = true)]
async fn an_item_that_cannot_be_read_is_set_aside_raw_and_its_batch_goes_on() {
    let scene = Scene::new(1);
    scene.write(5);
    scene.feed.put("odd", "odd", json!("not a number"));
    scene.write(9);
    let (letters, seen) = (MemoryDeadLetters::default(), Arc::new(Mutex::new(BTreeMap::new())));
    let noted = Arc::clone(&seen);
    let delegate = move |batch: Batch<Number>, _: BatchContext| {
        for change in batch {
            let item = change.current.unwrap();
            noted.lock().unwrap().insert(change.metadata.lsn, (item.id, item.value));
        }
        std::future::ready(Ok::<_, String>(()))
    };
    let host = scene
        .host("a")
        .dead_letters(letters.clone())
        .key_order(KeyOrder::Ignore);
    let running = host.build(delegate).unwrap().start().await.unwrap();
    scene
        .until("all nine are there", || seen.lock().unwrap().len() == 9)
        .await;
    assert_eq!(letters.letters().len(), 1);
    assert_eq!(
        letters.letters()[0].current.as_ref().unwrap()["value"],
        Value::from("not a number")
    );
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_like_any_other_and_other_leases_go_on() {
    let scene = Scene::new(4);
    scene.write(40);
    let note = scene.noting("a");
    let n_calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&n_calls);
    let delegate = move |batch: RawBatch, context: BatchContext| {
        assert!(
            counted.fetch_add(1, Ordering::SeqCst) > 2,
            "the first three calls panic"
        );
        note(batch, context)
    };
    let processor = scene.host("a").build_raw(delegate).unwrap();
    let mut events = processor.events();
    let running = processor.start().await.unwrap();
    let error = next(&mut events, |event| match event {
        Event::BatchFailed { error, .. } => Some(error),
        _ => None,
    });
    assert!(error.await.contains("the first three calls panic"));
    scene.until_complete().await;
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_delegate_that_ignores_the_stop_is_dropped_after_the_grace_and_its_batch_comes_again() {
    let scene = Scene::new(1);
    scene.write(3);
    let (started, wait) = (Arc::new(tokio::sync::Notify::new()), Duration::from_secs(100_000));
    let told = Arc::clone(&started);
    let delegate = move |_: RawBatch, _: BatchContext| {
        told.notify_one();
        async move {
            tokio::time::sleep(wait).await;
            Ok::<_, String>(())
        }
    };
    let running = scene.host("a").build_raw(delegate).unwrap().start().await.unwrap();
    started.notified().await;
    let stopped = running.stop(Duration::from_secs(5)).await;
    assert_eq!(stopped.not_released, Vec::<String>::new());
    let running = scene.start("b").await;
    scene.until_complete().await;
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_the_batch_at_hand_and_saves_it() {
    let scene = Scene::new(1);
    scene.write(3);
    let note = scene.noting("a");
    let started = Arc::new(tokio::sync::Notify::new());
    let told = Arc::clone(&started);
    let delegate = move |batch: RawBatch, context: BatchContext| {
        told.notify_one();
        let cancelled = context.cancelled.clone();
        let handled = note(batch, context);
        async move {
            cancelled.cancelled().await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            handled.await
        }
    };
    let running = scene.host("a").build_raw(delegate).unwrap().start().await.unwrap();
    started.notified().await;
    running.stop(GRACE).await;
    let running = scene.start("b").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    running.stop(GRACE).await;
    scene.assert_complete();
    assert!(scene.ledger.repeated().is_empty());
}

#[tokio::test(start_paused = true)]
async fn with_manual_checkpoints_what_was_not_saved_comes_again() {
    let scene = Scene::new(1);
    scene.write(5);
    let note = scene.noting("a");
    let delegate = move |batch: RawBatch, context: BatchContext| {
        let save = has(&batch, "save");
        let handled = note(batch, context.clone());
        async move {
            handled.await?;
            if save {
                context.checkpoint().await.map_err(|error| error.to_string())?;
            }
            Ok::<_, String>(())
        }
    };
    let host = || scene.host("a").checkpoint(Checkpoint::Manual).max_items(1);
    let running = host().build_raw(delegate.clone()).unwrap().start().await.unwrap();
    scene.until_complete().await;
    scene.feed.put("k", "save", json!(1));
    scene.until_complete().await;
    scene.feed.put("k", "unsaved", json!(2));
    scene.until_complete().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    running.stop(GRACE).await;
    assert!(scene.ledger.repeated().is_empty());
    let running = host().build_raw(delegate).unwrap().start().await.unwrap();
    scene
        .until("the unsaved one comes again", || scene.ledger.len() == 8)
        .await;
    let last = scene.ledger.deliveries().pop().unwrap();
    assert_eq!((last.id.as_str(), scene.ledger.repeated().len()), ("unsaved", 1));
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn feed_reads_that_fail_in_every_way_lose_nothing_and_keep_the_lease() {
    let scene = Scene::new(1);
    let running = scene.start("a").await;
    scene.feed.fail([
        Fault::Throttled,
        Fault::Transient,
        Fault::Hang,
        Fault::Gone,
        Fault::Fatal,
        Fault::Transient,
    ]);
    scene.write(10);
    scene.until_complete().await;
    assert_eq!(
        scene.stored().values().next().unwrap().epoch(),
        1,
        "the lease was never let go"
    );
    running.stop(GRACE).await;
    scene.assert_complete();
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_gone_ranges_loses_no_lease_and_does_not_spin() {
    let scene = Scene::new(1);
    let running = scene.start("a").await;
    scene.feed.fail([Fault::Gone; 30]);
    scene.write(3);
    let n_before = scene.feed.n_reads();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(scene.feed.n_reads() - n_before < 30, "reads back off");
    scene.until_complete().await;
    assert_eq!(scene.stored().values().next().unwrap().epoch(), 1);
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_panics_does_not_reach_the_processor() {
    let scene = Scene::new(1);
    scene.write(3);
    let host = scene.host("a").on_event(|_| panic!("the callback is broken"));
    let running = scene.try_start(host, "a").await.unwrap();
    scene.until_complete().await;
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_dropped_or_made_again_ends_the_unit_with_an_event() {
    for again in [false, true] {
        let scene = Scene::new(1);
        let running = scene.start("a").await;
        let mut events = running.events();
        scene.feed.drop_container(again);
        next(&mut events, |event| {
            matches!(event, Event::SourceGone { .. }).then_some(())
        })
        .await;
        tokio::time::timeout(Duration::from_secs(60), running.ended())
            .await
            .unwrap();
        let n_reads = scene.feed.n_reads();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(scene.feed.n_reads(), n_reads, "no busy loop");
        running.stop(GRACE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn skipping_and_releasing_are_policies_one_can_choose() {
    let scene = Scene::new(1);
    scene.feed.put("k", "poison", json!(1));
    scene.write(3);
    let retry = RetryPolicy {
        attempts: 2,
        ..RetryPolicy::default()
    };
    let host = scene.host("a").give_up(GiveUp::Skip).retry(retry.clone());
    let running = host
        .build_raw(failing(&scene, |batch| has(batch, "poison")))
        .unwrap()
        .start()
        .await
        .unwrap();
    scene
        .until("the others are delivered", || scene.ledger.len() == 3)
        .await;
    running.stop(GRACE).await;
    let scene = Scene::new(1);
    scene.write(1);
    let host = scene.host("a").give_up(GiveUp::Release).retry(retry);
    let processor = host.build_raw(failing(&scene, |_| true)).unwrap();
    let mut events = processor.events();
    let running = processor.start().await.unwrap();
    next(&mut events, |event| {
        matches!(
            event,
            Event::LeaseReleased {
                why: orrery_processor::Loss::DelegateFailed,
                ..
            }
        )
        .then_some(())
    })
    .await;
    running.stop(GRACE).await;
}
