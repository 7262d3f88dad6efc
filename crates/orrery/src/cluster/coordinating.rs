//! What the coordinator does in each of its turns: ends the tenures of nodes that fell silent, and says where logs should be.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery_node::cluster::lease::Lease;
use orrery_node::cluster::placement::{Known, Placement};
use orrery_node::cluster::tenures::Ending;
use orrery_storage::nats::roster::Written;

use super::member::{ATTEMPTS, Running};
use super::owning::Work;
use super::records::{self, PLACEMENT, TENURES, tenure_key};

/// A record of a node that is gone is kept for as many expiries of a lease.
const FORGET_AFTER_EXPIRIES: u32 = 6;

impl Running {
    pub(super) async fn coordinate(&mut self) {
        if !self.read_tenures().await {
            return;
        }
        self.end_overdue().await;
        self.revise().await;
        self.forget_gone().await;
    }

    /// Whoever may have to coordinate knows how long the others have been silent.
    pub(super) async fn watch_tenures(&mut self) {
        let now = self.member.station.now();
        let is_due = |read| now >= read + self.member.times.renew;
        if self.tenures_read_at.is_none_or(is_due) {
            self.read_tenures().await;
        }
    }

    async fn read_tenures(&mut self) -> bool {
        let entries = match self.member.roster.below(TENURES).await {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!(%error, "the tenures of nodes cannot be read now");
                return false;
            }
        };
        let mut found: BTreeMap<String, (Lease, u64)> = BTreeMap::new();
        for entry in entries {
            let node = entry.key.strip_prefix(TENURES).and_then(|rest| rest.strip_prefix('.'));
            if let (Some(node), Some(lease)) = (node, records::lease_from_bytes(&entry.value)) {
                found.insert(node.to_owned(), (lease, entry.revision));
            }
        }
        let now = self.member.station.now();
        self.tenures.observe(found, now);
        self.tenures_read_at = Some(now);
        true
    }

    /// Ends what was not renewed in time, each in the place of the very version that was not.
    async fn end_overdue(&mut self) {
        let now = self.member.station.now();
        for Ending { node, lease, over } in self.tenures.overdue(self.member.times.expiry, now) {
            let key = tenure_key(&node);
            let bytes = records::lease_to_bytes(&lease);
            match self.member.roster.write(&key, bytes, Some(over)).await {
                Written::Stored(revision) => {
                    tracing::info!(node, "the tenure of a silent node has ended");
                    self.tenures.saw(node, lease, revision, now);
                }
                // It was renewed after all, or removed by who held it.
                Written::Refused => {
                    if let Ok(None) = self.member.roster.get(&key).await {
                        self.tenures.forget(&node);
                    }
                }
                Written::Unsure => {}
            }
        }
    }

    /// Says where logs should be, if that is not what the record says.
    async fn revise(&mut self) {
        let (Some(term), Some((current, revision))) =
            (self.lease.term(self.member.station.now()), self.placement.clone())
        else {
            return;
        };
        // Another coordinates, and this node is about to learn of it.
        if current.term > term {
            return;
        }
        let station = Arc::clone(&self.member.station);
        let serving = station.node.serving_logs();
        let (pinned, pins) = station.needed_at_home(&serving);
        let alive = self.tenures.alive();
        // A write of which nobody knows what became is overtaken by another.
        let is_in_doubt = !self.joining.is_empty();
        if alive.keys().any(|node| !current.members.contains_key(node)) {
            // Who joins learns from the record what the catalogue has now, and is asked about every change after that.
            self.joining.extend(alive.clone());
            self.show();
        }
        let revised = current.revise(&Known {
            coordinator: &self.member.record.id,
            term,
            catalogue: station.node.system_lsn(),
            alive: &alive,
            logs: &serving,
            pinned: &pinned,
        });
        let is_settled = (revised == *current && !is_in_doubt) || self.write_placement(revised, revision).await;
        if is_settled && !matches!(self.work, Some(Work::Gives { .. })) {
            // Handing over that was begun earlier is over, too.
            self.show();
            station.settle_pins(pins);
        }
    }

    /// Replaces the version that is known. Those who are members by it are asked before changes of the catalogue are
    /// acknowledged, from before anybody can know that they are.
    pub(super) async fn write_placement(&mut self, placement: Placement, over: Option<u64>) -> bool {
        self.joining.extend(placement.members.clone());
        self.show();
        let bytes = records::placement_to_bytes(&placement);
        match self.member.roster.write(PLACEMENT, bytes, over).await {
            Written::Stored(revision) => {
                self.joining.clear();
                self.placement = Some((Arc::new(placement), Some(revision)));
                true
            }
            Written::Refused | Written::Unsure => {
                match self.member.roster.get(PLACEMENT).await {
                    Ok(found) => self.learn_placement(found),
                    Err(error) => tracing::warn!(%error, "where logs are cannot be read now"),
                }
                false
            }
        }
    }

    /// Changes the record in a way that holds whatever others have written meanwhile.
    pub(super) async fn change_placement(&mut self, change: impl Fn(&Placement) -> Placement) -> bool {
        for _ in 0..ATTEMPTS {
            let Some((current, revision)) = self.placement.clone() else {
                return false;
            };
            let changed = change(&current);
            if changed == *current || self.write_placement(changed, revision).await {
                return true;
            }
        }
        false
    }

    /// Puts this node's term on the record, after which no earlier coordinator can write it. Only then does it say which logs
    /// are elsewhere.
    pub(super) async fn stamp_placement(&mut self) -> bool {
        let Some(term) = self.lease.term(self.member.station.now()) else {
            return false;
        };
        self.change_placement(|current| Placement {
            term: term.max(current.term),
            ..current.clone()
        })
        .await
    }

    /// Says that no log is anywhere but here, whoever had it.
    pub(super) async fn bring_all_home(&mut self) -> bool {
        let Some(term) = self.lease.term(self.member.station.now()) else {
            return false;
        };
        self.change_placement(|current| Placement {
            term: term.max(current.term),
            logs: BTreeMap::new(),
            ..current.clone()
        })
        .await
    }

    /// This node has ceased to write anything, and is gone.
    pub(super) async fn leave_placement(&mut self) {
        let me = self.member.record.id.clone();
        if !self.change_placement(|current| current.left_by(&me)).await {
            tracing::warn!("logs of this node are taken over when its tenure ends");
        }
    }

    async fn forget_gone(&mut self) {
        let now = self.member.station.now();
        let after = self.member.times.expiry * FORGET_AFTER_EXPIRIES;
        for (node, revision) in self.tenures.forgotten(after, now) {
            // If it is back by now, it stays.
            let removed = self.member.roster.remove_version(&tenure_key(&node), revision).await;
            if matches!(removed, Ok(true)) {
                self.tenures.forget(&node);
            }
        }
    }
}
