//! An item as the view holds it: a fixed header, its id, its canonical text. Reading one copies nothing.

use bytes::Bytes;
use orrery_model::log::{PutItem, Transaction};
use orrery_model::{Etag, IndexingDirective, Lsn, Timestamp};

use crate::storage::{Result, StorageError};

const FORMAT: u8 = 1;
/// The same, of an item whose write said how to index it: the flags tell.
const FORMAT_DIRECTED: u8 = 2;
const FLAG_TTL: u8 = 1;
/// The directive's code, shifted.
const DIRECTIVE_SHIFT: u8 = 1;
/// Format, LSN, index, timestamp, etag, flags and ttl, length of the id.
const HEADER_BYTES: usize = 1 + 8 + 2 + 8 + 16 + 1 + 4 + 2;

/// One version of one item.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredItem {
    pub lsn: Lsn,
    /// Place of the operation inside its transaction.
    pub index: u16,
    /// `_ts`: seconds since 1970.
    pub ts: u64,
    pub etag: Etag,
    /// The item's own time to live in seconds.
    pub ttl: Option<i32>,
    pub directive: IndexingDirective,
    pub id: Bytes,
    pub body: Bytes,
}

impl StoredItem {
    /// The version that operation `index` of a transaction writes.
    pub fn of(put: &PutItem, transaction: &Transaction, index: usize) -> StoredItem {
        StoredItem::at(put, transaction.lsn, transaction.at, index)
    }

    /// The version an operation writes that stands at `index` in the transaction `lsn`.
    pub fn at(put: &PutItem, lsn: Lsn, at: Timestamp, index: usize) -> StoredItem {
        StoredItem {
            lsn,
            index: index as u16,
            ts: at.seconds(),
            etag: put.etag,
            ttl: put.ttl,
            directive: put.directive,
            id: Bytes::copy_from_slice(put.id.as_bytes()),
            body: put.body.clone(),
        }
    }

    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.id.len() + self.body.len());
        out.push(match self.directive {
            IndexingDirective::Default => FORMAT,
            _ => FORMAT_DIRECTED,
        });
        out.extend_from_slice(&self.lsn.0.to_le_bytes());
        out.extend_from_slice(&self.index.to_le_bytes());
        out.extend_from_slice(&self.ts.to_le_bytes());
        out.extend_from_slice(&self.etag.0);
        out.push(u8::from(self.ttl.is_some()) | self.directive.code() << DIRECTIVE_SHIFT);
        out.extend_from_slice(&self.ttl.unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&(self.id.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&self.body);
        Bytes::from(out)
    }

    pub fn decode(bytes: &Bytes) -> Result<StoredItem> {
        let corrupt = || StorageError::Corrupt("a stored item is malformed".to_owned());
        if bytes.len() < HEADER_BYTES {
            return Err(corrupt());
        }
        let directive = match bytes[0] {
            FORMAT => IndexingDirective::Default,
            FORMAT_DIRECTED => IndexingDirective::of_code(bytes[35] >> DIRECTIVE_SHIFT).ok_or_else(corrupt)?,
            _ => return Err(corrupt()),
        };
        let id_length = usize::from(u16::from_le_bytes(array(bytes, 40)));
        let body_at = HEADER_BYTES + id_length;
        if bytes.len() < body_at {
            return Err(corrupt());
        }
        Ok(StoredItem {
            lsn: Lsn(u64::from_le_bytes(array(bytes, 1))),
            index: u16::from_le_bytes(array(bytes, 9)),
            ts: u64::from_le_bytes(array(bytes, 11)),
            etag: Etag(array(bytes, 19)),
            ttl: (bytes[35] & FLAG_TTL != 0).then(|| i32::from_le_bytes(array(bytes, 36))),
            directive,
            id: bytes.slice(HEADER_BYTES..body_at),
            body: bytes.slice(body_at..),
        })
    }
}

/// `N` bytes at a place inside the header, whose length the caller has checked.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has exactly N bytes")
}
