//! Reading one partition's changes from a snapshot: the order of latest changes, or the kept versions.
//!
//! Both end between transactions. What is looked at is bounded as well as what is found, so a part of the key space that
//! rarely changes costs its reader an empty page now and then, never an answer that does not come.

use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use orrery_model::json::{self, Object, Value};
use orrery_model::{EpkRange, Error, Lsn, Result, Status, Timestamp};
use orrery_partition::decide::unreadable;
use orrery_partition::expiry::is_expired;
use orrery_partition::history::{self, Version};
use orrery_partition::keys::{self, EpkForm, KeySpace};
use orrery_partition::storage::{Snapshot, View};

use super::ahead::{Ahead, Entry, Looked, Place};
use super::filter::Filter;
use super::place::From;
use super::seek::Changes;
use crate::api::{Change, ChangeKind, ChangeVersion, FeedMode};
use crate::catalogue::ContainerEntry;
use crate::partition::Partition;
use crate::recent::ChangeId;

/// Bytes of a page, unless one transaction has more.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How long entries are looked at for one page.
const TIME_MAX: Duration = Duration::from_secs(4);
/// Entries between two looks at the time.
const ENTRIES_PER_LOOK: usize = 256;

/// What to read.
pub struct Scan {
    pub container: Arc<ContainerEntry>,
    pub mode: FeedMode,
    pub range: EpkRange,
    pub from: From,
    /// Entries looked at for one page.
    pub n_entries_max: usize,
    pub now: Timestamp,
    pub n_changes_max: usize,
    pub filter: Option<Arc<Filter>>,
    /// A reader whose next versions are gone goes on at the oldest that is kept.
    pub skips_lost: bool,
    /// Items are left out.
    pub facts_only: bool,
}

/// What was found.
#[derive(Debug)]
pub struct Scanned {
    pub changes: Vec<Change>,
    pub n_bytes: usize,
    /// Everything up to here has been looked at.
    pub reached: Lsn,
    /// There was nothing more.
    pub ended: bool,
}

impl Scanned {
    pub fn nothing() -> Scanned {
        Scanned {
            changes: Vec::new(),
            n_bytes: 0,
            reached: Lsn::ZERO,
            ended: true,
        }
    }

    fn is_full(&self, scan: &Scan) -> bool {
        self.changes.len() >= scan.n_changes_max || self.n_bytes >= PAGE_BYTES_MAX
    }

    fn push(&mut self, change: Change) {
        self.n_bytes += size(&change);
        self.changes.push(change);
    }
}

fn size(change: &Change) -> usize {
    change.current.len() + change.version.as_ref().map_or(0, |version| version.previous.len())
}

/// Where a scan begins and what it leaves out.
struct Start {
    after: Lsn,
    /// Only changes after this second.
    newer_than: Option<u64>,
    /// Kept versions from before this time are as good as gone.
    window: Timestamp,
    /// Meeting one of those means that the reader has missed some.
    must_be_in_window: bool,
    /// Those are passed over.
    skips_old: bool,
}

impl Scan {
    pub fn run(&self, view: &dyn Snapshot, partition: &Partition) -> Result<Scanned> {
        let mut start = match self.mode {
            FeedMode::LatestVersions => self.start(Lsn::ZERO),
            FeedMode::AllVersions => self.start_in_history(view)?,
        };
        let head = view.position().lsn;
        if let From::Time(seconds) = self.from {
            start.after = self.seek(view, seconds, start.after, head)?;
        }
        let (space, first) = match self.mode {
            FeedMode::LatestVersions => (KeySpace::Change, keys::changes_after(start.after)),
            FeedMode::AllVersions => (KeySpace::History, keys::history_after(start.after)),
        };
        let (_, last) = keys::bounds(space);
        let mut found = Scanned {
            reached: start.after,
            ..Scanned::nothing()
        };
        // A time that is sought costs no item and no answer on the way: one that ended before anything newer was met would leave
        // the reader with a position that does not say the time.
        let mut budget = (!matches!(self.from, From::Time(_))).then(|| Budget::new(self.n_entries_max));
        // Of the transaction being read: its LSN, and whether any of it is on the page.
        let (mut lsn, mut begun) = (start.after, false);
        let entries = view.scan(Bound::Included(&first), Bound::Excluded(&last), false);
        let recent = |changes: &[ChangeId]| partition.find_recent(changes);
        let mut entries = Ahead::new(view, &recent, entries, self.n_changes_max, PAGE_BYTES_MAX);
        let newer_than = start.newer_than;
        while let Some(entry) = entries.next(|key, value| self.place(newer_than, key, value))? {
            let (at_lsn, ..) = keys::read_change(&entry.key).ok_or_else(malformed)?;
            if at_lsn != lsn {
                found.reached = lsn;
                if found.is_full(self) || budget.as_ref().is_some_and(Budget::is_spent) {
                    found.ended = false;
                    return Ok(found);
                }
                (lsn, begun) = (at_lsn, false);
            }
            match &mut budget {
                Some(budget) => budget.count(),
                None if self.is_met(newer_than, &entry.value)? => budget = Some(Budget::new(self.n_entries_max)),
                None => {}
            }
            let Some(change) = self.change(&mut start, lsn, entry)? else {
                continue;
            };
            if !begun && !found.changes.is_empty() && found.n_bytes + size(&change) > PAGE_BYTES_MAX {
                found.ended = false;
                return Ok(found);
            }
            begun = true;
            found.push(change);
        }
        found.reached = head.max(start.after);
        Ok(found)
    }

