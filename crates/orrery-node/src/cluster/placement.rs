//! Where every log is, as all nodes of a cluster know it: one record that is replaced only in the place of the version its
//! writer read.
//!
//! A log goes from one owner to another in two steps: the coordinator says where it should go, and its owner, having ceased
//! to write it, says that it is there. Only if the owner's tenure has ended does the coordinator take both. A log that the
//! record does not name is *at home*: whoever coordinates owns it, and everything that changes partitions as such, splits,
//! merges, snapshots, happens there.
//!
//! Invariant: an owner is replaced only by itself or after its tenure was ended. So whoever finds itself named in a version
//! it has read owns the log for as long as its tenure runs.

use std::collections::{BTreeMap, BTreeSet};

use orrery_model::{LogId, Lsn};

use super::place::{Assignment, place};

/// The shared record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The lease's term in which it was last revised.
    pub term: u64,
    /// How much of the catalogue it rests on. Whoever acts on it must know as much.
    pub known: Lsn,
    /// Who may own logs, and in which term of its tenure. In another term it owns nothing.
    pub members: BTreeMap<String, u64>,
    /// Logs that are not at home.
    pub logs: BTreeMap<LogId, Spot>,
}

/// Where a log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    pub owner: String,
    /// Gets it if the owner is lost.
    pub standby: Option<String>,
    /// Where its owner should hand it to.
    pub to: Option<Goal>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    Node(String),
    Home,
}

/// What the coordinator knows when it revises the record.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    pub coordinator: &'a str,
    /// Of its lease.
    pub term: u64,
    pub catalogue: Lsn,
    /// Nodes whose tenures run, and in which terms.
    pub alive: &'a BTreeMap<String, u64>,
    /// Every log that serves a partition.
    pub logs: &'a BTreeSet<LogId>,
    /// Those that are needed at home.
    pub pinned: &'a BTreeSet<LogId>,
}

impl Placement {
    /// Whether a node in a term of its tenure owns a log that is not at home.
    pub fn is_owned_by(&self, log: LogId, node: &str, tenure: Option<u64>) -> bool {
        let is_member = tenure.is_some() && self.members.get(node).copied() == tenure;
        is_member && self.logs.get(&log).is_some_and(|spot| spot.owner == node)
    }

    /// The record as it should be.
    pub fn revise(&self, known: &Known<'_>) -> Placement {
        let is_unchanged = |(node, term): &(&String, &u64)| self.members.get(*node) == Some(*term);
        // Who was here without a break, and owns what it owned.
        let stayed: BTreeSet<&str> = known
            .alive
            .iter()
            .filter(is_unchanged)
            .map(|(node, _)| node.as_str())
            .collect();
        let current: BTreeMap<LogId, Assignment> = known
            .logs
            .iter()
            .map(|log| (*log, self.assignment(*log, known, &stayed)))
            .collect();
        let nodes: BTreeSet<String> = known.alive.keys().cloned().collect();
        let free: BTreeSet<LogId> = known.logs.difference(known.pinned).copied().collect();
        let wanted = place(&nodes, &free, &current);
        let logs = known.logs.iter().filter_map(|log| {
            let owner = Some(&current[log].owner).filter(|owner| stayed.contains(owner.as_str()));
            let spot = match wanted.get(log) {
                Some(wanted) => self.towards(*log, known, owner, wanted),
                None => self.homewards(*log, known, owner),
            };
            Some((*log, spot?))
        });
        let mut revised = Placement {
            term: known.term,
            known: self.known,
            members: known.alive.clone(),
            logs: logs.collect(),
        };
        if revised != *self {
            revised.known = known.catalogue.max(self.known);
        }
        revised
    }

    /// Who has a log: its owner, also one that is gone, or the coordinator.
    fn assignment(&self, log: LogId, known: &Known<'_>, stayed: &BTreeSet<&str>) -> Assignment {
        match self.logs.get(&log) {
            None => Assignment {
                owner: known.coordinator.to_owned(),
                standby: None,
            },
            Some(spot) => Assignment {
                // One that is gone, or came back as another, holds nothing.
                owner: match stayed.contains(spot.owner.as_str()) {
                    true => spot.owner.clone(),
                    false => String::new(),
                },
                standby: spot.standby.clone(),
            },
        }
    }

