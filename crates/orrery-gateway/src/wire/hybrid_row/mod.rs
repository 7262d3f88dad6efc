//! HybridRow RecordIO: the form in which the .NET client sends batches and reads their results.
//!
//! A stream is a segment header and records, each a header with length and checksum and a body that is one row. A row is
//! a version byte, the id of its schema, a mask of which columns are there, the fixed and then the variable columns, and
//! sparse columns up to its end. Integers are little-endian. Only the two schemas of batches exist here.
//!
//! This knows nothing of what operations mean: it turns bytes into [`RowOperation`]s and [`RowResult`]s into bytes.

use std::fmt;

use bytes::Bytes;

mod decode;
mod encode;

pub use decode::decode;
pub use encode::encode;

/// First byte of every stream and row. No JSON text starts with it.
pub const VERSION: u8 = 0x81;

const SEGMENT_SCHEMA: i32 = 2_147_473_648;
const RECORD_SCHEMA: i32 = 2_147_473_649;
const OPERATION_SCHEMA: i32 = 2_145_473_648;
const RESULT_SCHEMA: i32 = 2_145_473_649;

/// Type codes of sparse columns.
mod type_code {
    pub const FALSE: u8 = 2;
    pub const TRUE: u8 = 3;
    pub const INT32: u8 = 7;
    pub const UINT32: u8 = 11;
    pub const FLOAT64: u8 = 16;
    pub const UTF8: u8 = 20;
    pub const BINARY: u8 = 21;
}

/// What a step of a batch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOperationType {
    Create,
    Patch,
    Read,
    Delete,
    Replace,
    Upsert,
}

impl RowOperationType {
    fn from_number(number: i32) -> Option<RowOperationType> {
        Some(match number {
            0 => RowOperationType::Create,
            1 => RowOperationType::Patch,
            2 => RowOperationType::Read,
            4 => RowOperationType::Delete,
            5 => RowOperationType::Replace,
            20 => RowOperationType::Upsert,
            _ => return None,
        })
    }
}

/// One step of a batch as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowOperation {
    pub operation: RowOperationType,
    pub id: Option<String>,
    /// The key as a JSON array, as in the header of a single operation.
    pub partition_key: Option<String>,
    /// JSON, as text or binary.
    pub body: Option<Bytes>,
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    pub indexing_directive: Option<String>,
    pub ttl_seconds: Option<i32>,
    /// The result may come without content.
    pub minimal: bool,
}

/// What is answered for one step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RowResult<'a> {
    pub status: u16,
    pub sub_status: u32,
    pub etag: Option<&'a str>,
    pub body: Option<&'a [u8]>,
    pub retry_after_ms: Option<u32>,
    pub charge: Option<f64>,
}

/// Where and why bytes are not a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HybridRowError {
    pub reason: &'static str,
    pub offset: usize,
}

impl fmt::Display for HybridRowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.reason, self.offset)
    }
}

impl std::error::Error for HybridRowError {}

#[cfg(test)]
mod tests;
