//! Two threads that keep the view store in shape: one flushes what was sealed, one merges tables.
//!
//! A failed flush loses nothing, because what it held is still in memory and in the log: it is kept as a failure until a
//! later attempt succeeds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use orrery_partition::storage::{Result, StorageError};
use tokio::sync::watch;

use super::record::ViewId;
use super::view::ViewStore;
use crate::frame::Sequence;

/// Sealed parts waiting to be flushed before the writer has to wait.
const SEALED_MAX: usize = 3;
/// Unmerged tables before the writer is slowed down, a little more with each, so that it need not stop later.
const RUNS_SLOW: usize = 10;
/// Unmerged tables before the writer has to wait.
const RUNS_MAX: usize = 32;
/// Delay per group and unmerged table above [`RUNS_SLOW`].
const DELAY: Duration = Duration::from_micros(500);

/// A promise of a flush, kept when [`Flushed::ticket`] has reached it.
pub(super) type Ticket = u64;

/// What is durable in the view store.
#[derive(Clone, Debug, Default)]
pub(super) struct Flushed {
    pub(super) ticket: Ticket,
    /// The last group the flushed tables hold.
    pub(super) sequence: Sequence,
    /// Why the last attempt failed.
    pub(super) failure: Option<StorageError>,
}

/// Called after every successful flush.
pub(super) type OnFlushed = Box<dyn Fn() + Send>;
/// Called when the tables of a dropped view are gone and the rest of it can be swept.
pub(super) type OnTablesDropped = Box<dyn Fn(ViewId) + Send>;

#[derive(Debug)]
pub(super) struct Keeper {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    view: Arc<ViewStore>,
    work: Mutex<Work>,
    changed: Condvar,
    flushed: watch::Sender<Flushed>,
    n_flushes: AtomicU64,
    n_merges: AtomicU64,
}

#[derive(Debug, Default)]
struct Work {
    /// The latest promise given, and the last group applied when it was.
    wanted: (Ticket, Sequence),
    /// Try a failed flush again.
    retry: bool,
    compact: bool,
    /// Tables are being merged, or will be at once: it makes sense to wait for that.
    is_merging: bool,
    dropped: Vec<ViewId>,
    stop: bool,
    /// A thread has panicked; waiting for it would never end.
    is_broken: bool,
}

impl Keeper {
    /// Starts the threads for a view whose tables hold everything up to `flushed`.
    pub(super) fn start(
        view: Arc<ViewStore>,
        flushed: Sequence,
        on_flushed: OnFlushed,
        on_tables_dropped: OnTablesDropped,
    ) -> Result<Keeper> {
        let shared = Arc::new(Shared {
            view,
            work: Mutex::new(Work {
                wanted: (0, flushed),
                compact: true,
                ..Work::default()
            }),
            changed: Condvar::new(),
            flushed: watch::Sender::new(Flushed {
                sequence: flushed,
                ..Flushed::default()
            }),
            n_flushes: AtomicU64::new(0),
            n_merges: AtomicU64::new(0),
        });
        let threads = [
            spawn("orrery-flush", &shared, move |shared| {
                shared.flush_until_stopped(&on_flushed)
            })?,
            spawn("orrery-merge", &shared, move |shared| {
                shared.merge_until_stopped(&on_tables_dropped)
            })?,
        ];
        Ok(Keeper {
            shared,
            threads: Mutex::new(threads.into()),
        })
    }

    /// Seals what the view holds, which is everything up to `applied`, and promises to flush it. Only the thread that
    /// writes the view may call this.
    pub(super) fn seal(&self, applied: Sequence) -> Ticket {
        self.shared.view.seal();
        let mut work = self.shared.lock();
        work.wanted = (work.wanted.0 + 1, applied);
        let ticket = work.wanted.0;
        self.try_again(work);
        ticket
    }

    /// Tries a failed flush again.
    pub(super) fn retry(&self) {
        self.try_again(self.shared.lock());
    }

    pub(super) fn drop_tables(&self, view: ViewId) {
        self.shared.lock().dropped.push(view);
        self.shared.changed.notify_all();
    }

    pub(super) fn flushed(&self) -> Flushed {
        self.shared.flushed.borrow().clone()
    }

    pub(super) fn n_flushes(&self) -> u64 {
        self.shared.n_flushes.load(Ordering::Relaxed)
    }

    pub(super) fn n_merges(&self) -> u64 {
        self.shared.n_merges.load(Ordering::Relaxed)
    }

    /// Changes of what is flushed, to wait for a ticket.
    pub(super) fn watch(&self) -> watch::Receiver<Flushed> {
        self.shared.flushed.subscribe()
    }

