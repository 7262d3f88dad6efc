//! A view as a file: how it travels to the servers and back. Described in `docs/formats/nats.md`; a change of one is a change
//! of both.

use std::io::{BufWriter, Write as _};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use async_nats::jetstream::object_store::{ObjectMetadata, ObjectStore};
use bytes::{Buf as _, Bytes, BytesMut};
use orrery_partition::storage::{Result, Seed, Snapshot, StorageError, ViewWrite};
use tempfile::NamedTempFile;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use super::bus::cannot;

/// Magic and format version. A reader refuses what it does not know.
const MAGIC: [u8; 8] = *b"ORRYVUE\x01";
/// In the place of a value's length: the key has none.
const REMOVED: u32 = u32::MAX;
/// Bytes of one part of an object, and of what is handed to a seed at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Longer keys and values were not written by us.
const ENTRY_BYTES_MAX: usize = 64 << 20;

/// A view being written to a file of this node.
#[derive(Debug)]
pub(super) struct Spool {
    file: tokio::fs::File,
    /// Removes the file when it is no longer needed.
    named: NamedTempFile,
}

impl Spool {
    pub(super) fn create(dir: &Path) -> Result<Spool> {
        let begin = || {
            let mut named = NamedTempFile::new_in(dir)?;
            named.write_all(&MAGIC)?;
            let file = tokio::fs::File::from_std(named.as_file().try_clone()?);
            Ok(Spool { file, named })
        };
        begin().map_err(|error: std::io::Error| cannot("write a snapshot", &error))
    }

    /// Everything in a snapshot.
    pub(super) async fn of_snapshot(dir: &Path, snapshot: Arc<dyn Snapshot>) -> Result<Spool> {
        let spool = Spool::create(dir)?;
        let written = tokio::task::spawn_blocking(move || {
            let mut file = BufWriter::with_capacity(CHUNK_BYTES, spool.named.as_file());
            let mut entry = Vec::new();
            for pair in snapshot.scan(Bound::Unbounded, Bound::Unbounded, false) {
                let (key, value) = pair?;
                entry.clear();
                encode(&mut entry, &key, Some(&value));
                file.write_all(&entry)
                    .map_err(|error| cannot("write a snapshot", &error))?;
            }
            file.flush().map_err(|error| cannot("write a snapshot", &error))?;
            drop(file);
            Ok(spool)
        });
        written
            .await
            .unwrap_or_else(|_| Err(StorageError::Unavailable("a snapshot was cut off".into())))
    }

    pub(super) async fn write(&mut self, writes: &[ViewWrite]) -> Result<()> {
        let mut bytes = Vec::new();
        writes
            .iter()
            .for_each(|(key, value)| encode(&mut bytes, key, value.as_ref()));
        let written = self.file.write_all(&bytes).await;
        written.map_err(|error| cannot("write a snapshot", &error))
    }

    /// Sends the file to the servers under a name.
    pub(super) async fn upload(mut self, objects: &ObjectStore, name: &str) -> Result<()> {
        self.file
            .flush()
            .await
            .map_err(|error| cannot("write a snapshot", &error))?;
        let file = tokio::fs::File::open(self.named.path()).await;
        let mut file = file.map_err(|error| cannot("read a snapshot", &error))?;
        let metadata = ObjectMetadata {
            name: name.to_owned(),
            chunk_size: Some(CHUNK_BYTES),
            ..ObjectMetadata::default()
        };
        let put = objects.put(metadata, &mut file).await;
        put.map(|_| ()).map_err(|error| cannot("save a snapshot", &error))
    }
}

fn encode(out: &mut Vec<u8>, key: &[u8], value: Option<&Bytes>) {
    let length = value.map_or(REMOVED, |value| value.len() as u32);
    out.extend_from_slice(&(key.len() as u32).to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value.map_or(&[], |value| value));
}

/// Hands the view in a file to a seed. The servers check the file's digest at its end.
pub(super) async fn read(file: &mut (impl AsyncRead + Unpin), seed: &mut dyn Seed) -> Result<()> {
    let mut buffer = BytesMut::with_capacity(2 * CHUNK_BYTES);
    let mut is_begun = false;
    loop {
        buffer.reserve(CHUNK_BYTES);
        let n_read = file.read_buf(&mut buffer).await;
        let n_read = n_read.map_err(|error| cannot("fetch a snapshot", &error))?;
        if !is_begun && buffer.len() >= MAGIC.len() {
            is_begun = true;
            if buffer.split_to(MAGIC.len()) != MAGIC.as_slice() {
                return Err(damaged());
            }
        }
        if is_begun && (buffer.len() >= CHUNK_BYTES || n_read == 0) {
            let writes = decode(&mut buffer)?;
            seed.write(writes).await?;
        }
        if n_read == 0 {
            return match is_begun && buffer.is_empty() {
                true => Ok(()),
                false => Err(damaged()),
            };
        }
    }
}

/// The whole entries at the start of the buffer, which are taken out of it.
fn decode(buffer: &mut BytesMut) -> Result<Vec<ViewWrite>> {
    let mut writes = Vec::new();
    while buffer.len() >= 8 {
        let mut lengths = &buffer[..8];
        let key = lengths.get_u32_le() as usize;
        let value = Some(lengths.get_u32_le())
            .filter(|length| *length != REMOVED)
            .map(|length| length as usize);
        if key > ENTRY_BYTES_MAX || value.is_some_and(|value| value > ENTRY_BYTES_MAX) {
            return Err(damaged());
        }
        let length = 8 + key + value.unwrap_or(0);
        if buffer.len() < length {
            break;
        }
        let entry = buffer.split_to(length).freeze();
        writes.push((entry.slice(8..8 + key), value.map(|_| entry.slice(8 + key..))));
    }
    Ok(writes)
}

fn damaged() -> StorageError {
    StorageError::Corrupt("a saved snapshot is not what was written".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_written_and_a_part_of_one_waits_for_the_rest() {
        let mut bytes = Vec::new();
        encode(&mut bytes, b"a", Some(&Bytes::from_static(b"one")));
        encode(&mut bytes, b"", Some(&Bytes::new()));
        encode(&mut bytes, b"gone", None);
        let expected = [
            (Bytes::from_static(b"a"), Some(Bytes::from_static(b"one"))),
            (Bytes::new(), Some(Bytes::new())),
            (Bytes::from_static(b"gone"), None),
        ];
        for cut in 0..bytes.len() {
            let mut buffer = BytesMut::from(&bytes[..cut]);
            let mut writes = decode(&mut buffer).unwrap();
            buffer.extend_from_slice(&bytes[cut..]);
            writes.extend(decode(&mut buffer).unwrap());
            assert_eq!(writes, expected, "cut at {cut}");
        }
    }

    #[test]
    fn an_entry_of_impossible_length_is_refused() {
        let mut buffer = BytesMut::from(&[0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0][..]);
        assert!(decode(&mut buffer).is_err());
    }
}
