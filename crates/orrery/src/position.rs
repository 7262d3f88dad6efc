//! Position files: where an interrupted import or export goes on.
//!
//! A file is replaced as a whole, so that a crash leaves the old position or the new one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A position that is saved this often is never far behind.
pub const SAVE_INTERVAL: Duration = Duration::from_millis(250);

/// A position file, or none.
#[derive(Debug)]
pub struct PositionFile {
    path: Option<PathBuf>,
    saved_at: Instant,
}

impl PositionFile {
    pub fn new(path: Option<PathBuf>) -> PositionFile {
        PositionFile {
            path,
            saved_at: Instant::now(),
        }
    }

    /// What an earlier run left.
    pub fn load<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let Some(path) = self.path.as_ref().filter(|path| path.exists()) else {
            return Ok(None);
        };
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let position = serde_json::from_slice(&text);
        position
            .map(Some)
            .with_context(|| format!("{} is not a position file of this command", path.display()))
    }

    /// Is it time to save again?
    pub fn is_due(&self) -> bool {
        self.path.is_some() && self.saved_at.elapsed() >= SAVE_INTERVAL
    }

    pub fn save(&mut self, position: &impl Serialize) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        replace(path, &serde_json::to_vec(position)?).with_context(|| format!("cannot write {}", path.display()))?;
        self.saved_at = Instant::now();
        Ok(())
    }
}

fn replace(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    fs::write(&beside, content)?;
    fs::File::open(&beside)?.sync_all()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_comes_back_and_a_foreign_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("position");
        let mut file = PositionFile::new(Some(path.clone()));
        assert_eq!(file.load::<Vec<u64>>().unwrap(), None);
        file.save(&[1_u64, 2]).unwrap();
        file.save(&[3_u64]).unwrap();
        assert_eq!(file.load::<Vec<u64>>().unwrap(), Some(vec![3]));
        assert!(file.load::<String>().unwrap_err().to_string().contains("position file"));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
