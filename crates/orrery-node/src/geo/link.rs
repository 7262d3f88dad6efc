//! The simulated way from one region to another: how long things take on it, how much it carries, and whether it is there.
//!
//! Replication and progress reports travel by links and by nothing else. What leaves while a link is up arrives in order,
//! or not at all. When a link is cut everything under way is lost; when it loses a parcel, that one is, and its receiver gives
//! up what follows in the same stream, as on a broken connection, and begins again from what it has: other streams on the
//! link go on. Pausing a link, or one log on it, delays what is under way and loses nothing; while it is paused, transactions
//! can be let through one by one, in their order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use orrery_model::LogId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::distribution::Distribution;
use super::gate::Gate;
use crate::watched::Watched;

/// Bytes of logs that may be on their way over a link at a time, of all logs together, unless somebody says otherwise.
pub const ROOM_BYTES: usize = 64 << 20;

/// How a link behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSettings {
    pub latency: Duration,
    /// How far from the latency it may be, as the distribution has it. Order is kept all the same.
    pub jitter: Duration,
    pub distribution: Distribution,
    /// `None`: as much as there is.
    pub bytes_per_second: Option<u64>,
    /// Bytes of logs that may be on their way at a time; `None`: [`ROOM_BYTES`].
    pub queue_bytes: Option<usize>,
    /// Share of parcels that are lost and break their stream, from 0 to 1.
    pub loss: f64,
    pub cut: bool,
    pub paused: bool,
}

impl Default for LinkSettings {
    fn default() -> LinkSettings {
        LinkSettings {
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            distribution: Distribution::default(),
            bytes_per_second: None,
            queue_bytes: None,
            loss: 0.0,
            cut: false,
            paused: false,
        }
    }
}

/// One direction between two regions.
#[derive(Debug)]
pub struct Link {
    behaviour: Watched<Behaviour>,
    state: Mutex<State>,
    under_way: Arc<AtomicUsize>,
    room: RwLock<Limit>,
    /// When nobody says otherwise.
    room_bytes: usize,
}

/// What can be changed about a link. The gate knows whether it is paused, and so do the settings.
#[derive(Debug, Default)]
struct Behaviour {
    settings: LinkSettings,
    gate: Gate,
}

/// Room for what is on its way. A new limit is for what departs from then on.
#[derive(Clone, Debug)]
struct Limit {
    room: Arc<Semaphore>,
    n_bytes: usize,
}

impl Limit {
    fn of(n_bytes: usize) -> Limit {
        Limit {
            room: Arc::new(Semaphore::new(n_bytes)),
            n_bytes,
        }
    }
}

#[derive(Debug)]
struct State {
    random: u64,
    /// When the last parcel arrives: later ones do not overtake it.
    last_arrival: Option<Instant>,
    /// When the line is free again.
    free_at: Option<Instant>,
    /// Rises whenever the link is cut.
    connection: u64,
}

/// Something on its way. Counts as under way until it is dropped.
#[derive(Debug)]
pub struct Parcel {
    arrives: Instant,
    connection: u64,
    is_lost: bool,
    n_bytes: usize,
    under_way: Arc<AtomicUsize>,
    /// Given back with it.
    room: Option<Room>,
}

impl Parcel {
    /// Has it been there for so long?
    pub fn is_late(&self, by: Duration) -> bool {
        self.arrives + by <= Instant::now()
    }
}

/// Memory that something on its way may take.
#[derive(Debug)]
pub struct Room {
    permit: OwnedSemaphorePermit,
    /// Is it all there is? Then it must do, whatever is to be sent.
    is_all: bool,
}

impl Room {
    /// Whether so much fits. Gives back what it does not need.
    pub fn fits(&mut self, n_bytes: usize) -> bool {
        if let Some(spare) = self.permit.num_permits().checked_sub(n_bytes) {
            drop(self.permit.split(spare));
            return true;
        }
        self.is_all
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        self.under_way.fetch_sub(self.n_bytes, Ordering::Relaxed);
    }
}

