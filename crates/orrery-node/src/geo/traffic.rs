//! The links of an account: there is one each way between any two regions, and operators change how they behave.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use orrery_model::{Error, LogId, Result, Status};

use super::fleet::{Fleet, Place};
use super::link::{Link, LinkSettings};
use super::simulated::Simulated;
use super::topology::RegionId;

pub type Links = BTreeMap<(RegionId, RegionId), Arc<Link>>;

/// A link as operators see it.
#[derive(Clone, Debug)]
pub struct LinkInfo {
    pub from: String,
    pub to: String,
    pub settings: LinkSettings,
    /// Held up by themselves.
    pub paused_partitions: Vec<Place>,
    /// Transactions that pass although they are paused.
    pub steps_left: u64,
}

impl Fleet {
    /// Every link and how it behaves.
    pub fn links(&self) -> Vec<LinkInfo> {
        let links = self.named_links().into_iter();
        links
            .map(|(from, to, link)| {
                let gate = link.gate();
                LinkInfo {
                    from,
                    to,
                    settings: link.settings(),
                    paused_partitions: gate.paused_logs().filter_map(|log| self.place_of(log)).collect(),
                    steps_left: gate.steps_left(),
                }
            })
            .collect()
    }

    /// How many bytes are on their way from one region to another.
    pub fn link_loads(&self) -> Vec<(String, String, usize)> {
        let links = self.named_links().into_iter();
        links
            .map(|(from, to, link)| (from, to, link.bytes_under_way()))
            .collect()
    }

    fn named_links(&self) -> Vec<(String, String, Arc<Link>)> {
        let name = |id: &RegionId| self.name_of(*id).unwrap_or_default();
        let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
        links
            .iter()
            .map(|((from, to), link)| (name(from), name(to), Arc::clone(link)))
            .collect()
    }

    /// Connects a region with all others, both ways.
    pub(super) fn add_links(&self, region: RegionId) {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        for other in nodes.keys().filter(|other| **other != region) {
            for (from, to) in [(region, *other), (*other, region)] {
                let seed = (u64::from(from.0) << 32) + u64::from(to.0) + 1;
                links.entry((from, to)).or_insert_with(|| Arc::new(Link::new(seed)));
            }
        }
    }

    pub(super) fn remove_links(&self, region: RegionId) {
        let mut links = self.links.write().unwrap_or_else(PoisonError::into_inner);
        links.retain(|(from, to), _| *from != region && *to != region);
    }

    pub(super) fn link_between(&self, from: RegionId, to: RegionId) -> Option<Arc<Link>> {
        let links = self.links.read().unwrap_or_else(PoisonError::into_inner);
        links.get(&(from, to)).cloned()
    }

    /// How the link between two regions behaves.
    pub fn link(&self, from: &str, to: &str) -> Result<LinkSettings> {
        Ok(self.find_link(from, to)?.2.settings())
    }

    pub fn set_link(&self, from: &str, to: &str, settings: LinkSettings) -> Result<()> {
        let (from, to, link) = self.find_link(from, to)?;
        link.set(settings.clone());
        self.tell_simulated(Simulated::Link { from, to, settings });
        Ok(())
    }

    /// Delays what one partition sends over a link, or no longer.
    pub fn pause_partition(&self, from: &str, to: &str, partition: Place, paused: bool) -> Result<()> {
        let (from, to, link) = self.find_link(from, to)?;
        link.pause_log(self.log_of(&partition)?, paused);
        self.tell_simulated(Simulated::PartitionPaused {
            from,
            to,
            partition,
            paused,
        });
        Ok(())
    }

    /// Lets transactions pass a link on which they are paused: of one partition, or whichever come first.
    pub fn step(&self, from: &str, to: &str, partition: Option<Place>, n_transactions: u64) -> Result<()> {
        let (from, to, link) = self.find_link(from, to)?;
        let log = partition.as_ref().map(|partition| self.log_of(partition)).transpose()?;
        link.step(log, n_transactions);
        self.tell_simulated(Simulated::Stepped {
            from,
            to,
            partition,
            n_transactions,
        });
        Ok(())
    }

    /// The link between two regions, and their names as the account spells them.
    fn find_link(&self, from: &str, to: &str) -> Result<(String, String, Arc<Link>)> {
        let topology = self.topology();
        let (from, to) = (topology.named(from)?, topology.named(to)?);
        let link = self
            .link_between(from.id, to.id)
            .ok_or_else(|| Error::bad_request("A link leads from one region to another."))?;
        Ok((from.name.clone(), to.name.clone(), link))
    }

    fn log_of(&self, wanted: &Place) -> Result<LogId> {
        let ranges = self.writer().all_ranges().into_iter();
        let mut logs = ranges.filter(|(container, range)| {
            container.facts.database_name == wanted.database
                && container.name == wanted.container
                && range.partition == wanted.partition
        });
        let found = logs.next().map(|(_, range)| range.log);
        found.ok_or_else(|| Error::new(Status::NOT_FOUND, "There is no such physical partition."))
    }

    /// `None` for a partition that has been split or merged since.
    fn place_of(&self, log: LogId) -> Option<Place> {
        let mut ranges = self.writer().all_ranges().into_iter();
        let (container, range) = ranges.find(|(_, range)| range.log == log)?;
        Some(Place {
            database: container.facts.database_name.clone(),
            container: container.name.clone(),
            partition: range.partition,
        })
    }
}
