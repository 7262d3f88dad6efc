//! A lease: the claim of one host on one feed range, with the position reached there.
//!
//! The document is the .NET processor's, field by field, so that hosts of both kinds can share a unit and its tools read
//! ours. New leases are version 1, bounded by EPKs; version 0, one per partition id, is read and kept. Whatever we add
//! stands in `properties`, the one place .NET carries through its own writes. Invariant: every change of a lease is a pure
//! function from the stored document to the next one; a continuation never goes back.

mod condition;
mod conflict;
mod document;
mod foreign;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use condition::Condition;
pub use conflict::{Conflict, judge};
pub(crate) use foreign::look_at as look_at_foreign;
pub use foreign::{Foreign, Java, detect as detect_foreign, import as import_foreign};

use crate::range::EpkRange;
use crate::start::{Position, StartFrom};
use crate::token::FeedToken;

/// What follows the lease through .NET's writes; values are text.
mod property {
    pub const HOST: &str = "orrery.host";
    pub const OWNER: &str = "orrery.owner";
    pub const EPOCH: &str = "orrery.epoch";
    pub const INCARNATION: &str = "orrery.incarnation";
    pub const START: &str = "orrery.start";
    pub const RETIRED: &str = "orrery.retired";
    pub const ATTEMPTS: &str = "orrery.attempts";
    pub const FAILURES: &str = "orrery.failures";
    pub const SUSPECT: &str = "orrery.suspect";
    pub const CONDITION: &str = "orrery.condition";
    pub const UNUSED: &str = "orrery.unused";
}

/// How this library signs the leases it holds.
pub const HOST_MARK: &str = concat!("orrery-processor/", env!("CARGO_PKG_VERSION"));

/// Which changes a unit reads. The texts are those of the wire and of the lease document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FeedMode {
    /// The last state of every item that changed.
    #[default]
    #[serde(rename = "Incremental Feed")]
    LatestVersion,
    /// Every version and every delete, as far back as the container's retention.
    #[serde(rename = "Full-Fidelity Feed")]
    AllVersionsAndDeletes,
}

/// One process: its name in the unit and what tells it from another process of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMark {
    pub name: String,
    pub incarnation: Incarnation,
}

/// When a process started, and chance. The one that started later is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Incarnation {
    pub started_ms: u64,
    pub chance: u64,
}

impl std::fmt::Display for Incarnation {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:016x}{:016x}", self.started_ms, self.chance)
    }
}

impl Incarnation {
    fn parse(text: &str) -> Option<Incarnation> {
        let number = |part: Option<&str>| u64::from_str_radix(part?, 16).ok();
        Some(Incarnation {
            started_ms: number(text.get(..16))?,
            chance: number(text.get(16..32))?,
        })
    }
}

/// How a lease came to its owner; it decides whether the batch at its position is under suspicion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// It was free, or its owner gave it.
    Clean,
    /// Its owner stopped renewing without a word, or came back under the same name.
    AfterCrash,
}

/// A lease as stored, with what the server says about the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub id: String,
    /// The stored value of `partitionKey`, in containers keyed by it.
    pub partition_key: Option<String>,
    /// 0: one partition id. 1: an EPK range.
    pub version: u8,
    /// A partition id, or `min-max`.
    pub token: String,
    /// Only on leases that came from the V2 library; kept as found.
    pub partition_id: Option<String>,
    /// Absent only on old version 0 leases.
    pub range: Option<EpkRange>,
    pub owner: Option<String>,
    pub continuation: Option<FeedToken>,
    pub properties: BTreeMap<String, String>,
    /// The last writer's clock. .NET hosts judge expiry by it; we never do.
    pub timestamp: Option<String>,
    /// Absent means latest version.
    pub mode: Option<FeedMode>,
    pub etag: Option<String>,
    /// Server time of the last write, in seconds.
    pub written_at_s: Option<u64>,
}

impl Lease {
    /// A new version 1 lease, owned by nobody.
    pub fn for_range(id: String, range: EpkRange, mode: FeedMode) -> Lease {
        Lease {
            id,
            partition_key: None,
            version: 1,
            token: range.to_string(),
            partition_id: None,
            range: Some(range),
            owner: None,
            continuation: None,
            properties: BTreeMap::new(),
            timestamp: None,
            mode: Some(mode),
            etag: None,
            written_at_s: None,
        }
    }

