//! One physical partition as requests see it: reads from snapshots, writes through its single writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use orrery_model::session::SessionProgress;
use orrery_model::{ContainerDefinition, Epk, Error, Lsn, PartitionId, Result, SessionToken, Status, Timestamp};
use orrery_partition::command::{Command, StepResult};
use orrery_partition::decide::unreadable;
use orrery_partition::keys::{self, EpkForm};
use orrery_partition::state::PartitionState;
use orrery_partition::storage::{Log, Snapshot};
use orrery_partition::stored::StoredItem;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::api::PartitionFacts;
use crate::cache::CacheKey;
use crate::caches::Caches;
use crate::geo::duty::{LogDuty, confirmed, write_forbidden};
use crate::hot_snapshot::HotSnapshot;
use crate::recent::ChangeId;
use crate::throttle::Throttle;
use crate::watched::Watched;

/// How long a read waits for the partition to reach the client's session token.
const SESSION_WAIT: Duration = Duration::from_millis(500);
/// An LSN that no log reaches.
const NEVER: u64 = u64::MAX;

/// The partition's front.
#[derive(Debug)]
pub struct Partition {
    pub id: PartitionId,
    pub log: Arc<dyn Log>,
    pub throttle: Throttle,
    session_version: AtomicU64,
    /// The epoch whose version that is.
    version_epoch: AtomicU32,
    inbox: mpsc::Sender<Job>,
    cache: Arc<Caches>,
    ended: CancellationToken,
    /// Ends a partition without a writer when nobody holds it any more.
    _ends_with_holders: Option<DropGuard>,
    commitment: Commitment,
    /// When it was opened in the role it has.
    since: Timestamp,
    /// Whether the log grows by itself, because another node of the cluster writes it.
    moves_by_itself: bool,
    /// Where such a log stood when it was last found to serve.
    served_at: AtomicU64,
    /// Up to where clients of this node have been told of such a log by its owner.
    told: AtomicU64,
}

/// How this region knows what every region has.
#[derive(Debug)]
pub enum Commitment {
    /// It writes, and counts what the others report.
    Counted(LogDuty),
    /// It follows, and is told.
    Learned(Arc<Watched<Lsn>>),
}

/// A message to the writer.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all jobs are commands")]
pub enum Job {
    Command {
        command: Command,
        reply: oneshot::Sender<Result<Answer>>,
    },
    /// The writer stops taking commands from its inbox until the [`Held`] is dropped.
    Hold { reply: oneshot::Sender<Held> },
}

/// What a command did.
#[derive(Debug)]
pub struct Answer {
    pub results: Vec<StepResult>,
    /// LSN of its transaction, or where the partition stood when it changed nothing.
    pub lsn: Lsn,
    /// Of a sweep: there may be more.
    pub more: bool,
}

/// A partition whose writer waits for whoever holds this, and for nobody else.
#[derive(Debug)]
pub struct Held {
    commands: mpsc::Sender<(Command, oneshot::Sender<Result<Answer>>)>,
}

impl Held {
    pub fn new(commands: mpsc::Sender<(Command, oneshot::Sender<Result<Answer>>)>) -> Held {
        Held { commands }
    }

    pub async fn command(&self, command: Command) -> Result<Answer> {
        let (reply, answer) = oneshot::channel();
        self.commands.send((command, reply)).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())?
    }
}

