//! `accounts.json`: which accounts a data directory holds, their numbers in the stores, and their topologies.
//!
//! Invariants: an account's number is given once; the file is replaced as a whole and durable when a change is reported.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, bail};
use orrery_model::{Error, Status};
use orrery_node::geo::fleet::TopologyKeeper;
use orrery_node::geo::topology::{Region, Topology};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::stores::directory_name;

pub const FILE: &str = "accounts.json";
/// The same once more, should the first one be damaged.
const COPY: &str = "accounts.copy.json";

#[derive(Debug)]
pub struct Register {
    /// `None`: kept as long as the process lives.
    path: Option<PathBuf>,
    entries: Mutex<Vec<Entry>>,
}

#[derive(Clone, Debug)]
struct Entry {
    id: String,
    number: u16,
    /// `None` until the account has been opened for the first time.
    topology: Option<Topology>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct StoredEntry {
    id: String,
    number: u16,
    topology: Option<Box<RawValue>>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// Of the text of `accounts`, without blanks and breaks. Files of earlier versions have none.
    #[serde(default)]
    checksum: Option<String>,
    accounts: Box<RawValue>,
}

impl Register {
    pub fn open(directory: Option<&Path>) -> Result<Arc<Register>> {
        let mut register = Register {
            path: None,
            entries: Mutex::default(),
        };
        if let Some(directory) = directory {
            fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
            let path = directory.join(FILE);
            register.entries = Mutex::new(read_either(&path)?);
            register.path = Some(path);
        }
        Ok(Arc::new(register))
    }

    /// Accounts that exist must be named: serving some of them only would look like losing the others.
    pub fn refuse_others(&self, named: &[&str]) -> Result<()> {
        for entry in self.entries().iter() {
            if !named.contains(&entry.id.as_str()) {
                bail!(
                    "the data in {} holds the account {}, which is not named",
                    self.path
                        .as_deref()
                        .and_then(Path::parent)
                        .unwrap_or(Path::new(""))
                        .display(),
                    entry.id
                );
            }
        }
        Ok(())
    }

    /// What is kept of an account.
    pub fn topology(&self, id: &str) -> Result<Option<Topology>> {
        Ok(self.find(id).and_then(|entry| entry.topology))
    }

    /// The number of an account, given now if it is new.
    pub fn number(&self, id: &str) -> Result<u16> {
        if let Some(entry) = self.find(id) {
            return Ok(entry.number);
        }
        let mut entries = self.entries();
        let next = entries.iter().map(|entry| entry.number + 1).max().unwrap_or(0);
        let mut changed = entries.clone();
        changed.push(Entry {
            id: id.to_owned(),
            number: next,
            topology: None,
        });
        self.write(&changed).context("cannot keep the register of accounts")?;
        *entries = changed;
        Ok(next)
    }

    /// Notes for every account that regions are damaged, by their plain names, and begin anew. `false`, with nothing noted, when an
    /// account has no other region to make one anew from.
    pub fn note_damaged(&self, damaged: &BTreeSet<String>) -> Result<bool> {
        let is_damaged = |region: &Region| damaged.contains(&directory_name(&region.name));
        let mut entries = self.entries();
        let mut changed = entries.clone();
        for topology in changed.iter_mut().filter_map(|entry| entry.topology.as_mut()) {
            let harmed: Vec<Region> = topology
                .present()
                .filter(|region| is_damaged(region))
                .cloned()
                .collect();
            if harmed.is_empty() {
                continue;
            }
            if topology.online().all(is_damaged) {
                return Ok(false);
            }
            for region in harmed {
                if !region.cut_off.is_empty() {
                    tracing::error!(
                        region = region.name,
                        "what only this region had is lost, unless what was set aside can be read"
                    );
                }
                *topology = topology.harmed(region.id).with_cut_off(region.id, BTreeMap::new());
            }
        }
        self.write(&changed).context("cannot keep the register of accounts")?;
        *entries = changed;
        Ok(true)
    }

    /// Keeps the topology of one account.
    pub fn keeper(self: &Arc<Self>, id: &str) -> Arc<dyn TopologyKeeper> {
        Arc::new(Keeper {
            register: Arc::clone(self),
            id: id.to_owned(),
        })
    }

    fn find(&self, id: &str) -> Option<Entry> {
        self.entries().iter().find(|entry| entry.id == id).cloned()
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, entries: &[Entry]) -> std::io::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let stored = |entry: &Entry| {
            let topology = entry.topology.as_ref().map(Topology::to_text);
            let text = topology.map(|text| String::from_utf8_lossy(&text).into_owned());
            Ok(StoredEntry {
                id: entry.id.clone(),
                number: entry.number,
                topology: text.map(RawValue::from_string).transpose()?,
            })
        };
        let accounts = entries.iter().map(stored).collect::<std::io::Result<Vec<_>>>()?;
        let accounts = RawValue::from_string(serde_json::to_string_pretty(&accounts)?)?;
        let text = serde_json::to_vec_pretty(&Stored {
            checksum: Some(checksum(accounts.get())),
            accounts,
        })?;
        // In this order: whoever finds the first one whole finds what was decided.
        replace(&path.with_file_name(COPY), &text)?;
        replace(path, &text)
    }
}

