//! Whether the owner of a lease is alive, as far as one host can know.
//!
//! A host remembers each lease's entity tag and since when it has seen it. A lease has expired when it has not changed for
//! the whole expiry on the host's own monotonic clock, from the answer to the first listing that showed its tag until the last
//! one was asked for, because what a listing shows was so at some moment between the two; or, for a host that has not watched that long, when the server's
//! clock says so and the tag is that of the previous listing, if there was one. No two machines' clocks are ever compared,
//! so skew cannot make hosts rob each other.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{BalanceSettings, Listing, Want};
use crate::lease::Lease;

/// `_ts` counts whole seconds and rounds down.
const SERVER_STAMP_PRECISION: Duration = Duration::from_secs(1);
/// A request older than this many cycles is forgotten, so that a dead host does not count as present.
const WANT_CYCLES: u32 = 6;
/// A lease that nobody has taken for this many cycles, although everybody might have, is left over.
const LEFT_OVER_CYCLES: u32 = 2;

/// State of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    Free,
    Expired,
    Live,
}

#[derive(Clone, Debug)]
struct Seen {
    etag: Option<String>,
    /// When the answer was there that showed it first.
    since: Duration,
    /// Listings in a row that showed this tag.
    n_listings: u32,
}

/// What a host remembers from listing to listing.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    seen: BTreeMap<String, Seen>,
    wants: BTreeMap<String, (Want, Duration)>,
    counts: BTreeMap<String, usize>,
    counts_before: BTreeMap<String, usize>,
    n_listings: u32,
    /// When the last listing was asked for.
    asked_at: Duration,
}

impl Watch {
    /// Takes in a listing that was asked for at one time on the host's monotonic clock and answered by `now`.
    pub fn note(&mut self, listing: &Listing, asked_at: Duration, now: Duration) {
        self.n_listings = self.n_listings.saturating_add(1);
        self.asked_at = asked_at;
        let mut seen = BTreeMap::new();
        for lease in &listing.leases {
            let before = self.seen.remove(&lease.id).filter(|before| before.etag == lease.etag);
            let entry = match before {
                Some(before) => Seen {
                    n_listings: before.n_listings.saturating_add(1),
                    ..before
                },
                None => Seen {
                    etag: lease.etag.clone(),
                    since: now,
                    n_listings: 1,
                },
            };
            seen.insert(lease.id.clone(), entry);
        }
        self.seen = seen;
        let mut wants = BTreeMap::new();
        for want in &listing.wants {
            let since = self
                .wants
                .get(&want.token)
                .filter(|(known, _)| known == want)
                .map(|(_, since)| *since);
            wants.insert(want.token.clone(), (want.clone(), since.unwrap_or(now)));
        }
        self.wants = wants;
        self.counts_before = std::mem::take(&mut self.counts);
        for owner in listing.leases.iter().filter_map(Lease::owner) {
            *self.counts.entry(owner.to_owned()).or_default() += 1;
        }
    }

    pub fn liveness(&self, lease: &Lease, listing: &Listing, expiry: Duration) -> Liveness {
        if lease.owner().is_none() {
            return Liveness::Free;
        }
        let Some(seen) = self.seen.get(&lease.id) else {
            return Liveness::Live;
        };
        let watched = self.asked_at.saturating_sub(seen.since) >= expiry;
        let unchanged = seen.n_listings >= 2 || self.n_listings <= 1;
        if watched || (unchanged && server_says_expired(lease.written_at_s, listing.server_now_ms, expiry)) {
            Liveness::Expired
        } else {
            Liveness::Live
        }
    }

    /// Whether a lease that nobody reads has been there for so long that whoever has a share of it to take cannot, or may not, have
    /// more.
    pub(super) fn is_left_over(&self, lease: &Lease, now: Duration, settings: &BalanceSettings) -> bool {
        let taken_for_live = lease.owner().map_or(Duration::ZERO, |_| settings.expiry);
        let watched = self.seen.get(&lease.id).map(|seen| now.saturating_sub(seen.since));
        watched.is_some_and(|watched| watched >= taken_for_live + LEFT_OVER_CYCLES * settings.acquire_interval)
    }

    /// Whether a lease was written since our first listing, so that its owner was alive after we began.
    pub(super) fn was_written(&self, lease: &Lease) -> bool {
        self.seen
            .get(&lease.id)
            .is_some_and(|seen| seen.n_listings < self.n_listings)
    }

    /// Whether `owner` had another number of leases in the listing before.
    pub(super) fn share_moved(&self, owner: &str) -> bool {
        self.n_listings > 1 && self.counts.get(owner) != self.counts_before.get(owner)
    }

    /// Since when the request for a lease has been standing, on our clock.
    pub(super) fn asked_at(&self, token: &str) -> Option<Duration> {
        self.wants.get(token).map(|(_, since)| *since)
    }

    /// A request from a host that has probably died since.
    pub(super) fn is_stale(&self, want: &Want, server_now_ms: Option<u64>, settings: &BalanceSettings) -> bool {
        server_says_expired(
            want.written_at_s,
            server_now_ms,
            WANT_CYCLES * settings.acquire_interval,
        )
    }
}

fn server_says_expired(written_at_s: Option<u64>, server_now_ms: Option<u64>, after: Duration) -> bool {
    let (Some(written), Some(now)) = (written_at_s, server_now_ms) else {
        return false;
    };
    let age = Duration::from_millis(now).saturating_sub(Duration::from_secs(written));
    age >= after + SERVER_STAMP_PRECISION
}
