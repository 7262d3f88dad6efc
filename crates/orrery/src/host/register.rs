//! `accounts.json`: which accounts a data directory holds, their numbers in the stores, and their topologies.
//!
//! Invariants: an account's number is given once; the file is replaced as a whole and durable when a change is reported.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, bail};
use orrery_model::{Error, Status};
use orrery_node::geo::fleet::TopologyKeeper;
use orrery_node::geo::topology::Topology;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub const FILE: &str = "accounts.json";

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
    accounts: Vec<StoredEntry>,
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
            register.entries = Mutex::new(read(&path).with_context(|| format!("cannot read {}", path.display()))?);
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
        let text = serde_json::to_vec_pretty(&Stored { accounts })?;
        let fresh = path.with_extension("new");
        let mut file = File::create(&fresh)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        // The name is durable when its directory is.
        match path.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    }
}

fn read(path: &Path) -> Result<Vec<Entry>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let stored: Stored = serde_json::from_slice(&text)?;
    let entry = |stored: StoredEntry| {
        let topology = stored.topology.map(|text| Topology::from_text(text.get().as_bytes()));
        Ok(Entry {
            id: stored.id,
            number: stored.number,
            topology: topology.transpose()?,
        })
    };
    stored.accounts.into_iter().map(entry).collect()
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