    fn towards(&self, log: LogId, known: &Known<'_>, owner: Option<&String>, wanted: &Assignment) -> Option<Spot> {
        let standby = wanted.standby.clone();
        let owner = match (owner, self.logs.contains_key(&log)) {
            (Some(owner), _) => owner.clone(),
            // Its owner was lost.
            (None, true) => wanted.owner.clone(),
            // At home with a coordinator that is about to become a member.
            (None, false) if !known.alive.contains_key(known.coordinator) => return None,
            (None, false) => known.coordinator.to_owned(),
        };
        let to = (owner != wanted.owner).then(|| Goal::Node(wanted.owner.clone()));
        Some(Spot { owner, standby, to })
    }

    fn homewards(&self, log: LogId, known: &Known<'_>, owner: Option<&String>) -> Option<Spot> {
        let spot = self.logs.get(&log)?;
        let is_elsewhere = owner.is_some_and(|owner| owner != known.coordinator);
        is_elsewhere.then(|| Spot {
            to: Some(Goal::Home),
            ..spot.clone()
        })
    }

    /// Logs that a node has been asked to hand over.
    pub fn to_hand_over(&self, node: &str) -> BTreeSet<LogId> {
        let asked = self
            .logs
            .iter()
            .filter(|(_, spot)| spot.owner == node && spot.to.is_some());
        asked.map(|(log, _)| *log).collect()
    }

    /// The record after a node has ceased to write logs that it was asked to hand over.
    pub fn handed_over(&self, node: &str, logs: &BTreeSet<LogId>) -> Placement {
        let mut after = self.clone();
        for log in logs {
            let Some(spot) = after.logs.get_mut(log).filter(|spot| spot.owner == node) else {
                continue;
            };
            match spot.to.take() {
                // It is wanted here after all.
                None => {}
                Some(Goal::Node(next)) if self.members.contains_key(&next) => {
                    if spot.standby.as_ref() == Some(&next) {
                        spot.standby = Some(node.to_owned());
                    }
                    spot.owner = next;
                }
                Some(_) => drop(after.logs.remove(log)),
            }
        }
        after
    }

