//! How long every node of a cluster has been silent, as one node sees it.
//!
//! Each node holds a lease of its own, its *tenure*, on which everything rests that it answers from logs it owns. It renews
//! it, and nobody else takes it; but whoever coordinates ends it when it has not been renewed for as long as a lease holds,
//! by writing in the place of the very version that was not renewed. So a tenure is either renewed or ended, never both, and
//! by the time it is ended its holder has ceased to rely on it ([`super::lease`]).

use std::collections::BTreeMap;
use std::time::Duration;

use super::lease::{Lease, Revision};

/// What one node has seen of all tenures.
#[derive(Clone, Debug, Default)]
pub struct Tenures {
    seen: BTreeMap<String, Seen>,
}

#[derive(Clone, Debug)]
struct Seen {
    lease: Lease,
    revision: Revision,
    /// When this version was first seen.
    since: Duration,
}

/// A tenure to be ended: what to write, and in the place of which version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    pub node: String,
    pub lease: Lease,
    pub over: Revision,
}

impl Tenures {
    /// All records as they were read. One that is missing without having been ended was overlooked by a server that lags.
    pub fn observe(&mut self, found: BTreeMap<String, (Lease, Revision)>, now: Duration) {
        self.seen
            .retain(|node, seen| found.contains_key(node) || seen.lease.holder.is_some());
        for (node, (lease, revision)) in found {
            match self.seen.get(&node) {
                Some(seen) if seen.revision >= revision => {}
                _ => self.saw(node, lease, revision, now),
            }
        }
    }

    /// A version that is known because it was written just now.
    pub fn saw(&mut self, node: String, lease: Lease, revision: Revision, now: Duration) {
        let seen = Seen {
            lease,
            revision,
            since: now,
        };
        self.seen.insert(node, seen);
    }

    /// The record is surely gone.
    pub fn forget(&mut self, node: &str) {
        self.seen.remove(node);
    }

    /// Nodes whose tenures run, and which term each is in.
    pub fn alive(&self) -> BTreeMap<String, u64> {
        let alive = self.seen.iter().filter(|(_, seen)| seen.lease.holder.is_some());
        alive.map(|(node, seen)| (node.clone(), seen.lease.term)).collect()
    }

    /// Tenures that were not renewed in time.
    pub fn overdue(&self, expiry: Duration, now: Duration) -> Vec<Ending> {
        let overdue = |seen: &Seen| seen.lease.holder.is_some() && now >= seen.since + expiry;
        let ending = |(node, seen): (&String, &Seen)| Ending {
            node: node.clone(),
            lease: Lease {
                holder: None,
                term: seen.lease.term,
                serving: false,
            },
            over: seen.revision,
        };
        self.seen.iter().filter(|(_, seen)| overdue(seen)).map(ending).collect()
    }

    /// Records of nodes that have been gone for long, with the versions they have.
    pub fn forgotten(&self, after: Duration, now: Duration) -> Vec<(String, Revision)> {
        let is_old = |seen: &Seen| seen.lease.holder.is_none() && now >= seen.since + after;
        let old = self.seen.iter().filter(|(_, seen)| is_old(seen));
        old.map(|(node, seen)| (node.clone(), seen.revision)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::lease::{Step, Tenancy, Times};
    use super::*;

    const TIMES: Times = Times {
        renew: Duration::from_millis(700),
        expiry: Duration::from_millis(2500),
    };

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn held(term: u64) -> Lease {
        Lease {
            holder: Some("n".into()),
            term,
            serving: false,
        }
    }

    fn records(found: &[(&str, Lease, Revision)]) -> BTreeMap<String, (Lease, Revision)> {
        let found = found.iter().cloned();
        found
            .map(|(node, lease, revision)| (node.to_owned(), (lease, revision)))
            .collect()
    }

    #[test]
    fn a_tenure_that_is_renewed_runs_on_and_one_that_is_not_is_to_be_ended() {
        let mut tenures = Tenures::default();
        tenures.observe(records(&[("n", held(1), 5)]), ms(0));
        tenures.observe(records(&[("n", held(1), 6)]), ms(2400));
        assert!(tenures.overdue(TIMES.expiry, ms(2600)).is_empty());
        tenures.observe(records(&[("n", held(1), 6)]), ms(4900));
        let endings = tenures.overdue(TIMES.expiry, ms(4900));
        assert_eq!((endings.len(), endings[0].over, endings[0].lease.term), (1, 6, 1));
        tenures.saw("n".into(), endings[0].lease.clone(), 7, ms(4900));
        assert!(tenures.alive().is_empty());
        assert_eq!(tenures.forgotten(ms(1000), ms(5900)), [("n".to_owned(), 7)]);
        // An answer from before that says otherwise is old.
        tenures.observe(records(&[("n", held(1), 6)]), ms(5000));
        assert!(tenures.alive().is_empty());
    }

    proptest! {
        /// Whatever is delayed or lost, when a tenure is ended its holder no longer relies on it.
        #[test]
        fn nobody_relies_on_a_tenure_that_was_ended(turns in proptest::collection::vec((any::<bool>(), 0u64..900, 0u8..4), 1..300)) {
            let (mut record, mut last): (Option<(Lease, Revision)>, Revision) = (None, 0);
            let (mut node, mut watcher) = (Tenancy::new("n", TIMES), Tenures::default());
            let mut now = Duration::ZERO;
            for (is_node, pause, luck) in turns {
                now += ms(pause);
                let before = record.clone();
                if is_node {
                    if luck > 0 {
                        node.observe(record.clone(), now);
                    }
                    if let Step::Write { lease, over } = node.next(now)
                        && record.as_ref().map(|(_, revision)| *revision) == over
                    {
                        last += 1;
                        record = Some((lease.clone(), last));
                        match luck {
                            1 => node.unsure(),
                            _ => node.wrote(lease, last, now),
                        }
                    }
                    continue;
                }
                if luck > 0 {
                    watcher.observe(before.into_iter().map(|found| ("n".to_owned(), found)).collect(), now);
                }
                for ending in watcher.overdue(TIMES.expiry, now) {
                    if record.as_ref().is_some_and(|(_, revision)| *revision == ending.over) {
                        prop_assert!(!node.holds(now));
                        last += 1;
                        record = Some((ending.lease.clone(), last));
                        watcher.saw(ending.node, ending.lease, last, now);
                    }
                }
            }
        }
    }
}