impl Link {
    /// `seed` makes jitter and loss repeatable.
    pub fn new(seed: u64) -> Link {
        Link::with_room(seed, ROOM_BYTES)
    }

    /// A link on which no more than this may be on its way.
    pub fn with_room(seed: u64, room_bytes: usize) -> Link {
        Link {
            room: RwLock::new(Limit::of(room_bytes)),
            room_bytes,
            behaviour: Watched::default(),
            state: Mutex::new(State {
                random: seed | 1,
                last_arrival: None,
                free_at: None,
                connection: 0,
            }),
            under_way: Arc::default(),
        }
    }

    /// What is held in memory because it is on its way.
    pub fn bytes_under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    pub fn settings(&self) -> LinkSettings {
        self.behaviour.read().settings.clone()
    }

    pub fn set(&self, settings: LinkSettings) {
        if settings.cut {
            self.state().connection += 1;
        }
        self.limit_room(settings.queue_bytes.unwrap_or(self.room_bytes));
        self.behaviour.modify(|behaviour| {
            behaviour.gate.set_all(settings.paused);
            behaviour.settings = settings;
        });
    }

    fn limit_room(&self, n_bytes: usize) {
        let mut limit = self.room.write().unwrap_or_else(PoisonError::into_inner);
        if limit.n_bytes != n_bytes {
            *limit = Limit::of(n_bytes);
        }
    }

    /// Delays what one log sends, or no longer.
    pub fn pause_log(&self, log: LogId, paused: bool) {
        self.behaviour.modify(|behaviour| behaviour.gate.set_log(log, paused));
    }

    /// Lets transactions through although they are paused: the next of one log, or the next of any.
    pub fn step(&self, log: Option<LogId>, n_transactions: u64) {
        self.behaviour
            .modify(|behaviour| behaviour.gate.step(log, n_transactions));
    }

    /// What is held up on it, and what is let through all the same.
    pub fn gate(&self) -> Gate {
        self.behaviour.read().gate.clone()
    }

    /// Waits until the link is there.
    pub async fn ready(&self) {
        self.behaviour
            .wait_for(|behaviour| !behaviour.settings.cut && !behaviour.settings.paused)
            .await;
    }

    /// Waits until the link is there for a log.
    pub async fn ready_for(&self, log: LogId) {
        self.behaviour
            .wait_for(|behaviour| !behaviour.settings.cut && behaviour.gate.lets_pass(log))
            .await;
    }

    /// Waits until some of a log's transactions that have come may go on; answers how many of the first may.
    pub async fn pass(&self, log: LogId, n_waiting: usize) -> usize {
        loop {
            self.behaviour.wait_for(|behaviour| behaviour.gate.lets_pass(log)).await;
            if !self.is_held_up() {
                return n_waiting;
            }
            let n_passing = self.behaviour.change(|behaviour| behaviour.gate.pass(log, n_waiting));
            if n_passing > 0 {
                return n_passing;
            }
        }
    }

    fn is_held_up(&self) -> bool {
        !self.behaviour.read().gate.is_open()
    }

    /// Waits until so much more may be on its way. Whoever wants more than there is gets all of it.
    pub async fn reserve(&self, n_bytes: usize) -> Room {
        let limit = self.room.read().unwrap_or_else(PoisonError::into_inner).clone();
        let n_permits = n_bytes.min(limit.n_bytes);
        let permit = limit
            .room
            .acquire_many_owned(u32::try_from(n_permits).unwrap_or(u32::MAX));
        Room {
            permit: permit.await.expect("the room of a link is never closed"),
            is_all: n_permits == limit.n_bytes,
        }
    }

    /// Sends something off for which there is room.
    pub fn depart_in(&self, n_bytes: usize, room: Room) -> Parcel {
        let mut parcel = self.depart(n_bytes);
        parcel.room = Some(room);
        parcel
    }

