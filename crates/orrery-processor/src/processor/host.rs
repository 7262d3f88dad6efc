//! The loop of a host: list, decide, act, and look after the workers.
//!
//! Deciding is [`crate::balance`]; this only does what it says. A failure in one cycle is reported and the next cycle
//! begins as if nothing had happened. Invariant: every worker is a task of this loop, and ends with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::held::HeldLease;
use super::init;
use super::unit::{Unit, UnitListing, want_document};
use super::worker::{End, Orders, Why, Worker};
use crate::balance::{LeaseAction, Watch, balance};
use crate::delegate::chain;
use crate::error::StoreError;
use crate::events::Event;
use crate::lease::Lease;

/// How often the proof that leases cover the key space is repeated.
const TILING_INTERVAL: Duration = Duration::from_secs(3600);
/// Most leases whose documents are written at the same time.
const CONCURRENCY: usize = 16;

/// How a host came to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Tokens of leases that were not released: others have to wait for them to expire.
    pub not_released: Vec<String>,
}

/// Ways to talk to a running host.
pub(crate) struct Controls {
    /// Cancelled to stop; delegates see it.
    pub stopping: CancellationToken,
    /// How long stopping may take.
    pub grace: watch::Receiver<Duration>,
}

struct Running {
    token: String,
    orders: watch::Sender<Orders>,
}

pub(crate) struct Host {
    unit: Arc<Unit>,
    controls: Controls,
    abandon: CancellationToken,
    watch: Watch,
    running: BTreeMap<String, Running>,
    workers: JoinSet<End>,
    paused: bool,
    tiling_checked_at: Option<Duration>,
}

impl Host {
    pub fn new(unit: Arc<Unit>, controls: Controls) -> Host {
        Host {
            unit,
            controls,
            abandon: CancellationToken::new(),
            watch: Watch::default(),
            running: BTreeMap::new(),
            workers: JoinSet::new(),
            paused: false,
            tiling_checked_at: None,
        }
    }

    /// Runs until stopped. `first` is told when the first cycle is over.
    pub async fn run(mut self, first: oneshot::Sender<()>) -> Stopped {
        let mut ticks = interval(self.unit.settings.timing.acquire);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut first = Some(first);
        loop {
            // Cancellation, timer and join lose nothing when another branch is taken.
            tokio::select! {
                biased;
                () = self.controls.stopping.cancelled() => break,
                Some(ended) = self.workers.join_next() => {
                    let reshaped = self.ended(ended);
                    if reshaped {
                        ticks.reset_immediately();
                    }
                }
                _ = ticks.tick() => {
                    self.cycle().await;
                    // Whoever started us may have gone away.
                    let _ = first.take().map(|first| first.send(()));
                }
            }
        }
        self.stop().await
    }

    /// Whether the leases have become others, so that waiting for the next cycle would only waste time.
    fn ended(&mut self, ended: Result<End, tokio::task::JoinError>) -> bool {
        let end = match ended {
            Ok(end) => end,
            Err(error) => {
                self.unit.events.emit(Event::Error {
                    lease: None,
                    error: chain(&error),
                });
                return false;
            }
        };
        self.running.remove(&end.id);
        match end.why {
            Why::Lost(crate::events::Loss::Resharded) => {
                self.tiling_checked_at = None;
                return true;
            }
            Why::Lost(_) => {}
            Why::Namesake => self.stop_for_namesake(),
            Why::StopHost => {
                self.unit.events.emit(Event::StopRequested);
                self.controls.stopping.cancel();
            }
            Why::SourceGone(error) => {
                self.unit.events.emit(Event::SourceGone { error });
                self.controls.stopping.cancel();
            }
        }
        false
    }

    fn stop_for_namesake(&self) {
        if !self.controls.stopping.is_cancelled() {
            self.unit.events.emit(Event::DuplicateInstance {
                instance: self.unit.me.name.clone(),
            });
            self.controls.stopping.cancel();
        }
    }

    async fn cycle(&mut self) {
        // A worker that panicked is no longer there to say so.
        let asked_at = self.unit.clock.now();
        let expiry = self.unit.settings.timing.expiry;
        let listed = match timeout(expiry, self.unit.list()).await {
            Ok(Ok(listed)) => listed,
            Ok(Err(error)) => return self.report(&error),
            Err(late) => return self.report(&late),
        };
        self.unit.metrics.lease_charge(listed.charge);
        self.pause(listed.paused);
        self.watch.note(&listed.listing, asked_at);
        let running: BTreeSet<String> = self.running.keys().cloned().collect();
        let (unit, now) = (Arc::clone(&self.unit), self.unit.clock.now());
        let actions = balance(
            &listed.listing,
            &self.watch,
            &running,
            &unit.me,
            now,
            &unit.settings.balance,
        );
        self.perform(actions, &listed).await;
        self.measure();
        self.check_tiling(&listed).await;
    }

    fn measure(&self) {
        let metrics = &self.unit.metrics;
        metrics.leases_owned(self.running.len());
        for (lease, health) in self.unit.health() {
            metrics.waiting(&lease, health.waiting);
            if let Some(age) = health.last_checkpoint {
                metrics.checkpoint_age(&lease, age);
            }
        }
    }

