//! What a delegate may answer besides success and failure, and what it is told.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orrery_processor::dead_letters::MemoryDeadLetters;
use orrery_processor::lease::Condition;
use orrery_processor::operations::{Operations, ResetTo};
use orrery_processor::retry::RetryPolicy;
use orrery_processor::{BatchContext, Event, ItemFailure, Loss, Outcome, Position, RawBatch, Running, StartFrom};
use serde_json::json;

use crate::scene::{Scene, TIMING, next};

const GRACE: Duration = Duration::from_secs(30);

/// A host whose delegate answers as it is told, and notes what it has handled.
async fn answering(
    scene: &Scene,
    letters: &MemoryDeadLetters,
    answer: impl Fn(&RawBatch, &BatchContext) -> Outcome + Send + Sync + 'static,
) -> Running {
    let note = scene.noting("a");
    let delegate = move |batch: RawBatch, context: BatchContext| {
        let outcome = answer(&batch, &context);
        if outcome == Outcome::Done {
            let _noted = note(batch, context);
        }
        std::future::ready(Ok::<_, String>(outcome))
    };
    let retry = RetryPolicy {
        attempts: 2,
        ..RetryPolicy::default()
    };
    let host = scene.host("a").dead_letters(letters.clone()).retry(retry);
    host.build_raw(delegate).unwrap().start().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_delegate_is_told_where_its_batch_is_from() {
    let scene = Scene::new(1);
    scene.feed.move_to("West US", false);
    scene.write(4);
    let told: Arc<Mutex<Vec<BatchContext>>> = Arc::default();
    let noted = Arc::clone(&told);
    let delegate = move |_: RawBatch, context: BatchContext| {
        noted.lock().unwrap().push(context);
        std::future::ready(Ok::<_, String>(()))
    };
    let host = scene.host("a").max_items(2);
    let running = host.build_raw(delegate).unwrap().start().await.unwrap();
    scene
        .until("both batches came", || told.lock().unwrap().len() == 2)
        .await;
    let told = told.lock().unwrap().clone();
    assert_eq!(told[0].from, Position::From(StartFrom::Beginning));
    assert_eq!(told[1].from, Position::After(told[0].token.clone()));
    assert_eq!((told[0].lag, told[1].lag), (Some(2), Some(0)));
    for context in told {
        assert_eq!(context.session.as_deref(), Some("0:-1#4"));
        assert!(context.activity_id.unwrap().starts_with("read "));
        assert_eq!(context.region.as_deref(), Some("West US"));
        assert_eq!((context.lease.as_str(), context.epoch), ("-FF", 1));
    }
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_comes_again_when_the_delegate_wants_it_and_nothing_is_given_up() {
    let scene = Scene::new(1);
    scene.write(3);
    let (letters, attempts) = (MemoryDeadLetters::default(), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&attempts);
    let began = tokio::time::Instant::now();
    let running = answering(&scene, &letters, move |_, context| {
        noted.lock().unwrap().push(context.attempt);
        match context.attempt {
            10.. => Outcome::Done,
            _ => Outcome::RetryBatch {
                after: Some(Duration::from_secs(60)),
            },
        }
    })
    .await;
    let mut events = running.events();
    let postponed = next(&mut events, |event| match event {
        Event::BatchPostponed { after, .. } => Some(after),
        _ => None,
    });
    assert_eq!(postponed.await, Duration::from_secs(60));
    scene.until_complete().await;
    assert_eq!(*attempts.lock().unwrap(), (1..=10).collect::<Vec<_>>());
    assert!(
        (540..545).contains(&began.elapsed().as_secs()),
        "nine minutes of waiting"
    );
    assert!(letters.letters().is_empty() && running.is_healthy());
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_the_delegate_halts_stays_where_it_is_until_it_is_reset() {
    let scene = Scene::new(4);
    scene.write(40);
    let is_broken = Arc::new(AtomicBool::new(true));
    let (letters, broken) = (MemoryDeadLetters::default(), Arc::clone(&is_broken));
    let n_calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&n_calls);
    let running = answering(&scene, &letters, move |_, context| {
        if context.lease.starts_with('-') && broken.load(Ordering::SeqCst) {
            counted.fetch_add(1, Ordering::SeqCst);
            let reason = "the schema is unknown".to_owned();
            return Outcome::HaltLease { reason };
        }
        Outcome::Done
    })
    .await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(n_calls.load(Ordering::SeqCst), 1, "tried once, and not again");
    let stored = scene.stored();
    let halted = stored.values().next().unwrap();
    assert_eq!((halted.owner(), &halted.continuation), (Some("a"), &None));
    let Some(Condition::Halted { reason, .. }) = halted.condition() else {
        panic!("{halted:?}");
    };
    assert_eq!(reason, "the schema is unknown");
    let health = running.health();
    assert_eq!(health.values().next().unwrap().halted.as_deref(), Some(reason.as_str()));
    assert!(!running.is_healthy());
    assert!(
        scene.ledger.len() > 10 && stored.values().skip(1).all(|lease| lease.condition().is_none()),
        "the others go on"
    );
    is_broken.store(false, Ordering::SeqCst);
    let unit = Operations::open("unit", scene.feed.clone(), scene.leases.clone(), TIMING.expiry);
    let beginning = ResetTo::Start(StartFrom::Beginning);
    unit.await.unwrap().reset(&beginning, true).await.unwrap();
    scene.until_complete().await;
    assert!(running.is_healthy());
    assert!(scene.stored().values().all(|lease| lease.condition().is_none()));
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_stops_when_its_delegate_says_so_and_the_batch_comes_again_elsewhere() {
    let scene = Scene::new(2);
    scene.write(10);
    let letters = MemoryDeadLetters::default();
    let running = answering(&scene, &letters, |_, _| Outcome::StopHost).await;
    tokio::time::timeout(Duration::from_secs(60), running.ended())
        .await
        .unwrap();
    let stopped = running.stop(GRACE).await;
    assert_eq!(stopped.not_released, Vec::<String>::new());
    assert_eq!(scene.shares().len(), 0, "every lease is free");
    assert!(scene.ledger.is_empty());
    let other = scene.start("b").await;
    scene.until_complete().await;
    scene.assert_complete();
    other.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_delegate_that_stops_the_host_may_save_its_batch_first() {
    let scene = Scene::new(1);
    scene.write(3);
    let note = scene.noting("a");
    let delegate = move |batch: RawBatch, context: BatchContext| {
        let _noted = note(batch, context.clone());
        async move {
            context.checkpoint().await.map_err(|error| error.to_string())?;
            Ok::<_, String>(Outcome::StopHost)
        }
    };
    let processor = scene.host("a").build_raw(delegate).unwrap();
    let mut events = processor.events();
    let running = processor.start().await.unwrap();
    let released = next(&mut events, |event| match event {
        Event::LeaseReleased { why, .. } => Some(why),
        _ => None,
    });
    assert_eq!(released.await, Loss::Stopped);
    next(&mut events, |event| matches!(event, Event::StopRequested).then_some(())).await;
    running.stop(GRACE).await;
    let other = scene.start("b").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(scene.ledger.len(), 3, "nothing comes again");
    other.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn an_item_that_no_attempt_can_help_is_set_aside_at_once_and_its_key_waits_behind_it() {
    let scene = Scene::new(1);
    scene.write(3);
    scene.feed.put("bad", "hopeless", json!(1));
    let (letters, n_calls) = (MemoryDeadLetters::default(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&n_calls);
    let running = answering(&scene, &letters, move |batch, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        let place = batch.iter().position(|change| change.id() == Some("hopeless"));
        place.map_or(Outcome::Done, |place| {
            Outcome::Failed(vec![ItemFailure::dead_letter(place, "no such customer")])
        })
    })
    .await;
    scene
        .until("the letter is there", || letters.letters().len() == 1)
        .await;
    scene.feed.put("bad", "later", json!(2));
    scene
        .until("what comes later follows it", || letters.letters().len() == 2)
        .await;
    assert_eq!(n_calls.load(Ordering::SeqCst), 1, "no second attempt at anything");
    let letters = letters.letters();
    let seen: Vec<_> = letters.iter().map(|one| (one.error.as_str(), one.parked)).collect();
    let behind = "an earlier change of this key is a dead letter";
    assert_eq!(seen, [("no such customer", false), (behind, true)]);
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_letter_says_where_it_is_from_when_it_first_failed_and_how_often() {
    let scene = Scene::new(1);
    scene.write(7);
    scene.feed.put("bad", "poison", json!("x"));
    let letters = MemoryDeadLetters::default();
    let note = scene.noting("a");
    let delegate = move |batch: RawBatch, context: BatchContext| {
        if batch.iter().any(|change| change.id() == Some("poison")) {
            return std::future::ready(Err("no".to_owned()));
        }
        note(batch, context)
    };
    let retry = RetryPolicy {
        attempts: 2,
        ..RetryPolicy::default()
    };
    let host = scene.host("a").dead_letters(letters.clone()).retry(retry);
    let running = host.build_raw(delegate).unwrap().start().await.unwrap();
    scene
        .until("the letter is there", || letters.letters().len() == 1)
        .await;
    let letter = letters.letters().remove(0);
    // Twice as a batch of eight, once as a half, once as a quarter, twice alone.
    assert_eq!(letter.attempts, 6);
    assert_eq!(letter.range.as_ref().map(ToString::to_string).as_deref(), Some("-FF"));
    assert!(letter.first_failed_at.as_ref().unwrap() <= &letter.failed_at);
    let text = serde_json::to_value(&letter).unwrap();
    assert_eq!(text["range"], json!({"min": "", "max": "FF"}));
    assert!(text["firstFailedAt"].is_string());
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn what_holds_a_lease_up_stands_in_its_document_and_is_gone_when_it_gets_on() {
    let scene = Scene::new(1);
    scene.write(1);
    let trouble = Arc::new(Mutex::new("fail"));
    let (told, note) = (Arc::clone(&trouble), scene.noting("a"));
    let delegate = move |batch: RawBatch, context: BatchContext| {
        let (trouble, note) = (*told.lock().unwrap(), note.clone());
        async move {
            match trouble {
                "fail" => return Err("the mail server is down".to_owned()),
                "panic" => panic!("out of range"),
                "hang" => tokio::time::sleep(Duration::from_secs(600)).await,
                _ => {}
            }
            note(batch, context).await
        }
    };
    let condition = || scene.stored().values().next().unwrap().condition();
    let running = scene.host("a").build_raw(delegate).unwrap().start().await.unwrap();
    scene
        .until("the failure is told", || {
            matches!(condition(), Some(Condition::Failing { attempts, error, .. })
                if attempts > 2 && error == "the mail server is down")
        })
        .await;
    *trouble.lock().unwrap() = "panic";
    scene
        .until(
            "the panic is told",
            || matches!(condition(), Some(Condition::Failing { error, .. }) if error.contains("out of range")),
        )
        .await;
    *trouble.lock().unwrap() = "hang";
    scene
        .until("the long call is told", || {
            matches!(condition(), Some(Condition::Running { .. }))
        })
        .await;
    *trouble.lock().unwrap() = "none";
    scene.until_complete().await;
    scene.until("all is well", || condition().is_none()).await;
    assert_eq!(scene.ledger.len(), 1, "the long call was not in vain");
    running.stop(GRACE).await;
}
