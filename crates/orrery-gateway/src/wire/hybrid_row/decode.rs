//! Reading batches.

use bytes::Bytes;
use orrery_model::limits::BATCH_OPERATIONS_MAX;

use super::{
    HybridRowError, OPERATION_SCHEMA, RECORD_SCHEMA, RowOperation, RowOperationType, SEGMENT_SCHEMA, VERSION, type_code,
};

type Decoded<T> = Result<T, HybridRowError>;

/// Reads the operations of a batch, one more than a batch may have at most. Bodies share the stream's memory.
pub fn decode(stream: &Bytes) -> Decoded<Vec<RowOperation>> {
    let mut reader = Reader {
        stream,
        at: 0,
        end: stream.len(),
    };
    segment_header(&mut reader)?;
    let mut operations = Vec::new();
    while reader.at < reader.end && operations.len() <= BATCH_OPERATIONS_MAX {
        let n_bytes = record_header(&mut reader)?;
        let mut row = Reader {
            end: reader.at + n_bytes,
            ..reader
        };
        operations.push(operation(&mut row)?);
        reader.at = row.end;
    }
    Ok(operations)
}

/// The header says its own length; what it may hold beyond that is of no interest.
fn segment_header(reader: &mut Reader<'_>) -> Decoded<()> {
    const HEADER_BYTES: usize = 10;
    reader.row_start(SEGMENT_SCHEMA)?;
    if reader.byte()? & 1 == 0 {
        return Err(reader.error("a segment header has no length"));
    }
    let n_bytes = reader.length()?;
    match n_bytes.checked_sub(HEADER_BYTES) {
        Some(n_rest) => reader.bytes(n_rest).map(drop),
        None => Err(reader.error("a segment header is too short")),
    }
}

/// The length of the record's body, whose checksum has been compared.
fn record_header(reader: &mut Reader<'_>) -> Decoded<usize> {
    reader.row_start(RECORD_SCHEMA)?;
    let n_bytes = reader.length()?;
    let expected = u32::from_le_bytes(reader.array()?);
    let body = reader.peek(n_bytes)?;
    if crc32fast::hash(body) != expected {
        return Err(reader.error("a record's checksum is wrong"));
    }
    Ok(n_bytes)
}

/// Columns in the order of their bits in the mask.
mod column {
    pub const OPERATION_TYPE: u8 = 0;
    pub const RESOURCE_TYPE: u8 = 1;
    pub const PARTITION_KEY: u8 = 2;
    pub const EFFECTIVE_PARTITION_KEY: u8 = 3;
    pub const ID: u8 = 4;
    pub const BINARY_ID: u8 = 5;
    pub const RESOURCE_BODY: u8 = 6;
    pub const COUNT: u8 = 7;
}

const RESOURCE_TYPE_ITEM: i32 = 2;

fn operation(row: &mut Reader<'_>) -> Decoded<RowOperation> {
    row.row_start(OPERATION_SCHEMA)?;
    let mask = row.byte()?;
    if mask >> column::COUNT != 0 {
        return Err(row.error("a row has an unknown column"));
    }
    let has = |column: u8| mask & 1 << column != 0;
    if !has(column::OPERATION_TYPE) {
        return Err(row.error("an operation has no type"));
    }
    let kind = i32::from_le_bytes(row.array()?);
    let kind = RowOperationType::from_number(kind).ok_or_else(|| row.error("an operation's type is unknown"))?;
    if has(column::RESOURCE_TYPE) && i32::from_le_bytes(row.array()?) != RESOURCE_TYPE_ITEM {
        return Err(row.error("an operation is not on an item"));
    }
    let partition_key = row.optional(has(column::PARTITION_KEY), Reader::text)?;
    row.optional(has(column::EFFECTIVE_PARTITION_KEY), Reader::blob)?;
    let id = row.optional(has(column::ID), Reader::text)?;
    row.optional(has(column::BINARY_ID), Reader::blob)?;
    let body = row.optional(has(column::RESOURCE_BODY), Reader::blob)?;
    let mut operation = RowOperation {
        operation: kind,
        id,
        partition_key,
        body,
        if_match: None,
        if_none_match: None,
        indexing_directive: None,
        ttl_seconds: None,
        minimal: false,
    };
    while row.at < row.end {
        sparse(row, &mut operation)?;
    }
    Ok(operation)
}

