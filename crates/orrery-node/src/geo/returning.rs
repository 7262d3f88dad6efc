//! A region that was out comes back: `offline → seeding → online`.
//!
//! First what it alone has becomes conflicts; then it is durably on its way, gives up what the others never had, follows the
//! region that writes and serves once it has everything. However long that takes, nobody else waits for it: the account can be
//! changed meanwhile, and the region goes on with whoever writes then. A restart goes on as well.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use orrery_model::Result;
use tokio::time::{Instant, sleep, timeout};

use super::failover::AcceptLoss;
use super::fleet::{Fleet, refused};
use super::level::wait_level;
use super::topology::{Region, RegionId, RegionState};
use crate::node::Node;

/// How long a caller waits for a region to serve. It goes on without them.
const RETURN_WAIT: Duration = Duration::from_secs(30);
/// How long a region that has caught up may take for the last step, in which the account cannot be changed.
const JOIN_WAIT: Duration = Duration::from_secs(3);
/// How often regions that are on their way are looked at, and whether anything has changed meanwhile.
const INTERVAL: Duration = Duration::from_millis(250);
/// How long one is waited for before the next one is looked at.
const PATIENCE: Duration = Duration::from_secs(5);
/// Until one that cannot go on is tried again.
const PAUSE: Duration = Duration::from_secs(10);

/// Looks after regions that are on their way for as long as there are any.
pub async fn run(fleet: Weak<Fleet>, stopped: impl Future<Output = ()>) {
    tokio::select! {
        // What has begun is finished by whoever looks next.
        () = stopped => {}
        () = look_after(fleet) => {}
    }
}

async fn look_after(fleet: Weak<Fleet>) {
    let Some(known) = fleet.upgrade().map(|fleet| Arc::clone(&fleet.topology)) else {
        return;
    };
    let is_coming = |region: &Region| region.state == RegionState::Seeding;
    let mut paused: BTreeMap<RegionId, Instant> = BTreeMap::new();
    loop {
        known.wait_for(|known| known.regions.iter().any(is_coming)).await;
        sleep(INTERVAL).await;
        let Some(fleet) = fleet.upgrade() else { return };
        let topology = fleet.topology();
        for region in topology.regions.iter().filter(|region| is_coming(region)) {
            if paused.get(&region.id).is_some_and(|until| *until > Instant::now()) {
                continue;
            }
            if let Err(error) = fleet.go_on(region.id, PATIENCE).await {
                tracing::warn!(region = region.name, %error, "a region cannot come back for the moment");
                paused.insert(region.id, Instant::now() + PAUSE);
            }
        }
    }
}

impl Fleet {
    /// Takes a region in again, as one that follows. Refused, with nothing changed, where what it alone has cannot be kept.
    pub async fn take_online(self: Arc<Fleet>, region: &str) -> Result<()> {
        self.bring_back(region, AcceptLoss::IfNotPromised).await.map(drop)
    }

    /// The same with or without what cannot be kept. Answers how many versions have been dropped.
    pub async fn bring_back(self: Arc<Fleet>, region: &str, accept: AcceptLoss) -> Result<usize> {
        let region = region.to_owned();
        let anchor = self.writer();
        anchor
            .uncancelled(async move { self.put_online(&region, accept).await })
            .await
    }

    async fn put_online(self: &Arc<Fleet>, name: &str, accept: AcceptLoss) -> Result<usize> {
        let (region, n_dropped) = self.begin_return(name, accept).await?;
        let started = Instant::now();
        while !self
            .go_on(region, RETURN_WAIT.saturating_sub(started.elapsed()))
            .await?
        {
            if started.elapsed() >= RETURN_WAIT {
                return Err(refused(
                    "The region has not caught up yet; it serves as soon as it has.",
                ));
            }
            // Another change has come in between.
            sleep(Duration::from_millis(10)).await;
        }
        Ok(n_dropped)
    }

    /// Keeps what the region alone has; from then on it is on its way.
    async fn begin_return(&self, name: &str, accept: AcceptLoss) -> Result<(RegionId, usize)> {
        let _lock = self.lock()?;
        let topology = self.topology();
        let region = topology.named(name)?.clone();
        if !self.is_damaged(region.id) {
            self.check_alive(region.id)?;
        }
        self.check_alive(topology.writer().id)?;
        if region.state != RegionState::Seeding {
            topology.returning(region.id)?;
        }
        let n_dropped = self.keep_what_it_has(region.id, accept).await?;
        if region.state != RegionState::Seeding {
            let next = self.topology().returning(region.id)?;
            self.keeper.save(&next)?;
            self.set_topology(next);
        }
        Ok((region.id, n_dropped))
    }

