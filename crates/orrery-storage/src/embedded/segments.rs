//! The log files of a store: one that grows, older ones that are whole, and how they are found again after a crash.
//!
//! Invariant: groups are numbered without gaps from the first segment to the last, and everything before the current
//! segment is synced. A segment is never appended to after the process that made it.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use orrery_partition::storage::{Result, StorageError};

use super::files::{Files, LogFile};
use crate::frame::{Group, GroupWriter, HEADER_BYTES, SegmentHeader, Sequence};

/// Number of a segment; later segments have higher ones.
pub(super) type SegmentId = u32;

const SUFFIX: &str = ".log";
const REWRITE_SUFFIX: &str = ".rewrite";

/// Why a group was not written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WriteError {
    /// No room; the files are as before.
    Full,
    /// The disk failed before the group was written; nothing of it is there.
    Refused(String),
    /// The disk failed; the group may be there or not.
    Unknown(String),
}

/// Where a group went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) sequence: Sequence,
    pub(super) segment: SegmentId,
    pub(super) offset: u32,
}

/// How [`Segments::recover`] makes sure that what it read is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// A sync suffices: no sync has failed in the life of this machine that we know of.
    Sync,
    /// A sync failed, after which the kernel may show bytes it will never write: write the last segment again.
    Rewrite,
}

#[derive(Debug)]
pub(super) struct Segments {
    files: Arc<dyn Files>,
    segment_bytes: u64,
    sealed: VecDeque<Sealed>,
    current: Current,
    next: Sequence,
    readers: Readers,
}

#[derive(Debug)]
struct Sealed {
    id: SegmentId,
    last: Sequence,
    size_bytes: u64,
}

#[derive(Debug)]
struct Current {
    id: SegmentId,
    file: Arc<dyn LogFile>,
    header: SegmentHeader,
    size_bytes: u64,
}

/// Open files by segment, shared with those who read the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Readers {
    by_id: Arc<Mutex<BTreeMap<SegmentId, Arc<dyn LogFile>>>>,
}