    /// Passes over changes that are known to have happened up to a moment.
    fn seek(&self, view: &dyn View, seconds: u64, from: Lsn, head: Lsn) -> Result<Lsn> {
        let form = EpkForm::of(self.container.definition.partition_key());
        let of_latest = |value: &Bytes| Ok(keys::read_change_pointer(form, value).ok_or_else(malformed)?.1);
        let of_kept = |value: &Bytes| Ok(Version::decode(form, value).map_err(unreadable)?.1.at.seconds());
        let changes = match self.mode {
            FeedMode::LatestVersions => Changes {
                view,
                after: keys::changes_after,
                end: keys::bounds(KeySpace::Change).1,
                time_of: &of_latest,
            },
            FeedMode::AllVersions => Changes {
                view,
                after: keys::history_after,
                end: keys::bounds(KeySpace::History).1,
                time_of: &of_kept,
            },
        };
        changes.none_newer_than(seconds, from, head)
    }

    fn start(&self, beginning: Lsn) -> Start {
        let (after, newer_than) = match self.from {
            From::Beginning => (beginning, None),
            From::Time(seconds) => (beginning, Some(seconds)),
            From::After(lsn) => (lsn, None),
            From::AfterSince(lsn, seconds) => (lsn, Some(seconds)),
            // Settled before anything is read; were it not, skipping everything would be what it means.
            From::Now => (Lsn(u64::MAX - 1), None),
        };
        Start {
            after,
            newer_than,
            window: Timestamp(0),
            must_be_in_window: false,
            skips_old: matches!(self.from, From::Beginning),
        }
    }

    fn start_in_history(&self, view: &dyn View) -> Result<Start> {
        let floor = history::floor(view, &self.range).map_err(unreadable)?;
        let window = history::window_start(&self.container.definition, self.now).unwrap_or(self.now);
        let vanished = match self.from {
            From::After(lsn) | From::AfterSince(lsn, _) => lsn < floor.lsn,
            From::Time(seconds) => seconds < floor.at.seconds(),
            From::Beginning | From::Now => false,
        };
        let start = self.start(floor.lsn);
        match self.from {
            From::After(lsn) | From::AfterSince(lsn, _) if self.skips_lost => Ok(Start {
                after: lsn.max(floor.lsn),
                window,
                skips_old: true,
                ..start
            }),
            _ if vanished => Err(outside_window()),
            _ => Ok(Start {
                window,
                must_be_in_window: !matches!(self.from, From::Beginning | From::Now),
                ..start
            }),
        }
    }

    /// Whether an entry is about a key and a time that the reader asks for.
    fn is_met(&self, newer_than: Option<u64>, value: &Bytes) -> Result<bool> {
        let form = EpkForm::of(self.container.definition.partition_key());
        let (epk, seconds) = match self.mode {
            FeedMode::LatestVersions => keys::read_change_pointer(form, value).ok_or_else(malformed)?,
            FeedMode::AllVersions => {
                let (epk, version) = Version::decode(form, value).map_err(unreadable)?;
                (epk, version.at.seconds())
            }
        };
        Ok(self.range.contains(&epk) && newer_than.is_none_or(|time| seconds > time))
    }

    /// Where the item is that an entry needs, if the reader may want it.
    fn place(&self, newer_than: Option<u64>, key: &[u8], value: &[u8]) -> Result<Option<Place>> {
        if self.mode == FeedMode::AllVersions || self.is_told_by_order() {
            return Ok(None);
        }
        let form = EpkForm::of(self.container.definition.partition_key());
        let (lsn, index, number) = keys::read_change(key).ok_or_else(malformed)?;
        let (epk, ts) = keys::read_change_pointer(form, value).ok_or_else(malformed)?;
        let wanted = self.range.contains(&epk) && newer_than.is_none_or(|time| ts > time);
        Ok(wanted.then(|| Place {
            change: ChangeId { lsn, index, number },
            key: keys::item(form, &epk, number),
        }))
    }

