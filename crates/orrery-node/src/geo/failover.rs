//! A region is taken out, and if it took writes, another one takes over with what it has.
//!
//! Until the new topology is durable nothing is decided, and whatever fails leaves the account as it was. From then on the heir
//! writes; what of it cannot take writes yet is tried again until it can.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use orrery_model::{Epoch, LogId, Lsn, PartitionId, Result};
use orrery_partition::keys::EpkForm;
use orrery_partition::storage::{Health, Log, StorageError};
use tokio::time::{Instant, timeout, timeout_at};

use super::duty::Promise;
use super::fleet::{Fleet, Outage, refused};
use super::kept::hold_all_of;
use super::level::take_what_is_ahead;
use super::roles::EpochStart;
use super::salvage::versions_between;
use super::topology::{RegionId, Topology};
use crate::api::ResourceKind;
use crate::events::Happening;
use crate::feed::blocking;
use crate::node::Node;

/// How long the writers of a region that is taken offline are given to finish what they have begun.
const FENCE_WAIT: Duration = Duration::from_secs(1);
/// How long it may take to count what is lost: the region that has it may be as good as dead.
const COUNT_WAIT: Duration = Duration::from_secs(2);
/// Read of a log at a time to count it.
const COUNTED_BYTES: usize = 1024 * 1024;
/// Between attempts to open what could not be opened.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// What a region that was taken offline had and the others have not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// By log: transactions that no other region has.
    pub transactions: BTreeMap<u64, u64>,
    /// Logs of which others lack something that could not be counted: the region that has it does not answer.
    pub uncounted: BTreeSet<u64>,
    /// The last LSN that another region has, for the same logs.
    pub kept: BTreeMap<u64, Lsn>,
    /// What the logs are.
    pub places: BTreeMap<u64, Place>,
    /// Databases, and containers by database, that no other region knows. They go with the region; what is in them is not kept.
    pub known_alone: Vec<(String, Option<String>)>,
    /// Partitions that do not take writes yet, although another region has taken over. They are tried again.
    pub n_unopened: u64,
}

/// A partition by its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub database: String,
    pub container: String,
    pub partition: PartitionId,
}

impl Loss {
    /// Transactions that were counted.
    pub fn n_transactions(&self) -> u64 {
        self.transactions.values().sum()
    }

    fn is_empty(&self) -> bool {
        self.n_transactions() == 0 && self.uncounted.is_empty()
    }

    /// What the old region had is damaged: nobody can tell what of it the others lack.
    fn may_be_anywhere(&mut self, heir: &Node) {
        for (log, own) in heir.live_logs() {
            self.uncounted.insert(log.0);
            self.kept.insert(log.0, own.head().lsn);
        }
        self.locate(heir);
    }

    /// Names the partitions, as a region knows them.
    pub fn locate(&mut self, node: &Node) {
        for (container, range) in node.all_ranges() {
            let place = Place {
                database: container.facts.database_name.clone(),
                container: container.name.clone(),
                partition: range.partition,
            };
            if self.transactions.contains_key(&range.log.0) || self.uncounted.contains(&range.log.0) {
                self.places.insert(range.log.0, place);
            }
        }
    }
}

/// Which loss is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptLoss {
    /// Not of writes that were acknowledged as being in other regions, too, nor of what can still be kept.
    IfNotPromised,
    /// The same, except for what cannot be read any more because it is damaged.
    Damaged,
    Any,
}

impl Fleet {
    /// Takes a region out at once. If it took writes, the next in line takes over, and what it lacks is lost unless the
    /// region comes back; the answer says how much that is.
    pub async fn take_offline(self: Arc<Fleet>, region: &str) -> Result<Loss> {
        self.take_out_for(region, None, AcceptLoss::IfNotPromised).await
    }

    /// The same for one that is lost for good, whatever was promised.
    pub async fn give_up(self: Arc<Fleet>, region: &str) -> Result<Loss> {
        self.take_out_for(region, None, AcceptLoss::Any).await
    }

    /// The same with a certain heir.
    pub(super) async fn take_out_for(
        self: Arc<Fleet>,
        region: &str,
        heir: Option<RegionId>,
        accept: AcceptLoss,
    ) -> Result<Loss> {
        let region = region.to_owned();
        let anchor = self.writer();
        anchor
            .uncancelled(async move { self.put_offline(&region, heir, accept).await })
            .await
    }

    async fn put_offline(self: &Arc<Fleet>, region: &str, heir: Option<RegionId>, accept: AcceptLoss) -> Result<Loss> {
        let _lock = self.lock_interrupting().await?;
        let topology = self.topology();
        let gone = topology.named(region)?.id;
        let heir = heir.or_else(|| self.next_in_line(&topology, gone));
        let next = topology.without(gone, heir)?;
        if topology.writer().id != gone {
            self.keeper.save(&next)?;
            self.unfollow(gone).await;
            self.set_topology(next);
            return Ok(Loss::default());
        }
        // From here on it acknowledges nothing; what it has begun ends first, if it can.
        let old = self.node(gone);
        let (wrote, stands_in) = (old.duty.writes(), self.stands_in());
        old.duty.set_writes(false);
        let _ = timeout(FENCE_WAIT, old.hold_all()).await;
        // Whoever followed it kept it from being trimmed.
        let held = hold_all_of(&old);
        self.stop_following().await;
        let (next, loss) = match self.decide_without(&topology, next, accept, stands_in).await {
            Ok(decided) => decided,
            Err(error) => {
                // Nothing is decided yet: an account that goes on as it was is better than one that nobody writes.
                old.duty.set_writes(wrote);
                self.follow_writer();
                return Err(error);
            }
        };
        let loss = self.carry_out(&topology, next, loss).await;
        drop(held);
        Ok(loss)
    }

