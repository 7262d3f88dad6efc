//! How the region that takes writes knows that it still does, under strong consistency, and how another one makes sure that it does
//! not any more. ADR 013.
//!
//! Every region keeps in its own bucket whom it follows ([`Allegiance`]), and that record is only ever replaced in the place of the version that
//! was read. The region that takes writes has it written anew again and again in as many regions as have to agree, and relies on
//! that for a time. Whoever takes over by force first writes itself into them, and waits for as long.
//!
//! Invariant: between the beginning of an epoch that was taken by force and what was acknowledged or shown in the one before, that time has
//! passed, and the regions that were reached hold all of it.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use orrery_model::{Epoch, Result};
use orrery_node::cluster::quorum::{self, Allegiance};
use orrery_node::geo::topology::{Region, RegionId, Topology};
use orrery_storage::nats::roster::{Roster, Written};
use serde::{Deserialize, Serialize};
use std::sync::PoisonError;
use tokio::time::Instant;

use super::office::{Office, refused};
use super::records::{ALLEGIANCE, replaces, store_of};
use crate::cluster::questions::ask_reign;
use crate::cluster::records::to_bytes;

/// Between two renewals.
const RENEW: Duration = Duration::from_millis(900);
/// Until the next try, when promises were not to be had.
const TRY_AGAIN: Duration = Duration::from_millis(250);
/// Tries to replace a record that somebody else replaces as well.
const ATTEMPTS: usize = 4;

/// An [`Allegiance`] as it is kept.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    epoch: u32,
    holder: String,
    lasts_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt: Option<String>,
}

fn to_record(allegiance: &Allegiance) -> Bytes {
    to_bytes(&Record {
        epoch: allegiance.epoch,
        holder: allegiance.holder.clone(),
        lasts_ms: allegiance.lasts.as_millis() as u64,
        attempt: allegiance.attempt.clone(),
    })
}

fn from_record(bytes: &[u8]) -> Option<Allegiance> {
    let record: Record = serde_json::from_slice(bytes).ok()?;
    Some(Allegiance {
        epoch: record.epoch,
        holder: record.holder,
        lasts: Duration::from_millis(record.lasts_ms),
        attempt: record.attempt,
    })
}

/// Replaces what a region has promised by what `next` makes of it. `None` when it allows nothing, or nobody knows what came of it.
async fn replace(roster: &Roster, next: impl Fn(Option<&Allegiance>) -> Option<Allegiance>) -> Option<Allegiance> {
    for _ in 0..ATTEMPTS {
        let found = roster.get(ALLEGIANCE).await.ok()?;
        let over = found.as_ref().map(|entry| entry.revision);
        let current = match found {
            // One that cannot be understood is nobody's to give away.
            Some(entry) => Some(from_record(&entry.value)?),
            None => None,
        };
        let wanted = next(current.as_ref())?;
        match roster.write(ALLEGIANCE, to_record(&wanted), over).await {
            Written::Stored(_) => return Some(wanted),
            Written::Refused | Written::Unsure => {}
        }
    }
    None
}

/// Keeps the region sure of itself while it takes writes, for ever.
pub async fn hold(office: &Office) {
    if !office.station.node.promises_everywhere() {
        return std::future::pending().await;
    }
    loop {
        let pause = if office.renew_reign().await { RENEW } else { TRY_AGAIN };
        tokio::time::sleep(pause).await;
    }
}

impl Office {
    /// This region takes writes in an epoch: what is acknowledged from now on is acknowledged in it.
    pub fn begin_reign(&self, epoch: Epoch) {
        let node = &self.station.node;
        if node.promises_everywhere() && node.reign().0 != epoch {
            node.set_reign(epoch, None);
        }
    }

    /// Another region takes writes, or is about to.
    pub fn end_reign(&self) {
        self.begin_reign(Epoch(0));
    }

    /// This region gives up by itself what it was promised in an epoch. Nothing is acknowledged or shown after this.
    pub(super) fn abdicate(&self, epoch: Epoch) {
        let mut abdicated = self.abdicated.lock().unwrap_or_else(PoisonError::into_inner);
        *abdicated = epoch;
        if self.station.node.promises_everywhere() {
            self.station.node.set_reign(epoch, None);
        }
    }

