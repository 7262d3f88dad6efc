//! What a region owes the others before it acknowledges a write, and whether it may take writes at all.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use orrery_model::{Epoch, Error, LogId, Lsn, Result, Status};
use tokio::sync::Notify;
use tokio::time::Instant as Moment;

use super::bounds::Bounds;
use super::freshness::Freshness;
use super::progress::{LogProgress, Progress};
use crate::account::Account;
use crate::api::Consistency;
use crate::cluster::proofs::Proofs;
use crate::watched::Watched;

/// How long an acknowledgement waits for the other regions under strong consistency.
pub const EVERYWHERE_WAIT: Duration = Duration::from_secs(10);
/// How long a strong read waits for them.
const COMMITTED_WAIT: Duration = Duration::from_secs(5);

/// Shared by a node and all its writers.
#[derive(Debug)]
pub struct Duty {
    writes: AtomicBool,
    /// May this region be behind what was acknowledged as strong? Then it answers no strong read.
    left_out: AtomicBool,
    taking_over: AtomicBool,
    /// Counts how often this region began or ceased to write.
    term: Watched<Term>,
    pub promise: Promise,
    pub progress: Progress,
    /// While this region follows.
    pub freshness: Freshness,
    epochs: OnceLock<Arc<dyn Epochs>>,
    /// Do other nodes open the same store? Then it follows them by itself, and whoever owns a log must prove it.
    pub clustered: bool,
    /// Told when a log turned out to be another's.
    fenced: Notify,
    /// In a cluster: does another region take writes?
    follows: AtomicBool,
    /// In a cluster: until when this node may act as the one that writes the system log, whatever else it believes.
    until: RwLock<Option<Instant>>,
    /// In a cluster under strong consistency, while its region writes.
    reign: Watched<Reign>,
    /// The same for what this node does not write.
    pub proofs: Proofs,
}

/// Until when no other region can have taken over.
#[derive(Clone, Copy, Debug, Default)]
struct Reign {
    /// In which the region writes; zero while another one does.
    epoch: Epoch,
    until: Option<Moment>,
}

impl Reign {
    fn term(&self) -> Term {
        Term(u64::from(self.epoch.0))
    }

    fn left(&self) -> Option<Duration> {
        let left = self.until?.saturating_duration_since(Moment::now());
        (!left.is_zero()).then_some(left)
    }
}

/// Gives out numbers of epochs, durably and to all regions of an account together.
pub trait Epochs: fmt::Debug + Send + Sync {
    /// One that was never used, and that every later change of the write region goes beyond.
    fn next(&self) -> Result<Epoch>;
}

/// A time in which a region writes without a break. What was begun in one must not be confirmed in another: in between, another
/// region may have written and may lack it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Term(u64);

/// What an acknowledged write means across regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Durable here; the other regions follow.
    Local,
    /// Durable here, and no region that serves lacks more than this.
    Within(Bounds),
    /// Durable and visible in every region that serves.
    Everywhere,
}

impl Promise {
    /// What an account of several regions promises. A single one owes nobody anything, whatever it promises.
    pub fn of(account: &Account) -> Promise {
        match account.consistency {
            Consistency::Strong => Promise::Everywhere,
            Consistency::BoundedStaleness => Promise::Within(account.staleness.bounds()),
            _ => Promise::Local,
        }
    }
}

impl Duty {
    pub fn new(writes: bool, promise: Promise) -> Duty {
        Duty {
            writes: AtomicBool::new(writes),
            left_out: AtomicBool::new(false),
            taking_over: AtomicBool::new(false),
            term: Watched::default(),
            promise,
            progress: Progress::default(),
            freshness: Freshness::default(),
            epochs: OnceLock::new(),
            clustered: false,
            fenced: Notify::new(),
            follows: AtomicBool::new(false),
            until: RwLock::new(None),
            reign: Watched::default(),
            proofs: Proofs::default(),
        }
    }

    /// The duty of one node of a cluster.
    pub fn clustered(writes: bool, promise: Promise) -> Duty {
        Duty {
            clustered: true,
            ..Duty::new(writes, promise)
        }
    }

    /// Whether another region takes writes, so that this one may lack some.
    pub fn follows(&self) -> bool {
        match self.clustered {
            true => self.follows.load(Ordering::Acquire),
            false => !self.writes(),
        }
    }

    pub fn set_follows(&self, follows: bool) {
        self.follows.store(follows, Ordering::Release);
    }

    pub fn tell_fenced(&self) {
        self.fenced.notify_one();
    }

    /// Completes when a log turned out to be another's.
    pub async fn fenced(&self) {
        self.fenced.notified().await;
    }

