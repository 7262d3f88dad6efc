//! Delegates that are slow, frozen or always fail: what they hold up, what goes on, and where it can be seen.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use orrery_processor::dead_letters::MemoryDeadLetters;
use orrery_processor::estimator::Estimator;
use orrery_processor::retry::RetryPolicy;
use orrery_processor::{BatchContext, Event, Labels, LeaseChange, Loss, Metrics, RawBatch};
use serde_json::json;

use crate::scene::{Scene, next};

const GRACE: Duration = Duration::from_secs(30);

/// What a delegate does with the batches of the leftmost lease while its switch is on.
#[derive(Clone, Copy)]
enum Trouble {
    Slow(Duration),
    Frozen,
    Failing,
}

type Handled = BoxFuture<'static, Result<(), String>>;

fn troubled(
    scene: &Scene,
    trouble: Trouble,
    is_on: &Arc<AtomicBool>,
) -> impl Fn(RawBatch, BatchContext) -> Handled + Send + Sync + 'static {
    let (note, is_on) = (scene.noting("a"), Arc::clone(is_on));
    move |batch, context| {
        let is_hit = context.lease.starts_with('-') && is_on.load(Ordering::SeqCst);
        let note = note.clone();
        async move {
            match trouble {
                Trouble::Slow(time) if is_hit => tokio::time::sleep(time).await,
                Trouble::Frozen if is_hit => std::future::pending().await,
                Trouble::Failing if is_hit => return Err("no".to_owned()),
                _ => {}
            }
            note(batch, context).await
        }
        .boxed()
    }
}

fn switched_on() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(true))
}

