//! Who should hold which lease: decided by every host alone, from the listing all of them see.
//!
//! Targets are equal counts. Free leases are taken at once; leases of another host of this library are asked for, and that
//! host gives them when its batch is done; leases of other processors are taken one per cycle, as they take ours. A host
//! judges that another is dead only by the server's clock or by having watched a lease not change for the whole expiry.
//! Invariants: a decision never leads to two owners, because every write it leads to is conditioned on the document the
//! decision was made from; a balanced unit is left alone, because nobody takes from a host that has only one lease more.

mod liveness;
mod shares;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use liveness::{Liveness, Watch};

use crate::lease::{Conflict, HostMark, Lease, Takeover, judge};
use shares::Shares;

/// A host's request for a lease that another one holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Token of the lease.
    pub token: String,
    pub by: HostMark,
    /// Server time of the request, in seconds.
    pub written_at_s: Option<u64>,
}

/// Everything the store says about a unit at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    pub leases: Vec<Lease>,
    pub wants: Vec<Want>,
    /// The server's clock when it answered.
    pub server_now_ms: Option<u64>,
}

/// How a unit shares its leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalanceSettings {
    pub acquire_interval: Duration,
    pub expiry: Duration,
    /// No host is brought below so many, and takes as many if they are free. The same for all hosts of a unit.
    pub leases_min: usize,
    /// Never take more than this.
    pub leases_max: Option<usize>,
    /// Most leases taken or asked for in one cycle.
    pub takes_per_cycle: usize,
    /// Ask hosts of this library instead of robbing them.
    pub cooperative: bool,
}

impl Default for BalanceSettings {
    fn default() -> BalanceSettings {
        BalanceSettings {
            acquire_interval: Duration::from_secs(13),
            expiry: Duration::from_secs(60),
            leases_min: 0,
            leases_max: None,
            takes_per_cycle: 256,
            cooperative: true,
        }
    }
}

/// Why a lease is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nobody owned it.
    Free,
    /// Its owner has not renewed it for the whole expiry.
    Expired,
    /// It names us already: handed over, or left from a process of this name.
    Ours,
    /// Its owner has too many and is of another kind, or has not answered a request.
    Stolen,
}

/// What a host should do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// Write ourselves as owner, conditioned on the listed document, and start reading.
    Take { id: String, why: Why, how: Takeover },
    /// Leave a request for its owner.
    Ask { id: String },
    /// Finish the batch, checkpoint, and write the asking host as owner.
    HandOver { id: String, to: HostMark },
    /// Remove a request of ours that is fulfilled or no longer makes sense.
    Withdraw { token: String },
    /// A lease that we read is somebody else's, or gone: find out now instead of at the next renewal.
    Check { id: String },
    /// A later process has our name: stop everything.
    StopForNamesake { id: String },
}

/// Decides on one listing. `now` is the host's own monotonic clock, the one `watch` was fed with; `running` are the leases
/// this process reads.
pub fn balance(
    listing: &Listing,
    watch: &Watch,
    running: &BTreeSet<String>,
    me: &HostMark,
    now: Duration,
    settings: &BalanceSettings,
) -> Vec<LeaseAction> {
    let view = View::new(listing, watch, me, now, settings);
    match view.namesake() {
        Namesake::None => {}
        Namesake::Perhaps => return Vec::new(),
        Namesake::Alive(lease) => return vec![LeaseAction::StopForNamesake { id: lease.id.clone() }],
    }
    let mut actions = Vec::new();
    view.adopt(running, &mut actions);
    view.check(running, &mut actions);
    let mut shares = view.shares();
    let n_taken = view.take_free(running, &mut shares, &mut actions);
    view.rebalance(&mut shares, n_taken, &mut actions);
    view.give(running, &mut actions);
    actions
}

/// Whether a later process runs under our name, as far as its leases tell.
enum Namesake<'a> {
    /// Nobody's leases say so, or they have expired: who wrote them is dead, whatever its clock said when it started.
    None,
    /// Its leases are as they were when we began, and have not expired: the next listings will tell.
    Perhaps,
    /// It wrote this lease after we began.
    Alive(&'a Lease),
}

struct View<'a> {
    listing: &'a Listing,
    watch: &'a Watch,
    me: &'a HostMark,
    now: Duration,
    settings: &'a BalanceSettings,
    liveness: BTreeMap<&'a str, Liveness>,
    /// Requests recent enough to count, by lease token.
    wants: BTreeMap<&'a str, &'a Want>,
}