    pub fn feed_mode(&self) -> FeedMode {
        self.mode.unwrap_or_default()
    }

    /// Owner, if the field is not blank.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref().filter(|owner| !owner.trim().is_empty())
    }

    /// Whether its owner is a host of this library. One of another kind that takes the lease carries our properties along, but
    /// does not write its own name into them.
    pub fn is_held_by_us(&self) -> bool {
        let signed = self.properties.get(property::OWNER).map(String::as_str);
        self.owner().is_some() && self.owner() == signed && self.properties.contains_key(property::HOST)
    }

    /// How often hosts of this library have acquired the lease: a fencing token for the handler's writes.
    pub fn epoch(&self) -> u64 {
        self.number(property::EPOCH)
    }

    /// Made by the first start of its unit and not taken by anybody since. One that has no position at all was made so by
    /// another kind of processor; one that was given its position otherwise, as by an import, does not count.
    pub fn is_unused(&self) -> bool {
        let is_made = self.properties.contains_key(property::UNUSED) || self.position().is_none();
        is_made && self.owner().is_none() && self.epoch() == 0 && self.timestamp.is_none()
    }

    /// The same, as the first start of a unit makes it.
    pub(crate) fn unused(mut self) -> Lease {
        self.properties.insert(property::UNUSED.to_owned(), "true".to_owned());
        self
    }

    pub fn incarnation(&self) -> Option<Incarnation> {
        Incarnation::parse(self.properties.get(property::INCARNATION)?)
    }

    /// Takeovers after a crash since the position last moved.
    pub fn n_crashes(&self) -> u64 {
        self.number(property::ATTEMPTS)
    }

    /// How often the delegate has failed at the batch that comes next, whichever hosts it ran on.
    pub fn n_failures(&self) -> u32 {
        u32::try_from(self.number(property::FAILURES)).unwrap_or(u32::MAX)
    }

    /// The same, with how often the delegate has failed at its position.
    #[must_use]
    pub(crate) fn having_failed(mut self, n_failures: u32) -> Lease {
        match n_failures {
            0 => self.properties.remove(property::FAILURES),
            n => self.properties.insert(property::FAILURES.to_owned(), n.to_string()),
        };
        self
    }

    /// Changes that were being handled alone when the owner died, one per death.
    pub fn suspects(&self) -> impl Iterator<Item = &str> {
        let listed = self.properties.get(property::SUSPECT);
        listed.into_iter().flat_map(|listed| listed.split(','))
    }

    /// The configured start: used until there is a token and, if it is a time, beside it.
    pub fn start(&self) -> Option<&str> {
        self.properties.get(property::START).map(String::as_str)
    }

    /// Where it stands: after a token, or at a start that was not read from yet.
    pub fn position(&self) -> Option<Position> {
        Position::of(self.continuation.clone(), self.start().and_then(StartFrom::parse))
    }

    /// The range has been cut; this lease only has to finish that.
    pub fn is_retired(&self) -> bool {
        self.properties.contains_key(property::RETIRED)
    }

    /// Why the position does not move, if its owner says so.
    pub fn condition(&self) -> Option<Condition> {
        let said = self.properties.get(property::CONDITION)?;
        Condition::parse(said).filter(|_| self.is_held_by_us())
    }

    /// The same, with what its owner says about it.
    #[must_use]
    pub(crate) fn in_condition(mut self, condition: Option<&Condition>) -> Lease {
        match condition {
            Some(condition) => {
                self.properties
                    .insert(property::CONDITION.to_owned(), condition.to_text());
            }
            None => {
                self.properties.remove(property::CONDITION);
            }
        }
        self
    }

    fn number(&self, name: &str) -> u64 {
        self.properties
            .get(name)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    }

    /// Standing at a position of a cursor.
    pub(crate) fn at(mut self, position: &Position) -> Lease {
        self.properties.remove(property::START);
        self.continuation = position.token().cloned();
        match position.start() {
            Some(start) => self.with_start(start.to_text()),
            None => self,
        }
    }

    /// Standing before everything that is kept.
    pub(crate) fn unread(self) -> Lease {
        self.at(&Position::From(StartFrom::Beginning))
    }

    pub fn with_start(mut self, start: impl Into<String>) -> Lease {
        self.properties.insert(property::START.to_owned(), start.into());
        self
    }

    #[must_use]
    pub fn acquired(&self, by: &HostMark, how: Takeover, stamp: &str) -> Lease {
        let mut next = self.stamped(stamp).in_condition(None);
        next.owner = Some(by.name.clone());
        next.properties.remove(property::UNUSED);
        let mut set = |name: &str, value: String| next.properties.insert(name.to_owned(), value);
        set(property::HOST, HOST_MARK.to_owned());
        set(property::OWNER, by.name.clone());
        set(property::EPOCH, (self.epoch() + 1).to_string());
        set(property::INCARNATION, by.incarnation.to_string());
        match how {
            Takeover::AfterCrash => {
                set(property::ATTEMPTS, (self.n_crashes() + 1).to_string());
            }
            // A host that could give the lease away has not been killed by the change it was at.
            Takeover::Clean => {
                next.properties.remove(property::SUSPECT);
            }
        }
        next
    }

    #[must_use]
    pub fn renewed(&self, stamp: &str) -> Lease {
        self.stamped(stamp)
    }

    /// The position moved; whatever was suspected of the batch before it is forgotten.
    #[must_use]
    pub fn checkpointed(&self, token: FeedToken, stamp: &str) -> Lease {
        let mut next = self.stamped(stamp);
        next.continuation = Some(match &self.continuation {
            Some(saved) => saved.later(token),
            None => token,
        });
        // A time is asked for with every read.
        if self.position().and_then(|position| position.time()).is_none() {
            next.properties.remove(property::START);
        }
        next.forget_attempts();
        next
    }

    #[must_use]
    pub fn suspecting(&self, changes: &str, stamp: &str) -> Lease {
        let mut next = self.stamped(stamp);
        next.properties.insert(property::SUSPECT.to_owned(), changes.to_owned());
        next
    }

    #[must_use]
    pub fn released(&self, stamp: &str) -> Lease {
        let mut next = self.stamped(stamp).in_condition(None);
        next.owner = None;
        for name in [
            property::HOST,
            property::OWNER,
            property::INCARNATION,
            property::SUSPECT,
        ] {
            next.properties.remove(name);
        }
        next
    }

    /// Given to a host that asked; it adopts the lease at its next listing, by name.
    #[must_use]
    pub fn handed_to(&self, taker: &HostMark, stamp: &str) -> Lease {
        let mut next = self.released(stamp);
        next.owner = Some(taker.name.clone());
        next.properties.insert(property::HOST.to_owned(), HOST_MARK.to_owned());
        next.properties.insert(property::OWNER.to_owned(), taker.name.clone());
        next.properties
            .insert(property::INCARNATION.to_owned(), taker.incarnation.to_string());
        next
    }

    #[must_use]
    pub fn retired(&self, stamp: &str) -> Lease {
        let mut next = self.stamped(stamp);
        next.properties.insert(property::RETIRED.to_owned(), "true".to_owned());
        next
    }

    /// The cut was not needed after all.
    #[must_use]
    pub fn unretired(&self, stamp: &str) -> Lease {
        let mut next = self.stamped(stamp);
        next.properties.remove(property::RETIRED);
        next
    }

    /// Moved by an operator: behind a token, or to a start that is resolved when the lease is next read.
    #[must_use]
    pub fn reset(&self, to: &Position, stamp: &str) -> Lease {
        let mut next = self.released(stamp);
        next.forget_attempts();
        next.at(to)
    }

    /// A lease for a part of this one, at the same position. The store gives it its own partition key.
    pub(crate) fn child(&self, id: String, token: String, version: u8, range: EpkRange) -> Lease {
        let mut child = self.released("");
        child.properties.remove(property::RETIRED);
        child.forget_attempts();
        Lease {
            id,
            partition_key: None,
            version,
            token,
            partition_id: None,
            range: Some(range),
            timestamp: None,
            etag: None,
            written_at_s: None,
            ..child
        }
    }

    /// The position is another one: what happened at the old one says nothing about it.
    fn forget_attempts(&mut self) {
        for name in [property::ATTEMPTS, property::SUSPECT, property::FAILURES] {
            self.properties.remove(name);
        }
    }

    fn stamped(&self, stamp: &str) -> Lease {
        Lease {
            timestamp: Some(stamp.to_owned()),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::me as some_host;
