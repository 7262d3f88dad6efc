//! The loop of a host: list, decide, act, and look after the workers.
//!
//! Deciding is [`crate::balance`]; this only does what it says. A failure in one cycle, a panic included, is reported and the
//! next cycle begins as if nothing had happened; a lease whose worker panicked is taken again then. Invariants: every worker
//! is a task of this loop, and ends with it; what counts as running has a worker.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::json;
use tokio::sync::{oneshot, watch};
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::coverage::tiling;
use super::held::HeldLease;
use super::init;
use super::unit::{Unit, UnitListing, Unreadable, want_document};
use super::worker::{End, Orders, Why, Worker};
use crate::balance::{LeaseAction, Watch, balance};
use crate::delegate::chain;
use crate::error::StoreError;
use crate::events::{Event, Loss};
use crate::lease::Lease;
use crate::metrics::LeaseChange;

/// How often the whole proof that leases cover the key space is repeated.
const TILING_INTERVAL: Duration = Duration::from_secs(3600);
/// Most leases whose documents are written at the same time.
const CONCURRENCY: usize = 16;
/// A listing may take this long even where leases expire sooner: a host that gave up on every one would take nobody's leases.
const LISTING_PATIENCE: Duration = Duration::from_secs(10);
/// How long a host that nobody stopped, but that has to, may take for it.
const GRACE_BY_ITSELF: Duration = Duration::from_secs(5);
/// What releasing leases may take after the time for stopping is over.
const RELEASE_MAX: Duration = Duration::from_secs(5);

/// How a host came to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// Tokens of leases that were not released: others have to wait for them to expire.
    pub not_released: Vec<String>,
}

/// Ways to talk to a running host.
#[derive(Clone)]
pub(crate) struct Controls {
    /// Cancelled to stop; delegates see it.
    pub stopping: CancellationToken,
    /// When the time for stopping is over, once somebody wants to stop.
    pub stop_by: watch::Receiver<Option<Instant>>,
}

impl Controls {
    fn deadline(&self) -> Instant {
        let said = *self.stop_by.borrow();
        said.unwrap_or_else(|| Instant::now() + GRACE_BY_ITSELF)
    }

    /// Ends when the time for stopping is over.
    async fn out_of_time(&self) {
        self.stopping.cancelled().await;
        sleep_until(self.deadline()).await;
    }

