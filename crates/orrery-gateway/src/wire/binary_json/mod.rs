//! Binary JSON: the compact form of items that some clients send instead of text.
//!
//! A buffer is the byte `80` and one value. A value is a marker byte, whose range says what it is, and a payload; numbers
//! are little-endian. Decoding takes the complete table of markers; encoding writes the few plain ones every client reads.
//!
//! Whatever the bytes are, decoding ends in a value or an error: every length is checked against the bytes that are
//! there, nesting is bounded like that of text, and so is the text the value would print as, because short references to a
//! long string and repeated empty arrays could otherwise grow out of proportion.

use std::fmt;

use orrery_model::Value;

mod decode;
mod encode;
mod reader;
mod strings;

/// First byte of every buffer. No JSON text starts with it.
pub const PREAMBLE: u8 = 0x80;

/// Where and why bytes are not binary JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryJsonError {
    pub reason: &'static str,
    pub offset: usize,
}

impl fmt::Display for BinaryJsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.reason, self.offset)
    }
}

impl std::error::Error for BinaryJsonError {}

/// Reads one buffer, nothing after its value.
pub fn decode(buffer: &[u8]) -> Result<Value, BinaryJsonError> {
    decode::buffer(buffer)
}

/// Writes one buffer.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut out = vec![PREAMBLE];
    encode::value(value, &mut out);
    out
}

#[cfg(test)]
mod tests;