    /// The change of an entry, if the reader wants it.
    fn change(&self, start: &mut Start, lsn: Lsn, entry: Entry) -> Result<Option<Change>> {
        let change = match self.mode {
            FeedMode::LatestVersions if self.is_told_by_order() => self.told_by_order(start, lsn, &entry.value)?,
            FeedMode::LatestVersions => self.latest(lsn, entry)?,
            FeedMode::AllVersions => self.kept(start, lsn, &entry.value)?,
        };
        let Some(mut change) = change else { return Ok(None) };
        if let Some(filter) = &self.filter
            && !filter.holds(&change, self.now)?
        {
            return Ok(None);
        }
        if self.facts_only {
            change.current = Bytes::new();
            if let Some(version) = &mut change.version {
                version.previous = Bytes::new();
            }
        }
        Ok(Some(change))
    }

    fn latest(&self, lsn: Lsn, entry: Entry) -> Result<Option<Change>> {
        let item = match entry.item {
            Looked::NotWanted => return Ok(None),
            Looked::Missing => return Err(malformed()),
            Looked::Found(item) => item,
        };
        if is_expired(&self.container.definition, &item, self.now) {
            return Ok(None);
        }
        Ok(Some(Change {
            lsn,
            at: item.ts,
            current: item.body,
            version: None,
        }))
    }

    /// Whether the order of changes says everything that is asked for, without a look at the items.
    fn is_told_by_order(&self) -> bool {
        self.facts_only && self.filter.is_none() && self.container.definition.default_ttl().is_none()
    }

    fn told_by_order(&self, start: &Start, lsn: Lsn, value: &[u8]) -> Result<Option<Change>> {
        let form = EpkForm::of(self.container.definition.partition_key());
        let (epk, ts) = keys::read_change_pointer(form, value).ok_or_else(malformed)?;
        let is_wanted = self.range.contains(&epk) && start.newer_than.is_none_or(|time| ts > time);
        Ok(is_wanted.then(|| Change {
            lsn,
            at: ts,
            current: Bytes::new(),
            version: None,
        }))
    }

    fn kept(&self, start: &mut Start, lsn: Lsn, value: &Bytes) -> Result<Option<Change>> {
        let form = EpkForm::of(self.container.definition.partition_key());
        let (epk, version) = Version::decode(form, value).map_err(unreadable)?;
        if !self.range.contains(&epk) || start.newer_than.is_some_and(|time| version.at.seconds() <= time) {
            return Ok(None);
        }
        if version.at < start.window {
            // The first one tells: within a part of the key space, versions are in the order of time.
            if std::mem::take(&mut start.must_be_in_window) {
                return Err(outside_window());
            }
            if start.skips_old {
                return Ok(None);
            }
        }
        start.must_be_in_window = false;
        let deleted = (version.kind == ChangeKind::Delete)
            .then(|| self.identity(&version.before))
            .transpose()?;
        Ok(Some(Change {
            lsn,
            at: version.at.seconds(),
            current: version.after,
            version: Some(ChangeVersion {
                kind: version.kind,
                expired: version.expired,
                previous: version.before,
                previous_lsn: version.previous,
                deleted,
            }),
        }))
    }

    /// The id of an item and its partition key by path, as a delete tells them.
    fn identity(&self, item: &[u8]) -> Result<(String, Value)> {
        let item = json::parse_value(item).map_err(|_| malformed())?;
        let id = item.get("id").and_then(Value::as_str).ok_or_else(malformed)?.to_owned();
        let mut key = Object::new();
        for path in self.container.definition.partition_key().paths() {
            if let Some(value) = path.find(&item) {
                key.insert(path.as_str().trim_start_matches('/'), value.clone());
            }
        }
        Ok((id, Value::Object(key)))
    }
}

/// How much one page may look at.
struct Budget {
    n_entries: usize,
    n_entries_max: usize,
    started: Instant,
    is_out_of_time: bool,
}

impl Budget {
    fn new(n_entries_max: usize) -> Budget {
        Budget {
            n_entries: 0,
            n_entries_max,
            started: Instant::now(),
            is_out_of_time: false,
        }
    }

    /// One more entry.
    fn count(&mut self) {
        self.n_entries += 1;
        if self.n_entries.is_multiple_of(ENTRIES_PER_LOOK) {
            self.is_out_of_time = self.started.elapsed() > TIME_MAX;
        }
    }

    fn is_spent(&self) -> bool {
        self.is_out_of_time || self.n_entries >= self.n_entries_max
    }
}

fn outside_window() -> Error {
    Error::bad_request(
        "The change feed of all versions and deletes does not reach back that far: changes after the given point have left the \
         container's retention window.",
    )
}

fn malformed() -> Error {
    Error::new(Status::INTERNAL, "an entry of the change feed is malformed")
}
