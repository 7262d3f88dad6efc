//! How many leases each host has, while a decision is being made.
//!
//! Invariant: a lease changes hands only from a host that has at least two more than the one that gets it, so that two
//! balanced hosts never pass one back and forth.

use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub(super) struct Shares<'a> {
    counts: BTreeMap<&'a str, usize>,
    n_leases: usize,
    /// What nobody takes from a host.
    kept: usize,
    /// Hosts we have decided not to take from in this cycle.
    spared: Vec<&'a str>,
}

impl<'a> Shares<'a> {
    /// One `owners` entry per owned lease; `present` are hosts that count although they may own none. Nobody is brought below
    /// `kept` leases.
    pub fn new(
        owners: impl Iterator<Item = &'a str>,
        present: impl Iterator<Item = &'a str>,
        n_leases: usize,
        kept: usize,
    ) -> Shares<'a> {
        let mut counts: BTreeMap<&str, usize> = present.map(|host| (host, 0)).collect();
        owners.for_each(|owner| *counts.entry(owner).or_default() += 1);
        Shares {
            counts,
            n_leases,
            kept,
            spared: Vec::new(),
        }
    }

    /// An equal share, rounded up.
    pub fn target(&self) -> usize {
        self.n_leases.div_ceil(self.counts.len().max(1)).max(1)
    }

    pub fn of(&self, host: &str) -> usize {
        self.counts.get(host).copied().unwrap_or(0)
    }

    /// Whether a lease of `owner` may go to `taker`, who wants `target` of them.
    pub fn can_take(&self, owner: &str, taker: &str, target: usize) -> bool {
        self.of(taker) < target && self.of(owner) >= self.of(taker) + 2 && self.of(owner) > self.kept
    }

    pub fn take(&mut self, from: Option<&'a str>, to: &'a str) {
        if let Some(count) = from.and_then(|from| self.counts.get_mut(from)) {
            *count = count.saturating_sub(1);
        }
        *self.counts.entry(to).or_default() += 1;
    }

    /// The host with the most, if `taker` may take one from it.
    pub fn richest(&self, taker: &str, target: usize) -> Option<&'a str> {
        let others = self.counts.keys().copied();
        let candidates = others.filter(|host| *host != taker && !self.spared.contains(host));
        let richest = candidates.max_by_key(|host| self.of(host))?;
        self.can_take(richest, taker, target).then_some(richest)
    }

    pub fn spare(&mut self, host: &'a str) {
        self.spared.push(host);
    }
}