    /// The first in line that answers; the first one if none does.
    fn next_in_line(&self, topology: &Topology, gone: RegionId) -> Option<RegionId> {
        let others = || topology.online().map(|region| region.id).filter(|id| *id != gone);
        others().find(|id| self.is_up(*id)).or_else(|| others().next())
    }

    /// Whether a region answers its clients and can write. One that writes and has no space left for the moment is up, and
    /// goes on by itself; but it is no heir.
    pub(super) fn is_up(&self, region: RegionId) -> bool {
        let writes = self.topology().writer().id == region;
        let is_well = match self.find_node(region).map(|node| node.store.health()) {
            Some(Health::Writable) => true,
            Some(Health::Full) => writes,
            Some(Health::ReadOnly(_) | Health::Closed) | None => false,
        };
        is_well && !self.outage(region).is_some_and(Outage::is_total)
    }

    /// Brings the heir as far as any other region is, and makes the new topology durable.
    async fn decide_without(
        &self,
        topology: &Topology,
        mut next: Topology,
        accept: AcceptLoss,
        stands_in: bool,
    ) -> Result<(Topology, Loss)> {
        let (old, heir) = (self.writer(), self.node(next.writer().id));
        let is_source = |id: RegionId| id != next.writer().id && !self.is_dead(id);
        for other in next.online().filter(|other| is_source(other.id)) {
            take_what_is_ahead(&heir, &self.node(other.id)).await?;
        }
        let mut loss = count(&old, &heir, ahead_of(&old, &heir)).await;
        if stands_in && (self.promise != Promise::Everywhere || heir.duty.is_left_out()) {
            loss.may_be_anywhere(&heir);
        }
        if accept == AcceptLoss::IfNotPromised && !loss.is_empty() && heir.duty.is_left_out() {
            return Err(refused(&format!(
                "{} was left out of strong writes and lacks {} transactions: let it catch up, bring back a region that has \
                 them, or accept the loss.",
                next.writer().name,
                loss.n_transactions()
            )));
        }
        // Also regions that were out before may have what the heir has not.
        for region in &topology.regions {
            if let Some(node) = self.find_node(region.id).filter(|_| !next.is_online(region.id)) {
                next.cut_off(region.id, ahead_of(&node, &heir).into_iter());
            }
        }
        self.keeper.save(&next)?;
        Ok((next, loss))
    }

    /// The heir begins to write. Decided: the account has a new writer, also if a part of it cannot take writes yet.
    async fn carry_out(self: &Arc<Fleet>, topology: &Topology, next: Topology, mut loss: Loss) -> Loss {
        let (region, epoch) = (next.writer().id, next.epoch);
        let heir = self.node(region);
        heir.duty.progress.set_members(self.members(&next));
        if let Err(error) = heir.promote(epoch, EpochStart::Above).await {
            tracing::warn!(%error, "a region that takes over tries again");
            if let Err(error) = heir.promote(epoch, EpochStart::Above).await {
                loss.n_unopened = heir.n_unopened(epoch);
                tracing::error!(%error, n_partitions = loss.n_unopened, "a part of a region that takes over does not take writes yet");
                self.open_later(region, epoch);
            }
        }
        self.n_lost.fetch_add(loss.n_transactions(), Ordering::Relaxed);
        self.events.tell(Happening::FailedOver {
            from: topology.writer().name.clone(),
            to: next.writer().name.clone(),
            lost_transactions: loss.n_transactions(),
            n_uncounted: loss.uncounted.len() as u64,
        });
        self.set_topology(next);
        self.follow_writer();
        loss
    }

    /// Goes on opening what a region that has taken over could not open, for as long as it writes.
    fn open_later(self: &Arc<Fleet>, region: RegionId, epoch: Epoch) {
        let (weak, stopped) = (Arc::downgrade(self), self.tasks.stopped());
        let trying = async move {
            let mut pause = PAUSE;
            loop {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
                let Some(fleet) = weak.upgrade() else { return };
                let _lock = fleet.changing.lock().await;
                if fleet.topology().writer().id != region {
                    return;
                }
                let (heir, interrupted) = (fleet.node(region), fleet.interruptible());
                tokio::select! {
                    biased;
                    // What is open stays open; the rest is tried again, if it is still this region's to open.
                    () = interrupted.cancelled() => {}
                    opened = heir.promote(epoch, EpochStart::Above) => match opened {
                        Ok(()) => return tracing::info!("a region that has taken over takes all writes now"),
                        Err(error) => tracing::warn!(%error, "a part of the region that writes takes no writes yet"),
                    }
                }
            }
        };
        self.tasks.spawn(async move {
            tokio::select! {
                // A start opens what is left.
                () = stopped => {}
                () = trying => {}
            }
        });
    }
}

