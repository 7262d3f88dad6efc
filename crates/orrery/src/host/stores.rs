//! A store per region, shared by all accounts that have the region. The only place that picks a storage implementation.
//!
//! A store that is damaged is never repaired in place: its directory is renamed and kept for whoever wants to look at it, and
//! the region goes on with an empty one.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use orrery_partition::project::Projector;
use orrery_partition::storage::{Health, StorageError, Store};
use orrery_storage::embedded::{EmbeddedSettings, EmbeddedStore, ViewCache};
use orrery_storage::{MemoryStore, SharedStore};
use tokio::sync::{Mutex, MutexGuard};

/// The stores of this process, opened when they are first asked for.
#[derive(Debug)]
pub struct Stores {
    /// `None`: nothing is kept.
    root: Option<PathBuf>,
    /// Its cache is the budget of all stores.
    settings: EmbeddedSettings,
    /// By the plain name of the region.
    open: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    open: HashMap<String, Opened>,
    /// Those that could not be opened because they are damaged, and how.
    unopened: BTreeMap<String, String>,
}

impl Known {
    fn damage(&self, name: &str) -> Option<String> {
        let open = self.open.get(name).and_then(|opened| opened.shared.damage());
        open.or_else(|| self.unopened.get(name).cloned())
    }
}

/// How many damaged directories of one region are told apart.
const ASIDE_MAX: usize = 1000;

/// A store that is shared, and the same as what it is on disk.
#[derive(Debug)]
struct Opened {
    shared: Arc<SharedStore>,
    /// `None`: in memory.
    disk: Option<Arc<EmbeddedStore>>,
}

impl Opened {
    /// Ends the store as if its process were killed.
    async fn end(self) -> Result<()> {
        let Some(disk) = self.disk else { return Ok(()) };
        Ok(tokio::task::spawn_blocking(move || disk.abandon()).await?)
    }
}

impl Stores {
    pub fn new(root: Option<PathBuf>, cache_bytes: u64) -> Stores {
        Stores {
            root,
            settings: EmbeddedSettings {
                cache: ViewCache::new(cache_bytes),
                ..EmbeddedSettings::default()
            },
            open: Mutex::default(),
        }
    }

    /// One account's part of a region's store.
    pub async fn open(&self, region: &str, account: u16) -> Result<Arc<dyn Store>> {
        let name = directory_name(region);
        let mut known = self.open.lock().await;
        self.open_known(&mut known, name, account).await
    }

    async fn open_known(
        &self,
        known: &mut MutexGuard<'_, Known>,
        name: String,
        account: u16,
    ) -> Result<Arc<dyn Store>> {
        // A store is closed when the last account leaves the region, and opened again when one comes back.
        let opened = known.open.get(&name).map(|opened| &opened.shared);
        if let Some(store) = opened.filter(|store| store.health() != Health::Closed) {
            return Ok(store.account(account));
        }
        let opened = match self.open_new(&name).await {
            Ok(opened) => opened,
            Err(error) => {
                if let Some(StorageError::Corrupt(what)) = error.downcast_ref() {
                    let what = what.clone();
                    known.unopened.insert(name, what);
                }
                return Err(error);
            }
        };
        known.unopened.remove(&name);
        let part = opened.shared.account(account);
        known.open.insert(name, opened);
        Ok(part)
    }

    /// What is known to be damaged of a region's store.
    pub async fn damage(&self, region: &str) -> Option<String> {
        self.open.lock().await.damage(&directory_name(region))
    }

    /// Takes an account out of a region's damaged store. The last one who leaves sets it aside, and all find an empty one. `None`
    /// while others are in it. A store that is not damaged is opened as it is.
    pub async fn renew(&self, region: &str, account: u16) -> Result<Option<Arc<dyn Store>>> {
        let name = directory_name(region);
        let mut known = self.open.lock().await;
        if known.damage(&name).is_some() {
            if let Some(opened) = known.open.get(&name)
                && !opened.shared.abandon(account)
            {
                return Ok(None);
            }
            let opened = known.open.remove(&name);
            if let Some(opened) = opened {
                opened.end().await?;
            }
            self.set_aside(&name)?;
            known.unopened.remove(&name);
        }
        self.open_known(&mut known, name, account).await.map(Some)
    }

