//! What a disk returns: transactions, and whole log files with checksums that are right.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use orrery_model::Position;
use orrery_model::log::Transaction;
use orrery_partition::project::Projector;
use orrery_partition::storage::{StorageError, Store as _};
use orrery_storage::EmbeddedStore;
use orrery_storage::embedded::{Files, LogFile};

/// A transaction that decodes encodes to the same bytes.
pub(super) fn record(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    if let Ok(transaction) = Transaction::decode(&bytes) {
        let mut encoded = Vec::new();
        transaction.encode(&mut encoded);
        assert_eq!(Transaction::decode(&Bytes::from(encoded)).ok(), Some(transaction));
    }
}

/// A store opens what the log holds, or says that it is corrupt. The input is read as groups, each two bytes of length and
/// its records. They are tried without frames, in frames whose checksums are right, and with transactions chained to one
/// another as well, so that what is inside gets looked at.
pub(super) fn file(bytes: &[u8]) {
    let groups = groups(bytes);
    let mut positions = BTreeMap::new();
    let chained: Vec<Vec<u8>> = groups.iter().map(|group| chain(group, &mut positions)).collect();
    for content in [bytes.to_vec(), segment(&groups), segment(&chained)] {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let disk = Disk::with(content);
        let opened = EmbeddedStore::open_with(
            dir.path(),
            Default::default(),
            Arc::new(Projector::default()),
            Arc::new(disk),
        );
        match opened {
            Ok(store) => drop(store.list()),
            Err(StorageError::Corrupt(_)) => {}
            Err(other) => panic!("a log with unexpected content is {other:?}"),
        }
    }
}

fn groups(mut rest: &[u8]) -> Vec<Vec<u8>> {
    let mut groups = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let (group, behind) = behind.split_at(behind.len().min(u16::from_le_bytes(*length).into()));
        groups.push(group.to_vec());
        rest = behind;
    }
    groups
}

/// Bytes of a record before its body, and of a transaction before the content its hash covers.
const RECORD_HEADER_BYTES: usize = 13;
const TRANSACTION_HEADER_BYTES: usize = 33;
const TRANSACTIONS: u8 = 1;

/// The group with every transaction that can be read made to follow the one before it in its log.
fn chain(group: &[u8], positions: &mut BTreeMap<u64, Position>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = group;
    while let Some((header, behind)) = rest.split_first_chunk::<RECORD_HEADER_BYTES>() {
        let log = u64::from_le_bytes(header[1..9].try_into().expect("eight bytes"));
        let length = u32::from_le_bytes(header[9..].try_into().expect("four bytes")) as usize;
        let (body, behind) = behind.split_at(behind.len().min(length));
        let body = match header[0] {
            TRANSACTIONS => chain_transactions(body, positions.entry(log).or_default()),
            _ => body.to_vec(),
        };
        out.extend_from_slice(&header[..9]);
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        out.extend_from_slice(&body);
        rest = behind;
    }
    out.extend_from_slice(rest);
    out
}

fn chain_transactions(body: &[u8], position: &mut Position) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = body;
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let (bytes, behind) = behind.split_at(behind.len().min(u32::from_le_bytes(*length) as usize));
        let Ok(mut transaction) = Transaction::decode(&Bytes::copy_from_slice(bytes)) else {
            break;
        };
        (transaction.previous, transaction.previous_hash) = (position.lsn, position.hash);
        let mut encoded = Vec::new();
        transaction.encode(&mut encoded);
        transaction.hash = position.hash.chain(&encoded[TRANSACTION_HEADER_BYTES..]);
        *position = transaction.position();
        encoded.clear();
        transaction.encode(&mut encoded);
        out.extend_from_slice(&(encoded.len() as u32).to_le_bytes());
        out.extend_from_slice(&encoded);
        rest = behind;
    }
    out.extend_from_slice(rest);
    out
}

const SALT: u64 = 42;

fn segment(groups: &[Vec<u8>]) -> Vec<u8> {
    let mut out = b"ORRYLOG\x01".to_vec();
    out.extend_from_slice(&SALT.to_le_bytes());
    out.extend_from_slice(&1_u64.to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(&out).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    for (records, sequence) in groups.iter().zip(1_u64..) {
        let length = (records.len() as u32).to_le_bytes();
        let covered = [&SALT.to_le_bytes()[..], &sequence.to_le_bytes(), &length, records].concat();
        out.extend_from_slice(b"\xA7grp");
        out.extend_from_slice(&length);
        out.extend_from_slice(&sequence.to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&covered).to_le_bytes());
        out.extend_from_slice(records);
    }
    out
}

/// A directory in memory.
#[derive(Clone, Debug, Default)]
struct Disk {
    files: Arc<Mutex<BTreeMap<String, Arc<MemoryFile>>>>,
}

#[derive(Debug, Default)]
struct MemoryFile {
    bytes: Mutex<Vec<u8>>,
}

impl Disk {
    fn with(content: Vec<u8>) -> Disk {
        let disk = Disk::default();
        let file = MemoryFile {
            bytes: Mutex::new(content),
        };
        disk.lock().insert("0000000001.log".into(), Arc::new(file));
        disk
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<MemoryFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, name: &str) -> io::Result<Arc<MemoryFile>> {
        self.lock()
            .get(name)
            .cloned()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Files for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let file = Arc::new(MemoryFile::default());
        self.lock().insert(name.into(), Arc::clone(&file));
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        Ok(self.find(name)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let file = self.find(from)?;
        let mut files = self.lock();
        files.remove(from);
        files.insert(to.into(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.lock().remove(name);
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

impl MemoryFile {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogFile for MemoryFile {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.lock().len() as u64)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut content = self.lock();
        let (begin, end) = (offset as usize, offset as usize + bytes.len());
        let length = content.len().max(end);
        content.resize(length, 0);
        content[begin..end].copy_from_slice(bytes);
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let content = self.lock();
        let end = (offset as usize).checked_add(buffer.len());
        let found = end.and_then(|end| content.get(offset as usize..end));
        buffer.copy_from_slice(found.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.lock().truncate(len as usize);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
