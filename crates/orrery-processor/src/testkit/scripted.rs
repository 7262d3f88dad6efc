//! A container's change feed in memory, with everything that can happen to one.
//!
//! Items are routed by a hash of their key, changes are numbered through, partitions are intervals that can be cut and
//! joined. A read of a range that is not within one partition is answered as the service would: the range is gone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::error::FeedError;
use crate::feed::{Change, ChangeMetadata, FeedPage, FeedRead, FeedSource, Operation, SourceDescription};
use crate::lease::FeedMode;
use crate::names::SourceIdentity;
use crate::range::EpkRange;
use crate::reshard::Partition;
use crate::start::{Position, StartFrom};
use crate::token::{FeedToken, epoch};

/// Items of a page when the reader does not say.
const PAGE_ITEMS: usize = 100;

/// How a read fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Throttled,
    Transient,
    Fatal,
    Gone,
    WindowExceeded,
    /// Answers only after a very long time.
    Hang,
}

#[derive(Clone, Debug)]
struct Entry {
    lsn: u64,
    epk: String,
    operation: Operation,
    item: (String, String),
    body: Value,
    /// The same transaction has changed the item again.
    is_superseded: bool,
}

#[derive(Debug)]
struct Container {
    rid: String,
    exists: bool,
    partitions: Vec<Partition>,
    n_partitions: usize,
    log: Vec<Entry>,
    /// LSN of the last change of every item that exists.
    latest: BTreeMap<(String, String), u64>,
    faults: VecDeque<Fault>,
    n_reads: u64,
    /// No LSN is below this from now on.
    epoch_lsn: u64,
    /// Versions up to this LSN are no longer kept.
    floor: u64,
    /// Most entries that one read looks at.
    looks_max: usize,
    region: Option<String>,
    /// All versions can be read from the oldest that is kept; otherwise only from now and from tokens.
    reaches_back: bool,
}

/// A container keyed by `/key`. Clones share it.
#[derive(Clone, Debug)]
pub struct ScriptedFeed {
    container: Arc<Mutex<Container>>,
}