impl Readers {
    /// Bytes of one segment.
    pub(super) fn read(&self, segment: SegmentId, offset: u32, length: u32) -> Result<Bytes> {
        let file = self.lock().get(&segment).cloned();
        let file = file.ok_or_else(|| StorageError::Unavailable(format!("segment {segment} is gone")))?;
        let mut bytes = vec![0; length as usize];
        file.read_at(u64::from(offset), &mut bytes)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => damaged(segment, offset as usize, "the file has become shorter"),
                _ => failed("read a segment", &error),
            })?;
        Ok(Bytes::from(bytes))
    }

    /// From now on reads the files of `other`.
    fn adopt(&self, other: &Readers) {
        let files = std::mem::take(&mut *other.lock());
        *self.lock() = files;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SegmentId, Arc<dyn LogFile>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Segments {
    /// Finds every group there is, in order, hands each to `visit`, cuts off what a crash left unfinished, and starts a
    /// new segment. What was found is durable on return.
    pub(super) fn recover(
        files: Arc<dyn Files>,
        segment_bytes: u64,
        trust: Trust,
        visit: &mut dyn FnMut(SegmentId, &Group) -> Result<()>,
    ) -> Result<Segments> {
        let mut found = Found::default();
        let ids = found.list(files.as_ref())?;
        let last = last_with_groups(files.as_ref(), &ids).map_err(|error| failed("look at the log", &error))?;
        for id in &ids {
            match last {
                Some(last) if *id <= last => found.segment(files.as_ref(), *id, *id == last, trust, visit)?,
                _ => found.leftover(files.as_ref(), *id)?,
            }
        }
        let next = found.next.unwrap_or(1);
        let id = ids.last().map_or(1, |last| last + 1);
        let current = Current::create(files.as_ref(), id, next).map_err(|error| failed("start a segment", &error))?;
        // An empty segment says only where the numbering goes on, and the new one says so too.
        for empty in found.empty {
            files
                .remove(&name(empty))
                .map_err(|error| failed("remove an empty segment", &error))?;
        }
        found.readers.lock().insert(id, current.file.clone());
        Ok(Segments {
            files,
            segment_bytes,
            sealed: found.sealed,
            current,
            next,
            readers: found.readers,
        })
    }

    /// Reads everything anew after a failed write or sync, as [`Segments::recover`] does.
    pub(super) fn reopen(&mut self, visit: &mut dyn FnMut(SegmentId, &Group) -> Result<()>) -> Result<()> {
        let readers = self.readers.clone();
        let mut reopened = Segments::recover(self.files.clone(), self.segment_bytes, Trust::Rewrite, visit)?;
        readers.adopt(&reopened.readers);
        reopened.readers = readers;
        *self = reopened;
        Ok(())
    }

    /// Writes a group and makes it durable.
    pub(super) fn write(&mut self, group: &mut GroupWriter) -> Result<Written, WriteError> {
        self.make_room(group.size_bytes() as u64)?;
        let offset = self.current.size_bytes;
        let bytes = group.finish(self.current.header.salt, self.next);
        if let Err(error) = self.current.file.write_at(offset, bytes) {
            return Err(self.take_back(offset, &error));
        }
        self.current
            .file
            .sync()
            .map_err(|error| WriteError::Unknown(format!("cannot sync the log: {error}")))?;
        self.current.size_bytes += bytes.len() as u64;
        let written = Written {
            sequence: self.next,
            segment: self.current.id,
            offset: offset as u32,
        };
        self.next += 1;
        Ok(written)
    }

    /// The sequence of the last group written or found, or zero.
    pub(super) fn last(&self) -> Sequence {
        self.next - 1
    }

    pub(super) fn readers(&self) -> Readers {
        self.readers.clone()
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.sealed.iter().map(|sealed| sealed.size_bytes).sum::<u64>() + self.current.size_bytes
    }

    /// The oldest segment that is no longer written to, with its last group and its size.
    pub(super) fn oldest(&self) -> Option<(SegmentId, Sequence, u64)> {
        self.sealed
            .front()
            .map(|sealed| (sealed.id, sealed.last, sealed.size_bytes))
    }

    /// Removes the oldest segment. Removing in order keeps the numbering without gaps after any crash.
    pub(super) fn remove_oldest(&mut self) -> io::Result<()> {
        if let Some(oldest) = self.sealed.front() {
            self.files.remove(&name(oldest.id))?;
            self.readers.lock().remove(&oldest.id);
            self.sealed.pop_front();
        }
        Ok(())
    }

    /// Starts a new segment when the group would make the current one too large.
    fn make_room(&mut self, group_bytes: u64) -> Result<(), WriteError> {
        let has_groups = self.current.size_bytes > HEADER_BYTES as u64;
        if !has_groups || self.current.size_bytes + group_bytes <= self.segment_bytes {
            return Ok(());
        }
        let id = self.current.id + 1;
        let next = Current::create(self.files.as_ref(), id, self.next).map_err(|error| {
            // A file left behind here holds no group and is found empty, or is replaced by the next attempt.
            match error.kind() {
                io::ErrorKind::StorageFull => WriteError::Full,
                _ => WriteError::Refused(format!("cannot start a segment: {error}")),
            }
        })?;
        self.readers.lock().insert(id, next.file.clone());
        let before = std::mem::replace(&mut self.current, next);
        self.sealed.push_back(Sealed {
            id: before.id,
            last: self.next - 1,
            size_bytes: before.size_bytes,
        });
        Ok(())
    }

    /// After a write that failed: when only room was missing, the file is as before once the part is cut off again. The
    /// cut is synced because the segment may be sealed next, and a sealed one must not end in a broken group.
    fn take_back(&self, offset: u64, error: &io::Error) -> WriteError {
        let cut = || {
            self.current
                .file
                .truncate(offset)
                .and_then(|()| self.current.file.sync())
        };
        if error.kind() == io::ErrorKind::StorageFull && cut().is_ok() {
            return WriteError::Full;
        }
        WriteError::Unknown(format!("cannot write the log: {error}"))
    }
}

impl Current {
    fn create(files: &dyn Files, id: SegmentId, first: Sequence) -> io::Result<Current> {
        let header = SegmentHeader {
            salt: RandomState::new().hash_one(id),
            first,
        };
        let file = files.create(&name(id))?;
        file.write_at(0, &header.encode())?;
        file.sync()?;
        files.sync_dir()?;
        Ok(Current {
            id,
            file,
            header,
            size_bytes: HEADER_BYTES as u64,
        })
    }
}

/// What recovery has found so far.
#[derive(Default)]
struct Found {
    sealed: VecDeque<Sealed>,
    empty: Vec<SegmentId>,
    readers: Readers,
    /// The sequence the next group must have, once a segment has named one.
    next: Option<Sequence>,
}

impl Found {
    /// The segments by age. Removes what an interrupted rewrite left behind.
    fn list(&self, files: &dyn Files) -> Result<Vec<SegmentId>> {
        let mut ids = Vec::new();
        for file in files.list().map_err(|error| failed("list the log", &error))? {
            if let Some(id) = file.strip_suffix(SUFFIX).and_then(|id| id.parse().ok()) {
                ids.push(id);
            } else if file.ends_with(REWRITE_SUFFIX) {
                files
                    .remove(&file)
                    .map_err(|error| failed("remove a leftover", &error))?;
            }
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// A segment after the last one that was written to. Starting it may have been cut off or may have failed, in which case
    /// groups went on behind its back: it says nothing, except that none before it are missing.
    fn leftover(&mut self, files: &dyn Files, id: SegmentId) -> Result<()> {
        let file = files
            .open(&name(id))
            .map_err(|error| failed("open a segment", &error))?;
        let bytes = read_all(file.as_ref()).map_err(|error| failed("read a segment", &error))?;
        if let Some(header) = SegmentHeader::decode(&bytes) {
            if self.next.is_some_and(|next| next < header.first) {
                return Err(damaged(id, 0, "groups before this segment are missing"));
            }
            self.next.get_or_insert(header.first);
        }
        self.empty.push(id);
        Ok(())
    }

    fn segment(
        &mut self,
        files: &dyn Files,
        id: SegmentId,
        is_last: bool,
        trust: Trust,
        visit: &mut dyn FnMut(SegmentId, &Group) -> Result<()>,
    ) -> Result<()> {
        let mut file = files
            .open(&name(id))
            .map_err(|error| failed("open a segment", &error))?;
        let bytes = read_all(file.as_ref()).map_err(|error| failed("read a segment", &error))?;
        let Some(header) = SegmentHeader::decode(&bytes) else {
            return Err(damaged(id, 0, "the header is not one of ours"));
        };
        if self.next.is_some_and(|next| next != header.first) {
            return Err(damaged(id, 0, "groups before this segment are missing"));
        }
        let end = self.groups(id, header, &bytes, is_last, visit)?;
        if is_last {
            let kept = bytes.slice(..end);
            file = secure(files, id, file, &kept, trust).map_err(|error| failed("secure a segment", &error))?;
        }
        if end == HEADER_BYTES {
            self.empty.push(id);
            return Ok(());
        }
        self.readers.lock().insert(id, file);
        let last = self.next.map_or(0, |next| next - 1);
        self.sealed.push_back(Sealed {
            id,
            last,
            size_bytes: end as u64,
        });
        Ok(())
    }

    /// Visits the groups; answers where the last whole one ends.
    fn groups(
        &mut self,
        id: SegmentId,
        header: SegmentHeader,
        bytes: &Bytes,
        is_last: bool,
        visit: &mut dyn FnMut(SegmentId, &Group) -> Result<()>,
    ) -> Result<usize> {
        let mut expected = header.first;
        let mut at = HEADER_BYTES;
        while at < bytes.len() {
            let Some(group) = Group::read(bytes, at, header.salt) else {
                if is_last && !Group::any_from(bytes, at + 1, header.salt) {
                    tracing::warn!(
                        segment = id,
                        offset = at,
                        "cutting off a group that a crash left unfinished"
                    );
                    break;
                }
                return Err(damaged(id, at, "a broken group stands before whole ones"));
            };
            if group.sequence != expected {
                return Err(damaged(id, at, "a group is out of order"));
            }
            visit(id, &group)?;
            expected += 1;
            at = group.end();
        }
        self.next = Some(expected);
        Ok(at)
    }
}

/// The newest segment that holds more than a header: the only one that a crash can have torn or a failed sync betrayed.
fn last_with_groups(files: &dyn Files, ids: &[SegmentId]) -> io::Result<Option<SegmentId>> {
    for id in ids.iter().rev() {
        if files.open(&name(*id))?.size_bytes()? > HEADER_BYTES as u64 {
            return Ok(Some(*id));
        }
    }
    Ok(None)
}

/// Makes the file hold exactly `kept`, durably.
fn secure(
    files: &dyn Files,
    id: SegmentId,
    file: Arc<dyn LogFile>,
    kept: &Bytes,
    trust: Trust,
) -> io::Result<Arc<dyn LogFile>> {
    if trust == Trust::Sync {
        if file.size_bytes()? > kept.len() as u64 {
            file.truncate(kept.len() as u64)?;
        }
        file.sync()?;
        return Ok(file);
    }
    let rewrite = format!("{}{REWRITE_SUFFIX}", name(id));
    let fresh = files.create(&rewrite)?;
    fresh.write_at(0, kept)?;
    fresh.sync()?;
    files.rename(&rewrite, &name(id))?;
    files.sync_dir()?;
    Ok(fresh)
}

fn read_all(file: &dyn LogFile) -> io::Result<Bytes> {
    let mut bytes = vec![0; file.size_bytes()? as usize];
    file.read_at(0, &mut bytes)?;
    Ok(Bytes::from(bytes))
}

fn name(id: SegmentId) -> String {
    format!("{id:010}{SUFFIX}")
}

fn damaged(id: SegmentId, offset: usize, problem: &str) -> StorageError {
    StorageError::Corrupt(format!("segment {id} at {offset}: {problem}"))
}

fn failed(what: &str, error: &io::Error) -> StorageError {
    StorageError::Unavailable(format!("cannot {what}: {error}"))
}