#[tokio::test(start_paused = true)]
async fn one_slow_lease_does_not_hold_up_the_others() {
    let scene = Scene::new(4);
    scene.write(40);
    let delegate = troubled(&scene, Trouble::Slow(Duration::from_secs(60)), &switched_on());
    let running = scene.host("a").build_raw(delegate).unwrap().start().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let n_quick = scene.ledger.len();
    assert!((1..40).contains(&n_quick), "all but the slow lease: {n_quick}");
    for round in 2..=10 {
        scene.write(40);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(
            scene.ledger.len(),
            round * n_quick,
            "the others go on within the minute"
        );
    }
    scene.until_complete().await;
    scene.assert_complete();
    running.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_frozen_delegate_makes_its_lease_unhealthy_and_an_idle_feed_does_not() {
    let scene = Scene::new(2);
    let is_on = switched_on();
    let host = scene.host("a").stuck_after(Duration::from_secs(120));
    let running = host
        .build_raw(troubled(&scene, Trouble::Frozen, &is_on))
        .unwrap()
        .start()
        .await
        .unwrap();
    let mut events = running.events();
    let poll = Duration::from_millis(1100);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let idle = running.health();
    assert!(
        idle.values()
            .all(|lease| lease.waiting.unwrap() <= poll && !lease.is_stuck)
    );
    scene.write(40);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let health = running.health();
    let (frozen, other) = (health.values().next().unwrap(), health.values().nth(1).unwrap());
    for age in [frozen.waiting, frozen.last_poll, frozen.delegate_running] {
        assert!(age.unwrap() >= Duration::from_secs(58), "{frozen:?}");
    }
    assert!(other.waiting.unwrap() <= poll && other.caught_up, "{other:?}");
    assert!(running.is_healthy(), "a minute is not too long yet");
    next(&mut events, |event| matches!(event, Event::Stuck { .. }).then_some(())).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let stuck: Vec<bool> = running.health().values().map(|lease| lease.is_stuck).collect();
    assert_eq!((stuck, running.is_healthy()), (vec![true, false], false));
    running.stop(GRACE).await;
    let again = scene.start("b").await;
    scene.until_complete().await;
    again.stop(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn a_delegate_that_fails_for_ever_holds_its_lease_only_and_loses_nothing() {
    let scene = Scene::new(4);
    scene.write(40);
    let is_on = switched_on();
    let host = scene.host("a").stuck_after(Duration::from_secs(300));
    let processor = host.build_raw(troubled(&scene, Trouble::Failing, &is_on)).unwrap();
    let mut events = processor.events();
    let running = processor.start().await.unwrap();
    let attempt = next(&mut events, |event| match event {
        Event::BatchFailed { attempt, .. } if attempt > 5 => Some(attempt),
        _ => None,
    });
    assert_eq!(attempt.await, 6, "the same batch, again and again");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let before = scene.stored();
    let (_, failing) = before.iter().next().unwrap();
    assert_eq!(
        (failing.owner(), &failing.continuation),
        (Some("a"), &None),
        "kept, and not moved"
    );
    let health = running.health();
    assert!(health.values().next().unwrap().attempts > 50 && !running.is_healthy());
    scene.write(40);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let n_others = scene.ledger.len();
    assert!(n_others >= 20 && scene.ledger.deliveries().iter().all(|one| !one.lease.starts_with('-')));
    is_on.store(false, Ordering::SeqCst);
    scene.until_complete().await;
    scene.assert_complete();
    assert!(running.is_healthy());
    running.stop(GRACE).await;
}

/// Keeps every measurement as text.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<BTreeMap<&'static str, Vec<String>>>>);

impl Recorded {
    fn note(&self, name: &'static str, value: impl std::fmt::Debug) {
        let mut noted = self.0.lock().unwrap();
        noted.entry(name).or_default().push(format!("{value:?}"));
    }

    fn of(&self, name: &str) -> Vec<String> {
        self.0.lock().unwrap().get(name).cloned().unwrap_or_default()
    }
}

impl Metrics for Recorded {
    fn batch(&self, _: Labels<'_>, items: usize, _: Duration, attempts: u32) {
        self.note("batch", (items, attempts));
    }

    fn lag(&self, _: Labels<'_>, transactions: Option<u64>) {
        self.note("lag", transactions);
    }

    fn waiting(&self, _: Labels<'_>, waiting: Option<Duration>) {
        self.note("waiting", waiting.is_some());
    }

    fn checkpoint_age(&self, _: Labels<'_>, age: Duration) {
        self.note("checkpoint age", age);
    }

    fn lease_change(&self, _: Labels<'_>, change: LeaseChange) {
        self.note("lease change", change);
    }

    fn dead_letter(&self, of: Labels<'_>) {
        self.note("dead letter", (of.unit, of.instance, of.lease));
    }

    fn leases_owned(&self, _: Labels<'_>, count: usize) {
        self.note("leases owned", count);
    }

    fn feed_charge(&self, _: Labels<'_>, request_units: f64) {
        self.note("feed charge", request_units);
    }

    fn lease_charge(&self, _: Labels<'_>, request_units: f64) {
        self.note("lease charge", request_units);
    }
}

#[tokio::test(start_paused = true)]
async fn everything_that_can_be_measured_is_reported() {
    let scene = Scene::new(1);
    scene.feed.put("k", "poison", json!(1));
    scene.write(9);
    let recorded = Recorded::default();
    let retry = RetryPolicy {
        attempts: 2,
        ..RetryPolicy::default()
    };
    let note = scene.noting("a");
    let delegate = move |batch: RawBatch, context: BatchContext| {
        if batch.iter().any(|change| change.id() == Some("poison")) {
            return std::future::ready(Err("no".to_owned()));
        }
        note(batch, context)
    };
    let host = scene
        .host("a")
        .metrics(recorded.clone())
        .retry(retry)
        .dead_letters(MemoryDeadLetters::default());
    let running = host.build_raw(delegate).unwrap().start().await.unwrap();
    scene
        .until("the others are delivered", || scene.ledger.len() == 9)
        .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    running.stop(GRACE).await;
    assert_eq!(
        recorded.of("dead letter"),
        [format!("{:?}", ("unit", "a", Some("-FF")))],
        "labelled with unit, instance and lease"
    );
    let batches = recorded.of("batch");
    assert!(batches.len() == 1 && batches[0].starts_with("(10, "), "{batches:?}");
    assert_eq!(recorded.of("lag").last().unwrap(), "Some(0)");
    assert!(recorded.of("leases owned").contains(&"1".to_owned()));
    assert!(recorded.of("waiting").contains(&"true".to_owned()));
    for name in ["checkpoint age", "feed charge", "lease charge"] {
        assert!(!recorded.of(name).is_empty(), "{name}");
    }
    let changes = recorded.of("lease change");
    let released = format!("{:?}", LeaseChange::Released(Loss::Stopped));
    assert_eq!((changes.len(), changes.last()), (2, Some(&released)));
}

#[tokio::test(start_paused = true)]
async fn an_estimator_reports_the_lag_of_every_lease_and_of_its_owner() {
    let scene = Scene::new(1);
    let running = scene.start("a").await;
    scene
        .until("it has a position", || {
            scene.stored().values().all(|lease| lease.continuation.is_some())
        })
        .await;
    let lags = Lags::default();
    let estimator = Estimator::new("unit", scene.feed.clone(), scene.leases.clone()).unwrap();
    let estimator = estimator.with_metrics(lags.clone());
    estimator.snapshot().await.unwrap();
    running.stop(GRACE).await;
    scene.write(3);
    estimator.snapshot().await.unwrap();
    let about = |instance: &str, lag: u64| format!("unit {instance} Some(\"-FF\") Some({lag})");
    assert_eq!(*lags.0.lock().unwrap(), [about("a", 0), about("", 3)]);
}

#[derive(Clone, Default)]
struct Lags(Arc<Mutex<Vec<String>>>);

impl Metrics for Lags {
    fn lag(&self, of: Labels<'_>, transactions: Option<u64>) {
        let told = format!("{} {} {:?} {transactions:?}", of.unit, of.instance, of.lease);
        self.0.lock().unwrap().push(told);
    }
}