    fn pause(&mut self, paused: bool) {
        if paused == self.paused {
            return;
        }
        self.paused = paused;
        self.unit.paused.store(paused, std::sync::atomic::Ordering::Relaxed);
        self.unit
            .events
            .emit(if paused { Event::Paused } else { Event::Resumed });
        for running in self.running.values() {
            running.orders.send_modify(|orders| orders.paused = paused);
        }
    }

    async fn perform(&mut self, actions: Vec<LeaseAction>, listed: &UnitListing) {
        let lease = |id: &str| listed.listing.leases.iter().find(|lease| lease.id == id);
        let mut takes = Vec::new();
        for action in actions {
            match action {
                LeaseAction::Take { id, why, how } => takes.extend(lease(&id).map(|lease| (lease.clone(), how, why))),
                LeaseAction::Ask { id } => {
                    if let Some(lease) = lease(&id) {
                        self.ask(lease).await;
                    }
                }
                LeaseAction::HandOver { id, to } => {
                    if let Some(running) = self.running.get(&id) {
                        running.orders.send_modify(|orders| orders.hand_over = Some(to));
                    }
                }
                LeaseAction::Withdraw { token } => self.withdraw(&token).await,
                LeaseAction::Check { id } => {
                    if let Some(running) = self.running.get(&id) {
                        running.orders.send_modify(|orders| orders.n_checks += 1);
                    }
                }
                LeaseAction::StopForNamesake { .. } => self.stop_for_namesake(),
            }
        }
        self.take(takes).await;
    }

    async fn take(&mut self, takes: Vec<(Lease, crate::lease::Takeover, crate::balance::Why)>) {
        for some in takes.chunks(CONCURRENCY) {
            let unit = &self.unit;
            let acquired = some
                .iter()
                .map(|(lease, how, why)| HeldLease::acquire(unit, lease, *how, *why));
            for held in futures::future::join_all(acquired).await {
                match held {
                    Ok(Some(held)) => self.employ(held),
                    Ok(None) => {}
                    Err(error) => self.report(&error),
                }
            }
        }
    }

    fn employ(&mut self, held: HeldLease) {
        let (id, token) = (held.lease().id.clone(), held.lease().token.clone());
        let (orders, receiver) = watch::channel(Orders {
            paused: self.paused,
            ..Orders::default()
        });
        let (stopping, abandon) = (&self.controls.stopping, self.abandon.clone());
        let worker = Worker::new(Arc::clone(&self.unit), held, receiver, stopping, abandon);
        self.workers.spawn(worker.run());
        self.running.insert(id, Running { token, orders });
    }

    async fn ask(&self, lease: &Lease) {
        let ttl = 6 * self.unit.settings.timing.acquire;
        let want = want_document(&self.unit.names, &lease.token, &self.unit.me, ttl);
        if let Err(error) = self.unit.store.create(&want).await {
            self.report(&error);
        }
    }

    async fn withdraw(&self, token: &str) {
        let want = json!({ "id": self.unit.names.want(token) });
        match self.unit.store.delete(&want, None).await {
            Ok(()) | Err(StoreError::NotFound) => {}
            Err(error) => self.report(&error),
        }
    }

    /// Proves from time to time, and whenever leases were cut, that every key is covered.
    async fn check_tiling(&mut self, listed: &UnitListing) {
        let now = self.unit.clock.now();
        let due = self
            .tiling_checked_at
            .is_none_or(|at| now.saturating_sub(at) >= TILING_INTERVAL);
        if !due || listed.listing.leases.iter().any(Lease::is_retired) {
            return;
        }
        self.tiling_checked_at = Some(now);
        if let Err(error) = init::repair(&self.unit, &listed.listing).await {
            self.report(&error);
        }
    }

    fn report(&self, error: &(dyn std::error::Error + 'static)) {
        self.unit.events.emit(Event::Error {
            lease: None,
            error: chain(error),
        });
    }

    /// Everybody finishes the batch at hand and releases; whoever does not in time is dropped.
    async fn stop(mut self) -> Stopped {
        for running in self.running.values() {
            running.orders.send_modify(|orders| orders.stop = true);
        }
        let deadline = Instant::now() + *self.controls.grace.borrow();
        let mut unclean = BTreeMap::new();
        std::mem::swap(&mut unclean, &mut self.running);
        let mut is_abandoned = false;
        loop {
            let until = if is_abandoned {
                deadline + self.unit.settings.timing.renew
            } else {
                deadline
            };
            match tokio::time::timeout_at(until, self.workers.join_next()).await {
                Ok(Some(Ok(end))) => {
                    if matches!(end.why, Why::Lost(_) | Why::SourceGone(_) | Why::StopHost) {
                        unclean.remove(&end.id);
                    }
                }
                Ok(Some(Err(_))) => {}
                Ok(None) => break,
                // Delegates are dropped; their leases can still be released, at the last saved position.
                Err(_) if !is_abandoned => {
                    is_abandoned = true;
                    self.abandon.cancel();
                }
                Err(_) => break,
            }
        }
        Stopped {
            not_released: unclean.into_values().map(|running| running.token).collect(),
        }
    }
}
