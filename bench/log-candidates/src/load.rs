//! The bytes every candidate stores.

use bytes::{BufMut, Bytes, BytesMut};

/// One document on its way in: its log record and the view entries it implies.
pub struct Document {
    pub log: u64,
    pub lsn: u64,
    pub record: Vec<u8>,
    pub entries: Vec<(Bytes, Bytes)>,
}

/// A 1 KB document with the entries a default indexing policy implies.
pub fn document(log: u64, lsn: u64) -> Document {
    let mut random = log.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ lsn.wrapping_mul(0xD1B5_4A32_D192_ED03) | 1;
    let body = text(&mut random, 1024);
    let epk = next(&mut random).to_be_bytes();
    let mut entries = vec![
        (
            key(log, 1, &[&epk, &lsn.to_be_bytes()]),
            Bytes::from([&[0; 48], body.as_slice()].concat()),
        ),
        (
            key(log, 2, &[&lsn.to_be_bytes(), b"identity"]),
            Bytes::copy_from_slice(&epk),
        ),
        (key(log, 3, &[&lsn.to_be_bytes()]), Bytes::copy_from_slice(&epk)),
    ];
    for path in 0..10u64 {
        let term = next(&mut random).to_be_bytes();
        entries.push((
            key(log, 4, &[&path.to_be_bytes(), &term, &epk, &lsn.to_be_bytes()]),
            Bytes::new(),
        ));
    }
    let record = [&[0; 64], body.as_slice()].concat();
    Document {
        log,
        lsn,
        record,
        entries,
    }
}

/// A key of one log: its id, the kind of entry, then `parts`.
pub fn key(log: u64, kind: u8, parts: &[&[u8]]) -> Bytes {
    let mut key = BytesMut::with_capacity(64);
    key.put_u64(log);
    key.put_u8(kind);
    parts.iter().for_each(|part| key.put_slice(part));
    key.freeze()
}

/// Text that compresses about as well as JSON does.
fn text(random: &mut u64, length: usize) -> Vec<u8> {
    let words: [&[u8]; 8] = [
        b"\"name\":\"",
        b"\",\"value\":",
        b"published",
        b"\",\"tags\":[",
        b"2026-11-15T",
        b"region",
        b"true,",
        b"null,",
    ];
    let mut text = Vec::with_capacity(length + 16);
    while text.len() < length {
        let choice = next(random);
        text.extend_from_slice(words[(choice % 8) as usize]);
        text.extend_from_slice(format!("{:x}", choice >> 40).as_bytes());
    }
    text.truncate(length);
    text
}

fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}