/// Where another region ends in the logs of which one region has more. Asks nobody: a region that is lost may not answer.
pub(super) fn ahead_of(old: &Node, heir: &Node) -> BTreeMap<LogId, Lsn> {
    let has = heir.live_logs();
    let ahead = |(log, theirs): (LogId, Arc<dyn Log>)| {
        let reached = match has.get(&log) {
            Some(own) => own.head().lsn,
            None => reached_around(old, heir, log).unwrap_or(Lsn::ZERO),
        };
        (theirs.head().lsn > reached).then_some((log, reached))
    };
    old.live_logs().into_iter().filter_map(ahead).collect()
}

/// How far another region has come in the part of a container that a log serves, when it has other partitions there.
fn reached_around(old: &Node, heir: &Node, log: LogId) -> Option<Lsn> {
    let ranges = old.all_ranges();
    let (container, range) = ranges.into_iter().find(|(_, range)| range.log == log)?;
    let others = heir.all_ranges().into_iter();
    let around =
        others.filter(|(other, part)| other.rid == container.rid && part.range.intersection(&range.range).is_some());
    let heads = around.filter_map(|(_, part)| heir.partition(&part).ok());
    heads.map(|partition| partition.log.head().lsn).min()
}

/// Counts what a region has beyond where others end, as far as it answers in time.
async fn count(old: &Arc<Node>, heir: &Node, kept: BTreeMap<LogId, Lsn>) -> Loss {
    let deadline = Instant::now() + COUNT_WAIT;
    let (logs, has) = (old.live_logs(), heir.live_logs());
    let mut loss = Loss::default();
    for (log, reached) in kept {
        let Some(theirs) = logs.get(&log) else { continue };
        let counted = async {
            match reached == Lsn::ZERO || has.contains_key(&log) {
                true => count_after(&**theirs, reached).await,
                // Only one of the two has split or merged: transactions cannot be told apart, versions can.
                false => count_versions_after(old, log, reached).await,
            }
        };
        match timeout_at(deadline, counted).await {
            Ok(Some(0)) => continue,
            Ok(Some(n_missing)) => drop(loss.transactions.insert(log.0, n_missing)),
            // Read too slowly, or not at all.
            _ => drop(loss.uncounted.insert(log.0)),
        }
        loss.kept.insert(log.0, reached);
    }
    loss.locate(old);
    loss.known_alone = known_alone(old, heir);
    loss
}

/// What exists for one region and not for another.
fn known_alone(old: &Node, heir: &Node) -> Vec<(String, Option<String>)> {
    let (catalogue, theirs) = (old.control.catalogue(), heir.control.catalogue());
    let databases = catalogue.list(ResourceKind::Database, None).into_iter();
    let databases = databases.filter(|(rid, _)| theirs.resource(rid).is_none());
    let mut alone: Vec<_> = databases.map(|(_, database)| (database.name.clone(), None)).collect();
    let containers = catalogue.containers();
    let containers = containers.filter(|container| theirs.container(&container.rid).is_none());
    alone.extend(containers.map(|container| {
        let database = container.facts.database_name.clone();
        (database, Some(container.name.clone()))
    }));
    alone.sort();
    alone
}

/// Counts the transactions after an LSN: LSNs jump where an epoch begins. What the log no longer has is counted by its LSNs.
/// `None` when the log cannot be read.
async fn count_after(log: &dyn Log, after: Lsn) -> Option<u64> {
    let head = log.head().lsn;
    let (mut last, mut n_counted) = (after, 0);
    while last < head {
        match log.read_log(last, COUNTED_BYTES).await {
            Ok(transactions) => {
                n_counted += transactions.len() as u64;
                last = transactions.last()?.lsn;
            }
            Err(StorageError::Trimmed { start }) => {
                let epoch_start = (start.0 >> 32) << 32;
                n_counted += start.0.saturating_sub(last.0.max(epoch_start.saturating_sub(1)));
                last = start;
            }
            Err(_) => return None,
        }
    }
    Some(n_counted)
}

async fn count_versions_after(node: &Arc<Node>, log: LogId, after: Lsn) -> Option<u64> {
    let ranges = node.all_ranges();
    let (container, range) = ranges.into_iter().find(|(_, range)| range.log == log)?;
    let form = EpkForm::of(container.definition.partition_key());
    let partition = node.partition(&range).ok()?;
    let end = partition.log.head().lsn;
    let counted = blocking(move || {
        let view = partition.snapshot()?;
        let (mut last, mut n_counted) = (after, 0);
        while last < end {
            let (versions, told) = versions_between(&*view, form, (last, end), COUNTED_BYTES)?;
            n_counted += versions.len() as u64;
            last = told;
        }
        Ok(n_counted)
    });
    counted.await.ok()
}
