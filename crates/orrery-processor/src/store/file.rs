//! Leases in one file, for a unit of one process that must go on after a restart.
//!
//! The file holds the same documents a lease container would, as a JSON array, so that they can be copied into one later.
//! Invariant: a write is confirmed only when the file on disk holds it; the file is replaced whole, never edited.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;

use super::{CheckError, Created, Documents, LeaseStore, MemoryLeases, Written};
use crate::error::{Cause, StoreError};

/// A store in a file. One process at a time.
#[derive(Clone, Debug)]
pub struct FileLeases {
    memory: MemoryLeases,
    path: Arc<Path>,
    /// One writer at a time, or an older state could overwrite a newer one.
    writing: Arc<tokio::sync::Mutex<()>>,
}

impl FileLeases {
    /// Reads the file, if there is one. Whatever is not a list of documents with different ids is refused.
    pub fn open(path: impl Into<PathBuf>) -> Result<FileLeases, StoreError> {
        let path = path.into();
        let memory = MemoryLeases::new();
        match std::fs::read(&path) {
            Ok(bytes) => memory.restore(parse(&bytes)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(StoreError::Refused(error.into())),
        }
        Ok(FileLeases {
            memory,
            path: path.into(),
            writing: Arc::default(),
        })
    }

    async fn save(&self) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec_pretty(&self.memory.documents()).map_err(|error| refused(error.into()))?;
        let path = Arc::clone(&self.path);
        let saved = tokio::task::spawn_blocking(move || write_whole(&path, &bytes)).await;
        saved
            .map_err(|error| StoreError::Unavailable(error.into()))?
            .map_err(|error| StoreError::Unavailable(error.into()))
    }
}

fn refused(cause: Cause) -> StoreError {
    StoreError::Refused(cause)
}

fn parse(bytes: &[u8]) -> Result<Vec<Value>, StoreError> {
    let documents: Vec<Value> = serde_json::from_slice(bytes).map_err(|error| refused(error.into()))?;
    let mut ids: Vec<&str> = documents.iter().map(super::id_of).collect();
    ids.sort_unstable();
    if ids.first() == Some(&"") || ids.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(refused("every lease in the file needs an id of its own".into()));
    }
    Ok(documents)
}

fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = std::fs::File::create(&beside)?;
    std::io::Write::write_all(&mut file, bytes)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    sync_directory_of(path)
}

/// A file's name is on disk only when its directory is.
fn sync_directory_of(path: &Path) -> std::io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    std::fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

impl LeaseStore for FileLeases {
    fn check(&self) -> BoxFuture<'_, Result<(), CheckError>> {
        self.memory.check()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Documents, StoreError>> {
        self.memory.list(prefix)
    }

    fn read<'a>(&'a self, like: &'a Value) -> BoxFuture<'a, Result<Option<Value>, StoreError>> {
        self.memory.read(like)
    }

    fn create<'a>(&'a self, document: &'a Value) -> BoxFuture<'a, Result<Created, StoreError>> {
        async move {
            let _one = self.writing.lock().await;
            let created = self.memory.create(document).await?;
            self.save().await?;
            Ok(created)
        }
        .boxed()
    }

    fn replace<'a>(&'a self, document: &'a Value, etag: &'a str) -> BoxFuture<'a, Result<Written, StoreError>> {
        async move {
            let _one = self.writing.lock().await;
            let written = self.memory.replace(document, etag).await?;
            self.save().await?;
            Ok(written)
        }
        .boxed()
    }

    fn delete<'a>(&'a self, like: &'a Value, etag: Option<&'a str>) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            let _one = self.writing.lock().await;
            self.memory.delete(like, etag).await?;
            self.save().await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn documents_are_there_again_after_a_restart_with_new_tags() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases.json");
        let store = FileLeases::open(&path).unwrap();
        let created = store.create(&json!({"id": "u.info"})).await.unwrap();
        assert!(matches!(created, Created::New(_)));
        assert_eq!(store.create(&json!({"id": "u.info"})).await.unwrap(), Created::Exists);
        let again = FileLeases::open(&path).unwrap();
        assert_eq!(again.list("u.").await.unwrap().documents.len(), 1);
        again.delete(&json!({"id": "u.info"}), None).await.unwrap();
        assert_eq!(
            FileLeases::open(&path)
                .unwrap()
                .list("u.")
                .await
                .unwrap()
                .documents
                .len(),
            0
        );
    }

    #[test]
    fn a_file_that_is_not_a_list_of_documents_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["{", "{}", "[{}]", r#"[{"id":"a"},{"id":"a"}]"#] {
            let path = directory.path().join("leases.json");
            std::fs::write(&path, text).unwrap();
            assert!(FileLeases::open(&path).is_err(), "{text}");
        }
    }
}