    /// Sends something small off; wait for it with [`Link::arrival`].
    pub fn depart(&self, n_bytes: usize) -> Parcel {
        let settings = self.settings();
        let mut state = self.state();
        let now = Instant::now();
        let mut at = state.free_at.filter(|free| *free > now).unwrap_or(now);
        if let Some(rate) = settings.bytes_per_second {
            at += Duration::from_secs_f64(n_bytes as f64 / rate.max(1) as f64);
            state.free_at = Some(at);
        }
        at += settings
            .distribution
            .delay(settings.latency, settings.jitter, || state.draw());
        let arrives = state.last_arrival.map_or(at, |last| last.max(at));
        state.last_arrival = Some(arrives);
        self.under_way.fetch_add(n_bytes, Ordering::Relaxed);
        Parcel {
            arrives,
            connection: state.connection,
            // What is sent into a cut link is lost as well.
            is_lost: settings.cut || (settings.loss > 0.0 && state.draw() < settings.loss),
            n_bytes,
            under_way: Arc::clone(&self.under_way),
            room: None,
        }
    }

    /// Waits for a parcel; `false` when it never comes.
    pub async fn arrival(&self, parcel: &Parcel) -> bool {
        sleep_till(parcel.arrives).await;
        // Cut or not, but not paused.
        self.behaviour.wait_for(|behaviour| !behaviour.settings.paused).await;
        self.is_carried(parcel)
    }

    /// The same for a part of a log, of which something may pass although it is paused; how much, [`Link::pass`] tells.
    pub async fn arrival_of(&self, log: LogId, parcel: &Parcel) -> bool {
        sleep_till(parcel.arrives).await;
        self.behaviour.wait_for(|behaviour| behaviour.gate.lets_pass(log)).await;
        self.is_carried(parcel)
    }

    /// Whether a parcel that has come is still good: the link may have been cut while it was held up.
    pub fn is_carried(&self, parcel: &Parcel) -> bool {
        !parcel.is_lost && self.state().connection == parcel.connection
    }

