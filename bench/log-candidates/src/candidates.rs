//! The candidates, each doing only what it cannot avoid.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use lsm_tree::{AbstractTree, AnyTree, SequenceNumberCounter};

use crate::load::{Document, key};

const MEMTABLE_BYTES: u64 = 32 << 20;

/// Makes a group of documents durable and visible.
pub trait Candidate: Send {
    fn commit(&mut self, group: &[&Document]);
}

/// An append-only file of `length, checksum, log` and the record.
struct Segment {
    file: File,
    buffer: Vec<u8>,
}

impl Segment {
    fn create(dir: &Path) -> Segment {
        Segment {
            file: File::create(dir.join("segment")).expect("the directory is writable"),
            buffer: Vec::new(),
        }
    }

    fn append(&mut self, group: &[&Document]) {
        self.buffer.clear();
        for document in group {
            self.buffer
                .extend_from_slice(&(document.record.len() as u32).to_le_bytes());
            self.buffer
                .extend_from_slice(&crc32fast::hash(&document.record).to_le_bytes());
            self.buffer.extend_from_slice(&document.log.to_le_bytes());
            self.buffer.extend_from_slice(&document.record);
        }
        self.file.write_all(&self.buffer).expect("the disk takes writes");
        self.file.sync_data().expect("the disk syncs");
    }
}

/// (a) Segment files synced once per group; the view in fjall, unsynced.
pub struct SegmentsAndFjall {
    segment: Segment,
    database: Database,
    view: Keyspace,
}

impl SegmentsAndFjall {
    pub fn open(dir: &Path) -> SegmentsAndFjall {
        let (database, view) = open_fjall(dir);
        SegmentsAndFjall {
            segment: Segment::create(dir),
            database,
            view,
        }
    }
}

impl Candidate for SegmentsAndFjall {
    fn commit(&mut self, group: &[&Document]) {
        self.segment.append(group);
        let mut batch = self.database.batch();
        for (key, value) in view_entries(group) {
            batch.insert(&self.view, key, value);
        }
        batch.commit().expect("the view takes writes");
    }
}

/// (b) Log records in the same synced fjall batch as the view.
pub struct WithinFjall {
    database: Database,
    view: Keyspace,
    log: Keyspace,
}

impl WithinFjall {
    pub fn open(dir: &Path) -> WithinFjall {
        let (database, view) = open_fjall(dir);
        let log = database.keyspace("log", options).expect("a keyspace can be made");
        WithinFjall { database, view, log }
    }
}

impl Candidate for WithinFjall {
    fn commit(&mut self, group: &[&Document]) {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for document in group {
            let key = key(document.log, 0, &[&document.lsn.to_be_bytes()]);
            batch.insert(&self.log, key, document.record.as_slice());
        }
        for (key, value) in view_entries(group) {
            batch.insert(&self.view, key, value);
        }
        batch.commit().expect("the view takes writes");
    }
}

/// (c) Segment files synced once per group; the view in fjall's tree without fjall's own journal, because the segments
/// can rebuild what was not flushed.
pub struct SegmentsAndTree {
    segment: Segment,
    tree: AnyTree,
    sequence: SequenceNumberCounter,
    visible: SequenceNumberCounter,
    /// `None` only while it is dropped, which ends the worker.
    flush: Option<Sender<()>>,
    worker: Option<JoinHandle<()>>,
}

impl SegmentsAndTree {
    pub fn open(dir: &Path) -> SegmentsAndTree {
        let (sequence, visible) = (SequenceNumberCounter::default(), SequenceNumberCounter::default());
        let config = lsm_tree::Config::new(dir.join("view"), sequence.clone(), visible.clone());
        let tree = config.open().expect("a tree can be made");
        let (flush, flushes) = channel();
        let (worker_tree, worker_visible) = (tree.clone(), visible.clone());
        let worker = std::thread::spawn(move || {
            while flushes.recv().is_ok() {
                let lock = worker_tree.get_flush_lock();
                worker_tree
                    .flush(&lock, worker_visible.get())
                    .expect("the disk takes writes");
                drop(lock);
                for _ in 0..2 {
                    let strategy = Arc::new(lsm_tree::compaction::Leveled::default());
                    worker_tree
                        .compact(strategy, worker_visible.get())
                        .expect("the disk takes writes");
                }
            }
        });
        SegmentsAndTree {
            segment: Segment::create(dir),
            tree,
            sequence,
            visible,
            flush: Some(flush),
            worker: Some(worker),
        }
    }
}

impl Candidate for SegmentsAndTree {
    fn commit(&mut self, group: &[&Document]) {
        self.segment.append(group);
        let sequence = self.sequence.next();
        for (key, value) in view_entries(group) {
            self.tree.insert(key.as_ref(), value.as_ref(), sequence);
        }
        self.visible.fetch_max(sequence + 1);
        if self.tree.active_memtable().size() > MEMTABLE_BYTES {
            self.tree.rotate_memtable();
            let flush = self.flush.as_ref().expect("only dropping takes it");
            flush.send(()).expect("the worker lives");
        }
        while self.tree.sealed_memtable_count() >= 4 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

impl Drop for SegmentsAndTree {
    fn drop(&mut self) {
        // The directory goes next, and the worker must not be writing to it.
        self.flush = None;
        if let Some(worker) = self.worker.take() {
            worker.join().expect("the worker does not panic");
        }
    }
}

fn open_fjall(dir: &Path) -> (Database, Keyspace) {
    let database = Database::builder(dir.join("fjall"))
        .open()
        .expect("a database can be made");
    let view = database.keyspace("view", options).expect("a keyspace can be made");
    (database, view)
}

fn options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES)
}

/// Every entry of the group and the position each log has reached.
fn view_entries(group: &[&Document]) -> Vec<(Bytes, Bytes)> {
    let mut entries = Vec::with_capacity(group.len() * 14);
    for document in group {
        entries.extend(document.entries.iter().cloned());
        entries.push((key(document.log, 0, &[]), Bytes::from(vec![0; 28])));
    }
    entries
}