    /// Makes conflicts of what a region alone has, if there is anything, and notes that it is done.
    async fn keep_what_it_has(&self, region: RegionId, accept: AcceptLoss) -> Result<usize> {
        let topology = self.topology();
        let found = topology.regions.iter().find(|known| known.id == region);
        let Some(found) = found.filter(|region| !region.cut_off.is_empty()) else {
            return Ok(0);
        };
        let interrupted = self.interruptible();
        let n_dropped = tokio::select! {
            biased;
            // What has been kept stays, and is not kept again.
            () = interrupted.cancelled() => return Err(refused("Another change was more urgent; try again.")),
            kept = self.salvage(found, accept) => kept?,
        };
        self.set_left(region, BTreeMap::new())?;
        Ok(n_dropped)
    }

    /// Brings a region on its way as far as it gets in `patience`; `true` when it serves.
    async fn go_on(self: &Arc<Fleet>, region: RegionId, patience: Duration) -> Result<bool> {
        let topology = self.topology();
        let found = topology.regions.iter().find(|known| known.id == region);
        let Some(found) = found else { return Ok(false) };
        match found.state {
            RegionState::Online => return Ok(true),
            RegionState::Seeding => {}
            _ => return Err(refused("The region has been taken out again.")),
        }
        if topology.writer().damaged {
            // Nobody writes; whoever takes over is followed.
            return Ok(false);
        }
        if self.is_damaged(region) {
            let Ok(_lock) = self.lock() else { return Ok(false) };
            self.make_anew(found).await?;
        }
        let Some(node) = self.find_node(region).filter(|_| !self.is_dead(region)) else {
            return Ok(false);
        };
        if !found.cut_off.is_empty() || !self.is_following(region) {
            // Whoever changes the account now may have to do with this very region.
            let Ok(_lock) = self.lock() else { return Ok(false) };
            self.follow_anew(region).await?;
        }
        if !self.catches_up(&node, patience).await {
            return Ok(false);
        }
        let joined = {
            let Ok(_lock) = self.lock() else { return Ok(false) };
            if self.is_online(region) {
                return Ok(true);
            }
            self.join_in(region).await?
        };
        if joined {
            self.supersede_tokens().await;
        }
        Ok(joined)
    }

    /// Waits until a region has what the one that writes has; not longer than `patience`, nor when the account has changed.
    async fn catches_up(&self, node: &Arc<Node>, patience: Duration) -> bool {
        let (writer, number, started) = (self.writer(), self.topology().number, Instant::now());
        let level = wait_level(&writer, node);
        tokio::pin!(level);
        loop {
            if timeout(INTERVAL.min(patience), &mut level).await.is_ok() {
                return true;
            }
            if started.elapsed() >= patience || self.topology().number != number {
                return false;
            }
        }
    }

    /// Lets a region that is on its way follow whoever writes now.
    async fn follow_anew(&self, region: RegionId) -> Result<()> {
        let topology = self.topology();
        let state = topology.regions.iter().find(|known| known.id == region);
        if state.is_none_or(|known| known.state != RegionState::Seeding) {
            return Ok(());
        }
        self.unfollow(region).await;
        self.keep_what_it_has(region, AcceptLoss::IfNotPromised).await?;
        // Also opens what was being installed when it was interrupted.
        self.node(region).demote().await?;
        self.follow(region);
        Ok(())
    }

    /// The last step: writes count the region, it gets what was acknowledged before, and serves.
    async fn join_in(&self, region: RegionId) -> Result<bool> {
        let topology = self.topology();
        let Ok(next) = topology.seeded(region) else {
            return Ok(false);
        };
        // Another region may write by now, or this one may have been taken out.
        if !self.is_following(region) {
            return Ok(false);
        }
        let interrupted = self.interruptible();
        let has_joined = tokio::select! {
            biased;
            () = interrupted.cancelled() => false,
            joined = timeout(JOIN_WAIT, self.join(region, &next)) => joined.is_ok(),
        };
        let saved = match has_joined {
            true => self.keeper.save(&next).map(|()| true),
            false => Ok(false),
        };
        match saved {
            Ok(true) => {
                self.readmit(region);
                self.set_topology(next);
            }
            _ => self.writer().duty.progress.set_members(self.members(&topology)),
        }
        saved
    }
}
