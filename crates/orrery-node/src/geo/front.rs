//! How a region meets its clients: whether its endpoint answers, and how far away they are. Replication does not know of it,
//! except where a region is dead ([`super::death`]).

use std::collections::BTreeMap;
use std::time::Duration;

use orrery_model::Result;

use super::fleet::{Fleet, refused};
use super::simulated::Simulated;
use super::topology::RegionId;

/// How a region's endpoint fails for its clients. Distinct, because clients react differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Every request is refused.
    Unavailable,
    /// No request is answered.
    Hanging,
    /// No connection is taken, and those that were are closed.
    Refusing,
    /// Every answer takes this much longer.
    Slow(Duration),
    /// The region is dead, as by `kill -9`: nobody is answered, nothing is replicated, and what it knew is what its disk has.
    Killed,
    /// What its store has is damaged. Requests are refused until it has been made anew from another region ([`super::repair`]).
    Damaged,
}

impl Outage {
    /// Are connections refused?
    pub fn shuts_the_door(self) -> bool {
        matches!(self, Outage::Refusing | Outage::Killed)
    }

    /// Is nobody served? One that is slow is still there.
    pub fn is_total(self) -> bool {
        !matches!(self, Outage::Slow(_))
    }
}

/// How far clients are from a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distance {
    /// As clients call themselves; `None`: all that have no distance of their own.
    pub client: Option<String>,
    /// There and back.
    pub round_trip: Duration,
}

/// What clients meet at one region.
#[derive(Clone, Debug, Default)]
pub struct Front {
    pub outage: Option<Outage>,
    pub distances: Vec<Distance>,
}

impl Front {
    /// How much longer a client's request takes, there and back.
    pub fn delay(&self, client: Option<&str>) -> Duration {
        let slowness = match self.outage {
            Some(Outage::Slow(by)) => by,
            _ => Duration::ZERO,
        };
        slowness + self.distance(client)
    }

    fn distance(&self, client: Option<&str>) -> Duration {
        let of = |wanted: Option<&str>| self.distances.iter().find(|known| known.client.as_deref() == wanted);
        let own = client.and_then(|client| of(Some(client)));
        own.or_else(|| of(None))
            .map_or(Duration::ZERO, |known| known.round_trip)
    }

    fn set_distance(&mut self, distance: Distance) {
        self.distances.retain(|known| known.client != distance.client);
        if !distance.round_trip.is_zero() {
            self.distances.push(distance);
            self.distances.sort_by(|a, b| a.client.cmp(&b.client));
        }
    }
}

pub type Fronts = BTreeMap<RegionId, Front>;

impl Fleet {
    /// What clients meet at a region; `None` when nothing is out of the ordinary.
    pub fn front(&self, region: RegionId) -> Option<Front> {
        self.fronts.read().get(&region).cloned()
    }

    /// How a region's endpoint fails at present.
    pub fn outage(&self, region: RegionId) -> Option<Outage> {
        self.fronts.read().get(&region)?.outage
    }

    /// Completes when a region's endpoint refuses connections, or takes them.
    pub async fn door_is(&self, region: RegionId, shut: bool) {
        let is_shut = |fronts: &Fronts| {
            let outage = fronts.get(&region).and_then(|front| front.outage);
            outage.is_some_and(Outage::shuts_the_door)
        };
        self.fronts.wait_for(|fronts| is_shut(fronts) == shut).await;
    }

    /// Lets a region's endpoint fail, or work again. A region is killed and brought to life elsewhere.
    pub fn set_outage(&self, region: &str, outage: Option<Outage>) -> Result<()> {
        let topology = self.topology();
        let region = topology.named(region)?;
        if self.is_damaged(region.id) || outage == Some(Outage::Damaged) {
            return Err(refused(
                "A region whose data is damaged serves when it has been made anew.",
            ));
        }
        if self.is_dead(region.id) || outage == Some(Outage::Killed) {
            return Err(refused(
                "A region that is killed, or to be, is no matter of its endpoint alone.",
            ));
        }
        self.put_outage(region.id, outage);
        Ok(())
    }

    pub(super) fn put_outage(&self, region: RegionId, outage: Option<Outage>) {
        self.change_front(region, |front| front.outage = outage);
        if let Some(region) = self.name_of(region) {
            self.tell_simulated(Simulated::Outage { region, outage });
        }
    }

    /// A region's data is damaged, or has been made anew. Nothing of that is simulated.
    pub(super) fn put_damaged(&self, region: RegionId, is_damaged: bool) {
        let outage = is_damaged.then_some(Outage::Damaged);
        self.change_front(region, |front| front.outage = outage);
    }

    /// Says how far clients are from a region: all, or those who call themselves so.
    pub fn set_distance(&self, region: &str, distance: Distance) -> Result<()> {
        let topology = self.topology();
        let region = topology.named(region)?;
        self.change_front(region.id, |front| front.set_distance(distance.clone()));
        self.tell_simulated(Simulated::Distance {
            region: region.name.clone(),
            distance,
        });
        Ok(())
    }

    fn change_front(&self, region: RegionId, change: impl FnOnce(&mut Front)) {
        self.fronts.modify(|fronts| {
            let front = fronts.entry(region).or_default();
            change(front);
            if front.outage.is_none() && front.distances.is_empty() {
                fronts.remove(&region);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away(client: Option<&str>, ms: u64) -> Distance {
        Distance {
            client: client.map(str::to_owned),
            round_trip: Duration::from_millis(ms),
        }
    }

    #[test]
    fn a_client_is_as_far_away_as_it_is_said_to_be_or_as_all_are() {
        let mut front = Front::default();
        assert_eq!(front.delay(Some("tokyo")), Duration::ZERO);
        front.set_distance(away(None, 20));
        front.set_distance(away(Some("tokyo"), 150));
        let ms = |client| front.delay(client).as_millis();
        assert_eq!((ms(None), ms(Some("paris")), ms(Some("tokyo"))), (20, 20, 150));
        front.set_distance(away(None, 0));
        assert_eq!(front.delay(Some("paris")), Duration::ZERO);
    }

    #[test]
    fn slowness_comes_on_top() {
        let mut front = Front::default();
        front.set_distance(away(None, 20));
        front.outage = Some(Outage::Slow(Duration::from_millis(500)));
        assert_eq!(front.delay(None).as_millis(), 520);
        assert!(!Outage::Slow(Duration::ZERO).is_total() && Outage::Hanging.is_total());
    }
}