    /// The record after a node has ceased to write everything and has gone.
    pub fn left_by(&self, node: &str) -> Placement {
        let mut after = self.clone();
        after.members.remove(node);
        after.logs.retain(|_, spot| {
            if spot.standby.as_deref() == Some(node) {
                spot.standby = None;
            }
            if spot.owner != node {
                if matches!(&spot.to, Some(Goal::Node(next)) if next == node) {
                    spot.to = None;
                }
                return true;
            }
            let next = match spot.to.take() {
                Some(Goal::Home) => None,
                Some(Goal::Node(next)) => Some(next),
                None => spot.standby.take(),
            };
            match next.filter(|next| after.members.contains_key(next)) {
                Some(next) => spot.owner = next,
                None => return false,
            }
            true
        });
        after
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn members(names: &[(&str, u64)]) -> BTreeMap<String, u64> {
        names.iter().map(|(name, term)| ((*name).to_owned(), *term)).collect()
    }

    fn logs(ids: &[u64]) -> BTreeSet<LogId> {
        ids.iter().copied().map(LogId).collect()
    }

    fn owner(placement: &Placement, log: u64) -> Option<&str> {
        placement.logs.get(&LogId(log)).map(|spot| spot.owner.as_str())
    }

    fn revise(from: &Placement, alive: &[(&str, u64)], ids: &[u64], pinned: &[u64]) -> Placement {
        from.revise(&Known {
            coordinator: "a",
            term: 1,
            catalogue: Lsn(7),
            alive: &members(alive),
            logs: &logs(ids),
            pinned: &logs(pinned),
        })
    }

    /// Everybody hands over what it is asked to.
    fn settle(placement: &Placement) -> Placement {
        let mut settled = placement.clone();
        for node in placement.members.keys() {
            settled = settled.handed_over(node, &settled.to_hand_over(node));
        }
        settled
    }

    #[test]
    fn what_is_at_home_is_spread_by_its_owner_handing_it_over() {
        let asked = revise(&Placement::default(), &[("a", 1), ("b", 1)], &[1, 2], &[]);
        assert_eq!((owner(&asked, 1), owner(&asked, 2)), (Some("a"), Some("a")));
        assert_eq!(asked.to_hand_over("a").len(), 1);
        let done = settle(&asked);
        let of_b = done.logs.values().filter(|spot| spot.owner == "b");
        assert_eq!(of_b.count(), 1);
        assert_eq!(
            revise(&done, &[("a", 1), ("b", 1)], &[1, 2], &[]),
            done,
            "nothing more to do"
        );
    }

    #[test]
    fn what_is_pinned_comes_home_and_goes_back_afterwards() {
        let spread = settle(&revise(&Placement::default(), &[("a", 1), ("b", 1)], &[1, 2], &[]));
        let asked = revise(&spread, &[("a", 1), ("b", 1)], &[1, 2], &[1, 2]);
        // The coordinator's own are at home already.
        assert_eq!(asked.logs.len(), 1);
        let home = settle(&asked);
        assert!(home.logs.is_empty());
        let back = settle(&revise(&home, &[("a", 1), ("b", 1)], &[1, 2], &[]));
        assert_eq!(back.logs.len(), 2);
    }

    #[test]
    fn who_comes_back_in_another_term_owns_nothing_of_before() {
        let spread = settle(&revise(&Placement::default(), &[("a", 1), ("b", 1)], &[1, 2], &[]));
        let log = spread
            .logs
            .iter()
            .find(|(_, spot)| spot.owner == "b")
            .map(|(log, _)| *log)
            .unwrap();
        assert!(spread.is_owned_by(log, "b", Some(1)));
        assert!(!spread.is_owned_by(log, "b", Some(2)));
        assert!(!spread.is_owned_by(log, "b", None));
        let lost = revise(&spread, &[("a", 1)], &[1, 2], &[]);
        assert!(lost.logs.values().all(|spot| spot.owner == "a" && spot.to.is_none()));
        let pinned = revise(&spread, &[("a", 1)], &[1, 2], &[1, 2]);
        assert!(pinned.logs.is_empty(), "home without asking anybody");
    }

    #[test]
    fn who_leaves_passes_its_logs_to_those_who_stand_by() {
        let spread = settle(&revise(
            &Placement::default(),
            &[("a", 1), ("b", 1), ("c", 1)],
            &[1, 2, 3],
            &[],
        ));
        let left = spread.left_by("b");
        assert!(!left.members.contains_key("b"));
        assert_eq!(left.logs.len(), 3);
        assert!(
            left.logs
                .values()
                .all(|spot| spot.owner != "b" && spot.standby.as_deref() != Some("b"))
        );
        let alone = left.left_by("c").left_by("a");
        assert!(alone.logs.is_empty() && alone.members.is_empty());
    }

    #[test]
    fn logs_that_are_gone_are_forgotten() {
        let spread = settle(&revise(&Placement::default(), &[("a", 1), ("b", 1)], &[1, 2], &[]));
        assert_eq!(revise(&spread, &[("a", 1), ("b", 1)], &[2], &[]).logs.len(), 1);
    }

    proptest! {
        /// No revision takes a log from a node whose tenure goes on; only that node hands it over.
        #[test]
        fn an_owner_whose_tenure_runs_is_never_replaced_by_another(
            turns in proptest::collection::vec((0u8..5, 0usize..3, 1u64..8), 1..60),
        ) {
            let names = ["a", "b", "c"];
            let mut alive = members(&[("a", 1)]);
            let (mut placement, mut ids, mut pinned) = (Placement::default(), logs(&[1, 2, 3]), BTreeSet::new());
            for (what, who, log) in turns {
                let (name, log) = (names[who], LogId(log));
                let before = placement.clone();
                match what {
                    0 => drop(ids.insert(log)),
                    1 if !pinned.remove(&log) => drop(pinned.insert(log)),
                    // Its tenure ends, or begins anew. The coordinator's goes on.
                    2 if name != "a" => {
                        *alive.entry(name.to_owned()).or_insert(0) += 1;
                    }
                    3 if name != "a" => drop(alive.remove(name)),
                    4 => placement = placement.handed_over(name, &placement.to_hand_over(name)),
                    _ => {}
                }
                let by_itself = placement.clone();
                placement = placement.revise(&Known {
                    coordinator: "a", term: 1, catalogue: Lsn(1), alive: &alive, logs: &ids, pinned: &pinned,
                });
                for (log, spot) in &by_itself.logs {
                    let runs = alive.contains_key(&spot.owner) && alive.get(&spot.owner) == before.members.get(&spot.owner);
                    if !runs || spot.owner == "a" {
                        continue;
                    }
                    prop_assert_eq!(&placement.logs[log].owner, &spot.owner);
                }
                for (log, spot) in &placement.logs {
                    prop_assert!(alive.contains_key(&spot.owner), "{log}");
                }
            }
        }
    }
}