    /// Ends every store, whoever uses it, and answers which are damaged and how, by the plain names of their regions.
    pub async fn give_up(&self) -> Result<BTreeMap<String, String>> {
        let mut known = self.open.lock().await;
        let mut damaged = known.unopened.clone();
        let named = known.open.iter();
        damaged.extend(named.filter_map(|(name, opened)| Some((name.clone(), opened.shared.damage()?))));
        for (_, opened) in std::mem::take(&mut known.open) {
            opened.end().await?;
        }
        Ok(damaged)
    }

    /// Renames the directory of a damaged store, which nobody may use any more, so that the next open begins with an empty one.
    pub fn set_aside(&self, name: &str) -> Result<PathBuf> {
        let root = self
            .root
            .as_deref()
            .context("what is kept in memory has no directory")?;
        let (regions, from) = (root.join("regions"), root.join("regions").join(name));
        for number in 1..=ASIDE_MAX {
            let to = regions.join(format!("{name}.damaged-{number}"));
            if to.exists() {
                continue;
            }
            fs::rename(&from, &to).with_context(|| format!("cannot set {} aside", from.display()))?;
            // The name is durable when its directory is.
            File::open(&regions)?.sync_all()?;
            tracing::error!(directory = %to.display(), "a damaged store has been set aside");
            return Ok(to);
        }
        bail!(
            "{} has been damaged too often: remove what was set aside",
            from.display()
        )
    }

    /// Ends one account's part of a region's store as if its process were killed: nothing is flushed. A store that nobody else
    /// shares is opened from disk again.
    pub async fn kill(&self, region: &str, account: u16) -> Result<()> {
        let known = self.open.lock().await;
        let opened = known.open.get(&directory_name(region));
        let opened = opened.context("the region has no store")?;
        let disk = opened.disk.clone();
        let disk = disk.context("what is kept in memory only would be lost")?;
        if opened.shared.abandon(account) {
            tokio::task::spawn_blocking(move || disk.abandon()).await?;
        }
        Ok(())
    }

    async fn open_new(&self, name: &str) -> Result<Opened> {
        let Some(root) = &self.root else {
            return Ok(Opened {
                shared: SharedStore::new(MemoryStore::new()),
                disk: None,
            });
        };
        let (directory, settings) = (root.join("regions").join(name), self.settings.clone());
        let opened = tokio::task::spawn_blocking(move || open_directory(&directory, settings));
        let disk = match opened.await {
            Err(error) if error.is_panic() => {
                // Whatever it read there is nothing that was ever written.
                return Err(StorageError::Corrupt(format!("opening the data in {name} panicked")).into());
            }
            opened => opened??,
        };
        Ok(Opened {
            shared: SharedStore::new(Arc::clone(&disk) as Arc<dyn Store>),
            disk: Some(disk),
        })
    }
}

fn open_directory(directory: &Path, settings: EmbeddedSettings) -> Result<Arc<EmbeddedStore>> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let store = EmbeddedStore::open(directory, settings, Arc::new(Projector::default()));
    // A damaged one keeps saying so beneath the context.
    store.with_context(|| format!("cannot open the data in {}", directory.display()))
}

/// A region's name as a directory: what tells two names apart, and nothing a file system minds.
pub fn directory_name(region: &str) -> String {
    let letters = region.chars().filter(|character| character.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_has_one_directory_in_every_spelling() {
        assert_eq!(directory_name("West US 2"), "westus2");
        assert_eq!(directory_name("west-us_2"), "westus2");
        assert_eq!(directory_name("../x"), "x");
    }

    #[tokio::test]
    async fn accounts_share_the_store_of_a_region() {
        let root = tempfile::tempdir().unwrap();
        let stores = Stores::new(Some(root.path().to_owned()), 1 << 20);
        let first = stores.open("West US", 0).await.unwrap();
        let second = stores.open("westus", 1).await.unwrap();
        assert_eq!(first.size_bytes(), second.size_bytes());
        assert!(root.path().join("regions/westus").is_dir());
    }
}
