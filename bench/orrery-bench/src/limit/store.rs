//! The unavoidable part of a durable create: everything waiting is appended to a log and synced once, then the entries a
//! document has in the view go into the same kind of tree that the server uses, then everyone is answered.
//!
//! Sizes and number of records and entries are those of `docs/formats/`: a transaction with one put in the log; an item, an
//! id, a change, a term per indexed value and a posting in the view; the partition's state, the log's position and the
//! applied group once per group. What the entries mean it does not know.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context as _, Result};
use bytes::{BufMut as _, Bytes, BytesMut};
use lsm_tree::config::CompressionPolicy;
use lsm_tree::{AbstractTree as _, AnyTree, CompressionType, Guard as _, SequenceNumberCounter};
use tokio::sync::{mpsc, oneshot};

use crate::documents::N_KEYS;

/// The server's settings.
const WRITE_BUFFER_BYTES: u64 = 8 << 20;
const SEALED_MAX: usize = 3;
/// Requests that may wait.
const INBOX: usize = 1024;
const GROUP_MAX: usize = 512;

/// Bytes that a log record holds besides the document: frame, transaction, and the put's own fields.
const RECORD_OVERHEAD_BYTES: usize = 140;
/// System properties that a server adds to a document.
const SYSTEM_PROPERTY_BYTES: usize = 150;
const ITEM_HEADER_BYTES: usize = 52;
const STATE_BYTES: usize = 64;
const LOG_META_BYTES: usize = 41;

/// Index entries of a document: bytes of the value's code, and how many different values there are. In the order of
/// properties: id, pk, revision, rank, active, owner, owner.name, owner.age, tags, two or three tags, score, text, _ts.
const TERMS: [(usize, u64); 15] = [
    (12, u64::MAX),
    (6, N_KEYS),
    (9, 1),
    (9, 1_000_000),
    (1, 2),
    (1, 1),
    (8, 8),
    (9, 100),
    (1, 1),
    (8, 8),
    (8, 8),
    (8, 8),
    (9, 1_000),
    (131, u64::MAX),
    (9, 1),
];

struct Put {
    body: Bytes,
    answer: oneshot::Sender<()>,
}

pub struct Store {
    inbox: mpsc::Sender<Put>,
    tree: AnyTree,
}

/// Documents one after the other, and the key of the last.
pub struct Page {
    pub documents: Vec<Bytes>,
    pub last: Option<Bytes>,
}

impl Store {
    pub fn open(directory: &Path) -> Result<Store> {
        let committer = Committer::open(directory)?;
        let tree = committer.tree.clone();
        let (inbox, waiting) = mpsc::channel(INBOX);
        spawn("commit", move || committer.run(waiting))?;
        Ok(Store { inbox, tree })
    }

    /// Up to `n` documents after a key, in the order of keys: iterating and nothing else.
    pub fn page(&self, after: &[u8], n: usize) -> Result<Page> {
        let from = if after.is_empty() {
            key(0x10, &[])
        } else {
            Bytes::from([after, &[0]].concat())
        };
        let mut page = Page {
            documents: Vec::with_capacity(n),
            last: None,
        };
        for entry in self
            .tree
            .range(from..key(0x11, &[]), lsm_tree::SeqNo::MAX, None)
            .take(n)
        {
            let (key, value) = entry
                .into_inner()
                .map_err(|error| anyhow::anyhow!("cannot read the tree: {error}"))?;
            page.documents.push(Bytes::from(value).slice(ITEM_HEADER_BYTES..));
            page.last = Some(Bytes::from(key));
        }
        Ok(page)
    }

    /// Durable and visible when true.
    pub async fn put(&self, body: Bytes) -> bool {
        let (answer, answered) = oneshot::channel();
        self.inbox.send(Put { body, answer }).await.is_ok() && answered.await.is_ok()
    }
}

/// The threads end with the process, which is stopped when its run is over.
fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
    Ok(())
}

struct Committer {
    log: File,
    tree: AnyTree,
    sequence: SequenceNumberCounter,
    flush: SyncSender<()>,
    n_documents: u64,
}

impl Committer {
    fn open(directory: &Path) -> Result<Committer> {
        let sequence = SequenceNumberCounter::default();
        let config = lsm_tree::Config::new(
            directory.join("view"),
            sequence.clone(),
            SequenceNumberCounter::default(),
        );
        let compression = [CompressionType::None, CompressionType::None, CompressionType::Lz4];
        let tree = config
            .data_block_compression_policy(CompressionPolicy::new(compression))
            .open();
        let tree = tree.map_err(|error| anyhow::anyhow!("cannot open a tree: {error}"))?;
        let (flush, flushes) = sync_channel(SEALED_MAX + 1);
        let (merge, merges) = sync_channel(1);
        let (own_tree, own_sequence) = (tree.clone(), sequence.clone());
        spawn("flush", move || {
            flush_sealed(&own_tree, &own_sequence, &flushes, &merge)
        })?;
        let (own_tree, own_sequence) = (tree.clone(), sequence.clone());
        spawn("merge", move || merge_tables(&own_tree, &own_sequence, &merges))?;
        let log = File::create(directory.join("log")).context("cannot create a log")?;
        Ok(Committer {
            log,
            tree,
            sequence,
            flush,
            n_documents: 0,
        })
    }

