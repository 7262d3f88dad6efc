//! Bytes of a transaction. Integers are little-endian or LEB128; strings and blobs carry their length.

use bytes::Bytes;

use super::{DeleteItem, Opened, Operation, PutItem, RenamedItem, Transaction};
use crate::container::directive::IndexingDirective;
use crate::epk::{Epk, EpkRange};
use crate::etag::Etag;
use crate::id::{ChainHash, Epoch, Lsn, PartitionId, Position, Timestamp};

/// Version of the layout below. A reader refuses what it does not know.
const FORMAT: u8 = 1;

/// The bytes are not a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a transaction: {0}")]
pub struct DecodeError(pub &'static str);

impl Transaction {
    /// Header and content as they stand in the log.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(FORMAT);
        out.extend_from_slice(&self.previous_hash.0);
        out.extend_from_slice(&self.hash.0);
        out.extend_from_slice(&self.encode_content());
    }

    /// The part the hash covers.
    pub(super) fn encode_content(&self) -> Vec<u8> {
        let bodies: usize = self.operations.iter().map(size_hint).sum();
        let mut out = Vec::with_capacity(40 + bodies);
        put_varint(&mut out, u64::from(self.epoch.0));
        put_varint(&mut out, self.lsn.0);
        put_varint(&mut out, self.previous.0);
        put_varint(&mut out, self.at.0);
        put_varint(&mut out, self.operations.len() as u64);
        self.operations
            .iter()
            .for_each(|operation| put_operation(&mut out, operation));
        out
    }

    /// Reads what [`Transaction::encode`] wrote. Item bodies share the buffer.
    pub fn decode(bytes: &Bytes) -> Result<Transaction, DecodeError> {
        let mut reader = Reader { bytes, at: 0 };
        if reader.byte()? != FORMAT {
            return Err(DecodeError("unknown format"));
        }
        let previous_hash = ChainHash(reader.array()?);
        let hash = ChainHash(reader.array()?);
        let epoch = Epoch(reader.u32()?);
        let lsn = Lsn(reader.varint()?);
        let previous = Lsn(reader.varint()?);
        let at = Timestamp(reader.varint()?);
        let operations = reader.list(Reader::operation)?;
        if reader.at != bytes.len() {
            return Err(DecodeError("bytes after the last operation"));
        }
        Ok(Transaction {
            epoch,
            lsn,
            previous,
            previous_hash,
            hash,
            at,
            operations,
        })
    }
}

fn size_hint(operation: &Operation) -> usize {
    match operation {
        Operation::Put(put) => put.body.len() + put.id.len() + 64,
        Operation::Record { key, value } => key.len() + value.as_ref().map_or(0, Bytes::len) + 16,
        Operation::Defined { definition, .. } => definition.len() + 16,
        _ => 128,
    }
}

/// A put, and one that says how its item is to be indexed.
const PUT: u8 = 1;
const PUT_DIRECTED: u8 = 10;
const RENAMED: u8 = 11;

fn put_operation(out: &mut Vec<u8>, operation: &Operation) {
    match operation {
        Operation::Put(put) => {
            match put.directive {
                IndexingDirective::Default => out.push(PUT),
                directive => out.extend_from_slice(&[PUT_DIRECTED, directive.code()]),
            }
            put_blob(out, put.epk.as_bytes());
            put_blob(out, put.id.as_bytes());
            put_varint(out, put.number);
            out.extend_from_slice(&put.etag.0);
            put_option(out, put.ttl, |out, ttl| out.extend_from_slice(&ttl.to_le_bytes()));
            put_blob(out, &put.body);
        }
        Operation::Delete(delete) => {
            out.push(2);
            put_blob(out, delete.epk.as_bytes());
            put_blob(out, delete.id.as_bytes());
            put_varint(out, delete.number);
            out.push(u8::from(delete.expired));
        }
        Operation::Renamed(renamed) => {
            out.push(RENAMED);
            put_blob(out, renamed.epk.as_bytes());
            put_blob(out, renamed.from.as_bytes());
            put_varint(out, renamed.number);
        }
        Operation::Record { key, value } => {
            out.push(3);
            put_blob(out, key);
            put_option(out, value.as_ref(), |out, value| put_blob(out, value));
        }
        Operation::Defined { version, definition } => {
            out.push(4);
            put_varint(out, *version);
            put_blob(out, definition);
        }
        Operation::EpochStarted { previous } => {
            out.push(5);
            put_varint(out, previous.0);
        }
        Operation::Opened(opened) => {
            out.push(6);
            put_varint(out, u64::from(opened.partition.0));
            put_blob(out, opened.range.min.as_bytes());
            put_blob(out, opened.range.max.as_bytes());
            put_varint(out, opened.parents.len() as u64);
            for (parent, seal) in &opened.parents {
                put_varint(out, u64::from(parent.0));
                put_position(out, *seal);
            }
            put_varint(out, opened.session_version);
            put_varint(out, opened.definition_version);
            put_blob(out, &opened.definition);
        }
        Operation::Sealed { children } => {
            out.push(7);
            put_varint(out, children.len() as u64);
            children.iter().for_each(|child| put_varint(out, u64::from(child.0)));
        }
        Operation::HistoryTrimmed { through } => {
            out.push(8);
            put_varint(out, through.0);
        }
        Operation::Reindexed { n_items_max } => {
            out.push(9);
            put_varint(out, u64::from(*n_items_max));
        }
    }
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_blob(out: &mut Vec<u8>, blob: &[u8]) {
    put_varint(out, blob.len() as u64);
    out.extend_from_slice(blob);
}

fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

fn put_position(out: &mut Vec<u8>, position: Position) {
    put_varint(out, u64::from(position.epoch.0));
    put_varint(out, position.lsn.0);
    out.extend_from_slice(&position.hash.0);
}

/// Reads with every length checked against what is left, so hostile bytes cost no more than their own size.
struct Reader<'a> {
    bytes: &'a Bytes,
    at: usize,
}

