//! What every part of a running host shares, and how the unit's documents are told apart.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::health::{Asked, Health, LeaseHealth};
use super::parking::Parked;
use super::settings::Settings;
use crate::balance::{Listing, Want};
use crate::clock::{self, Clock};
use crate::dead_letters::DeadLetterStore;
use crate::delegate::Delegate;
use crate::error::StoreError;
use crate::events::Events;
use crate::feed::{FeedSource, SourceDescription};
use crate::lease::{HostMark, Incarnation, Lease, detect_foreign, look_at_foreign};
use crate::metrics::{Labels, Metrics};
use crate::names::UnitNames;
use crate::range::EpkRange;
use crate::start;
use crate::store::{LeaseStore, id_of, text_of};

/// One host of a unit.
pub(crate) struct Unit {
    pub processor: String,
    pub names: UnitNames,
    pub me: HostMark,
    pub source: Arc<dyn FeedSource>,
    pub description: SourceDescription,
    pub store: Arc<dyn LeaseStore>,
    pub delegate: Arc<dyn Delegate>,
    pub dead_letters: Option<Arc<dyn DeadLetterStore>>,
    pub settings: Settings,
    pub events: Events,
    pub metrics: Arc<dyn Metrics>,
    pub health: Health,
    pub parked: Parked,
    /// The host has told its workers to wait.
    pub paused: AtomicBool,
    /// Woken when leases were cut: there are new ones to take.
    pub reshaped: tokio::sync::Notify,
    pub clock: Clock,
}

/// A listing with what concerns the whole unit.
#[derive(Debug, Default)]
pub(crate) struct UnitListing {
    pub listing: Listing,
    pub paused: bool,
    /// Documents under the ids of leases that are none.
    pub unreadable: Vec<Unreadable>,
    /// What another kind of processor wrote, as leases to look at.
    pub foreign: Vec<Lease>,
    pub is_foreign: bool,
    pub is_initialised: bool,
    pub charge: f64,
}

/// A document that bears the id of a lease and cannot be read as one: written by hand, or by something that is newer.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    pub id: String,
    /// The keys that its id names, where it names keys.
    pub range: Option<EpkRange>,
    pub error: String,
}

impl UnitListing {
    /// Every lease, whoever wrote it: for those that only look.
    pub fn with_foreign(mut self) -> Listing {
        self.listing.leases.append(&mut self.foreign);
        self.listing
    }
}

impl Unit {
    /// The wall clock, as leases carry it.
    pub fn stamp(&self) -> String {
        start::stamp(clock::since_1970())
    }

    /// What this host's measurements are about: one of its leases, or all of it.
    pub fn labels<'a>(&'a self, lease: Option<&'a str>) -> Labels<'a> {
        Labels {
            unit: &self.processor,
            instance: &self.me.name,
            lease,
        }
    }

    /// The leases this host reads, judged now.
    pub fn health(&self) -> BTreeMap<String, LeaseHealth> {
        self.health.snapshot(Asked {
            now: self.clock.now(),
            since_1970: clock::since_1970(),
            stuck_after: self.settings.stuck_after,
            paused: self.paused.load(Ordering::Relaxed),
        })
    }

    pub async fn list(&self) -> Result<UnitListing, StoreError> {
        list(self.store.as_ref(), &self.names).await
    }

    /// Pauses after `n_failed` failures in a row of something that is not the delegate's.
    pub fn pause(&self, n_failed: u32) -> Duration {
        self.settings.retry.pause(n_failed, clock::jitter())
    }
}

/// Every document of a unit, sorted by kind.
pub(crate) async fn list(store: &dyn LeaseStore, names: &UnitNames) -> Result<UnitListing, StoreError> {
    let found = store.list(&names.all()).await?;
    let mut listed = UnitListing {
        charge: found.charge,
        ..UnitListing::default()
    };
    listed.listing.server_now_ms = found.server_now_ms;
    for document in &found.documents {
        let id = id_of(document);
        if let Some(token) = names.lease_token(id) {
            if detect_foreign(document).is_some() {
                listed.is_foreign = true;
                listed.foreign.extend(look_at_foreign(document).unwrap_or_default());
                continue;
            }
            match Lease::from_document(document) {
                Ok(lease) => listed.listing.leases.push(lease),
                Err(error) => listed.unreadable.push(Unreadable {
                    id: id.to_owned(),
                    range: token.parse().ok(),
                    error: error.to_string(),
                }),
            }
        } else if let Some(token) = names.want_token(id) {
            listed.listing.wants.extend(read_want(token, document));
        } else if id == names.control() {
            listed.paused = document.get("paused").and_then(Value::as_bool).unwrap_or(false);
        } else if id == names.info() {
            listed.is_initialised = true;
        }
    }
    Ok(listed)
}

/// A request for a lease; it vanishes by itself where the store honours `ttl`.
pub(crate) fn want_document(names: &UnitNames, token: &str, by: &HostMark, ttl: Duration) -> Value {
    json!({
        "id": names.want(token),
        "by": by.name,
        "incarnation": {"startedMs": by.incarnation.started_ms, "chance": by.incarnation.chance.to_string()},
        "ttl": ttl.as_secs().max(1),
    })
}

fn read_want(token: &str, document: &Value) -> Option<Want> {
    let incarnation = Incarnation {
        started_ms: document.pointer("/incarnation/startedMs")?.as_u64()?,
        chance: document.pointer("/incarnation/chance")?.as_str()?.parse().ok()?,
    };
    Some(Want {
        token: token.to_owned(),
        by: HostMark {
            name: text_of(document, "by")?.to_owned(),
            incarnation,
        },
        written_at_s: document.get("_ts").and_then(Value::as_u64),
    })
}
