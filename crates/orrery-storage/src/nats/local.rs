//! The node's own copy: an embedded store whose log is not synced, because the stream is what makes a write durable.
//!
//! It holds the views, the recent part of every log, and how far each has come. After a power cut it may be damaged; since
//! it is derived, a copy that does not open is made anew from the streams.

use std::io;
use std::path::Path;
use std::sync::Arc;

use orrery_partition::storage::{Project, Result, StorageError};

use crate::embedded::{DiskFiles, EmbeddedSettings, EmbeddedStore, Files, LogFile};

/// Opens the copy in a directory. Blocks while it reads what is there.
pub(super) fn open(dir: &Path, settings: &EmbeddedSettings, project: &Arc<dyn Project>) -> Result<Arc<EmbeddedStore>> {
    match open_as_is(dir, settings, project) {
        Err(StorageError::Corrupt(problem)) => {
            tracing::error!(problem, "this node's copy is damaged and is made anew");
            std::fs::remove_dir_all(dir)
                .map_err(|error| StorageError::Unavailable(format!("cannot remove a damaged copy: {error}")))?;
            open_as_is(dir, settings, project)
        }
        opened => opened,
    }
}

fn open_as_is(dir: &Path, settings: &EmbeddedSettings, project: &Arc<dyn Project>) -> Result<Arc<EmbeddedStore>> {
    let files = DiskFiles::new(&dir.join("log"))
        .map_err(|error| StorageError::Unavailable(format!("cannot make the store's directory: {error}")))?;
    EmbeddedStore::open_with(dir, settings.clone(), project.clone(), Arc::new(Unsynced(files)))
}

/// Files that leave it to the kernel when they reach the disk.
#[derive(Debug)]
struct Unsynced(DiskFiles);

impl Files for Unsynced {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        Ok(Arc::new(UnsyncedFile(self.0.create(name)?)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        Ok(Arc::new(UnsyncedFile(self.0.open(name)?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.0.free_bytes()
    }
}

#[derive(Debug)]
struct UnsyncedFile(Arc<dyn LogFile>);

impl LogFile for UnsyncedFile {
    fn size_bytes(&self) -> io::Result<u64> {
        self.0.size_bytes()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.truncate(len)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
