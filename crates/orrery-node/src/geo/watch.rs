//! Looks after the regions of an account: which of them strong writes wait for, and, when the account wishes so, whether the
//! region that writes must be taken over from.
//!
//! Under strong consistency with three regions or more, a minority that is slow or cannot be reached is left out: it answers
//! no strong reads before writes stop waiting for it, and again only when writes wait for it and it has everything.
//! With two regions nobody is left out.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::duty::Promise;
use super::failover::AcceptLoss;
use super::fleet::Fleet;
use super::level::{is_level, wait_level};
use super::topology::{Region, RegionId, RegionState};
use super::vote::Sight;

const INTERVAL: Duration = Duration::from_millis(250);
/// How long strong writes wait for a region before it is left out.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a region that has caught up may take for the last step.
const RETURN_WAIT: Duration = Duration::from_secs(1);

/// With the writer, a majority must remain: of three or four regions one may be left out, of five two.
pub(super) fn may_be_left_out(n_readers: usize) -> usize {
    n_readers / 2
}

/// Looks after the regions for as long as there are any.
pub async fn run(fleet: Weak<Fleet>, stopped: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        // What has begun is finished by whoever looks next.
        () = stopped => {}
        () = look_after(fleet) => {}
    }
}

async fn look_after(fleet: Weak<Fleet>) {
    let Some((promise, wish)) = fleet
        .upgrade()
        .map(|fleet| (fleet.promise, Arc::clone(&fleet.managed_failover)))
    else {
        return;
    };
    let mut unreachable_since = None;
    loop {
        if promise != Promise::Everywhere {
            // Until somebody wishes so there is nothing to look at.
            wish.wait_for(Option::is_some).await;
        }
        tokio::time::sleep(INTERVAL).await;
        let Some(fleet) = fleet.upgrade() else { return };
        if fleet.promise == Promise::Everywhere {
            fleet.adjust_quorum().await;
        }
        if let Some(after) = fleet.managed_failover_after() {
            fleet.take_over_if_unreachable(after, &mut unreachable_since).await;
        }
    }
}

impl Fleet {
    /// Lets another region take over by itself when the one that writes cannot be reached for this long; `None`: never.
    pub fn set_managed_failover(&self, after: Option<Duration>) {
        self.managed_failover.set(after);
    }

    fn managed_failover_after(&self) -> Option<Duration> {
        *self.managed_failover.read()
    }

    /// Leaves out who is too slow, as many as there may be, and takes in who has caught up.
    async fn adjust_quorum(&self) {
        let topology = self.topology();
        let readers: Vec<RegionId> = topology.online().skip(1).map(|region| region.id).collect();
        let may_be_left_out = may_be_left_out(readers.len());
        for region in &readers {
            let out = self.left_out();
            // One that is offline by now is no longer counted, but not up to date either.
            let n_out = out.iter().filter(|out| readers.contains(out)).count();
            match (self.is_slow(*region), out.contains(region)) {
                (true, false) if n_out < may_be_left_out => self.leave_out(*region),
                (false, true) => self.take_back(*region).await,
                (false, false) if self.is_distrusted(*region) => self.take_back(*region).await,
                _ => {}
            }
        }
    }

    fn is_slow(&self, region: RegionId) -> bool {
        let writer = self.writer();
        let limit = match self.is_distrusted(region) {
            // It comes back when it has nearly everything.
            true => INTERVAL,
            false => PATIENCE,
        };
        let logs = writer.live_logs();
        logs.keys()
            .any(|log| writer.duty.progress.of(*log).lag(region).age > limit)
    }

    fn leave_out(&self, region: RegionId) {
        let Some(node) = self.find_node(region) else { return };
        tracing::warn!(
            region = region.0,
            "strong writes no longer wait for a region that is too slow"
        );
        // In this order: from here on it answers no strong reads, and only then writes go on without it.
        node.duty.set_left_out(true);
        let mut out = self.left_out();
        out.insert(region);
        self.set_left_out(out);
    }

    async fn take_back(&self, region: RegionId) {
        let mut out = self.left_out();
        let was_out = out.remove(&region);
        self.set_left_out(out);
        // Writes wait for it again; what was acknowledged before it must have as well.
        let Some(node) = self.find_node(region) else { return };
        let writer = self.writer();
        if tokio::time::timeout(RETURN_WAIT, wait_level(&writer, &node))
            .await
            .is_ok()
        {
            node.duty.set_left_out(false);
            tracing::info!(region = region.0, "strong writes wait for all regions again");
        } else if was_out {
            self.leave_out(region);
        }
    }

    /// After a start nobody knows who was left out before: who lacks something answers no strong reads until it has it.
    pub(super) fn distrust_readers(&self) {
        if self.promise != Promise::Everywhere {
            return;
        }
        let writer = self.writer();
        for reader in self.topology().online().skip(1) {
            let node = self.node(reader.id);
            node.duty.set_left_out(!is_level(&writer, &node));
        }
    }

    /// Whether a region answers no strong reads, also if writes wait for it.
    fn is_distrusted(&self, region: RegionId) -> bool {
        self.find_node(region).is_some_and(|node| node.duty.is_left_out())
    }

    pub(super) fn left_out(&self) -> BTreeSet<RegionId> {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_left_out(&self, regions: BTreeSet<RegionId>) {
        *self.left_out.lock().unwrap_or_else(PoisonError::into_inner) = regions;
        let members = self.members(&self.topology());
        self.writer().duty.progress.set_members(members);
    }

    /// A region has everything that was ever acknowledged, and counts from now on.
    pub(super) fn readmit(&self, region: RegionId) {
        let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        left_out.remove(&region);
        drop(left_out);
        if let Some(node) = self.find_node(region) {
            node.duty.set_left_out(false);
        }
    }

    /// Takes the region that writes offline when nobody has reached it for long enough and a majority is left to decide.
    async fn take_over_if_unreachable(self: Arc<Self>, after: Duration, since: &mut Option<Instant>) {
        let Some(heir) = self.sight().heir() else {
            *since = None;
            return;
        };
        if since.get_or_insert_with(Instant::now).elapsed() < after {
            return;
        }
        *since = None;
        let name = self.topology().writer().name.clone();
        tracing::warn!(
            region = name,
            "the region that takes writes cannot be reached; another one takes over"
        );
        let taken_over = self.take_out_for(&name, Some(heir), AcceptLoss::IfNotPromised);
        if let Err(error) = taken_over.await {
            tracing::error!(region = name, %error, "no other region could take over");
        }
    }

    /// What is known of the regions. Those that are on their way or about to leave have no vote.
    fn sight(&self) -> Sight {
        let topology = self.topology();
        let has_vote = |region: &&Region| matches!(region.state, RegionState::Online | RegionState::Offline);
        let members: Vec<RegionId> = topology
            .regions
            .iter()
            .filter(has_vote)
            .map(|region| region.id)
            .collect();
        let is_cut = |from: RegionId, to: RegionId| {
            let link = self.link_between(from, to);
            link.is_some_and(|link| link.settings().cut)
        };
        let pairs = members.iter().flat_map(|from| members.iter().map(|to| (*from, *to)));
        Sight {
            up: topology
                .online()
                .map(|region| region.id)
                .filter(|region| self.is_up(*region))
                .collect(),
            parted: pairs.filter(|(from, to)| is_cut(*from, *to)).collect(),
            members,
        }
    }
}
