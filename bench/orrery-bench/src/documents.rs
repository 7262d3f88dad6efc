//! The documents every subject stores: about 1 KB each, made from nothing but their number, so that each run and each
//! subject sees the same bytes.

use std::fmt::Write as _;

/// Size of every document's text.
pub const DOCUMENT_BYTES: usize = 1024;
/// Number of logical partitions.
pub const N_KEYS: u64 = 1000;

/// Different values of `rank`.
pub const N_RANKS: u64 = 1_000_000;

const WORDS: [&str; 8] = [
    "planet", "orbit", "gear", "lantern", "meridian", "brass", "comet", "index",
];

pub fn id(number: u64) -> String {
    format!("d{number:09}")
}

pub fn partition_key(number: u64) -> String {
    format!("k{:03}", number % N_KEYS)
}

/// A document with ten scalar values besides its id and its key, `revision` among them.
pub fn document(number: u64, revision: u64) -> String {
    let mut random = Random::new(number ^ revision << 40);
    let mut text = String::with_capacity(DOCUMENT_BYTES + 16);
    let _ = write!(
        text,
        "{{\"id\":\"{}\",\"pk\":\"{}\",\"revision\":{revision},\"rank\":{},\"active\":{},\"owner\":{{\"name\":\"{}\",\"age\":{}}},\
         \"tags\":[\"{}\",\"{}\",\"{}\"],\"score\":{}.5,\"text\":\"",
        id(number),
        partition_key(number),
        random.below(N_RANKS),
        random.below(2) == 0,
        random.word(),
        random.below(100),
        random.word(),
        random.word(),
        random.word(),
        random.below(1000),
    );
    while text.len() < DOCUMENT_BYTES - 2 {
        let _ = write!(text, "{} {:x} ", random.word(), random.below(1 << 24));
    }
    text.truncate(DOCUMENT_BYTES - 2);
    text.push_str("\"}");
    text
}

/// The `rank` of a document as it was created.
pub fn rank(number: u64) -> u64 {
    Random::new(number).below(N_RANKS)
}

/// A small, quick generator: the same seed gives the same run.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_json_of_the_promised_size_with_its_own_id_and_key() {
        for number in [0, 7, 123_456_789] {
            let text = document(number, 3);
            let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(text.len(), DOCUMENT_BYTES);
            assert_eq!(parsed["id"], id(number));
            assert_eq!(parsed["pk"], partition_key(number));
            assert_eq!(parsed["revision"], 3);
        }
    }
}
