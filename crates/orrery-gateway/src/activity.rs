//! Activity ids: the name by which client and server both know a request.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;
use ring::rand::{SecureRandom, SystemRandom};

const CHARACTERS: usize = 36;

/// The text of a UUID, in the case it came in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ActivityId([u8; CHARACTERS]);

impl ActivityId {
    /// `None` for anything but hex digits and dashes where a UUID has them.
    pub fn parse(text: &[u8]) -> Option<ActivityId> {
        let text: [u8; CHARACTERS] = text.try_into().ok()?;
        let fits = |(index, character): (usize, &u8)| match index {
            8 | 13 | 18 | 23 => *character == b'-',
            _ => character.is_ascii_hexdigit(),
        };
        text.iter().enumerate().all(fits).then_some(ActivityId(text))
    }

    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("hex digits and dashes are text")
    }

    pub fn to_value(self) -> HeaderValue {
        HeaderValue::from_bytes(&self.0).expect("hex digits and dashes are a header value")
    }
}

impl fmt::Debug for ActivityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ActivityId({})", self.as_str())
    }
}

/// Makes ids that look like random UUIDs. They need to be unique, not secret: a counter scrambled with two seeds.
#[derive(Debug)]
pub struct ActivityIds {
    seeds: [u64; 2],
    counter: AtomicU64,
}

impl ActivityIds {
    pub fn new() -> ActivityIds {
        let mut bytes = [[0; 8]; 2];
        for part in &mut bytes {
            // Without randomness ids are still unique within this process.
            let _ = SystemRandom::new().fill(part);
        }
        ActivityIds {
            seeds: bytes.map(u64::from_le_bytes),
            counter: AtomicU64::new(0),
        }
    }

    pub fn next(&self) -> ActivityId {
        let n = self.counter.fetch_add(1, Ordering::Relaxed);
        let high = scramble(self.seeds[0].wrapping_add(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        let low = scramble(self.seeds[1] ^ n);
        ActivityId(uuid(high, low))
    }
}

/// The finaliser of SplitMix64: one to one, so different numbers stay different.
fn scramble(mut n: u64) -> u64 {
    n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

/// The text of a version 4 UUID with these bits.
fn uuid(high: u64, low: u64) -> [u8; CHARACTERS] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let high = (high & !0xF000) | 0x4000;
    let low = (low & !(0b11 << 62)) | (0b10 << 62);
    let bits = (u128::from(high) << 64) | u128::from(low);
    let mut text = [b'-'; CHARACTERS];
    let mut at = 0;
    for (index, byte) in bits.to_be_bytes().into_iter().enumerate() {
        at += usize::from(matches!(index, 4 | 6 | 8 | 10));
        text[at] = DIGITS[usize::from(byte >> 4)];
        text[at + 1] = DIGITS[usize::from(byte & 0xF)];
        at += 2;
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_version_4_uuids_and_never_repeat() {
        let ids = ActivityIds::new();
        let mut seen = HashSet::new();
        for _ in 0..10_000 {
            let id = ids.next();
            let text = id.as_str().to_owned();
            assert_eq!(ActivityId::parse(text.as_bytes()), Some(id));
            assert_eq!(&text[14..15], "4");
            assert!(matches!(&text[19..20], "8" | "9" | "a" | "b"), "{text}");
            assert!(seen.insert(text));
        }
    }

    #[test]
    fn bits_are_shown_from_the_highest_down() {
        assert_eq!(
            &uuid(0x0123_4567_89AB_CDEF, 0x8123_4567_89AB_CDEF),
            b"01234567-89ab-4def-8123-456789abcdef"
        );
    }
}