impl<'a> View<'a> {
    fn new(
        listing: &'a Listing,
        watch: &'a Watch,
        me: &'a HostMark,
        now: Duration,
        settings: &'a BalanceSettings,
    ) -> View<'a> {
        let liveness = |lease: &'a Lease| (lease.id.as_str(), watch.liveness(lease, listing, settings.expiry));
        let fresh = |want: &&Want| !watch.is_stale(want, listing.server_now_ms, settings);
        View {
            liveness: listing.leases.iter().map(liveness).collect(),
            wants: listing
                .wants
                .iter()
                .filter(fresh)
                .map(|want| (want.token.as_str(), want))
                .collect(),
            listing,
            watch,
            me,
            now,
            settings,
        }
    }

    fn is_mine(&self, lease: &Lease) -> bool {
        lease.owner() == Some(self.me.name.as_str())
    }

    fn is_free(&self, lease: &Lease) -> bool {
        self.liveness.get(lease.id.as_str()) != Some(&Liveness::Live)
    }

    fn namesake(&self) -> Namesake<'a> {
        let newer = |lease: &&Lease| judge(lease, self.me) == Conflict::NewerNamesake;
        let theirs: Vec<&Lease> = self.listing.leases.iter().filter(newer).collect();
        match theirs.iter().find(|lease| self.watch.was_written(lease)) {
            Some(lease) => Namesake::Alive(lease),
            None if theirs.iter().any(|lease| !self.is_free(lease)) => Namesake::Perhaps,
            None => Namesake::None,
        }
    }

    /// Leases that name us and that we do not read: handed over, or left behind by a process of this name.
    fn adopt(&self, running: &BTreeSet<String>, actions: &mut Vec<LeaseAction>) {
        for lease in self.listing.leases.iter().filter(|lease| self.is_mine(lease)) {
            if running.contains(&lease.id) {
                continue;
            }
            let given = lease.incarnation() == Some(self.me.incarnation);
            actions.push(LeaseAction::Take {
                id: lease.id.clone(),
                why: Why::Ours,
                how: if given { Takeover::Clean } else { Takeover::AfterCrash },
            });
        }
    }

    /// Leases that we read although they are not ours any more: an operator moved them, or another host took them.
    fn check(&self, running: &BTreeSet<String>, actions: &mut Vec<LeaseAction>) {
        let mine = |id: &&String| {
            let mut leases = self.listing.leases.iter();
            leases.any(|lease| lease.id == **id && self.is_mine(lease))
        };
        let lost = running.iter().filter(|id| !mine(id));
        actions.extend(lost.map(|id| LeaseAction::Check { id: id.clone() }));
    }

    fn shares(&self) -> Shares<'a> {
        let owned = self
            .listing
            .leases
            .iter()
            .filter(|lease| !self.is_free(lease) || self.is_mine(lease));
        let owners = owned.filter_map(Lease::owner);
        let asking = self.wants.values().map(|want| want.by.name.as_str());
        let present = asking.chain([self.me.name.as_str()]);
        let (n_leases, kept) = (self.listing.leases.len(), self.settings.leases_min);
        Shares::new(owners, present, n_leases, kept)
    }

    /// Our share, within the configured limits.
    fn target(&self, shares: &Shares<'_>) -> usize {
        let most = self.settings.leases_max.unwrap_or(usize::MAX);
        shares.target().min(most).max(self.settings.leases_min)
    }

    /// Free leases up to our share; and beyond it, as far as we may, those that the others leave: they may have all that they are
    /// allowed to have, and somebody has to read them.
    fn take_free(&self, running: &BTreeSet<String>, shares: &mut Shares<'a>, actions: &mut Vec<LeaseAction>) -> usize {
        let n_mine = shares.of(&self.me.name);
        let need = self.target(shares).saturating_sub(n_mine);
        let room = self.settings.leases_max.unwrap_or(usize::MAX).saturating_sub(n_mine);
        let mut free: Vec<&Lease> = self.listing.leases.iter().collect();
        // One that we still read has to be let go first, or it would be read twice.
        free.retain(|lease| self.is_free(lease) && !self.is_mine(lease) && !running.contains(&lease.id));
        self.in_our_order(&mut free);
        let mut n_taken = 0;
        for lease in free {
            let is_share = n_taken < need;
            let is_left_over = || n_taken < room && self.watch.is_left_over(lease, self.now, self.settings);
            if n_taken >= self.settings.takes_per_cycle || !(is_share || is_left_over()) {
                continue;
            }
            let (why, how) = match lease.owner() {
                None => (Why::Free, Takeover::Clean),
                Some(_) => (Why::Expired, Takeover::AfterCrash),
            };
            actions.push(LeaseAction::Take {
                id: lease.id.clone(),
                why,
                how,
            });
            shares.take(None, &self.me.name);
            n_taken += 1;
        }
        n_taken
    }

    /// Moves leases from whoever has the most to us, while that makes the unit more equal.
    fn rebalance(&self, shares: &mut Shares<'a>, mut n_taken: usize, actions: &mut Vec<LeaseAction>) {
        let mut asked: Vec<&Lease> = self.listing.leases.iter().collect();
        asked.retain(|lease| self.our_want(lease).is_some());
        self.in_our_order(&mut asked);
        let mut kept = BTreeSet::new();
        for lease in asked {
            // What we have asked for counts as ours, so that nobody asks twice for the same share.
            if shares.can_take(self.owner_of(lease), &self.me.name, self.target(shares)) {
                shares.take(lease.owner(), &self.me.name);
                kept.insert(lease.token.as_str());
                actions.extend(self.take_at_deadline(lease));
            }
        }
        let ours = self.listing.wants.iter().filter(|want| want.by.name == self.me.name);
        for want in ours.filter(|want| !kept.contains(want.token.as_str())) {
            actions.push(LeaseAction::Withdraw {
                token: want.token.clone(),
            });
        }
        let mut robbed = false;
        while n_taken < self.settings.takes_per_cycle {
            let Some(victim) = shares.richest(&self.me.name, self.target(shares)) else {
                break;
            };
            let Some((lease, action)) = self.demand_of(victim, actions, &mut robbed) else {
                shares.spare(victim);
                continue;
            };
            shares.take(Some(victim), &self.me.name);
            debug_assert!(lease.owner() == Some(victim));
            actions.push(action);
            n_taken += 1;
        }
    }

    /// One more lease of `victim`, and how to get it.
    fn demand_of(&self, victim: &str, so_far: &[LeaseAction], robbed: &mut bool) -> Option<(&'a Lease, LeaseAction)> {
        let chosen = |lease: &Lease| {
            so_far.iter().any(|action| match action {
                LeaseAction::Take { id, .. } | LeaseAction::Ask { id } => *id == lease.id,
                _ => false,
            })
        };
        let mut leases: Vec<&'a Lease> = self.listing.leases.iter().collect();
        leases.retain(|lease| lease.owner() == Some(victim) && !lease.is_retired() && !self.is_free(lease));
        leases.retain(|lease| !chosen(lease) && !self.wants.contains_key(lease.token.as_str()));
        self.in_our_order(&mut leases);
        let lease = leases.into_iter().next()?;
        let id = lease.id.clone();
        if self.settings.cooperative && lease.is_held_by_us() {
            return Some((lease, LeaseAction::Ask { id }));
        }
        // One per cycle, as the victim's own kind does, and not while its share is moving anyway.
        if *robbed || self.watch.share_moved(victim) {
            return None;
        }
        *robbed = true;
        let (why, how) = (Why::Stolen, Takeover::Clean);
        Some((lease, LeaseAction::Take { id, why, how }))
    }

    /// A request nobody answered for two cycles is followed by a theft.
    fn take_at_deadline(&self, lease: &Lease) -> Option<LeaseAction> {
        let asked_at = self.watch.asked_at(&lease.token)?;
        (self.now.saturating_sub(asked_at) >= 2 * self.settings.acquire_interval).then(|| LeaseAction::Take {
            id: lease.id.clone(),
            why: Why::Stolen,
            how: Takeover::Clean,
        })
    }

    /// Answers requests for leases we read, as long as the asking host has fewer than we keep.
    fn give(&self, running: &BTreeSet<String>, actions: &mut Vec<LeaseAction>) {
        let mut shares = self.shares();
        for lease in self.listing.leases.iter().filter(|lease| self.is_mine(lease)) {
            let Some(want) = self.wants.get(lease.token.as_str()) else {
                continue;
            };
            let asking = want.by.name.as_str();
            let fair = shares.can_take(&self.me.name, asking, shares.target());
            if asking == self.me.name || !running.contains(&lease.id) || lease.is_retired() || !fair {
                continue;
            }
            shares.take(Some(&self.me.name), asking);
            actions.push(LeaseAction::HandOver {
                id: lease.id.clone(),
                to: want.by.clone(),
            });
        }
    }

    fn our_want(&self, lease: &Lease) -> Option<&Want> {
        let want = self.wants.get(lease.token.as_str()).copied()?;
        let open = want.by.name == self.me.name && !self.is_mine(lease) && !self.is_free(lease);
        open.then_some(want)
    }

    fn owner_of(&self, lease: &'a Lease) -> &'a str {
        lease.owner().unwrap_or_default()
    }

    /// Each host has an order of its own, so that several of them rarely reach for the same lease.
    fn in_our_order(&self, leases: &mut [&Lease]) {
        leases.sort_by_cached_key(|lease| affinity(&self.me.name, &lease.id));
    }
}

/// FNV-1a over both names: spreads well enough, and is the same everywhere.
fn affinity(host: &str, lease: &str) -> u64 {
    let bytes = host.bytes().chain([0]).chain(lease.bytes());
    let mixed = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