    /// It did not come to that.
    pub(super) fn resume(&self) {
        *self.abdicated.lock().unwrap_or_else(PoisonError::into_inner) = Epoch(0);
    }

    /// Finds out whether what this region gave up its promises for was decided, when nobody could tell. If it was not it cannot be
    /// any more after this, and the region goes on.
    pub(super) async fn settle(&self) -> Result<()> {
        let topology = self.geography.topology();
        let is_in_doubt = *self.abdicated.lock().unwrap_or_else(PoisonError::into_inner) == topology.epoch;
        if is_in_doubt && self.reigning() == Some(topology.epoch) {
            self.decide(topology.renumbered()).await?;
            self.resume();
        }
        Ok(())
    }

    fn extend_reign(&self, epoch: Epoch, until: Instant) {
        // Held while it is set: who has abdicated in between stays so.
        let abdicated = self.abdicated.lock().unwrap_or_else(PoisonError::into_inner);
        if *abdicated < epoch && self.reigning() == Some(epoch) {
            self.station.node.set_reign(epoch, Some(until));
        }
    }

    /// The epoch in which this region takes writes, as far as it knows.
    fn reigning(&self) -> Option<Epoch> {
        let topology = self.geography.topology();
        let charge = self.station.charge();
        charge.filter(|epoch| self.geography.is_writer() && *epoch == topology.epoch)
    }

    /// Asks for promises, or asks the node that did. `true` when it need not be tried again at once.
    async fn renew_reign(&self) -> bool {
        let Some(epoch) = self.reigning() else { return false };
        let asked = Instant::now();
        if !self.station.is_steward() {
            let Some(steward) = self.station.routes().coordinator.clone() else {
                return false;
            };
            let told = ask_reign(&self.caller, &store_of(&self.geography.name), &steward).await;
            return match told.filter(|(of, _)| *of == epoch) {
                Some((_, left)) => {
                    self.extend_reign(epoch, asked + left);
                    // What another node was promised is nearly over when it is passed on.
                    false
                }
                None => false,
            };
        }
        let topology = self.geography.topology();
        // Asked after `asked`: what another node of this region had decided before is known here.
        if !self.knows_nothing_later(&self.roster, &topology).await {
            return false;
        }
        let n_online = topology.online().count();
        let n_needed = quorum::needed(topology.regions.len(), n_online);
        let mut asking: FuturesUnordered<_> = topology
            .online()
            .map(|region| self.is_promised(region, epoch))
            .collect();
        let mut n_promised = 0;
        while let Some(promised) = asking.next().await {
            n_promised += usize::from(promised);
            if n_promised >= n_needed {
                let relied = Allegiance::relied_until(Duration::ZERO);
                self.extend_reign(epoch, asked + relied);
                return true;
            }
        }
        tracing::debug!(n_promised, n_needed, "too few regions promise to follow this one");
        false
    }

    async fn bucket_of(&self, region: &Region) -> Option<Roster> {
        match region.id == self.geography.own().id {
            true => Some(self.roster.clone()),
            false => self.far.roster(&region.name).await.ok(),
        }
    }

    /// Whether a region promises to follow this one.
    pub(super) async fn is_promised(&self, region: &Region, epoch: Epoch) -> bool {
        let own = store_of(&self.geography.name);
        let Some(roster) = self.bucket_of(region).await else {
            return false;
        };
        let granted = |current: Option<&Allegiance>| Allegiance::granted(current, &own, epoch.0);
        replace(&roster, granted).await.is_some()
    }