    /// Says who gives out epochs. Only the first one counts.
    pub fn set_epochs(&self, epochs: Arc<dyn Epochs>) {
        let _ = self.epochs.set(epochs);
    }

    /// A new epoch for something that starts over, if the account has other regions to agree with.
    pub fn next_epoch(&self) -> Result<Option<Epoch>> {
        self.epochs.get().map(|epochs| epochs.next()).transpose()
    }

    pub fn writes(&self) -> bool {
        self.writes.load(Ordering::Acquire) && !(self.clustered && self.is_over())
    }

    /// A process that stood still finds its time over before it does anything.
    fn is_over(&self) -> bool {
        let until = *self.until.read().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() >= until)
    }

    pub fn set_until(&self, until: Option<Instant>) {
        *self.until.write().unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// The region writes in this epoch, zero when another one does, and cannot have been replaced before `until`.
    pub fn set_reign(&self, epoch: Epoch, until: Option<Moment>) {
        self.reign.set(Reign { epoch, until });
    }

    /// The epoch in which the region writes, and for how long it cannot be replaced.
    pub fn reign(&self) -> (Epoch, Option<Duration>) {
        let reign = self.reign.read();
        (reign.epoch, reign.left())
    }

    /// Completes when the region is sure that it has not been replaced: `true`; or when it writes in another epoch, or not at all.
    async fn reigns(&self, term: Term) -> bool {
        let mut reigns = false;
        let is_known = |reign: &Reign| {
            reigns = reign.term() == term && reign.left().is_some();
            reigns || reign.term() != term
        };
        self.reign.wait_for(is_known).await;
        reigns
    }

    /// In a cluster: waits until every region that counts has a log up to `lsn` and this one has not been replaced. `false` when
    /// it has.
    pub async fn commits(&self, log: LogId, lsn: Lsn) -> bool {
        let term = self.reign.read().term();
        self.progress.of(log).wait_committed(lsn).await;
        self.reigns(term).await
    }

    /// Whether there may be a log that is written here.
    pub fn may_write_some(&self) -> bool {
        self.clustered || self.writes()
    }

    pub fn set_writes(&self, writes: bool) {
        self.writes.store(writes, Ordering::Release);
        self.term.modify(|term| term.0 += 1);
    }

    /// Completes when this region begins or ceases to write.
    pub async fn role_changes(&self) {
        let now = *self.term.read();
        self.term.wait_for(|term| *term != now).await;
    }

    /// Waits until there may be a log that is written here.
    pub async fn begins_to_write(&self) {
        self.term.wait_for(|_| self.may_write_some()).await;
    }

    pub fn is_left_out(&self) -> bool {
        self.left_out.load(Ordering::Acquire)
    }

    pub fn set_left_out(&self, left_out: bool) {
        self.left_out.store(left_out, Ordering::Release);
    }

    /// Says whether this region is about to take writes. Clients must wait until that is decided: what they wrote before would be lost
    /// if it came to nothing.
    pub fn set_taking_over(&self, taking_over: bool) {
        self.taking_over.store(taking_over, Ordering::Release);
    }

    /// Refuses a client's write where another region takes them.
    pub fn check_client_writes(&self) -> Result<()> {
        match self.taking_over.load(Ordering::Acquire) {
            true => Err(write_forbidden()),
            false => self.check_writes(),
        }
    }

    /// Refuses a write where another region takes them.
    pub fn check_writes(&self) -> Result<()> {
        if self.writes() { Ok(()) } else { Err(write_forbidden()) }
    }

    pub fn of(self: &Arc<Duty>, log: LogId) -> LogDuty {
        LogDuty {
            progress: self.progress.of(log),
            duty: Arc::clone(self),
            owned: self.clustered.then(|| {
                Arc::new(Ownership {
                    is_owned: AtomicBool::new(true),
                    written: AtomicU64::new(0),
                })
            }),
        }
    }
}

/// The same for one log.
#[derive(Clone, Debug)]
pub struct LogDuty {
    duty: Arc<Duty>,
    pub progress: Arc<LogProgress>,
    /// In a cluster every log has an owner of its own.
    owned: Option<Arc<Ownership>>,
}

/// What a node of a cluster knows of a log that it has begun to own.
#[derive(Debug)]
struct Ownership {
    /// Is it this node's still?
    is_owned: AtomicBool,
    /// Up to where nobody else has added to the log since.
    written: AtomicU64,
}