/// Path tokens of the sparse columns. Columns have tokens in their order from 1; a path of its own has a token from here
/// on, which also says how long it is.
mod token {
    pub const INDEXING_DIRECTIVE: u64 = 8;
    pub const IF_MATCH: u64 = 9;
    pub const IF_NONE_MATCH: u64 = 10;
    pub const TIME_TO_LIVE: u64 = 11;
    pub const MINIMAL_RETURN: u64 = 12;
    pub const COUNT: u64 = 13;
}

enum Sparse {
    Bool(bool),
    Int(i32),
    Text(String),
    Other,
}

/// One sparse column. Those that mean nothing here are read over.
fn sparse(row: &mut Reader<'_>, operation: &mut RowOperation) -> Decoded<()> {
    let code = row.byte()?;
    let token = row.varuint()?;
    if let Some(n_path_bytes) = token.checked_sub(token::COUNT) {
        row.bytes(usize::try_from(n_path_bytes).unwrap_or(usize::MAX))?;
    }
    let value = match code {
        type_code::FALSE => Sparse::Bool(false),
        type_code::TRUE => Sparse::Bool(true),
        type_code::INT32 => Sparse::Int(i32::from_le_bytes(row.array()?)),
        type_code::UINT32 => row.bytes(4).map(|_| Sparse::Other)?,
        type_code::FLOAT64 => row.bytes(8).map(|_| Sparse::Other)?,
        type_code::UTF8 => Sparse::Text(row.text()?),
        type_code::BINARY => row.blob().map(|_| Sparse::Other)?,
        _ => return Err(row.error("a sparse column has an unknown type")),
    };
    match (token, value) {
        (token::INDEXING_DIRECTIVE, Sparse::Text(text)) => operation.indexing_directive = Some(text),
        (token::IF_MATCH, Sparse::Text(text)) => operation.if_match = Some(text),
        (token::IF_NONE_MATCH, Sparse::Text(text)) => operation.if_none_match = Some(text),
        (token::TIME_TO_LIVE, Sparse::Int(seconds)) => operation.ttl_seconds = Some(seconds),
        (token::MINIMAL_RETURN, Sparse::Bool(minimal)) => operation.minimal = minimal,
        (token::INDEXING_DIRECTIVE..token::COUNT, _) => return Err(row.error("a sparse column has the wrong type")),
        _ => {}
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
struct Reader<'a> {
    stream: &'a Bytes,
    at: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    fn error(&self, reason: &'static str) -> HybridRowError {
        HybridRowError {
            reason,
            offset: self.at,
        }
    }

    fn peek(&self, n_bytes: usize) -> Decoded<&'a [u8]> {
        if n_bytes > self.end - self.at {
            return Err(self.error("unexpected end"));
        }
        Ok(&self.stream[self.at..self.at + n_bytes])
    }

    fn bytes(&mut self, n_bytes: usize) -> Decoded<&'a [u8]> {
        let bytes = self.peek(n_bytes)?;
        self.at += n_bytes;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let bytes = self.bytes(N)?;
        Ok(bytes.try_into().expect("exactly that many bytes were taken"))
    }

    fn byte(&mut self) -> Decoded<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A length in four bytes, never negative.
    fn length(&mut self) -> Decoded<usize> {
        let length = i32::from_le_bytes(self.array()?);
        usize::try_from(length).map_err(|_| self.error("a length is negative"))
    }

    /// Seven bits a byte, the lowest first, all but the last marked by the top bit.
    fn varuint(&mut self) -> Decoded<u64> {
        let mut number = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.error("a number is too long"))
    }

    fn row_start(&mut self, schema: i32) -> Decoded<()> {
        if self.byte()? != VERSION {
            return Err(self.error("a row does not start with its version"));
        }
        if i32::from_le_bytes(self.array()?) != schema {
            return Err(self.error("a row has another schema than expected"));
        }
        Ok(())
    }

    fn blob(&mut self) -> Decoded<Bytes> {
        let n_bytes = usize::try_from(self.varuint()?).unwrap_or(usize::MAX);
        let start = self.at;
        self.bytes(n_bytes)?;
        Ok(self.stream.slice(start..self.at))
    }

    fn text(&mut self) -> Decoded<String> {
        let bytes = self.blob()?;
        let text = std::str::from_utf8(&bytes).map_err(|_| self.error("a text is not UTF-8"))?;
        Ok(text.to_owned())
    }

    fn optional<T>(&mut self, present: bool, read: impl FnOnce(&mut Self) -> Decoded<T>) -> Decoded<Option<T>> {
        if present { read(self).map(Some) } else { Ok(None) }
    }
}
