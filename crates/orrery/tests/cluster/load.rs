//! Writers that keep a ledger of what they were told, while something happens to the cluster.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::ledger::Ledger;

/// Few, or many in a soak.
pub fn rounds(short: usize, long: usize) -> usize {
    match std::env::var_os("ORRERY_SOAK") {
        Some(_) => long,
        None => short,
    }
}

/// Longest time anything here may take: a node may stand still for a minute.
const PATIENCE: Duration = Duration::from_secs(150);
const PAUSE: Duration = Duration::from_millis(5);

/// What a disturbance looked like to the writers.
#[derive(Debug)]
pub struct Effect {
    /// Requests that were acknowledged.
    pub n_done: usize,
    /// How long the slowest request of each writer took, counted from the disturbance.
    pub waits: Vec<Duration>,
    /// Writers that were told that an outcome is not known, or lost their connection.
    pub n_unsure: usize,
}

impl Effect {
    /// How long the slowest request took.
    pub fn pause(&self) -> Duration {
        self.waits.iter().copied().max().unwrap_or_default()
    }

    /// Writers that waited no longer than this.
    pub fn n_within(&self, limit: Duration) -> usize {
        self.waits.iter().filter(|wait| **wait <= limit).count()
    }
}

/// What writers and whoever disturbs them tell each other.
#[derive(Default)]
struct Signals {
    stop: AtomicBool,
    disturbed: Mutex<Option<Instant>>,
    n_begun: AtomicUsize,
    n_after: AtomicUsize,
    n_unsure: AtomicUsize,
}

/// Writes through these ports, each ledger through one; disturbs when all have begun; stops when all have gone on after it, or
/// have lost track of a write.
pub fn write_through(ports: &[u16], ledgers: &mut [Ledger], disturb: impl FnOnce()) -> Effect {
    let signals = Signals::default();
    let n_writers = ledgers.len();
    std::thread::scope(|scope| {
        let writers: Vec<_> = ledgers
            .iter_mut()
            .zip(ports.iter().cycle())
            .map(|(ledger, port)| {
                let signals = &signals;
                scope.spawn(move || write(*port, ledger, signals))
            })
            .collect();
        let n_lost = || signals.n_unsure.load(Ordering::Acquire);
        if !eventually(|| signals.n_begun.load(Ordering::Acquire) + n_lost() >= n_writers) {
            signals.stop.store(true, Ordering::Release);
            panic!("the writers cannot begin");
        }
        *signals.disturbed.lock().unwrap() = Some(Instant::now());
        disturb();
        let settled = eventually(|| signals.n_after.load(Ordering::Acquire) + n_lost() >= n_writers);
        // Before anything fails: the writers must end.
        signals.stop.store(true, Ordering::Release);
        let ended: Vec<(usize, Duration)> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        assert!(settled, "every writer goes on or has lost track");
        Effect {
            n_done: ended.iter().map(|(n_done, _)| n_done).sum(),
            waits: ended.iter().map(|(_, wait)| *wait).collect(),
            n_unsure: n_lost(),
        }
    })
}

/// One writer; answers how much it wrote and how long it had to wait once disturbed.
fn write(port: u16, ledger: &mut Ledger, signals: &Signals) -> (usize, Duration) {
    let mut client = Client::connect(port);
    let (mut n_done, mut went_on, mut longest) = (0, false, Duration::ZERO);
    while !signals.stop.load(Ordering::Acquire) {
        let begun = Instant::now();
        let is_known = ledger.write_once(&mut client);
        let disturbed = *signals.disturbed.lock().unwrap();
        if let Some(disturbed) = disturbed {
            longest = longest.max(begun.max(disturbed).elapsed());
        }
        if !is_known {
            signals.n_unsure.fetch_add(1, Ordering::AcqRel);
            break;
        }
        n_done += 1;
        if n_done == 1 {
            signals.n_begun.fetch_add(1, Ordering::AcqRel);
        }
        if disturbed.is_some_and(|disturbed| begun > disturbed) && !went_on {
            went_on = true;
            signals.n_after.fetch_add(1, Ordering::AcqRel);
        }
    }
    (n_done, longest)
}

/// Waits for a condition; did it come true?
pub fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !condition() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}
