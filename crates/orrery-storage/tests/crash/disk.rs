//! A disk that remembers what was synced, and can be told to fail.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use orrery_storage::embedded::{Files, LogFile};

/// What a power cut leaves of writes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsynced {
    /// Nothing.
    Lost,
    /// The first half of what was added.
    Torn,
    /// All of it, as after a crash of the process alone.
    Kept,
    /// The length, with zeros in the first half of what was added and the bytes in the second.
    Holed,
}

#[derive(Clone, Debug, Default)]
pub struct Disk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    files: Vec<Content>,
    n_changes: usize,
    /// Everything fails from this change on.
    power_off_at: Option<usize>,
    fail_next_sync: bool,
    /// The next write takes this many bytes and then finds the disk full.
    full_after: Option<usize>,
    free_bytes: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Content {
    current: Vec<u8>,
    synced: Vec<u8>,
    /// What a failed sync has dropped: the kernel shows it, and no later sync will write it.
    dropped: Range<usize>,
}

impl Disk {
    /// Lets `n` changes happen and then fails everything, the one that is under way half done.
    pub fn cut_power_after(&self, n: usize) {
        let mut state = self.lock();
        state.power_off_at = Some(state.n_changes + n);
    }

    /// The disk as it is found when the power is back.
    pub fn after_power_cut(&self, unsynced: Unsynced) -> Disk {
        let state = self.lock();
        let names = if unsynced == Unsynced::Kept {
            state.names.clone()
        } else {
            state.synced_names.clone()
        };
        let files: Vec<Content> = state.files.iter().map(|file| file.after_power_cut(unsynced)).collect();
        let state = State {
            synced_names: names.clone(),
            names,
            files,
            ..State::default()
        };
        Disk {
            state: Arc::new(Mutex::new(state)),
        }
    }

    pub fn fail_next_sync(&self) {
        self.lock().fail_next_sync = true;
    }

    /// The next write finds room for `bytes` only.
    pub fn fill_during_next_write(&self, bytes: usize) {
        self.lock().full_after = Some(bytes);
    }

    pub fn set_free_bytes(&self, bytes: u64) {
        self.lock().free_bytes = Some(bytes);
    }

    /// Names of the files, oldest first.
    pub fn names(&self) -> Vec<String> {
        self.lock().names.keys().cloned().collect()
    }

    pub fn size(&self, name: &str) -> usize {
        let state = self.lock();
        state.files[state.names[name]].current.len()
    }

    /// Turns bits of one byte.
    pub fn damage(&self, name: &str, offset: usize) {
        let mut state = self.lock();
        let id = state.names[name];
        let file = &mut state.files[id];
        file.current[offset] ^= 0x5A;
        file.synced = file.current.clone();
    }

    /// Cuts a file.
    pub fn shorten(&self, name: &str, length: usize) {
        let mut state = self.lock();
        let id = state.names[name];
        state.files[id].current.truncate(length);
        state.files[id].synced.truncate(length);
    }

    pub fn lose(&self, name: &str) {
        let mut state = self.lock();
        state.names.remove(name);
        state.synced_names.remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    /// Counts a change; fails when the power is off. `Ok(true)` when it goes off during this one.
    fn change(&mut self) -> io::Result<bool> {
        self.n_changes += 1;
        match self.power_off_at {
            Some(at) if self.n_changes > at => Err(io::Error::other("the power is off")),
            Some(at) => Ok(self.n_changes == at),
            None => Ok(false),
        }
    }

    fn id(&self, name: &str) -> io::Result<usize> {
        self.names
            .get(name)
            .copied()
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

impl Content {
    fn after_power_cut(&self, unsynced: Unsynced) -> Content {
        let half = self.synced.len() + self.current.len().saturating_sub(self.synced.len()) / 2;
        let mut left = match unsynced {
            Unsynced::Lost => self.synced.clone(),
            Unsynced::Torn => self.current[..half.min(self.current.len())].to_vec(),
            Unsynced::Kept | Unsynced::Holed => self.current.clone(),
        };
        if unsynced == Unsynced::Holed && left.len() > self.synced.len() {
            left[self.synced.len()..half].fill(0);
        }
        Content {
            synced: left.clone(),
            current: left,
            dropped: 0..0,
        }
    }
}

impl Files for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let mut state = self.lock();
        state.change()?;
        let id = state.files.len();
        state.files.push(Content::default());
        state.names.insert(name.into(), id);
        Ok(Arc::new(DiskFile { disk: self.clone(), id }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        let id = self.lock().id(name)?;
        Ok(Arc::new(DiskFile { disk: self.clone(), id }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.change()?;
        let id = state.id(from)?;
        state.names.remove(from);
        state.names.insert(to.into(), id);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.change()?;
        state.id(name)?;
        state.names.remove(name);
        // A removal may reach the disk at any time, with or without a sync.
        state.synced_names.remove(name);
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.change()?;
        state.synced_names = state.names.clone();
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.lock().free_bytes.unwrap_or(u64::MAX))
    }
}

#[derive(Debug)]
struct DiskFile {
    disk: Disk,
    id: usize,
}

impl LogFile for DiskFile {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.disk.lock().files[self.id].current.len() as u64)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.lock();
        let is_cut = state.change()?;
        let room = state.full_after.take();
        let taken = if is_cut {
            bytes.len() / 2
        } else {
            room.unwrap_or(bytes.len()).min(bytes.len())
        };
        let content = &mut state.files[self.id].current;
        let end = offset as usize + taken;
        content.resize(end.max(content.len()), 0);
        content[offset as usize..end].copy_from_slice(&bytes[..taken]);
        match (is_cut, taken < bytes.len()) {
            (true, _) => Err(io::Error::other("the power goes off")),
            (false, true) => Err(io::Error::from(io::ErrorKind::StorageFull)),
            (false, false) => Ok(()),
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let state = self.disk.lock();
        let bytes = state.files[self.id]
            .current
            .get(offset as usize..offset as usize + buffer.len());
        buffer.copy_from_slice(bytes.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.change()?;
        state.files[self.id].current.truncate(len as usize);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        let is_cut = state.change()?;
        let is_failing = std::mem::take(&mut state.fail_next_sync);
        let file = &mut state.files[self.id];
        if is_cut || is_failing {
            file.dropped = file.synced.len()..file.current.len();
            return Err(io::Error::other("cannot sync"));
        }
        file.synced = file.current.clone();
        let dropped = file.dropped.start.min(file.synced.len())..file.dropped.end.min(file.synced.len());
        file.synced[dropped].fill(0);
        Ok(())
    }
}
