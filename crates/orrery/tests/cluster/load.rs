//! Writers that keep a ledger of what they were told, while something happens to the cluster.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::ledger::Ledger;

/// Longest time anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// What a disturbance looked like to the writers.
#[derive(Debug)]
pub struct Effect {
    /// Requests that were acknowledged.
    pub n_done: usize,
    /// How long a read of the owner took that was begun right after the disturbance.
    pub pause: Duration,
    /// Writers that were told that an outcome is not known, or lost their connection.
    pub n_unsure: usize,
}

/// Writes through these ports, each ledger through one; disturbs when all have begun; stops when all have gone on after it, or
/// have lost track of a write.
pub fn write_through(ports: &[u16], ledgers: &mut [Ledger], disturb: impl FnOnce()) -> Effect {
    let (stop, disturbed) = (AtomicBool::new(false), AtomicBool::new(false));
    let (n_begun, n_after, n_unsure) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let n_writers = ledgers.len();
    std::thread::scope(|scope| {
        let writers: Vec<_> = ledgers
            .iter_mut()
            .zip(ports.iter().cycle())
            .map(|(ledger, port)| {
                let (stop, disturbed, n_begun, n_after, n_unsure) = (&stop, &disturbed, &n_begun, &n_after, &n_unsure);
                scope.spawn(move || {
                    let mut client = Client::connect(*port);
                    let (mut n_done, mut went_on) = (0, false);
                    while !stop.load(Ordering::Acquire) {
                        let was_disturbed = disturbed.load(Ordering::Acquire);
                        if !ledger.write_once(&mut client) {
                            n_unsure.fetch_add(1, Ordering::AcqRel);
                            break;
                        }
                        n_done += 1;
                        if n_done == 1 {
                            n_begun.fetch_add(1, Ordering::AcqRel);
                        }
                        if was_disturbed && !went_on {
                            went_on = true;
                            n_after.fetch_add(1, Ordering::AcqRel);
                        }
                    }
                    n_done
                })
            })
            .collect();
        let n_lost = || n_unsure.load(Ordering::Acquire);
        if !eventually(|| n_begun.load(Ordering::Acquire) + n_lost() >= n_writers) {
            stop.store(true, Ordering::Release);
            panic!("the writers cannot begin");
        }
        let mut client = Client::connect(ports[0]);
        disturb();
        disturbed.store(true, Ordering::Release);
        let begun = Instant::now();
        // Without a session token only the owner answers it, and it is asked again until one does.
        let answered = client.read("nobody", "nothing");
        let pause = begun.elapsed();
        let settled = eventually(|| n_after.load(Ordering::Acquire) + n_lost() >= n_writers);
        // Before anything fails: the writers must end.
        stop.store(true, Ordering::Release);
        assert_eq!(answered.map(|answer| answer.status).ok(), Some(404));
        assert!(settled, "every writer goes on or has lost track");
        Effect {
            n_done: writers.into_iter().map(|writer| writer.join().unwrap()).sum(),
            pause,
            n_unsure: n_unsure.load(Ordering::Acquire),
        }
    })
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