const TRUNCATED: DecodeError = DecodeError("truncated");

impl Reader<'_> {
    fn take(&mut self, length: usize) -> Result<std::ops::Range<usize>, DecodeError> {
        let end = self
            .at
            .checked_add(length)
            .filter(|end| *end <= self.bytes.len())
            .ok_or(TRUNCATED)?;
        let range = self.at..end;
        self.at = end;
        Ok(range)
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        let range = self.take(1)?;
        Ok(self.bytes[range.start])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let range = self.take(N)?;
        self.bytes[range].try_into().map_err(|_| TRUNCATED)
    }

    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(DecodeError("number too long"))
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.varint()?).map_err(|_| DecodeError("number too large"))
    }

    fn blob(&mut self) -> Result<Bytes, DecodeError> {
        let length = usize::try_from(self.varint()?).map_err(|_| TRUNCATED)?;
        let range = self.take(length)?;
        Ok(self.bytes.slice(range))
    }

    fn text(&mut self) -> Result<String, DecodeError> {
        String::from_utf8(self.blob()?.to_vec()).map_err(|_| DecodeError("text is not UTF-8"))
    }

    fn epk(&mut self) -> Result<Epk, DecodeError> {
        self.blob().map(|bytes| Epk::from_bytes(bytes.to_vec()))
    }

    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, DecodeError>) -> Result<Option<T>, DecodeError> {
        match self.byte()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            _ => Err(DecodeError("neither present nor absent")),
        }
    }

    fn list<T>(&mut self, read: impl Fn(&mut Self) -> Result<T, DecodeError>) -> Result<Vec<T>, DecodeError> {
        let count = self.varint()?;
        if count > (self.bytes.len() - self.at) as u64 {
            return Err(TRUNCATED);
        }
        (0..count).map(|_| read(self)).collect()
    }

    fn position(&mut self) -> Result<Position, DecodeError> {
        Ok(Position {
            epoch: Epoch(self.u32()?),
            lsn: Lsn(self.varint()?),
            hash: ChainHash(self.array()?),
        })
    }

    fn put(&mut self, directive: IndexingDirective) -> Result<PutItem, DecodeError> {
        Ok(PutItem {
            epk: self.epk()?,
            id: self.text()?,
            number: self.varint()?,
            etag: Etag(self.array()?),
            ttl: self.option(|reader| reader.array().map(i32::from_le_bytes))?,
            directive,
            body: self.blob()?,
        })
    }

    fn operation(&mut self) -> Result<Operation, DecodeError> {
        Ok(match self.byte()? {
            PUT => Operation::Put(self.put(IndexingDirective::Default)?),
            PUT_DIRECTED => {
                let directive =
                    IndexingDirective::of_code(self.byte()?).filter(|named| *named != IndexingDirective::Default);
                Operation::Put(self.put(directive.ok_or(DecodeError("unknown indexing directive"))?)?)
            }
            2 => Operation::Delete(DeleteItem {
                epk: self.epk()?,
                id: self.text()?,
                number: self.varint()?,
                expired: self.byte()? == 1,
            }),
            RENAMED => Operation::Renamed(RenamedItem {
                epk: self.epk()?,
                from: self.text()?,
                number: self.varint()?,
            }),
            3 => Operation::Record {
                key: self.blob()?,
                value: self.option(Reader::blob)?,
            },
            4 => Operation::Defined {
                version: self.varint()?,
                definition: self.blob()?,
            },
            5 => Operation::EpochStarted {
                previous: Lsn(self.varint()?),
            },
            6 => Operation::Opened(Opened {
                partition: PartitionId(self.u32()?),
                range: EpkRange::new(self.epk()?, self.epk()?),
                parents: self.list(|reader| Ok((PartitionId(reader.u32()?), reader.position()?)))?,
                session_version: self.varint()?,
                definition_version: self.varint()?,
                definition: self.blob()?,
            }),
            7 => Operation::Sealed {
                children: self.list(|reader| reader.u32().map(PartitionId))?,
            },
            8 => Operation::HistoryTrimmed {
                through: Lsn(self.varint()?),
            },
            9 => Operation::Reindexed {
                n_items_max: self.u32()?,
            },
            _ => return Err(DecodeError("unknown operation")),
        })
    }
}
