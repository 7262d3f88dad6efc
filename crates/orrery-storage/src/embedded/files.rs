//! The few things a log asks of a file system, so that tests can bring a disk that fails, fills or loses power.
//!
//! Names are plain file names within one directory. What was written is durable only after [`LogFile::sync`], and that a
//! file exists, has a new name or is gone only after [`Files::sync_dir`].

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One directory of log files.
pub trait Files: Send + Sync + fmt::Debug + 'static {
    /// Names of all files.
    fn list(&self) -> io::Result<Vec<String>>;

    /// A new, empty file in place of any that has this name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>>;

    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    fn remove(&self, name: &str) -> io::Result<()>;

    fn sync_dir(&self) -> io::Result<()>;

    /// Room left for everyone who writes to this disk.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// One file that grows at its end.
pub trait LogFile: Send + Sync + fmt::Debug {
    fn size_bytes(&self) -> io::Result<u64>;

    /// Writes all of `bytes` at `offset`, or fails after writing any part of them.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Fills the buffer from `offset`.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Returns when everything written is durable.
    fn sync(&self) -> io::Result<()>;
}

/// Files of the operating system.
#[derive(Debug)]
pub struct DiskFiles {
    dir: PathBuf,
}

impl DiskFiles {
    /// Files in a directory, which is made when it is missing and then is there to stay.
    pub fn new(dir: &Path) -> io::Result<DiskFiles> {
        let missing = dir
            .ancestors()
            .take_while(|ancestor| !ancestor.as_os_str().is_empty() && !ancestor.exists());
        let parents: Vec<&Path> = missing.filter_map(Path::parent).collect();
        std::fs::create_dir_all(dir)?;
        for parent in parents {
            let parent = if parent.as_os_str().is_empty() {
                Path::new(".")
            } else {
                parent
            };
            File::open(parent)?.sync_all()?;
        }
        Ok(DiskFiles { dir: dir.to_owned() })
    }

    fn file(&self, name: &str, options: &mut OpenOptions) -> io::Result<Arc<dyn LogFile>> {
        let file = options.read(true).write(true).open(self.dir.join(name))?;
        Ok(Arc::new(DiskFile { file }))
    }
}

impl Files for DiskFiles {
    fn list(&self) -> io::Result<Vec<String>> {
        let names = std::fs::read_dir(&self.dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        self.file(name, OpenOptions::new().create(true).truncate(true))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn LogFile>> {
        self.file(name, &mut OpenOptions::new())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.dir.join(from), self.dir.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.dir.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

#[derive(Debug)]
struct DiskFile {
    file: File,
}

impl LogFile for DiskFile {
    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
