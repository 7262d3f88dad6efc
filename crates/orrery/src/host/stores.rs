//! A store per region, shared by all accounts that have the region. The only place that picks a storage implementation.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use orrery_partition::project::Projector;
use orrery_partition::storage::{Health, Store};
use orrery_storage::embedded::{EmbeddedSettings, EmbeddedStore, ViewCache};
use orrery_storage::{MemoryStore, SharedStore};
use tokio::sync::Mutex;

/// The stores of this process, opened when they are first asked for.
#[derive(Debug)]
pub struct Stores {
    /// `None`: nothing is kept.
    root: Option<PathBuf>,
    /// Its cache is the budget of all stores.
    settings: EmbeddedSettings,
    /// By the plain name of the region.
    open: Mutex<HashMap<String, Opened>>,
}

/// A store that is shared, and the same as what it is on disk.
#[derive(Debug)]
struct Opened {
    shared: Arc<SharedStore>,
    /// `None`: in memory.
    disk: Option<Arc<EmbeddedStore>>,
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
        let mut open = self.open.lock().await;
        // A store is closed when the last account leaves the region, and opened again when one comes back.
        let opened = open.get(&name).map(|opened| &opened.shared);
        if let Some(store) = opened.filter(|store| store.health() != Health::Closed) {
            return Ok(store.account(account));
        }
        let opened = self.open_new(&name).await?;
        let part = opened.shared.account(account);
        open.insert(name, opened);
        Ok(part)
    }

    /// Ends one account's part of a region's store as if its process were killed: nothing is flushed. A store that nobody else
    /// shares is opened from disk again.
    pub async fn kill(&self, region: &str, account: u16) -> Result<()> {
        let open = self.open.lock().await;
        let opened = open.get(&directory_name(region)).context("the region has no store")?;
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
        let disk = opened.await??;
        Ok(Opened {
            shared: SharedStore::new(Arc::clone(&disk) as Arc<dyn Store>),
            disk: Some(disk),
        })
    }
}

fn open_directory(directory: &Path, settings: EmbeddedSettings) -> Result<Arc<EmbeddedStore>> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let store = EmbeddedStore::open(directory, settings, Arc::new(Projector::default()));
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