impl Partition {
    #[expect(
        clippy::too_many_arguments,
        reason = "two call sites; a struct would only name its fields again"
    )]
    pub fn new(
        id: PartitionId,
        log: Arc<dyn Log>,
        inbox: mpsc::Sender<Job>,
        cache: Arc<Caches>,
        throttle: Throttle,
        ended: CancellationToken,
        commitment: Commitment,
        since: Timestamp,
    ) -> Result<Partition> {
        let partition = Partition {
            id,
            log,
            throttle,
            session_version: AtomicU64::new(0),
            version_epoch: AtomicU32::new(0),
            inbox,
            cache,
            ended,
            _ends_with_holders: None,
            commitment,
            since,
            moves_by_itself: false,
            served_at: AtomicU64::new(NEVER),
            told: AtomicU64::new(0),
        };
        partition.refresh_session_version()?;
        Ok(partition)
    }

    /// The same for a partition that another region writes: no writer of its own tells when it has ended.
    pub fn without_writer(self) -> Partition {
        Partition {
            _ends_with_holders: Some(self.ended.clone().drop_guard()),
            ..self
        }
    }

    /// The same for a log that another node of the cluster writes: what is added to it nobody tells this one.
    pub fn moved_by_others(self) -> Partition {
        Partition {
            moves_by_itself: true,
            ..self
        }
    }

    /// Whether the partition is open and has not been split or merged away. What session tokens say may have changed with an entry
    /// that came by itself, so that is looked at as well, once for every position of the log.
    pub fn serves(&self) -> bool {
        if self.served_at.load(Ordering::Acquire) == self.log.head().lsn.0 {
            return true;
        }
        let Ok(snapshot) = self.snapshot() else {
            return false;
        };
        let state = PartitionState::load(&*snapshot).ok().flatten();
        let Some(state) = state.filter(|state| state.children.is_empty()) else {
            return false;
        };
        self.session_version.fetch_max(state.session_version, Ordering::AcqRel);
        self.served_at.store(snapshot.position().lsn.0, Ordering::Release);
        true
    }

    /// A client of this node has been told by the owner what this partition held at `lsn`.
    pub fn learn_told(&self, lsn: Lsn) {
        self.told.fetch_max(lsn.0, Ordering::AcqRel);
    }

    /// Whether this node's copy has everything that its clients have been told by the owner.
    pub fn has_what_was_told(&self) -> bool {
        self.log.head().lsn.0 >= self.told.load(Ordering::Acquire)
    }

    /// Reads the version of session tokens from the view: a new epoch may have been applied.
    pub fn refresh_session_version(&self) -> Result<()> {
        let snapshot = self.snapshot()?;
        let state = PartitionState::load(&*snapshot).map_err(unreadable)?;
        let version = state.map_or(0, |state| state.session_version);
        self.session_version.store(version, Ordering::Release);
        self.version_epoch.store(snapshot.position().epoch.0, Ordering::Release);
        Ok(())
    }

    /// This region has been told that every region has everything up to `lsn`.
    pub fn learn_committed(&self, lsn: Lsn) {
        if let Commitment::Learned(known) = &self.commitment {
            known.modify(|known| *known = (*known).max(lsn));
        }
    }

    /// Up to where every region that serves has the partition. `None` while nobody has told.
    fn committed(&self) -> Option<Lsn> {
        match &self.commitment {
            Commitment::Counted(duty) => Some(duty.progress.everywhere()),
            Commitment::Learned(known) => Some(*known.read()).filter(|known| *known > Lsn::ZERO),
        }
    }

    /// Completes when every region that serves has everything up to `lsn`. Holds nothing of the partition.
    pub fn everywhere_reaches(&self, lsn: Lsn) -> impl Future<Output = ()> + Send + 'static + use<> {
        let known = match &self.commitment {
            Commitment::Counted(duty) => Err(Arc::clone(&duty.progress)),
            Commitment::Learned(known) => Ok(Arc::clone(known)),
        };
        async move {
            match known {
                Err(progress) => progress.everywhere_reaches(lsn).await,
                // Of a partition that is gone nobody tells any more; that is waited for beside this.
                Ok(known) => known.wait_for(|known| *known >= lsn).await,
            }
        }
    }

    /// Waits until every region that serves has everything up to `lsn`, as a strong read must before it answers.
    pub async fn wait_committed(&self, lsn: Lsn) -> Result<()> {
        confirmed(async {
            match &self.commitment {
                Commitment::Counted(duty) => duty.committed_now(lsn).await,
                Commitment::Learned(known) => {
                    known.wait_for(|known| *known >= lsn).await;
                    true
                }
            }
        })
        .await
    }

    /// Whether this region is told what every region has, because another one counts it.
    pub fn is_told(&self) -> bool {
        matches!(self.commitment, Commitment::Learned(_))
    }

    /// Sends a command to the writer and waits for its answer. Going away early does not undo it.
    pub async fn command(&self, command: Command) -> Result<Answer> {
        self.submit(command).await?.await
    }

    /// Puts a command into the writer's inbox; the answer comes through the inner future. Commands of one sender are decided
    /// in the order they were put in.
    pub async fn submit(&self, command: Command) -> Result<impl Future<Output = Result<Answer>> + use<>> {
        let (reply, answer) = oneshot::channel();
        let sent = self.inbox.send(Job::Command { command, reply }).await;
        sent.map_err(|_| self.without_taker())?;
        Ok(async move { answer.await.map_err(|_| stopping())? })
    }

    /// Why nobody takes a command.
    fn without_taker(&self) -> Error {
        match &self.commitment {
            Commitment::Learned(_) => write_forbidden(),
            Commitment::Counted(_) => stopping(),
        }
    }

    /// Whether this node may write the partition's log.
    pub fn is_owned(&self) -> bool {
        matches!(&self.commitment, Commitment::Counted(duty) if duty.is_owned())
    }

    /// Whether it was opened to be written here, and is so no more.
    pub fn has_ceased(&self) -> bool {
        matches!(&self.commitment, Commitment::Counted(duty) if duty.is_clustered() && !duty.is_owned())
    }

    /// In a cluster: nothing more is written here. What is under way may still be.
    pub fn cease(&self) {
        if let Commitment::Counted(duty) = &self.commitment {
            duty.cease();
        }
    }

    /// Stops the writer until the answer is dropped.
    pub async fn hold(&self) -> Result<Held> {
        let (reply, held) = oneshot::channel();
        self.inbox.send(Job::Hold { reply }).await.map_err(|_| stopping())?;
        held.await.map_err(|_| stopping())
    }

    /// Completes when the writer has ended, which it does once nobody holds this partition any more; without a writer, then.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.ended.clone().cancelled_owned()
    }

    pub fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        self.log.snapshot().map_err(unreadable)
    }

    /// A snapshot that has hot items at hand, for whoever looks for items by their numbers.
    pub fn hot_snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let snapshot = self.snapshot()?;
        // Asked after it was taken: up to there, then, changes were announced.
        let is_announced = self.unannounced().is_none();
        let hot = HotSnapshot::new(snapshot, Arc::clone(&self.cache), self.log.id(), is_announced);
        Ok(Arc::new(hot))
    }

    /// Where the log stands, if the cache may not have been told of every change up to there. Asked before the cache is.
    fn unannounced(&self) -> Option<Lsn> {
        match &self.commitment {
            Commitment::Counted(duty) if duty.is_clustered() => {
                let lsn = self.log.head().lsn;
                (!duty.wrote_all(lsn)).then_some(lsn)
            }
            Commitment::Counted(_) => None,
            Commitment::Learned(_) => self.moves_by_itself.then(|| self.log.head().lsn),
        }
    }

    /// The current version of an item, expired or not.
    pub fn find(&self, definition: &ContainerDefinition, epk: &Epk, id: &str) -> Result<Option<Arc<StoredItem>>> {
        let key = CacheKey::Id {
            log: self.log.id(),
            epk: epk.as_bytes(),
            id,
        };
        let hot = match self.unannounced() {
            None => self.cache.items.get(key),
            Some(lsn) => self.cache.items.get_at(key, lsn),
        };
        if let Some(item) = hot {
            return Ok(Some(item));
        }
        let form = EpkForm::of(definition.partition_key());
        let snapshot = self.snapshot()?;
        let number = snapshot.get(&keys::id(form, epk, id)).map_err(unreadable)?;
        let Some(number) = number
            .and_then(|bytes| bytes.as_ref().try_into().ok())
            .map(u64::from_be_bytes)
        else {
            return Ok(None);
        };
        let Some(bytes) = snapshot.get(&keys::item(form, epk, number)).map_err(unreadable)? else {
            return Ok(None);
        };
        // A copy: what the view gives may be a part of a block four times its size, which the cache would keep alive.
        let bytes = Bytes::copy_from_slice(&bytes);
        let item = Arc::new(StoredItem::decode(&bytes).map_err(unreadable)?);
        self.cache.items.fill(key, Arc::clone(&item), snapshot.position().lsn);
        Ok(Some(item))
    }

    /// The versions that changes have made, as far as they are in memory.
    pub fn find_recent(&self, changes: &[ChangeId]) -> Vec<Option<StoredItem>> {
        self.cache.recent.find(self.log.id(), changes)
    }

    /// The current version of the item with a number, expired or not.
    pub fn find_number(
        &self,
        definition: &ContainerDefinition,
        epk: &Epk,
        number: u64,
    ) -> Result<Option<Arc<StoredItem>>> {
        let form = EpkForm::of(definition.partition_key());
        let bytes = self
            .snapshot()?
            .get(&keys::item(form, epk, number))
            .map_err(unreadable)?;
        bytes
            .map(|bytes| StoredItem::decode(&bytes).map(Arc::new).map_err(unreadable))
            .transpose()
    }

    /// What session tokens say of this partition now.
    pub fn progress(&self) -> SessionProgress {
        // In this order: an LSN must not be told with a version from before it. An epoch begins with an entry that brings a version,
        // which shows before whoever began it has come to open the partition in its new role.
        let head = self.log.head();
        if head.epoch.0 != self.version_epoch.load(Ordering::Acquire)
            && let Err(error) = self.refresh_session_version()
        {
            tracing::warn!(log = %self.log.id(), %error, "the version of session tokens cannot be read");
        }
        let version = self.session_version.load(Ordering::Acquire) as i64;
        SessionProgress { version, lsn: head.lsn }
    }

    /// Facts of an answer that shows the partition at `lsn` or later.
    pub fn facts(&self, lsn: Lsn, item_lsn: Option<Lsn>) -> PartitionFacts {
        let progress = self.progress();
        let lsn = progress.lsn.max(lsn).max(item_lsn.unwrap_or(Lsn::ZERO));
        PartitionFacts {
            partition: self.id,
            lsn,
            item_lsn,
            session_version: progress.version,
            committed: self.committed(),
            since: self.since,
        }
    }

    /// Waits until this partition has seen what the client has seen of it or of one of its ancestors.
    pub async fn wait_for_session(
        &self,
        session: Option<&SessionToken>,
        ancestors: &[PartitionId],
        n_known: u32,
    ) -> Result<()> {
        let Some(session) = session else { return Ok(()) };
        match self.unseen(session, ancestors, n_known)? {
            Some(wanted) => self.wait_until(wanted).await,
            None => Ok(()),
        }
    }

    /// What the client has seen of this partition, or of one of its ancestors, that this partition has not. A client that has seen
    /// a partition which does not exist here yet, of `n_known`, has seen a split or merge that this region lacks, unless this is
    /// where it would have happened.
    pub fn unseen(
        &self,
        session: &SessionToken,
        ancestors: &[PartitionId],
        n_known: u32,
    ) -> Result<Option<SessionProgress>> {
        let version = self.progress().version;
        // Where partitions are written all of them are known: one that is not is none of this container's.
        if !self.is_owned() && session.beyond(n_known).any(|seen| seen.version >= version) {
            return Err(session_not_available());
        }
        let wanted = ancestors
            .iter()
            .chain([&self.id])
            .filter_map(|partition| session.get(*partition))
            .reduce(SessionProgress::merge);
        Ok(wanted.filter(|wanted| !self.progress().reaches(*wanted)))
    }

    /// Waits until this partition has come so far.
    pub async fn wait_until(&self, wanted: SessionProgress) -> Result<()> {
        let arrives = async {
            while !self.progress().reaches(wanted) {
                self.log.wait_past(self.log.head().lsn).await;
            }
        };
        let arrived = tokio::time::timeout(SESSION_WAIT, arrives).await;
        arrived.map_err(|_| session_not_available())
    }
}

fn session_not_available() -> Error {
    Error::new(
        Status::READ_SESSION_NOT_AVAILABLE,
        "The read session is not available for the input session token.",
    )
}

fn stopping() -> Error {
    Error::new(Status::UNAVAILABLE, "The partition is stopping.").with_retry_after_ms(100)
}
