//! Which node should own which log: a pure function of who is there, what there is and how it lies now.
//!
//! Loads differ by at most one, nothing moves that need not, and the same question has the same answer everywhere. Every log
//! also has a node that stands by, which gets it if its owner is lost; standing by costs nothing to change.

use std::collections::{BTreeMap, BTreeSet};

use orrery_model::LogId;

/// Who should own a log, and who should get it next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub owner: String,
    /// Another node, if there is one.
    pub standby: Option<String>,
}

/// Places every log on one of the nodes. Empty when there are none.
pub fn place(
    nodes: &BTreeSet<String>,
    logs: &BTreeSet<LogId>,
    current: &BTreeMap<LogId, Assignment>,
) -> BTreeMap<LogId, Assignment> {
    if nodes.is_empty() {
        return BTreeMap::new();
    }
    let owners = owners(nodes, logs, current);
    let standbys = standbys(nodes, &owners, current);
    let assign = |(log, owner): (LogId, String)| {
        let standby = standbys.get(&log).cloned();
        (log, Assignment { owner, standby })
    };
    owners.into_iter().map(assign).collect()
}

/// Logs by how many a node may have, and has.
struct Shares<'a> {
    /// What is left of each node's share.
    room: BTreeMap<&'a str, usize>,
}

impl<'a> Shares<'a> {
    /// Equal shares of `n_logs`; those who hold most get what does not divide.
    fn new(nodes: &'a BTreeSet<String>, n_logs: usize, held: &BTreeMap<&str, usize>) -> Shares<'a> {
        let n_held = |node: &str| held.get(node).copied().unwrap_or(0);
        let mut by_load: Vec<&str> = nodes.iter().map(String::as_str).collect();
        by_load.sort_by_key(|node| (std::cmp::Reverse(n_held(node)), *node));
        let (base, n_larger) = (n_logs / nodes.len(), n_logs % nodes.len());
        let room = by_load.into_iter().enumerate();
        Shares {
            room: room
                .map(|(rank, node)| (node, base + usize::from(rank < n_larger)))
                .collect(),
        }
    }

    /// Takes one place of a node, if it has one left.
    fn take(&mut self, node: &str) -> bool {
        match self.room.get_mut(node) {
            Some(room) if *room > 0 => {
                *room -= 1;
                true
            }
            _ => false,
        }
    }

    /// The node other than `except` with most room; the first of equals.
    fn roomiest(&self, except: Option<&str>) -> Option<String> {
        let mut best: Option<(&str, usize)> = None;
        for (node, room) in self.room.iter().filter(|(node, _)| Some(**node) != except) {
            if best.is_none_or(|(_, most)| *room > most) {
                best = Some((node, *room));
            }
        }
        best.map(|(node, _)| node.to_owned())
    }
}

fn owners(
    nodes: &BTreeSet<String>,
    logs: &BTreeSet<LogId>,
    current: &BTreeMap<LogId, Assignment>,
) -> BTreeMap<LogId, String> {
    let owner_of = |log: &LogId| current.get(log).map(|assignment| assignment.owner.as_str());
    let mut held: BTreeMap<&str, usize> = BTreeMap::new();
    for owner in logs.iter().filter_map(owner_of) {
        *held.entry(owner).or_default() += 1;
    }
    let mut shares = Shares::new(nodes, logs.len(), &held);
    let mut owners = BTreeMap::new();
    let mut homeless = Vec::new();
    for log in logs {
        match owner_of(log) {
            Some(owner) if shares.take(owner) => drop(owners.insert(*log, owner.to_owned())),
            _ => homeless.push(*log),
        }
    }
    // Whoever stands by has the view in its hands.
    homeless.retain(|log| {
        let standby = current.get(log).and_then(|assignment| assignment.standby.as_deref());
        let goes_there = standby.is_some_and(|standby| shares.take(standby));
        if let (true, Some(standby)) = (goes_there, standby) {
            owners.insert(*log, standby.to_owned());
        }
        !goes_there
    });
    for log in homeless {
        let node = shares.roomiest(None).expect("there are nodes");
        shares.take(&node);
        owners.insert(log, node);
    }
    owners
}

/// For every log a node other than its owner, each for about as many as any other.
fn standbys(
    nodes: &BTreeSet<String>,
    owners: &BTreeMap<LogId, String>,
    current: &BTreeMap<LogId, Assignment>,
) -> BTreeMap<LogId, String> {
    let mut standbys = BTreeMap::new();
    if nodes.len() < 2 {
        return standbys;
    }
    let mut shares = Shares {
        room: nodes
            .iter()
            .map(|node| (node.as_str(), owners.len().div_ceil(nodes.len())))
            .collect(),
    };
    let mut without = Vec::new();
    for (log, owner) in owners {
        let standby = current.get(log).and_then(|assignment| assignment.standby.as_deref());
        match standby.filter(|standby| standby != owner) {
            Some(standby) if shares.take(standby) => drop(standbys.insert(*log, standby.to_owned())),
            _ => without.push((log, owner)),
        }
    }
    for (log, owner) in without {
        let node = shares.roomiest(Some(owner)).expect("there are other nodes");
        shares.take(&node);
        standbys.insert(*log, node);
    }
    standbys
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nodes(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn logs(n: u64) -> BTreeSet<LogId> {
        (1..=n).map(LogId).collect()
    }

    fn load(placed: &BTreeMap<LogId, Assignment>, node: &str) -> usize {
        placed.values().filter(|assignment| assignment.owner == node).count()
    }

    fn moved(before: &BTreeMap<LogId, Assignment>, after: &BTreeMap<LogId, Assignment>) -> usize {
        let is_moved = |(log, assignment): &(&LogId, &Assignment)| {
            before.get(log).is_some_and(|before| before.owner != assignment.owner)
        };
        after.iter().filter(is_moved).count()
    }

    #[test]
    fn a_second_node_gets_half_and_the_first_stands_by_for_it() {
        let alone = place(&nodes(&["a"]), &logs(4), &BTreeMap::new());
        assert!(
            alone
                .values()
                .all(|place| place.owner == "a" && place.standby.is_none())
        );
        let both = place(&nodes(&["a", "b"]), &logs(4), &alone);
        assert_eq!((load(&both, "a"), load(&both, "b"), moved(&alone, &both)), (2, 2, 2));
        for assignment in both.values() {
            assert_ne!(assignment.standby.as_deref(), Some(&*assignment.owner));
            assert!(assignment.standby.is_some());
        }
    }

    #[test]
    fn what_a_lost_node_owned_goes_to_those_who_stood_by() {
        let three = place(&nodes(&["a", "b", "c"]), &logs(6), &BTreeMap::new());
        let two = place(&nodes(&["a", "b"]), &logs(6), &three);
        assert_eq!(moved(&three, &two), 2, "only what c owned moves");
        let of_c = three.iter().filter(|(_, before)| before.owner == "c");
        let to_standby = of_c.filter(|(log, before)| before.standby.as_ref() == Some(&two[*log].owner));
        assert!(to_standby.count() > 0);
    }

    #[test]
    fn nobody_owns_anything_where_nobody_is() {
        assert!(place(&BTreeSet::new(), &logs(3), &BTreeMap::new()).is_empty());
    }

    fn some_nodes() -> impl Strategy<Value = BTreeSet<String>> {
        proptest::collection::btree_set("[a-h]", 1..8)
    }

    fn some_current() -> impl Strategy<Value = BTreeMap<LogId, Assignment>> {
        let assignment =
            ("[a-h]", proptest::option::of("[a-h]")).prop_map(|(owner, standby)| Assignment { owner, standby });
        proptest::collection::btree_map((1u64..60).prop_map(LogId), assignment, 0..60)
    }

    proptest! {
        #[test]
        fn every_log_has_one_owner_that_is_there_and_loads_differ_by_at_most_one(
            nodes in some_nodes(),
            logs in proptest::collection::btree_set((1u64..60).prop_map(LogId), 0..60),
            current in some_current(),
        ) {
            let placed = place(&nodes, &logs, &current);
            prop_assert_eq!(placed.keys().copied().collect::<BTreeSet<_>>(), logs.clone());
            for assignment in placed.values() {
                prop_assert!(nodes.contains(&assignment.owner));
                prop_assert_eq!(assignment.standby.is_some(), nodes.len() > 1);
                prop_assert!(assignment.standby.as_ref() != Some(&assignment.owner));
                prop_assert!(assignment.standby.iter().all(|standby| nodes.contains(standby)));
            }
            let loads: Vec<usize> = nodes.iter().map(|node| load(&placed, node)).collect();
            let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
            prop_assert!(most - least <= 1);
            prop_assert_eq!(place(&nodes, &logs, &current), placed.clone(), "the same answer");
            let again = place(&nodes, &logs, &placed);
            prop_assert_eq!(moved(&placed, &again), 0, "a fixed point");
        }

        #[test]
        fn who_comes_gets_its_share_and_nothing_else_moves(nodes in some_nodes(), n_logs in 0u64..60) {
            let logs = logs(n_logs);
            let before = place(&nodes, &logs, &BTreeMap::new());
            let mut more = nodes.clone();
            more.insert("new".to_owned());
            let after = place(&more, &logs, &before);
            prop_assert_eq!(moved(&before, &after), load(&after, "new"));
            prop_assert!(load(&after, "new") <= logs.len() / more.len() + 1);
        }

        #[test]
        fn who_goes_leaves_only_its_own_logs_to_move(nodes in some_nodes(), n_logs in 0u64..60) {
            prop_assume!(nodes.len() > 1);
            let logs = logs(n_logs);
            let before = place(&nodes, &logs, &BTreeMap::new());
            let gone = nodes.first().unwrap().clone();
            let fewer: BTreeSet<String> = nodes.iter().skip(1).cloned().collect();
            let after = place(&fewer, &logs, &before);
            prop_assert_eq!(moved(&before, &after), load(&before, &gone));
        }
    }
}