    /// Whether a part of a log is there already, with nothing to hold it up.
    pub fn has_arrived(&self, parcel: &Parcel) -> bool {
        parcel.arrives <= Instant::now() && self.behaviour.read().gate.is_open() && self.is_carried(parcel)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub async fn sleep_till(at: Instant) {
    if at > Instant::now() {
        sleep_until(at).await;
    }
}

impl State {
    /// A number from 0 to 1.
    fn draw(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(latency_ms: u64, jitter_ms: u64) -> LinkSettings {
        LinkSettings {
            latency: Duration::from_millis(latency_ms),
            jitter: Duration::from_millis(jitter_ms),
            ..LinkSettings::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn parcels_arrive_in_order_after_the_latency() {
        let link = Link::new(7);
        link.set(slow(100, 50));
        let start = Instant::now();
        let parcels: Vec<Parcel> = (0..20).map(|_| link.depart(10)).collect();
        assert!(parcels.windows(2).all(|pair| pair[0].arrives <= pair[1].arrives));
        for parcel in &parcels {
            assert!(link.arrival(parcel).await);
        }
        let elapsed = start.elapsed();
        assert!(elapsed >= Duration::from_millis(100) && elapsed <= Duration::from_millis(151));
    }

    #[tokio::test(start_paused = true)]
    async fn a_narrow_link_takes_its_time() {
        let link = Link::new(7);
        link.set(LinkSettings {
            bytes_per_second: Some(1_000),
            ..LinkSettings::default()
        });
        let start = Instant::now();
        let (first, second) = (link.depart(500), link.depart(500));
        assert!(link.arrival(&first).await && link.arrival(&second).await);
        assert_eq!(start.elapsed().as_millis(), 1_000);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_under_way_when_a_link_is_cut_never_comes() {
        let link = Link::new(7);
        link.set(slow(100, 0));
        let mut parcel = link.depart(1);
        link.set(LinkSettings {
            cut: true,
            ..slow(100, 0)
        });
        assert!(!link.arrival(&parcel).await);
        parcel = link.depart(1);
        link.set(slow(100, 0));
        assert!(!link.arrival(&parcel).await, "nor what was sent into it");
        parcel = link.depart(1);
        assert!(link.arrival(&parcel).await);
        assert_eq!(link.bytes_under_way(), 1);
        drop(parcel);
        assert_eq!(link.bytes_under_way(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_on_its_way_than_there_is_room_for() {
        let link = Link::with_room(7, 100);
        let mut room = link.reserve(80).await;
        assert!(room.fits(60) && !room.fits(61), "what was spare is given back");
        let first = link.depart_in(60, room);
        let mut room = link.reserve(40).await;
        assert!(room.fits(40));
        let second = link.depart_in(40, room);
        let full = tokio::time::timeout(Duration::from_secs(1), link.reserve(1));
        assert!(full.await.is_err());
        drop(first);
        drop(link.reserve(60).await);
        drop(second);
        let mut room = link.reserve(1000).await;
        assert!(room.fits(1000), "one that is larger than all the room travels alone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_delays_and_loses_nothing() {
        let link = Arc::new(Link::new(7));
        let parcel = link.depart(1);
        link.set(LinkSettings {
            paused: true,
            ..LinkSettings::default()
        });
        let resumed = Arc::clone(&link);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            resumed.set(LinkSettings::default());
        });
        let start = Instant::now();
        assert!(link.arrival(&parcel).await);
        assert_eq!(start.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_link_lets_through_what_it_is_told_to() {
        let (link, log) = (Link::new(7), LogId(3));
        link.set(LinkSettings {
            paused: true,
            ..LinkSettings::default()
        });
        let parcel = link.depart(1);
        let held = tokio::time::timeout(Duration::from_secs(1), link.arrival_of(log, &parcel));
        assert!(held.await.is_err());
        link.step(None, 2);
        assert!(link.arrival_of(log, &parcel).await);
        assert_eq!(link.pass(log, 5).await, 2);
        let held = tokio::time::timeout(Duration::from_secs(1), link.pass(log, 3));
        assert!(held.await.is_err());
        link.set(LinkSettings::default());
        assert_eq!(link.pass(log, 3).await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_that_is_paused_holds_up_no_other() {
        let link = Link::new(7);
        link.pause_log(LogId(1), true);
        assert_eq!(link.pass(LogId(2), 3).await, 3);
        link.ready_for(LogId(2)).await;
        let held = tokio::time::timeout(Duration::from_secs(1), link.ready_for(LogId(1)));
        assert!(held.await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn another_limit_is_for_what_departs_from_then_on() {
        let link = Link::with_room(7, 100);
        let first = link.depart_in(100, link.reserve(100).await);
        link.set(LinkSettings {
            queue_bytes: Some(10),
            ..LinkSettings::default()
        });
        let mut room = link.reserve(50).await;
        assert!(room.fits(50), "what is larger than all the room travels alone");
        let full = tokio::time::timeout(Duration::from_secs(1), link.reserve(1));
        assert!(full.await.is_err());
        drop((first, room));
    }

    #[tokio::test(start_paused = true)]
    async fn a_parcel_that_is_lost_takes_no_other_along() {
        let link = Link::new(7);
        link.set(slow(100, 0));
        let before = link.depart(1);
        link.set(LinkSettings {
            loss: 1.0,
            ..slow(100, 0)
        });
        let lost = link.depart(1);
        link.set(slow(100, 0));
        let after = link.depart(1);
        assert!(link.arrival(&before).await);
        assert!(!link.has_arrived(&lost) && !link.arrival(&lost).await);
        assert!(link.arrival(&after).await);
    }

    #[test]
    fn a_link_that_always_loses_breaks_with_every_parcel() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let link = Link::new(7);
            link.set(LinkSettings {
                loss: 1.0,
                ..LinkSettings::default()
            });
            let parcel = link.depart(1);
            assert!(!link.arrival(&parcel).await);
        });
    }
}