    fn run(mut self, mut waiting: mpsc::Receiver<Put>) {
        let mut group = Vec::with_capacity(GROUP_MAX);
        while let Some(first) = waiting.blocking_recv() {
            group.push(first);
            while group.len() < GROUP_MAX
                && let Ok(next) = waiting.try_recv()
            {
                group.push(next);
            }
            self.append(&group).expect("the disk takes writes");
            self.apply(&group);
            // Whoever asked may have gone away.
            for put in group.drain(..) {
                let _ = put.answer.send(());
            }
            self.make_room();
        }
    }

    fn append(&mut self, group: &[Put]) -> std::io::Result<()> {
        let mut bytes = Vec::with_capacity(group.len() * 1400);
        for put in group {
            bytes.extend_from_slice(&[7; RECORD_OVERHEAD_BYTES]);
            bytes.extend_from_slice(&put.body);
            bytes.extend_from_slice(&[b'x'; SYSTEM_PROPERTY_BYTES]);
        }
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
        self.log.write_all(&bytes)?;
        self.log.sync_data()
    }

    fn apply(&mut self, group: &[Put]) {
        let sequence = self.sequence.next();
        for put in group {
            self.n_documents += 1;
            let number = self.n_documents;
            // Hashes spread the logical partitions over the key space, as they do in the server.
            let hash = u128::from(number % N_KEYS)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15_D1B5_4A32_D192_ED03)
                .to_be_bytes();
            let mut item = BytesMut::with_capacity(ITEM_HEADER_BYTES + put.body.len() + SYSTEM_PROPERTY_BYTES);
            item.put_bytes(1, ITEM_HEADER_BYTES);
            item.put_slice(&put.body);
            item.put_bytes(b'x', SYSTEM_PROPERTY_BYTES);
            let place = number.to_be_bytes();
            let epk = Bytes::copy_from_slice(&hash);
            self.insert(key(0x10, &[&hash, &place]), item.freeze(), sequence);
            self.insert(
                key(0x11, &[&hash, b"d000000000"]),
                Bytes::copy_from_slice(&place),
                sequence,
            );
            self.insert(key(0x12, &[&place, &[0; 2], &place]), epk.clone(), sequence);
            self.insert_terms(number, &hash, sequence);
            self.insert(key(0x22, &[&[5; 8], &place]), epk, sequence);
        }
        self.insert(key(0x01, &[]), Bytes::from_static(&[0; STATE_BYTES]), sequence);
        self.insert(
            Bytes::from_static(&[1; 9]),
            Bytes::from_static(&[0; LOG_META_BYTES]),
            sequence,
        );
        self.insert(Bytes::from_static(&[0]), Bytes::from_static(&[0; 9]), sequence);
    }

    fn insert_terms(&self, number: u64, epk: &[u8], sequence: u64) {
        for (path, (code_bytes, n_values)) in TERMS.into_iter().enumerate() {
            let path_hash = (path as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let value = (number ^ path_hash).wrapping_mul(0xD1B5_4A32_D192_ED03) % n_values;
            let mut code = [0; 131];
            code[..8].copy_from_slice(&value.to_be_bytes());
            let parts: [&[u8]; 4] = [
                &path_hash.to_be_bytes(),
                &code[..code_bytes],
                epk,
                &number.to_be_bytes(),
            ];
            self.insert(key(0x20, &parts), Bytes::new(), sequence);
        }
    }

    fn insert(&self, key: Bytes, value: Bytes, sequence: u64) {
        self.tree.insert(key, value, sequence);
    }

    fn make_room(&self) {
        if self.tree.active_memtable().size() >= WRITE_BUFFER_BYTES {
            self.tree.rotate_memtable();
            // Waits when too many sealed tables wait already.
            self.flush.send(()).expect("the keeper lives as long as the committer");
        }
    }
}

/// Flushes what was sealed, and has tables merged afterwards.
fn flush_sealed(tree: &AnyTree, sequence: &SequenceNumberCounter, flushes: &Receiver<()>, merge: &SyncSender<()>) {
    while flushes.recv().is_ok() {
        let lock = tree.get_flush_lock();
        tree.flush(&lock, sequence.get()).expect("the disk takes writes");
        // A merge that is due already will see this flush too.
        let _ = merge.try_send(());
    }
}

/// Merges tables until there is nothing to merge.
fn merge_tables(tree: &AnyTree, sequence: &SequenceNumberCounter, merges: &Receiver<()>) {
    while merges.recv().is_ok() {
        let mut before = None;
        while before != Some(tree.current_version().id()) {
            before = Some(tree.current_version().id());
            let strategy = Arc::new(lsm_tree::compaction::Leveled::default());
            tree.compact(strategy, sequence.get()).expect("the disk takes writes");
        }
    }
}

/// A key of the one log: prefix of the view, kind, then `parts`.
fn key(kind: u8, parts: &[&[u8]]) -> Bytes {
    let mut key = BytesMut::with_capacity(10 + parts.iter().map(|part| part.len()).sum::<usize>());
    key.put_u8(2);
    key.put_u64(1);
    key.put_u8(kind);
    parts.iter().for_each(|part| key.put_slice(part));
    key.freeze()
}