    /// What `work` comes to, unless the host stops first. The work may then be dropped wherever it is.
    async fn unless_stopping<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => None,
            done = work => Some(done),
        }
    }
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
    /// Ids of the workers' leases.
    tasks: HashMap<task::Id, String>,
    /// Tokens of leases that we may hold, because the answer to taking them did not come in time for stopping.
    uncertain: Vec<String>,
    /// Ids of lease documents that cannot be read, as far as they were told.
    unreadable: BTreeSet<String>,
    paused: bool,
    /// Held is all there is, and nobody asks for any of it.
    is_alone: bool,
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
            tasks: HashMap::new(),
            uncertain: Vec::new(),
            unreadable: BTreeSet::new(),
            paused: false,
            is_alone: false,
            tiling_checked_at: None,
        }
    }

    /// Runs until stopped. `first` is told when the first cycle is over.
    pub async fn run(mut self, first: oneshot::Sender<()>) -> Stopped {
        let acquire = self.unit.settings.timing.acquire;
        let mut ticks = interval(acquire);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut first, unit) = (Some(first), Arc::clone(&self.unit));
        loop {
            // Cancellation, timer, wake-up and join lose nothing when another branch is taken.
            tokio::select! {
                biased;
                () = self.controls.stopping.cancelled() => break,
                Some(ended) = self.workers.join_next_with_id() => {
                    let was_alone = std::mem::take(&mut self.is_alone);
                    if self.ended(ended) {
                        ticks.reset_immediately();
                    } else if was_alone {
                        ticks.reset_after(acquire);
                    }
                }
                () = unit.reshaped.notified() => ticks.reset_immediately(),
                _ = ticks.tick() => {
                    if self.guarded_cycle().await {
                        ticks.reset_immediately();
                    } else if let Some(every) = unit.settings.look_when_alone.filter(|_| self.is_alone) {
                        ticks.reset_after(every);
                    }
                    // Whoever started us may have gone away.
                    let _ = first.take().map(|first| first.send(()));
                }
            }
        }
        self.stop().await
    }

    /// Whether the leases have become others, so that waiting for the next cycle would only waste time.
    fn ended(&mut self, ended: Result<(task::Id, End), JoinError>) -> bool {
        let end = match ended {
            Ok((task, end)) => {
                self.tasks.remove(&task);
                end
            }
            Err(error) => {
                self.died(&error);
                return false;
            }
        };
        self.running.remove(&end.id);
        match end.why {
            // Deleted under us, a lease leaves a hole.
            Why::Lost(Loss::Resharded | Loss::Deleted) => {
                self.tiling_checked_at = None;
                return true;
            }
            // Nobody has it: an operator moved it, or it was made again.
            Why::Lost(Loss::Taken { by: None }) => return true,
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

    /// A worker panicked: in the feed, a store or a listener, since delegates have tasks of their own. Its lease still names us,
    /// so the next cycle takes it again.
    fn died(&mut self, error: &JoinError) {
        let running = self.tasks.remove(&error.id()).and_then(|id| self.running.remove(&id));
        let lease = running.map(|running| running.token);
        self.unit.events.emit(Event::Error {
            lease: lease.clone(),
            error: chain(error),
        });
        if let Some(lease) = lease {
            self.unit.health.forget(&lease);
            let labels = self.unit.labels(Some(&lease));
            self.unit
                .metrics
                .lease_change(labels, LeaseChange::Released(Loss::Failed));
            let why = Loss::Failed;
            self.unit.events.emit(Event::LeaseReleased { lease, why });
        }
    }

    fn stop_for_namesake(&self) {
        if !self.controls.stopping.is_cancelled() {
            self.unit.events.emit(Event::DuplicateInstance {
                instance: self.unit.me.name.clone(),
            });
            self.controls.stopping.cancel();
        }
    }

    /// One cycle. A store or feed that panics in it is a failure like any other.
    async fn guarded_cycle(&mut self) -> bool {
        match AssertUnwindSafe(self.cycle()).catch_unwind().await {
            Ok(has_new) => has_new,
            Err(_) => {
                self.unit.events.emit(Event::Error {
                    lease: None,
                    error: "looking at the leases ended in a panic".to_owned(),
                });
                false
            }
        }
    }

    /// One look at the leases, and what follows from it. Whether there are new ones, so that the next look need not wait.
    async fn cycle(&mut self) -> bool {
        self.is_alone = false;
        let asked_at = self.unit.clock.now();
        let Some(listed) = self.list().await else {
            return false;
        };
        self.unit.metrics.lease_charge(self.unit.labels(None), listed.charge);
        self.pause(listed.paused);
        self.tell_of_unreadable(&listed.unreadable);
        let (unit, now) = (Arc::clone(&self.unit), self.unit.clock.now());
        self.watch.note(&listed.listing, asked_at, now);
        let running: BTreeSet<String> = self.running.keys().cloned().collect();
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
        let has_new = self.check_tiling(&listed).await;
        self.is_alone = !has_new && !self.paused && self.holds_all(&listed);
        has_new
    }

    /// Whether this host holds every lease of its unit, and nobody asks for any.
    fn holds_all(&self, listed: &UnitListing) -> bool {
        let leases = &listed.listing.leases;
        let is_plain = listed.listing.wants.is_empty() && listed.unreadable.is_empty() && !listed.is_foreign;
        is_plain && !leases.is_empty() && leases.iter().all(|lease| self.running.contains_key(&lease.id))
    }

    async fn list(&self) -> Option<UnitListing> {
        let limit = self.unit.settings.timing.expiry.max(LISTING_PATIENCE);
        let listing = timeout(limit, self.unit.list());
        match self.controls.unless_stopping(listing).await? {
            Ok(Ok(listed)) => return Some(listed),
            Ok(Err(error)) => self.report(&error),
            Err(late) => self.report(&late),
        }
        None
    }

    /// Each once, and again when it has been readable meanwhile.
    fn tell_of_unreadable(&mut self, found: &[Unreadable]) {
        let known = std::mem::take(&mut self.unreadable);
        for Unreadable { id, error, .. } in found {
            if !known.contains(id) {
                self.unit.events.emit(Event::LeaseUnreadable {
                    id: id.clone(),
                    error: error.clone(),
                });
            }
            self.unreadable.insert(id.clone());
        }
    }

    fn measure(&self) {
        let metrics = &self.unit.metrics;
        metrics.leases_owned(self.unit.labels(None), self.running.len());
        for (lease, health) in self.unit.health() {
            let labels = self.unit.labels(Some(&lease));
            metrics.waiting(labels, health.waiting);
            if let Some(age) = health.last_checkpoint {
                metrics.checkpoint_age(labels, age);
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

    /// What is begun is waited for, also when the host stops meanwhile: a lease that we hold without knowing it would not be
    /// released.
    async fn take(&mut self, takes: Vec<(Lease, crate::lease::Takeover, crate::balance::Why)>) {
        for some in takes.chunks(CONCURRENCY) {
            if self.controls.stopping.is_cancelled() {
                return;
            }
            let (unit, controls) = (&self.unit, &self.controls);
            let acquired = some.iter().map(|(lease, how, why)| async move {
                // An answer that takes longer than the lease lasts is worth nothing.
                let limit = unit.settings.timing.expiry;
                tokio::select! {
                    biased;
                    held = timeout(limit, HeldLease::acquire(unit, lease, *how, *why)) => {
                        held.unwrap_or_else(|late| Err(StoreError::Unavailable(late.into())))
                    }
                    () = controls.out_of_time() => Err(StoreError::Unavailable("the host stops".into())),
                }
            });
            let acquired = futures::future::join_all(acquired).await;
            for ((lease, ..), held) in some.iter().zip(acquired) {
                match held {
                    Ok(Some(held)) => self.employ(held),
                    Ok(None) => {}
                    Err(error) => {
                        self.report(&error);
                        self.uncertain.push(lease.token.clone());
                    }
                }
            }
            // Unless the host stops, the next listing says which of these are ours.
            if !self.controls.stopping.is_cancelled() {
                self.uncertain.clear();
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
        let task = self.workers.spawn(worker.run());
        self.tasks.insert(task.id(), id.clone());
        self.running.insert(id, Running { token, orders });
    }

    async fn ask(&self, lease: &Lease) {
        let ttl = 6 * self.unit.settings.timing.acquire;
        let want = want_document(&self.unit.names, &lease.token, &self.unit.me, ttl);
        self.write_want(self.unit.store.create(&want)).await;
    }

    async fn withdraw(&self, token: &str) {
        let want = json!({ "id": self.unit.names.want(token) });
        self.write_want(self.unit.store.delete(&want, None)).await;
    }

    /// Requests are worth no more time than there is between two looks; they vanish by themselves.
    async fn write_want<T>(&self, writing: impl Future<Output = Result<T, StoreError>>) {
        let limited = timeout(self.unit.settings.timing.acquire, writing);
        match self.controls.unless_stopping(limited).await {
            None | Some(Ok(Ok(_) | Err(StoreError::NotFound))) => {}
            Some(Ok(Err(error))) => self.report(&error),
            Some(Err(late)) => self.report(&late),
        }
    }

    /// Looks for keys that no lease covers, with every listing, and reports overlaps from time to time and whenever leases
    /// were cut. Whether leases were made for them.
    async fn check_tiling(&mut self, listed: &UnitListing) -> bool {
        let now = self.unit.clock.now();
        let is_due = self
            .tiling_checked_at
            .is_none_or(|at| now.saturating_sub(at) >= TILING_INTERVAL);
        if is_due {
            self.tiling_checked_at = Some(now);
        }
        let lacks_ranges = listed.listing.leases.iter().any(|lease| lease.range.is_none());
        let mut found = tiling(&listed.listing);
        init::spare_unreadable(&mut found, &listed.unreadable);
        if found.holes.is_empty() && !(is_due && (!found.is_exact() || lacks_ranges)) {
            return false;
        }
        // A listing is no snapshot: it may have looked for the children of a cut before they were there, and for their
        // parent when it was gone.
        let Some(again) = self.list().await else {
            return false;
        };
        // Leases of others expire while this goes on, and only the next cycle takes them. What was made stays.
        let repairing = timeout(self.unit.settings.timing.expiry, init::repair(&self.unit, &again));
        match self.controls.unless_stopping(repairing).await {
            Some(Ok(Ok(has_new))) => return has_new,
            Some(Ok(Err(error))) => self.report(&error),
            Some(Err(late)) => self.report(&late),
            None => {}
        }
        false
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
        let deadline = self.controls.deadline();
        let mut unclean = BTreeMap::new();
        std::mem::swap(&mut unclean, &mut self.running);
        let mut is_abandoned = false;
        loop {
            let until = if is_abandoned {
                deadline + self.unit.settings.timing.renew.min(RELEASE_MAX)
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
        let mut not_released: Vec<String> = unclean.into_values().map(|running| running.token).collect();
        not_released.append(&mut self.uncertain);
        Stopped { not_released }
    }
}