impl LogDuty {
    /// How many transactions may be decided now; at least one.
    pub fn room(&self) -> Result<usize> {
        if !self.is_owned() {
            return Err(write_forbidden());
        }
        let Promise::Within(bounds) = self.duty.promise else {
            return Ok(usize::MAX);
        };
        match self.progress.room(bounds) {
            0 => Err(Error::new(
                Status::REPLICATION_QUEUE_FULL,
                "Another region lags behind by as much as the account's bounded staleness allows.",
            )
            .with_retry_after_ms(100)),
            room => Ok(usize::try_from(room).unwrap_or(usize::MAX)),
        }
    }

    /// Whether the log is this node's to write.
    pub fn is_owned(&self) -> bool {
        match &self.owned {
            Some(owned) => owned.is_owned.load(Ordering::Acquire),
            None => self.duty.writes(),
        }
    }

    /// In a cluster: nothing more is written here.
    pub fn cease(&self) {
        if let Some(owned) = &self.owned {
            owned.is_owned.store(false, Ordering::Release);
        }
    }

    /// This node began to own the log at `lsn`, or has added to it up to there and told its readers.
    pub fn wrote(&self, lsn: Lsn) {
        if let Some(owned) = &self.owned {
            owned.written.fetch_max(lsn.0, Ordering::AcqRel);
        }
    }

    /// Whether everything up to `lsn` that came since this node owns the log is its own. A node that has been replaced takes in what the
    /// next owner writes, and may not have heard of that owner.
    pub fn wrote_all(&self, lsn: Lsn) -> bool {
        match &self.owned {
            Some(owned) => lsn.0 <= owned.written.load(Ordering::Acquire),
            None => true,
        }
    }

    /// Do other nodes open the same store? Then whoever lost a log is told where it belongs.
    pub fn is_clustered(&self) -> bool {
        self.owned.is_some()
    }

    /// The term that runs now. In a cluster nothing that was appended is ever cut off, whoever owns the log by then, unless another
    /// region takes over.
    pub fn term(&self) -> Term {
        match self.owned {
            Some(_) => self.duty.reign.read().term(),
            None => *self.duty.term.read(),
        }
    }

    /// Waits until every region that counts has `lsn`, which was appended or read in `term`. `false` when the term ended
    /// first: whether the others have it is not known then, and may never be.
    pub async fn committed_in(&self, term: Term, lsn: Lsn) -> bool {
        if self.is_clustered() {
            self.progress.wait_committed(lsn).await;
            // Asked last: whoever takes over waits until this can have been answered by nobody.
            return self.duty.reigns(term).await;
        }
        let committed = tokio::select! {
            biased;
            // Both are safe to drop.
            () = self.duty.term.wait_for(|now| *now != term) => false,
            () = self.progress.wait_committed(lsn) => true,
        };
        committed && self.term() == term
    }

    /// The same for what was read just now.
    pub async fn committed_now(&self, lsn: Lsn) -> bool {
        let term = self.term();
        let writes = match self.is_clustered() {
            true => self.is_owned(),
            false => self.duty.writes(),
        };
        writes && self.committed_in(term, lsn).await
    }

    /// The log is another's.
    pub fn tell_fenced(&self) {
        self.duty.tell_fenced();
    }

    /// Must an acknowledgement wait for other regions?
    pub fn is_strong(&self) -> bool {
        self.duty.promise == Promise::Everywhere
    }
}

/// Waits, for as long as a strong read may, until every region is known to have something.
pub async fn confirmed(everywhere: impl Future<Output = bool>) -> Result<()> {
    match tokio::time::timeout(COMMITTED_WAIT, everywhere).await {
        Ok(true) => Ok(()),
        _ => Err(cannot_tell()),
    }
}

/// Of a strong read that this region can neither answer nor refuse for good.
pub fn cannot_tell() -> Error {
    Error::new(
        Status::UNAVAILABLE,
        "This region cannot tell now whether it is up to date with the others.",
    )
}

/// Of what is durable here and may never be anywhere else.
pub fn unconfirmed() -> Error {
    Error::new(
        Status::REQUEST_TIMEOUT,
        "Not every region has confirmed the write in time.",
    )
}

/// What a client is told of its change under strong consistency when the regions have not confirmed it. A refusal that tells what
/// there is counts no more than a read would: it may be because of what nobody else will ever have, or another region may have changed
/// that since. Nothing was done then.
pub fn unvouched<T>(decided: Result<T>) -> Error {
    match decided {
        Ok(_) => unconfirmed(),
        Err(error) if matches!(error.status().code, 404 | 409 | 412) => cannot_tell(),
        Err(error) => error,
    }
}

pub fn write_forbidden() -> Error {
    Error::new(
        Status::WRITE_FORBIDDEN,
        "The requested operation cannot be performed at this region: another region of the account takes writes.",
    )
}
