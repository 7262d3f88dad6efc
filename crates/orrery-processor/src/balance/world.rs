//! A unit without a network: hosts that decide, a store that honours entity tags, one clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{BalanceSettings, LeaseAction, Listing, Want, Watch, Why, balance};
use crate::fence::Fence;
use crate::lease::{Conflict, FeedMode, HostMark, Incarnation, Lease, judge};
use crate::range::EpkRange;

#[derive(Clone, Debug)]
struct Host {
    mark: HostMark,
    watch: Watch,
    /// Leases it reads, with when it last confirmed each.
    running: BTreeMap<String, Fence>,
    paused: bool,
    alive: bool,
}

#[derive(Clone, Debug)]
pub struct World {
    leases: BTreeMap<String, Lease>,
    wants: BTreeMap<String, Want>,
    hosts: Vec<Host>,
    now: Duration,
    /// Leases taken from a live owner that has yet to notice, with that owner's name.
    stolen: BTreeSet<(String, String)>,
    n_writes: u64,
    settings: BalanceSettings,
}

impl World {
    pub fn new(n_leases: usize, n_hosts: usize) -> World {
        let lease = |n: usize| {
            let lease = Lease::for_range(format!("u..{n}"), EpkRange::full(), FeedMode::LatestVersion);
            (
                format!("u..{n}"),
                Lease {
                    token: n.to_string(),
                    etag: Some("0".into()),
                    written_at_s: Some(0),
                    ..lease
                },
            )
        };
        let mut world = World {
            leases: (0..n_leases).map(lease).collect(),
            wants: BTreeMap::new(),
            hosts: Vec::new(),
            now: Duration::from_secs(1),
            stolen: BTreeSet::new(),
            n_writes: 0,
            settings: BalanceSettings::default(),
        };
        (0..n_hosts).for_each(|_| world.join());
        world
    }

    pub fn join(&mut self) {
        let n = self.hosts.len();
        let incarnation = Incarnation {
            started_ms: self.now.as_millis() as u64,
            chance: n as u64,
        };
        self.hosts.push(Host {
            mark: HostMark {
                name: format!("host{n}"),
                incarnation,
            },
            watch: Watch::default(),
            running: BTreeMap::new(),
            paused: false,
            alive: true,
        });
    }

    /// A graceful stop of the host that came last.
    pub fn leave(&mut self) {
        let n = self.hosts.iter().rposition(|host| host.alive).unwrap();
        for id in self.hosts[n].running.keys().cloned().collect::<Vec<_>>() {
            let next = self.leases[&id].released("t");
            self.write(next);
        }
        self.crash(n);
    }

    pub fn crash(&mut self, host: usize) {
        if let Some(host) = self.hosts.get_mut(host) {
            host.alive = false;
            host.running.clear();
        }
    }

    pub fn pause(&mut self, host: usize) {
        self.hosts.get_mut(host).into_iter().for_each(|host| host.paused = true);
    }

    pub fn resume(&mut self, host: usize) {
        self.hosts
            .get_mut(host)
            .into_iter()
            .for_each(|host| host.paused = false);
    }

    pub fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Every host lists and decides once, and renews, in the course of one acquire interval.
    pub fn cycles(&mut self, n: usize) {
        for _ in 0..n {
            for host in 0..self.hosts.len() {
                self.cycle(host);
                self.renew(host);
            }
            self.pass(self.settings.acquire_interval);
        }
    }

    pub fn cycle(&mut self, n: usize) {
        if !self.hosts.get(n).is_some_and(|host| host.alive && !host.paused) {
            return;
        }
        let listing = Listing {
            leases: self.leases.values().cloned().collect(),
            wants: self.wants.values().cloned().collect(),
            server_now_ms: Some(self.now.as_millis() as u64),
        };
        let host = &mut self.hosts[n];
        host.watch.note(&listing, self.now, self.now);
        let running: BTreeSet<String> = host.running.keys().cloned().collect();
        let mark = host.mark.clone();
        for action in balance(&listing, &host.watch, &running, &mark, self.now, &self.settings) {
            self.perform(n, &mark, action);
        }
    }

    fn perform(&mut self, n: usize, mark: &HostMark, action: LeaseAction) {
        match action {
            LeaseAction::Take { id, how, why } => {
                if why == Why::Stolen {
                    let victim = self.leases[&id].owner.clone().unwrap_or_default();
                    self.stolen.insert((id.clone(), victim));
                }
                let next = self.leases[&id].acquired(mark, how, "t");
                self.write(next);
                self.hosts[n]
                    .running
                    .insert(id, Fence::new(self.now, self.settings.expiry));
            }
            LeaseAction::Ask { id } => {
                let token = self.leases[&id].token.clone();
                let written_at_s = Some(self.now.as_secs());
                self.wants.entry(token.clone()).or_insert(Want {
                    token,
                    by: mark.clone(),
                    written_at_s,
                });
            }
            LeaseAction::HandOver { id, to } => {
                self.hosts[n].running.remove(&id);
                if judge(&self.leases[&id], mark) == Conflict::StillMine {
                    let next = self.leases[&id].handed_to(&to, "t");
                    self.write(next);
                }
            }
            LeaseAction::Withdraw { token } => {
                self.wants.remove(&token);
            }
            LeaseAction::Check { id } => {
                let lost = self
                    .leases
                    .get(&id)
                    .is_none_or(|lease| judge(lease, mark) != Conflict::StillMine);
                if lost {
                    self.hosts[n].running.remove(&id);
                }
            }
            LeaseAction::StopForNamesake { .. } => panic!("names are unique here"),
        }
    }

    pub fn renew(&mut self, n: usize) {
        if !self.hosts.get(n).is_some_and(|host| host.alive && !host.paused) {
            return;
        }
        for id in self.hosts[n].running.keys().cloned().collect::<Vec<_>>() {
            let mark = self.hosts[n].mark.clone();
            if judge(&self.leases[&id], &mark) == Conflict::StillMine && !self.hosts[n].running[&id].is_shut(self.now) {
                let next = self.leases[&id].renewed("t");
                self.write(next);
                self.hosts[n]
                    .running
                    .insert(id, Fence::new(self.now, self.settings.expiry));
            } else {
                self.hosts[n].running.remove(&id);
                self.stolen.remove(&(id, mark.name));
            }
        }
    }

    fn write(&mut self, mut next: Lease) {
        self.n_writes += 1;
        next.etag = Some(self.n_writes.to_string());
        next.written_at_s = Some(self.now.as_secs());
        self.leases.insert(next.id.clone(), next);
    }

    /// Leases per living host.
    pub fn counts(&self) -> Vec<usize> {
        let living = self.hosts.iter().filter(|host| host.alive);
        living.map(|host| host.running.len()).collect()
    }

    pub fn clone_leases(&self) -> Vec<Option<String>> {
        self.leases.values().map(|lease| lease.owner.clone()).collect()
    }

    /// A lease that two hosts would deliver from now, if there is one. A theft from a live owner is the one exception the
    /// rules allow, until that owner's next write: it follows a request that went unanswered.
    pub fn read_twice(&self) -> Option<String> {
        let reads = |host: &&Host, id: &str| {
            let is_robbed = self.stolen.contains(&(id.to_owned(), host.mark.name.clone()));
            host.alive && !is_robbed && host.running.get(id).is_some_and(|fence| !fence.is_shut(self.now))
        };
        let n_readers = |id: &str| self.hosts.iter().filter(|host| reads(host, id)).count();
        self.leases.keys().find(|id| n_readers(id) > 1).cloned()
    }
}
