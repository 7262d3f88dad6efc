//! Taking bytes off a buffer, never past its end, and keeping account of what they grow to.

use orrery_model::limits::REQUEST_BYTES_MAX;

use super::BinaryJsonError;

/// A position in a buffer. Reading stops at `end`, which nested values move inwards.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub buffer: &'a [u8],
    pub at: usize,
    pub end: usize,
    /// Bytes of JSON text that the value may still grow by.
    budget: usize,
}

impl<'a> Reader<'a> {
    pub fn new(buffer: &'a [u8]) -> Reader<'a> {
        Reader {
            buffer,
            at: 0,
            end: buffer.len(),
            budget: REQUEST_BYTES_MAX,
        }
    }

    pub fn error(&self, reason: &'static str) -> BinaryJsonError {
        BinaryJsonError {
            reason,
            offset: self.at,
        }
    }

    pub fn bytes(&mut self, n_bytes: usize) -> Result<&'a [u8], BinaryJsonError> {
        if n_bytes > self.end - self.at {
            return Err(self.error("unexpected end"));
        }
        let bytes = &self.buffer[self.at..self.at + n_bytes];
        self.at += n_bytes;
        Ok(bytes)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], BinaryJsonError> {
        let bytes = self.bytes(N)?;
        Ok(bytes.try_into().expect("exactly that many bytes were taken"))
    }

    pub fn byte(&mut self) -> Result<u8, BinaryJsonError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// A little-endian number of `n_bytes` bytes, at most four.
    pub fn size(&mut self, n_bytes: usize) -> Result<usize, BinaryJsonError> {
        let bytes = self.bytes(n_bytes)?;
        Ok(bytes
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Accounts for text the value grows by.
    pub fn spend(&mut self, n_text_bytes: usize) -> Result<(), BinaryJsonError> {
        match self.budget.checked_sub(n_text_bytes) {
            Some(rest) => {
                self.budget = rest;
                Ok(())
            }
            None => Err(self.error("the value is too large")),
        }
    }
}
