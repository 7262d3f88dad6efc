//! The simulated way from one region to another: how long things take on it, how much it carries, and whether it is there.
//!
//! Replication and progress reports travel by links and by nothing else. What leaves while a link is up arrives in order,
//! or, when the link is cut or loses it, not at all; then everything after it is lost as well, as on a broken connection,
//! and the receiver begins again from what it has. Pausing a link delays what is under way and loses nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// How a link behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSettings {
    pub latency: Duration,
    /// At most this much more, evenly spread. Order is kept all the same.
    pub jitter: Duration,
    /// `None`: as much as there is.
    pub bytes_per_second: Option<u64>,
    /// Share of parcels that break the connection, from 0 to 1.
    pub loss: f64,
    pub cut: bool,
    pub paused: bool,
}

impl Default for LinkSettings {
    fn default() -> LinkSettings {
        LinkSettings {
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            bytes_per_second: None,
            loss: 0.0,
            cut: false,
            paused: false,
        }
    }
}

/// One direction between two regions.
#[derive(Debug)]
pub struct Link {
    settings: watch::Sender<LinkSettings>,
    state: Mutex<State>,
    under_way: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct State {
    random: u64,
    /// When the last parcel arrives: later ones do not overtake it.
    last_arrival: Option<Instant>,
    /// When the line is free again.
    free_at: Option<Instant>,
    /// Rises whenever the connection breaks.
    connection: u64,
}

/// Something on its way. Counts as under way until it is dropped.
#[derive(Debug)]
pub struct Parcel {
    arrives: Instant,
    connection: u64,
    n_bytes: usize,
    under_way: Arc<AtomicUsize>,
}

impl Drop for Parcel {
    fn drop(&mut self) {
        self.under_way.fetch_sub(self.n_bytes, Ordering::Relaxed);
    }
}

impl Link {
    /// `seed` makes jitter and loss repeatable.
    pub fn new(seed: u64) -> Link {
        Link {
            settings: watch::Sender::new(LinkSettings::default()),
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
        self.settings.borrow().clone()
    }

    pub fn set(&self, settings: LinkSettings) {
        if settings.cut {
            self.state().connection += 1;
        }
        self.settings.send_replace(settings);
    }

    /// Waits until the link is there.
    pub async fn ready(&self) {
        let mut settings = self.settings.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = settings.wait_for(|settings| !settings.cut && !settings.paused).await;
    }

    /// Sends something off; wait for it with [`Link::arrival`].
    pub fn depart(&self, n_bytes: usize) -> Parcel {
        let settings = self.settings();
        let mut state = self.state();
        let now = Instant::now();
        let mut at = state.free_at.filter(|free| *free > now).unwrap_or(now);
        if let Some(rate) = settings.bytes_per_second {
            at += Duration::from_secs_f64(n_bytes as f64 / rate.max(1) as f64);
            state.free_at = Some(at);
        }
        at += settings.latency + settings.jitter.mul_f64(state.draw());
        let arrives = state.last_arrival.map_or(at, |last| last.max(at));
        state.last_arrival = Some(arrives);
        self.under_way.fetch_add(n_bytes, Ordering::Relaxed);
        let parcel = Parcel {
            arrives,
            connection: state.connection,
            n_bytes,
            under_way: Arc::clone(&self.under_way),
        };
        // What is sent into a cut link is lost as well.
        if settings.cut || (settings.loss > 0.0 && state.draw() < settings.loss) {
            state.connection += 1;
        }
        parcel
    }

    /// Waits for a parcel; `false` when it never comes.
    pub async fn arrival(&self, parcel: &Parcel) -> bool {
        if parcel.arrives > Instant::now() {
            sleep_until(parcel.arrives).await;
        }
        let mut settings = self.settings.subscribe();
        // Cut or not, but not paused. The sender lives in `self`.
        let _ = settings.wait_for(|settings| !settings.paused).await;
        self.state().connection == parcel.connection
    }

    /// Whether a parcel is there already.
    pub fn has_arrived(&self, parcel: &Parcel) -> bool {
        parcel.arrives <= Instant::now()
            && !self.settings.borrow().paused
            && self.state().connection == parcel.connection
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