/// Replaces a file as a whole, durably.
fn replace(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    // The name is durable when its directory is.
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

/// Blanks and breaks outside of names do not count, so that the file may be laid out by whoever likes.
fn checksum(accounts: &str) -> String {
    let plain: String = accounts.split_whitespace().collect();
    let digest = ring::digest::digest(&ring::digest::SHA256, plain.as_bytes());
    digest
        .as_ref()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Reads the register, or its copy where the register is damaged or gone.
fn read_either(path: &Path) -> Result<Vec<Entry>> {
    let copy = path.with_file_name(COPY);
    let damaged = match read(path) {
        Ok(Some(entries)) => return Ok(entries),
        Ok(None) => None,
        Err(error) => Some(error.context(format!("cannot read {}", path.display()))),
    };
    match (read(&copy), damaged) {
        (Ok(Some(entries)), damaged) => {
            let reason = damaged.map_or_else(|| "it is gone".to_owned(), |error| format!("{error:#}"));
            tracing::error!(reason, copy = %copy.display(), "the register of accounts is damaged; its copy is used");
            Ok(entries)
        }
        (Ok(None), None) => Ok(Vec::new()),
        (Ok(None), Some(error)) => Err(error),
        (Err(error), damaged) => {
            Err(damaged.unwrap_or_else(|| error.context(format!("cannot read {}", copy.display()))))
        }
    }
}

/// `None` when there is no such file.
fn read(path: &Path) -> Result<Option<Vec<Entry>>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let stored: Stored = serde_json::from_slice(&text)?;
    if stored
        .checksum
        .is_some_and(|expected| expected != checksum(stored.accounts.get()))
    {
        bail!("it is not what was written");
    }
    let accounts: Vec<StoredEntry> = serde_json::from_str(stored.accounts.get())?;
    let entry = |stored: StoredEntry| {
        let topology = stored.topology.map(|text| Topology::from_text(text.get().as_bytes()));
        Ok(Entry {
            id: stored.id,
            number: stored.number,
            topology: topology.transpose()?,
        })
    };
    accounts.into_iter().map(entry).collect::<Result<_>>().map(Some)
}

#[derive(Debug)]
struct Keeper {
    register: Arc<Register>,
    id: String,
}

impl TopologyKeeper for Keeper {
    fn load(&self) -> Result<Option<Topology>, Error> {
        Ok(self.register.find(&self.id).and_then(|entry| entry.topology))
    }

    fn save(&self, topology: &Topology) -> Result<(), Error> {
        let mut entries = self.register.entries();
        let mut changed = entries.clone();
        for entry in changed.iter_mut().filter(|entry| entry.id == self.id) {
            entry.topology = Some(topology.clone());
        }
        if changed
            .iter()
            .zip(&*entries)
            .all(|(new, old)| new.topology == old.topology)
        {
            return Ok(());
        }
        self.register
            .write(&changed)
            .map_err(|error| Error::new(Status::UNAVAILABLE, "The topology cannot be kept.").with_source(error))?;
        *entries = changed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Topology {
        Topology::new(&["West US", "North Europe"].map(str::to_owned)).unwrap()
    }

    #[test]
    fn numbers_and_topologies_of_accounts_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let register = Register::open(Some(directory.path())).unwrap();
        assert_eq!(
            (register.number("usa").unwrap(), register.number("europe").unwrap()),
            (0, 1)
        );
        register.keeper("europe").save(&two()).unwrap();
        let again = Register::open(Some(directory.path())).unwrap();
        assert_eq!(again.number("europe").unwrap(), 1);
        assert_eq!(again.keeper("europe").load().unwrap(), Some(two()));
        assert_eq!(again.topology("usa").unwrap(), None);
    }

    #[test]
    fn an_account_that_exists_must_be_named() {
        let directory = tempfile::tempdir().unwrap();
        let register = Register::open(Some(directory.path())).unwrap();
        register.number("usa").unwrap();
        assert!(register.refuse_others(&["usa", "europe"]).is_ok());
        let error = register.refuse_others(&["europe"]).unwrap_err();
        assert!(error.to_string().contains("usa"), "{error}");
    }

    #[test]
    fn a_damaged_register_is_an_error_that_names_the_file() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(FILE), "{").unwrap();
        let error = Register::open(Some(directory.path())).unwrap_err();
        assert!(error.to_string().contains(FILE), "{error}");
    }
}