impl ScriptedFeed {
    /// A container with `n` partitions of equal width.
    pub fn new(n: usize) -> ScriptedFeed {
        let ranges = EpkRange::full().split_evenly(n);
        let partition = |(number, range): (usize, EpkRange)| Partition {
            range,
            id: Some(number.to_string()),
        };
        let container = Container {
            rid: "c1".to_owned(),
            exists: true,
            n_partitions: n,
            partitions: ranges.into_iter().enumerate().map(partition).collect(),
            log: Vec::new(),
            latest: BTreeMap::new(),
            faults: VecDeque::new(),
            n_reads: 0,
            epoch_lsn: 1,
            floor: 0,
            looks_max: usize::MAX,
            region: None,
            reaches_back: true,
        };
        ScriptedFeed {
            container: Arc::new(Mutex::new(container)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Container> {
        self.container.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates or replaces an item; its LSN.
    pub fn put(&self, key: &str, id: &str, value: Value) -> u64 {
        let mut container = self.lock();
        let item = (key.to_owned(), id.to_owned());
        let known = container.latest.contains_key(&item);
        let operation = if known { Operation::Replace } else { Operation::Create };
        let body = json!({"id": id, "key": key, "value": value});
        container.append(item, operation, body)
    }

    /// Writes items of one key, by id, in one transaction; its LSN.
    pub fn put_together(&self, key: &str, items: &[(&str, Value)]) -> u64 {
        let mut container = self.lock();
        let lsn = container.next_lsn();
        for (id, value) in items {
            let item = (key.to_owned(), (*id).to_owned());
            let known = container.latest.contains_key(&item);
            let operation = if known { Operation::Replace } else { Operation::Create };
            let body = json!({"id": id, "key": key, "value": value});
            container.append_at(lsn, item, operation, body);
        }
        lsn
    }

    pub fn delete(&self, key: &str, id: &str) -> u64 {
        let mut container = self.lock();
        let item = (key.to_owned(), id.to_owned());
        let lsn = container.append(item.clone(), Operation::Delete, json!({}));
        container.latest.remove(&item);
        lsn
    }

    /// The last LSN of every item that exists, keyed like a ledger: by key as JSON text, and id.
    pub fn latest(&self) -> BTreeMap<(String, String), u64> {
        let container = self.lock();
        let entry = |((key, id), lsn): (&(String, String), &u64)| ((json!([key]).to_string(), id.clone()), *lsn);
        container.latest.iter().map(entry).collect()
    }

    /// Cuts a partition in the middle.
    pub fn split(&self, index: usize) {
        let mut container = self.lock();
        let halves = container.partitions[index].range.split_evenly(2);
        let halves = halves
            .into_iter()
            .map(|range| container.new_partition(range))
            .collect::<Vec<_>>();
        container.partitions.splice(index..=index, halves);
    }

    /// Joins a partition with the one to its right.
    pub fn merge(&self, index: usize) {
        let mut container = self.lock();
        let (left, right) = (
            &container.partitions[index].range,
            &container.partitions[index + 1].range,
        );
        let whole = EpkRange::new(left.start(), right.end()).expect("neighbours make a range");
        let whole = container.new_partition(whole);
        container.partitions.splice(index..=index + 1, [whole]);
    }

    /// The next reads fail, in this order.
    pub fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.lock().faults.extend(faults);
    }

    /// The container is gone; with `again`, another one of its name is there.
    pub fn drop_container(&self, again: bool) {
        let mut container = self.lock();
        container.exists = again;
        container.rid = "c2".to_owned();
        container.log.clear();
        container.latest.clear();
        container.faults.extend([Fault::Fatal; 100]);
    }

    /// All versions so far leave the window.
    pub fn forget_versions(&self) {
        let mut container = self.lock();
        container.floor = container.head();
    }

    /// All versions are read from now and from tokens only, as on Azure.
    pub fn refuse_the_past(&self) {
        self.lock().reaches_back = false;
    }

    /// A read looks at so many entries at most, whosever they are, and may find nothing although there is more.
    pub fn look_at_most(&self, entries: usize) {
        self.lock().looks_max = entries;
    }

    /// Another region answers from now on. With `forced`, it had to take over, and its history begins a new epoch.
    pub fn move_to(&self, region: &str, forced: bool) {
        let mut container = self.lock();
        container.region = Some(region.to_owned());
        if forced {
            container.epoch_lsn = (epoch(container.head()) + 1) << 32;
        }
    }

    pub fn n_reads(&self) -> u64 {
        self.lock().n_reads
    }

    async fn page(&self, read: FeedRead<'_>) -> Result<FeedPage, FeedError> {
        let fault = {
            let mut container = self.lock();
            container.n_reads += 1;
            container.faults.pop_front()
        };
        match fault {
            Some(Fault::Hang) => {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                Err(FeedError::Transient("late".into()))
            }
            Some(Fault::Throttled) => Err(FeedError::Throttled {
                retry_after: Some(Duration::from_millis(50)),
            }),
            Some(Fault::Transient) => Err(FeedError::Transient("the service is busy".into())),
            Some(Fault::Fatal) => Err(FeedError::Fatal("bad request".into())),
            Some(Fault::Gone) => Err(FeedError::Gone),
            Some(Fault::WindowExceeded) => Err(FeedError::WindowExceeded("too old".to_owned())),
            None => self.lock().read(&read),
        }
    }
}

impl Container {
    fn append(&mut self, item: (String, String), operation: Operation, body: Value) -> u64 {
        let lsn = self.next_lsn();
        self.append_at(lsn, item, operation, body);
        lsn
    }

    fn next_lsn(&self) -> u64 {
        (self.head() + 1).max(self.epoch_lsn)
    }

    fn append_at(&mut self, lsn: u64, item: (String, String), operation: Operation, body: Value) {
        self.latest.insert(item.clone(), lsn);
        let beside = self.log.iter_mut().rev().take_while(|entry| entry.lsn == lsn);
        for entry in beside.filter(|entry| entry.item == item) {
            entry.is_superseded = true;
        }
        let epk = epk_of(&item.0);
        self.log.push(Entry {
            lsn,
            epk,
            operation,
            item,
            body,
            is_superseded: false,
        });
    }

    fn head(&self) -> u64 {
        self.log.last().map_or(0, |entry| entry.lsn)
    }

    fn new_partition(&mut self, range: EpkRange) -> Partition {
        let id = Some(self.n_partitions.to_string());
        self.n_partitions += 1;
        Partition { range, id }
    }

    /// After which LSN a read begins.
    fn start(&self, read: &FeedRead<'_>) -> Result<u64, FeedError> {
        let is_latest = read.mode == FeedMode::LatestVersion;
        let after = match read.from {
            Position::From(StartFrom::Beginning | StartFrom::Time(_)) if !is_latest && self.reaches_back => self.floor,
            Position::After(token) | Position::AfterSince(token, _) => {
                token.lsn().ok_or_else(|| FeedError::Fatal("no token".into()))?
            }
            Position::From(StartFrom::Beginning | StartFrom::Time(_)) => 0,
            Position::From(StartFrom::Now) => self.head(),
        };
        let refused =
            matches!(read.from, Position::From(StartFrom::Beginning | StartFrom::Time(_))) && !self.reaches_back;
        if is_latest || (after >= self.floor && !refused) {
            return Ok(after);
        }
        if read.from_oldest {
            return Ok(self.floor);
        }
        Err(FeedError::WindowExceeded("the versions are gone".to_owned()))
    }

    fn read(&self, read: &FeedRead<'_>) -> Result<FeedPage, FeedError> {
        let mut partitions = self.partitions.iter();
        let partition = partitions.find(|partition| partition.range.contains(read.range));
        if partition.is_none() && read.key.is_none() {
            return Err(FeedError::Gone);
        }
        let head = self.head();
        let after = self.start(read)?;
        let n_items = read.items_max.map_or(PAGE_ITEMS, |items| items as usize);
        let in_range =
            |entry: &&Entry| read.range.start() <= entry.epk.as_str() && entry.epk.as_str() < read.range.end();
        let shown = |entry: &&Entry| {
            let is_latest = self.latest.get(&entry.item) == Some(&entry.lsn) && !entry.is_superseded;
            read.mode == FeedMode::AllVersionsAndDeletes || is_latest
        };
        let looked_at = || self.log.iter().filter(|entry| entry.lsn > after).take(self.looks_max);
        let of_key = |entry: &&Entry| read.key.is_none_or(|key| *key == [Value::from(entry.item.0.as_str())]);
        let entries = looked_at().filter(in_range).filter(of_key).filter(shown);
        let (mut changes, mut last): (Vec<Change>, _) = (Vec::new(), after);
        for entry in entries {
            if changes.len() >= n_items && entry.lsn != last {
                break;
            }
            last = entry.lsn;
            changes.push(entry.change(read.mode));
        }
        let reached = match changes.last() {
            Some(_) if changes.len() >= n_items => last,
            _ => looked_at().last().map_or(head.max(after), |entry| entry.lsn),
        };
        Ok(FeedPage {
            is_last: reached >= head,
            changes,
            token: FeedToken::at(reached),
            charge: 1.0,
            head_lsn: Some(head),
            session: Some(format!("0:-1#{head}")),
            activity_id: Some(format!("read {}", self.n_reads)),
            region: self.region.clone(),
            partition_id: partition.and_then(|partition| partition.id.clone()),
        })
    }
}

impl Entry {
    fn change(&self, mode: FeedMode) -> Change {
        let is_delete = self.operation == Operation::Delete;
        Change {
            current: (!is_delete).then(|| self.body.clone()),
            previous: None,
            metadata: ChangeMetadata {
                lsn: Some(self.lsn),
                operation: (mode == FeedMode::AllVersionsAndDeletes).then_some(self.operation),
                id: is_delete.then(|| self.item.1.clone()),
                partition_key: is_delete.then(|| json!([self.item.0])),
                ..ChangeMetadata::default()
            },
        }
    }
}

/// A hash with the two highest bits clear, as the service's are.
fn epk_of(key: &str) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, key.as_bytes());
    let mut bytes: Vec<u8> = hash.as_ref()[..16].to_vec();
    bytes[0] &= 0x3F;
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

impl FeedSource for ScriptedFeed {
    fn describe(&self) -> BoxFuture<'_, Result<SourceDescription, FeedError>> {
        let description = SourceDescription {
            identity: SourceIdentity {
                host: "scripted".to_owned(),
                database_rid: "d".to_owned(),
                container_rid: self.lock().rid.clone(),
            },
            key_paths: vec!["/key".to_owned()],
        };
        async { Ok(description) }.boxed()
    }

    fn container_rid(&self) -> BoxFuture<'_, Result<String, FeedError>> {
        let container = self.lock();
        let found = if container.exists {
            Ok(container.rid.clone())
        } else {
            Err(FeedError::NotFound("gone".to_owned()))
        };
        async { found }.boxed()
    }

    fn partitions(&self) -> BoxFuture<'_, Result<Vec<Partition>, FeedError>> {
        let partitions = self.lock().partitions.clone();
        async { Ok(partitions) }.boxed()
    }

    fn read<'a>(&'a self, read: FeedRead<'a>) -> BoxFuture<'a, Result<FeedPage, FeedError>> {
        self.page(read).boxed()
    }
}