    /// Makes sure that a region which is to be taken over from acknowledges and shows nothing more, if what was acknowledged must not be
    /// lost. Answers who else has promised to follow this one: what they have between them is everything.
    pub(super) async fn take_back(&self, takeover: &Takeover<'_>) -> Result<Vec<RegionId>> {
        let own = store_of(&self.geography.name);
        let (mut reached, mut lasts) = (Vec::new(), Duration::ZERO);
        for region in takeover.others() {
            let Some(roster) = self.bucket_of(region).await else {
                continue;
            };
            let taken_back = |current: Option<&Allegiance>| {
                Allegiance::taken_back(current, &own, takeover.epoch.0, &takeover.attempt)
            };
            let Some(promise) = replace(&roster, taken_back).await else {
                continue;
            };
            reached.push(region.id);
            lasts = lasts.max(promise.lasts);
            // After that: who takes this region out tells it first, and then has it promise to follow.
            if !self.knows_nothing_later(&roster, takeover.topology).await {
                return Err(changed_meanwhile());
            }
        }
        let is_enough = quorum::may_take_over(takeover.topology.regions.len(), reached.len());
        if !reached.contains(&self.geography.own().id) || !is_enough && !takeover.accept_loss {
            return Err(refused(
                "Too few regions can be reached to tell what has been acknowledged; acceptLoss takes over all the same.",
            ));
        }
        tracing::info!(
            n_reached = reached.len(),
            "what was promised to the region that is gone is waited out"
        );
        tokio::time::sleep(lasts).await;
        reached.retain(|region| *region != self.geography.own().id);
        Ok(reached)
    }

    /// Whether this node still acts for the region, and the region knows of no later decision: it may have stood still for any time.
    pub(super) async fn is_still_to_decide(&self, topology: &Topology) -> bool {
        self.station.is_steward() && self.knows_nothing_later(&self.roster, topology).await
    }

    async fn knows_nothing_later(&self, roster: &Roster, topology: &Topology) -> bool {
        let found = roster.get(super::records::TOPOLOGY).await;
        let found = found
            .ok()
            .flatten()
            .and_then(|entry| Topology::from_text(&entry.value).ok());
        found.is_some_and(|theirs| !replaces(&theirs, topology))
    }

    /// Nothing came of taking over: regions follow as before, also those of which it is not known whether they were reached.
    pub(super) async fn give_back(&self, takeover: &Takeover<'_>) {
        let (holder, epoch) = (store_of(&takeover.gone.name), takeover.topology.epoch.0);
        let before = |current: Option<&Allegiance>| Allegiance::given_back(current, &takeover.attempt, &holder, epoch);
        let giving = takeover.others().map(|region| async move {
            if let Some(roster) = self.bucket_of(region).await {
                replace(&roster, before).await;
            }
        });
        futures::future::join_all(giving).await;
    }
}

/// A try to take over from a region that is gone.
#[derive(Debug)]
pub(super) struct Takeover<'a> {
    pub topology: &'a Topology,
    pub gone: &'a Region,
    /// That would begin.
    pub epoch: Epoch,
    pub accept_loss: bool,
    /// Names it, among all that ever were.
    pub attempt: String,
}

impl<'a> Takeover<'a> {
    pub fn new(topology: &'a Topology, gone: &'a Region, epoch: Epoch, accept_loss: bool) -> Takeover<'a> {
        let number = crate::host::fresh_secret();
        Takeover {
            topology,
            gone,
            epoch,
            accept_loss,
            attempt: number[..8].iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// The regions that are left, the one that takes over among them.
    fn others(&self) -> impl Iterator<Item = &Region> + use<'_> {
        self.topology.online().filter(|region| region.id != self.gone.id)
    }
}

pub(super) fn changed_meanwhile() -> orrery_model::Error {
    refused("The regions were changed meanwhile; try again.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_read_as_it_was_kept() {
        let promise = Allegiance {
            epoch: 3,
            holder: "westus".into(),
            lasts: Duration::from_millis(2_500),
            attempt: Some("f00d".into()),
        };
        assert_eq!(from_record(&to_record(&promise)), Some(promise.clone()));
        let old = br#"{"epoch":3,"holder":"westus","lastsMs":2500}"#;
        let kept = Allegiance {
            attempt: None,
            ..promise
        };
        assert_eq!(from_record(old), Some(kept), "of a node that knew of no attempts");
        assert_eq!(from_record(b"{}"), None);
    }
}
