//! What users were told: what must be there in the end, and what may.
//!
//! Invariant: a call is excused only if the very region that was asked was gone at some moment of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::service::{REGIONS, json_of, url};
use crate::support::Server;

/// Everything that was answered, and everything whose answer was lost.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Titles by the ids of their articles.
    pub published: BTreeMap<String, String>,
    pub maybe_published: BTreeSet<String>,
    /// Texts by the ids of articles.
    pub edited: BTreeMap<String, String>,
    pub maybe_edited: BTreeSet<String>,
    /// Article, user and the region that took the review.
    pub reviewed: BTreeSet<(String, String, usize)>,
    pub maybe_reviewed: BTreeSet<(String, String, usize)>,
    /// User and notification.
    pub read: BTreeSet<(String, String)>,
    /// By user and filter: whether it is followed, or nothing when an answer was lost.
    pub followed: BTreeMap<(String, String), Option<bool>>,
    pub failures: Vec<String>,
    pub n_calls: u64,
    /// Calls that went to another region than their user's own.
    pub n_moved: u64,
    /// Changes that waited for an account.
    pub n_queued: u64,
}

impl Ledger {
    /// What happened, in a line.
    pub fn told(&self) -> String {
        format!(
            "{} calls, {} of them elsewhere, {} changes that waited; {} articles, {} reviews, {} edits",
            self.n_calls,
            self.n_moved,
            self.n_queued,
            self.published.len(),
            self.reviewed.len(),
            self.edited.len()
        )
    }
}

struct Outage {
    region: usize,
    /// Nothing while it lasts.
    until: Option<Instant>,
}

/// The platform, and what is known of it.
pub struct World {
    urls: Vec<String>,
    outages: Mutex<Vec<Outage>>,
    ledger: Mutex<Ledger>,
    is_over: AtomicBool,
}

impl World {
    pub fn of(server: &Server) -> World {
        World {
            urls: REGIONS.map(|region| url(server, region)).to_vec(),
            outages: Mutex::default(),
            ledger: Mutex::default(),
            is_over: AtomicBool::new(false),
        }
    }

    /// The service of a region.
    pub fn url(&self, region: usize) -> &str {
        &self.urls[region]
    }

    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap()
    }

    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub fn stop(&self, region: usize) {
        let until = None;
        self.outages.lock().unwrap().push(Outage { region, until });
        self.lever(region, "stop");
    }

    pub fn start(&self, region: usize) {
        self.lever(region, "start");
        let mut outages = self.outages.lock().unwrap();
        outages.last_mut().unwrap().until = Some(Instant::now());
    }

    fn lever(&self, region: usize, lever: &str) {
        let path = format!("/v1/world/regions/{}/{lever}", REGIONS[region].replace(' ', "%20"));
        json_of(self.url((region + 1) % REGIONS.len()), "POST", &path, "", None);
    }

    /// Was a region gone at some moment since then?
    pub fn was_gone(&self, region: usize, since: Instant) -> bool {
        let outages = self.outages.lock().unwrap();
        let mut of_region = outages.iter().filter(|outage| outage.region == region);
        of_region.any(|outage| outage.until.is_none_or(|until| until > since))
    }

    /// Lets users go on for a while.
    pub fn until_calls(&self, length: Duration) {
        std::thread::sleep(length);
        let n_calls = self.ledger().n_calls;
        assert!(n_calls > 0, "nobody does anything");
    }
}