    /// Waits until the view can take more. Fails when flushing does, and has it tried again.
    pub(super) fn wait_for_room(&self) -> Result<()> {
        let mut work = self.shared.lock();
        while self.is_behind(&work) && !work.stop {
            work.check()?;
            if let Some(failure) = self.flushed().failure {
                self.try_again(work);
                return Err(failure);
            }
            work = self.shared.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
        self.slow_down(work);
        Ok(())
    }

    fn slow_down(&self, work: MutexGuard<'_, Work>) {
        let excess = self.shared.view.run_count().saturating_sub(RUNS_SLOW);
        if excess > 0 && work.is_waiting_worthwhile() {
            drop(self.shared.changed.wait_timeout(work, DELAY * excess as u32));
        }
    }

    /// Waits until a promise is kept or broken.
    pub(super) fn wait_for(&self, ticket: Ticket) -> Result<()> {
        let mut work = self.shared.lock();
        loop {
            work.check()?;
            let flushed = self.flushed();
            match flushed.failure {
                _ if flushed.ticket >= ticket => return Ok(()),
                Some(failure) => return Err(failure),
                None => work = self.shared.changed.wait(work).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Ends both threads; a flush under way is finished, a merge is not.
    pub(super) fn stop(&self) {
        self.shared.view.interrupt_merging();
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the view store panicked");
            }
        }
    }

    fn is_behind(&self, work: &Work) -> bool {
        self.shared.view.sealed_count() >= SEALED_MAX
            || (self.shared.view.run_count() >= RUNS_MAX && work.is_waiting_worthwhile())
    }

    fn try_again(&self, mut work: MutexGuard<'_, Work>) {
        work.retry = true;
        self.shared.flushed.send_modify(|flushed| flushed.failure = None);
        self.shared.changed.notify_all();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts a thread that says so when it panics.
fn spawn(name: &str, shared: &Arc<Shared>, work: impl FnOnce(&Shared) + Send + 'static) -> Result<JoinHandle<()>> {
    let guard = Guard(shared.clone());
    let builder = std::thread::Builder::new().name(name.into());
    let thread = builder.spawn(move || work(&guard.0));
    thread.map_err(|error| StorageError::Unavailable(format!("cannot start a thread: {error}")))
}

struct Guard(Arc<Shared>);

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().is_broken = true;
            self.0.changed.notify_all();
        }
    }
}

impl Work {
    /// Are tables being merged, or about to be?
    fn is_waiting_worthwhile(&self) -> bool {
        self.is_merging || self.compact
    }

    fn check(&self) -> Result<()> {
        if self.is_broken {
            return Err(StorageError::Unavailable(
                "a thread of the view store has panicked".into(),
            ));
        }
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `pick` finds something to do, or `None` when the keeper stops.
    fn next<T>(&self, mut pick: impl FnMut(&mut Work) -> Option<T>) -> Option<T> {
        let mut work = self.lock();
        loop {
            if work.stop {
                return None;
            }
            if let Some(found) = pick(&mut work) {
                return Some(found);
            }
            work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn flush_until_stopped(&self, on_flushed: &OnFlushed) {
        while let Some((ticket, sequence)) = self.next(|work| {
            let is_due = work.wanted.0 > self.flushed.borrow().ticket && std::mem::take(&mut work.retry);
            is_due.then_some(work.wanted)
        }) {
            match self.view.flush() {
                Ok(()) => {
                    self.flushed.send_replace(Flushed {
                        ticket,
                        sequence,
                        failure: None,
                    });
                    self.n_flushes.fetch_add(1, Ordering::Relaxed);
                    self.lock().compact = true;
                    on_flushed();
                }
                Err(error) => {
                    tracing::error!(%error, "cannot flush the view");
                    self.flushed
                        .send_modify(|flushed| flushed.failure = Some(flush_failure(&error)));
                }
            }
            // The lock makes sure that nobody checks just before and waits just after.
            drop(self.lock());
            self.changed.notify_all();
        }
    }

    fn merge_until_stopped(&self, on_tables_dropped: &OnTablesDropped) {
        while let Some((dropped, compact)) = self.next(|work| {
            let found = (work.dropped.pop(), std::mem::take(&mut work.compact));
            work.is_merging = found.1;
            (found.0.is_some() || found.1).then_some(found)
        }) {
            if let Some(view) = dropped {
                if let Err(error) = self.view.drop_tables(view) {
                    tracing::warn!(%error, "cannot delete the tables of a dropped log");
                }
                on_tables_dropped(view);
            }
            if compact {
                match self.view.merge() {
                    Ok(more) => {
                        self.n_merges.fetch_add(u64::from(more), Ordering::Relaxed);
                        self.lock().compact |= more;
                    }
                    Err(error) => tracing::warn!(%error, "cannot merge tables"),
                }
            }
            self.changed.notify_all();
        }
    }
}

fn flush_failure(error: &lsm_tree::Error) -> StorageError {
    match error {
        lsm_tree::Error::Io(error) if error.kind() == std::io::ErrorKind::StorageFull => StorageError::Full,
        error => StorageError::Unavailable(format!("cannot flush the view: {error}")),
    }
}
