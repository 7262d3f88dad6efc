//! Cuts a stream of JSON into its objects: one per line, one after the other, or the elements of one array.
//!
//! Only brackets and strings are looked at, so memory is bounded by the longest object. Whether an object is valid JSON is
//! for its reader to find out.

use std::io::{self, BufRead};

use bytes::Bytes;

/// Longest object: an item of the largest size with room for blanks.
const OBJECT_BYTES_MAX: usize = 8 << 20;

/// An object and where it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub text: Bytes,
    /// Bytes from the beginning of the stream to the end of the object.
    pub end: u64,
}

#[derive(Debug)]
pub struct JsonItems<R> {
    input: R,
    /// Bytes consumed so far.
    offset: u64,
}

impl<R: BufRead> JsonItems<R> {
    pub fn new(input: R) -> JsonItems<R> {
        JsonItems { input, offset: 0 }
    }

    /// Passes over what an earlier run has dealt with.
    pub fn skip_to(&mut self, offset: u64) -> io::Result<()> {
        while self.offset < offset {
            let n_available = self.input.fill_buf()?.len();
            if n_available == 0 {
                return Err(invalid(format!(
                    "the input ends at byte {}, before byte {offset}",
                    self.offset
                )));
            }
            let n_wanted = usize::try_from(offset - self.offset).unwrap_or(usize::MAX);
            self.consume(n_available.min(n_wanted));
        }
        Ok(())
    }

    fn consume(&mut self, n_bytes: usize) {
        self.input.consume(n_bytes);
        self.offset += n_bytes as u64;
    }

    /// Goes to the next `{`. Between objects there may be blanks, commas and the brackets of an array.
    fn find_object(&mut self) -> io::Result<bool> {
        loop {
            let buffer = self.input.fill_buf()?;
            let n_bytes = buffer.len();
            if n_bytes == 0 {
                return Ok(false);
            }
            // A mark of the byte order, which some editors put first.
            let between = |byte: &u8| {
                matches!(
                    byte,
                    b' ' | b'\t' | b'\r' | b'\n' | b',' | b'[' | b']' | 0xEF | 0xBB | 0xBF
                )
            };
            match buffer.iter().position(|byte| !between(byte)) {
                None => self.consume(n_bytes),
                Some(index) => {
                    let byte = buffer[index];
                    self.consume(index);
                    return match byte {
                        b'{' => Ok(true),
                        _ => Err(invalid(format!("an object must begin at byte {}", self.offset))),
                    };
                }
            }
        }
    }

    fn read_object(&mut self) -> io::Result<Found> {
        let start = self.offset;
        let mut text = Vec::new();
        let mut scan = Scan::default();
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                return Err(invalid(format!("the object that begins at byte {start} does not end")));
            }
            let end = buffer.iter().position(|byte| scan.closes(*byte));
            let n_bytes = end.map_or(buffer.len(), |index| index + 1);
            text.extend_from_slice(&buffer[..n_bytes]);
            self.consume(n_bytes);
            if end.is_some() {
                return Ok(Found {
                    text: text.into(),
                    end: self.offset,
                });
            }
            if text.len() > OBJECT_BYTES_MAX {
                return Err(invalid(format!("the object that begins at byte {start} is too long")));
            }
        }
    }
}

impl<R: BufRead> Iterator for JsonItems<R> {
    type Item = io::Result<Found>;

    fn next(&mut self) -> Option<io::Result<Found>> {
        match self.find_object() {
            Ok(true) => Some(self.read_object()),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// How deep in brackets and whether in a string.
#[derive(Debug, Default)]
struct Scan {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Scan {
    /// Takes the next byte. Is it the last of the object?
    fn closes(&mut self, byte: u8) -> bool {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => return false,
        }
        self.depth == 0 && !self.in_string
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn texts(input: &str) -> io::Result<Vec<String>> {
        // A tiny buffer, so that every object is cut somewhere.
        let items = JsonItems::new(BufReader::with_capacity(3, input.as_bytes()));
        items
            .map(|found| found.map(|found| String::from_utf8(found.text.to_vec()).unwrap()))
            .collect()
    }

    #[test]
    fn lines_arrays_and_neighbours_give_the_same_objects() {
        let expected = [r#"{"a":"}]{\"\\"}"#, r#"{"b":[{"c":{}},[]]}"#];
        for (begin, between, end) in [
            ("", "\n", ""),
            ("", "\r\n\r\n", "\n"),
            ("[", ",\n ", "]\n"),
            ("", "", ""),
            ("\u{feff}", "\n", ""),
        ] {
            let input = format!("{begin}{}{between}{}{end}", expected[0], expected[1]);
            assert_eq!(texts(&input).unwrap(), expected, "{input}");
        }
        assert_eq!(texts(" [ ] ").unwrap(), [""; 0]);
    }

    #[test]
    fn what_is_not_an_object_is_refused_where_it_begins() {
        assert!(texts("{}\n5").unwrap_err().to_string().contains("byte 3"));
        assert!(texts("{\"a\":1").unwrap_err().to_string().contains("does not end"));
    }

    #[test]
    fn reading_goes_on_after_the_end_of_any_object() {
        let input = r#"[{"n":1}, {"n":2}, {"n":3}]"#;
        let all: Vec<Found> = JsonItems::new(input.as_bytes()).map(Result::unwrap).collect();
        for (index, found) in all.iter().enumerate() {
            let mut rest = JsonItems::new(input.as_bytes());
            rest.skip_to(found.end).unwrap();
            assert_eq!(rest.map(Result::unwrap).collect::<Vec<_>>(), all[index + 1..]);
        }
        assert!(JsonItems::new(input.as_bytes()).skip_to(1000).is_err());
    }
}
