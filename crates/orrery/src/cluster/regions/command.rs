//! What operators ask of the regions of an account: another one for writes, one that is gone taken out, one that is back taken
//! in.
//!
//! A change is decided when the topology is written in the region that decides: the one that takes writes, or, when that one is
//! taken out, the next in line. Everything after only carries it out, and is carried out again by [`super::steward`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use orrery_gateway::handler::{Answer, RegionCommand};
use orrery_model::{Epoch, Error, LogId, Lsn, Result, Status};
use orrery_node::cluster::quorum;
use orrery_node::geo::fleet::Loss;
use orrery_node::geo::progress::Lag;
use orrery_node::geo::report::RegionInfo;
use orrery_node::geo::topology::{Region, RegionId, RegionState, Topology};
use orrery_partition::decide::unreadable;
use orrery_partition::storage::Store as _;
use orrery_storage::nats::mirrors::Origin;

use super::office::{Office, refused, unknown};
use super::records::store_of;
use super::reign::{Takeover, changed_meanwhile};
use crate::cluster::home;
use crate::cluster::station::Scope;

/// How long it may take until this node owns every partition.
const HOME_MAX: Duration = Duration::from_secs(10);
/// How long writes are held until the region that takes over has everything.
const HOLD_MAX: Duration = Duration::from_secs(3);
/// How long a region that takes over is given until it serves.
const TAKE_OVER_MAX: Duration = Duration::from_secs(30);
/// How long a region that comes back is given until it serves.
const RETURN_MAX: Duration = Duration::from_secs(60);
/// How long a command waits until it is the only one that changes something.
const BUSY_MAX: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Office {
    /// Carries out what was asked for. Not left half done when the caller goes away.
    pub async fn administer(self: &Arc<Office>, command: RegionCommand) -> Result<Answer> {
        let office = Arc::clone(self);
        let carried_out = tokio::spawn(async move {
            match command {
                RegionCommand::List => {}
                RegionCommand::ChangeWriter { region } => office.change_writer(&region).await?,
                RegionCommand::Offline { region, accept_loss } => {
                    return office.take_offline(&region, accept_loss).await.map(Answer::Loss);
                }
                RegionCommand::Online {
                    region,
                    accept_loss: false,
                } => office.take_online(&region).await?,
                _ => {
                    return Err(Error::bad_request(
                        "The regions of a cluster cannot be changed in this way.",
                    ));
                }
            }
            Ok(Answer::Regions(office.regions()))
        });
        let cut_off = |error| Error::new(Status::INTERNAL, "The change was cut off.").with_source(error);
        carried_out.await.map_err(cut_off)?
    }

    /// Lets another region take the writes, without losing any.
    async fn change_writer(&self, target: &str) -> Result<()> {
        let _alone = self.alone().await?;
        let topology = self.geography.topology();
        let target = topology.named(target)?.clone();
        let next = topology.with_writer(target.id)?;
        self.check_writes_here()?;
        self.geography
            .reachable(&target.name)
            .ok_or_else(|| refused("The region cannot be reached."))?;
        let everything = home::bring(&self.station, Scope::All, HOME_MAX).await;
        let _at_home = everything.ok_or_else(|| refused("The partitions could not be brought together; try again."))?;
        let held = self.station.node.hold_writes().await?;
        let origin = Origin::of(&store_of(&target.name));
        if tokio::time::timeout(HOLD_MAX, self.level(&origin)).await.is_err() {
            return Err(refused(
                "The region did not catch up while writes were held; nothing has changed.",
            ));
        }
        let epoch = next.epoch.0;
        // Nothing is shown here any more when another region begins to acknowledge.
        self.abdicate(topology.epoch);
        if let Err(error) = self.decide(next).await {
            // What may have been decided stays given up until it is settled ([`Office::settle`]).
            if error.status() != Status::REQUEST_TIMEOUT {
                self.resume();
            }
            return Err(error);
        }
        self.publish().await;
        let serves = self
            .until(TAKE_OVER_MAX, || self.geography.serves(&target.name, epoch))
            .await;
        // Only now: a client that is refused asks for the account, and must find in it who takes writes.
        self.until(HOLD_MAX, || !self.station.node.takes_writes()).await;
        drop(held);
        match serves {
            true => Ok(()),
            false => Err(Error::new(
                Status::UNAVAILABLE,
                "The region is to take writes and does not yet; it goes on trying.",
            )),
        }
    }

    /// Waits until another region's streams hold what the own ones do.
    async fn level(&self, origin: &Origin) {
        loop {
            let (own, theirs) = (self.mirrors.reached().await, self.mirrors.reached_by(origin).await);
            if let (Ok(own), Ok(theirs)) = (own, theirs)
                && own.len() == theirs.len()
                && own.iter().zip(&theirs).all(|(own, theirs)| theirs >= own)
            {
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Takes a region out at once. If it took writes, this one takes over with what it has.
    async fn take_offline(&self, name: &str, accept_loss: bool) -> Result<Loss> {
        let _alone = self.alone().await?;
        let topology = self.geography.topology();
        let gone = topology.named(name)?.clone();
        if topology.writer().id != gone.id {
            self.check_writes_here()?;
            let next = topology.without(gone.id, None)?;
            self.go_on_without(&topology, &next, &gone, accept_loss).await?;
            self.decide(next).await?;
            self.publish().await;
            return Ok(Loss::default());
        }
        let heir = heir(&topology, gone.id).ok_or_else(|| refused("No other region can take over."))?;
        if heir.id != self.geography.own().id {
            return Err(refused(&format!("{} is the next in line; ask there.", heir.name)));
        }
        let mut next = topology.without(gone.id, Some(heir.id))?;
        // Beyond the one that the region which is gone may have decided by itself, to let another take the writes.
        next.epoch = Epoch(next.epoch.0 + 1);
        let takeover = Takeover::new(&topology, &gone, next.epoch, accept_loss);
        if let Err(error) = self.take_everything(&takeover).await {
            if self.station.node.promises_everywhere() {
                self.give_back(&takeover).await;
            }
            return Err(error);
        }
        // From here on nothing more comes from the region that is gone.
        self.mirrors.promote().await.map_err(unknown)?;
        self.store.refresh().await.map_err(unreadable)?;
        let reached: BTreeMap<LogId, Lsn> = {
            let logs = self.store.list().map_err(unreadable)?.into_iter();
            logs.map(|info| (info.log, info.position.lsn)).collect()
        };
        let heir = heir.id;
        let others = topology.regions.iter().filter(|region| region.id != heir);
        others.for_each(|region| next.cut_off(region.id, reached.iter().map(|(log, lsn)| (*log, *lsn))));
        let loss = self.loss(&gone, &reached);
        let epoch = next.epoch;
        // If that fails nothing has been written, and the streams become mirrors again.
        self.decide(next).await?;
        tracing::warn!(region = gone.name, lost = ?loss.transactions, "this region takes over from one that is gone");
        self.publish().await;
        match self
            .until(TAKE_OVER_MAX, || self.station.serving_epoch() == Some(epoch))
            .await
        {
            true => Ok(loss),
            false => Err(Error::new(
                Status::UNAVAILABLE,
                "The region is to take writes and does not yet; it goes on trying.",
            )),
        }
    }

    /// Under strong consistency a region that others might believe to have everything is told that it is out before it lacks something.
    async fn go_on_without(
        &self,
        topology: &Topology,
        next: &Topology,
        gone: &Region,
        accept_loss: bool,
    ) -> Result<()> {
        let is_strong = self.station.node.promises_everywhere();
        if !is_strong || accept_loss || quorum::may_go_offline(topology.regions.len(), next.online().count()) {
            return Ok(());
        }
        // In this order: whoever takes over meanwhile either learns of it or is noticed here.
        let is_told = self.far.tell(&gone.name, next).await.is_ok() && self.is_promised(gone, topology.epoch).await;
        match is_told {
            true => Ok(()),
            false => Err(refused(
                "The region cannot be told that it is out, and could take over without what is written from now on; acceptLoss goes on all the same.",
            )),
        }
    }

    /// Has everything that was acknowledged before this region takes over: under strong consistency all of it, else what there is.
    async fn take_everything(&self, takeover: &Takeover<'_>) -> Result<()> {
        let mut must = Vec::new();
        if self.station.node.promises_everywhere() {
            must = self.take_back(takeover).await?;
        }
        if takeover.accept_loss {
            must.clear();
        }
        // Another node of this region may have taken over while this one waited, or stood still.
        if !self.is_still_to_decide(takeover.topology).await {
            return Err(changed_meanwhile());
        }
        self.take_what_is_ahead(takeover.topology, takeover.gone.id, &must)
            .await
    }

    /// Takes over what any other region that can be reached has of the lost one's streams, so that none is ahead. Those that `must` be
    /// asked can be.
    async fn take_what_is_ahead(&self, topology: &Topology, gone: RegionId, must: &[RegionId]) -> Result<()> {
        let own = self.geography.own().id;
        let others = topology.online().filter(|region| region.id != gone && region.id != own);
        for other in others {
            let origin = Origin::of(&store_of(&other.name));
            let Ok(theirs) = self.mirrors.reached_by(&origin).await else {
                tracing::warn!(region = other.name, "a region cannot be asked what it has");
                if must.contains(&other.id) {
                    return Err(refused(&format!(
                        "{} cannot be asked what it has; try again.",
                        other.name
                    )));
                }
                continue;
            };
            let reached = self.mirrors.reached().await.map_err(unknown)?;
            for idx in (0..reached.len()).filter(|idx| theirs.get(*idx).is_some_and(|theirs| *theirs > reached[*idx])) {
                self.mirrors.take_from(idx, &origin).await.map_err(unknown)?;
            }
        }
        Ok(())
    }

    /// What a region had told of that is not here.
    fn loss(&self, gone: &Region, reached: &BTreeMap<LogId, Lsn>) -> Loss {
        let mut loss = Loss::default();
        let Some(peer) = self.geography.peer(&gone.name) else {
            return loss;
        };
        for (log, lsn) in peer.record.positions {
            let kept = reached.get(&LogId(log)).copied().unwrap_or(Lsn::ZERO);
            let n_lost = count(kept, Lsn(lsn));
            if n_lost > 0 {
                loss.transactions.insert(log, n_lost);
                loss.kept.insert(log, kept);
            }
        }
        loss.locate(&self.station.node);
        loss
    }

    /// Takes a region in again, as one that follows.
    async fn take_online(&self, name: &str) -> Result<()> {
        let back = {
            let _alone = self.alone().await?;
            let topology = self.geography.topology();
            let back = topology.named(name)?.clone();
            self.check_writes_here()?;
            self.geography
                .reachable(&back.name)
                .ok_or_else(|| refused("The region cannot be reached."))?;
            if back.state != RegionState::Seeding {
                self.decide(topology.returning(back.id)?).await?;
                self.publish().await;
            }
            back.id
        };
        match self
            .until(RETURN_MAX, || self.geography.topology().is_online(back))
            .await
        {
            true => Ok(()),
            false => Err(refused(
                "The region has not caught up yet; it serves as soon as it has.",
            )),
        }
    }

    /// Waits for what the steward has begun; another command takes longer.
    async fn alone(&self) -> Result<tokio::sync::MutexGuard<'_, ()>> {
        let busy = |_| refused("Another change of the account's regions is under way.");
        tokio::time::timeout(BUSY_MAX, self.changing.lock()).await.map_err(busy)
    }

    /// Only the region that takes writes decides on the others.
    fn check_writes_here(&self) -> Result<()> {
        match self.geography.is_writer() && self.station.serving_epoch().is_some() {
            true => Ok(()),
            false => Err(refused(
                "This node does not act for the region that takes writes; try again.",
            )),
        }
    }

    async fn until(&self, limit: Duration, is_true: impl Fn() -> bool) -> bool {
        let waiting = async {
            while !is_true() {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        tokio::time::timeout(limit, waiting).await.is_ok()
    }

    /// Every region as operators see it, in the order of failover priority.
    pub fn regions(&self) -> Vec<RegionInfo> {
        let topology = self.geography.topology();
        let own = self.geography.own().id;
        let writer = topology.writer();
        let ahead: BTreeMap<LogId, Lsn> = match writer.id == own {
            true => self.positions(),
            false => self.geography.peer(&writer.name).map_or_else(BTreeMap::new, |peer| {
                let positions = peer.record.positions.into_iter();
                positions.map(|(log, lsn)| (LogId(log), Lsn(lsn))).collect()
            }),
        };
        let info = |region: &Region| self.region_info(region, region.id == writer.id, region.id == own, &ahead);
        topology.present().map(info).collect()
    }

    fn region_info(&self, region: &Region, writes: bool, is_own: bool, ahead: &BTreeMap<LogId, Lsn>) -> RegionInfo {
        let peer = self.geography.peer(&region.name);
        let positions: BTreeMap<LogId, Lsn> = match (is_own, &peer) {
            (true, _) => self.positions(),
            (false, Some(peer)) => {
                let positions = peer.record.positions.iter();
                positions.map(|(log, lsn)| (LogId(*log), Lsn(*lsn))).collect()
            }
            (false, None) => BTreeMap::new(),
        };
        let partitions = match writes {
            true => Vec::new(),
            false => self.station.node.lags(&positions, ahead),
        };
        let lags = || partitions.iter().map(|partition| partition.lag.transactions);
        let (lag_total, transactions) = (lags().sum(), lags().max().unwrap_or(0));
        let age = peer.filter(|_| transactions > 0).map(|peer| peer.level.elapsed());
        RegionInfo {
            name: region.name.clone(),
            writes,
            state: region.state,
            lag: Lag {
                transactions,
                age: age.unwrap_or_default(),
            },
            lag_total,
            partitions,
            clock_skew_ms: 0,
            left_out: self.leaves_out(region),
            outage: None,
            distances: Vec::new(),
        }
    }
}

/// The next in line.
fn heir(topology: &Topology, gone: RegionId) -> Option<&Region> {
    topology.online().find(|region| region.id != gone)
}

/// Transactions from one LSN to a later one, as far as they can be counted: LSNs jump where an epoch begins.
fn count(from: Lsn, to: Lsn) -> u64 {
    let epoch_start = (to.0 >> 32) << 32;
    to.0.saturating_sub(from.0.max(epoch_start.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jump_of_a_new_epoch_is_no_loss() {
        assert_eq!(count(Lsn(3), Lsn(10)), 7);
        assert_eq!(count(Lsn(10), Lsn(3)), 0);
        let start = Lsn(10).next_epoch_start();
        assert_eq!(count(Lsn(10), start), 1);
    }

    #[test]
    fn the_next_in_line_is_the_first_that_is_online() {
        let names = ["A", "B", "C"].map(str::to_owned);
        let topology = Topology::new(&names).unwrap();
        assert_eq!(
            heir(&topology, RegionId(0)).map(|region| region.name.as_str()),
            Some("B")
        );
        let without = topology.without(RegionId(1), None).unwrap();
        assert_eq!(
            heir(&without, RegionId(0)).map(|region| region.name.as_str()),
            Some("C")
        );
    }
}
