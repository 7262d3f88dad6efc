//! Bytes of a log: a segment's header, then groups. Described in `docs/formats/log-record.md`; a change of one is a change of
//! both.
//!
//! A group is what one sync made durable. It is written and synced before the next one begins, so at most the last group
//! of a log can be torn by a crash, and a broken group with a whole one behind it is damage.

use bytes::Bytes;

/// Number of a group in its store, counted from one without gaps.
pub(crate) type Sequence = u64;

/// Magic and format version. A reader refuses what it does not know.
const MAGIC: [u8; 8] = *b"ORRYLOG\x01";
const GROUP_MAGIC: [u8; 4] = *b"\xA7grp";
pub(crate) const HEADER_BYTES: usize = 32;
pub(crate) const GROUP_HEADER_BYTES: usize = 20;

/// What a segment says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Random, and part of every checksum, so that no stored document can pass for a group.
    pub(crate) salt: u64,
    /// The sequence of its first group.
    pub(crate) first: Sequence,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.salt.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..24]);
        bytes[24..28].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `None` when the bytes are not a header this version wrote.
    pub(crate) fn decode(bytes: &[u8]) -> Option<SegmentHeader> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        let is_ours = bytes[..8] == MAGIC && crc32fast::hash(&bytes[..24]) == u32_at(bytes, 24)?;
        is_ours.then_some(SegmentHeader {
            salt: u64_at(bytes, 8)?,
            first: u64_at(bytes, 16)?,
        })
    }
}

/// A group while its records are being gathered.
#[derive(Debug)]
pub(crate) struct GroupWriter {
    bytes: Vec<u8>,
}

impl GroupWriter {
    pub(crate) fn new() -> GroupWriter {
        GroupWriter {
            bytes: vec![0; GROUP_HEADER_BYTES],
        }
    }

    /// Adds a record; answers where its body begins, from the start of the group.
    pub(crate) fn push(&mut self, kind: u8, log: u64, body: &[u8]) -> u32 {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(&log.to_le_bytes());
        self.bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(body);
        at
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The finished group.
    pub(crate) fn finish(&mut self, salt: u64, sequence: Sequence) -> &[u8] {
        let length = (self.bytes.len() - GROUP_HEADER_BYTES) as u32;
        let checksum = checksum(salt, sequence, &self.bytes[GROUP_HEADER_BYTES..]);
        self.bytes[..4].copy_from_slice(&GROUP_MAGIC);
        self.bytes[4..8].copy_from_slice(&length.to_le_bytes());
        self.bytes[8..16].copy_from_slice(&sequence.to_le_bytes());
        self.bytes[16..20].copy_from_slice(&checksum.to_le_bytes());
        &self.bytes
    }
}

#[cfg(feature = "nats")]
impl GroupWriter {
    /// The finished group, on its own.
    pub(crate) fn into_bytes(mut self, salt: u64, sequence: Sequence) -> Bytes {
        self.finish(salt, sequence);
        self.bytes.into()
    }
}

/// A whole group as found in a segment.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) sequence: Sequence,
    /// Where the group begins in its segment.
    pub(crate) offset: u32,
    /// Header and records.
    bytes: Bytes,
}

/// One record of a group.
#[derive(Clone, Debug)]
pub(crate) struct RawRecord {
    pub(crate) kind: u8,
    pub(crate) log: u64,
    /// Where the body begins in the segment.
    pub(crate) offset: u32,
    pub(crate) body: Bytes,
}

impl Group {
    /// The whole group at `offset`, or `None`.
    pub(crate) fn read(segment: &Bytes, offset: usize, salt: u64) -> Option<Group> {
        let rest = segment.get(offset..)?;
        if rest.len() < GROUP_HEADER_BYTES || rest[..4] != GROUP_MAGIC {
            return None;
        }
        let end = GROUP_HEADER_BYTES.checked_add(u32_at(rest, 4)? as usize)?;
        let sequence = u64_at(rest, 8)?;
        let payload = rest.get(GROUP_HEADER_BYTES..end)?;
        let is_whole = checksum(salt, sequence, payload) == u32_at(rest, 16)?;
        is_whole.then(|| Group {
            sequence,
            offset: offset as u32,
            bytes: segment.slice(offset..offset + end),
        })
    }

    /// Is there a whole group anywhere from `offset` on?
    pub(crate) fn any_from(segment: &Bytes, offset: usize, salt: u64) -> bool {
        let tail = segment.get(offset..).unwrap_or_default();
        let starts = tail
            .windows(GROUP_MAGIC.len())
            .enumerate()
            .filter(|(_, window)| *window == GROUP_MAGIC);
        starts
            .into_iter()
            .any(|(at, _)| Group::read(segment, offset + at, salt).is_some())
    }

    /// Where the next group begins in the segment.
    pub(crate) fn end(&self) -> usize {
        self.offset as usize + self.bytes.len()
    }

    /// Its records, or `None` when they do not fill the group exactly.
    pub(crate) fn records(&self) -> Option<Vec<RawRecord>> {
        let mut records = Vec::new();
        let mut at = GROUP_HEADER_BYTES;
        while at < self.bytes.len() {
            let kind = self.bytes[at];
            let log = u64_at(&self.bytes, at + 1)?;
            let begin = at + 13;
            let end = begin.checked_add(u32_at(&self.bytes, at + 9)? as usize)?;
            if end > self.bytes.len() {
                return None;
            }
            records.push(RawRecord {
                kind,
                log,
                offset: self.offset + begin as u32,
                body: self.bytes.slice(begin..end),
            });
            at = end;
        }
        Some(records)
    }
}

fn checksum(salt: u64, sequence: Sequence, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&sequence.to_le_bytes());
    hasher.update(&(payload.len() as u32).to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SALT: u64 = 42;

    fn group(sequence: Sequence, bodies: &[&[u8]]) -> Vec<u8> {
        let mut writer = GroupWriter::new();
        for (log, body) in bodies.iter().enumerate() {
            writer.push(1, log as u64, body);
        }
        writer.finish(SALT, sequence).to_vec()
    }

    #[test]
    fn a_group_gives_back_its_records_and_where_they_stand() {
        let segment = Bytes::from(group(7, &[b"one", b"", b"three"]));
        let found = Group::read(&segment, 0, SALT).unwrap();
        let records = found.records().unwrap();
        assert_eq!((found.sequence, found.end()), (7, segment.len()));
        assert_eq!(
            records.iter().map(|record| &record.body[..]).collect::<Vec<_>>(),
            [&b"one"[..], b"", b"three"]
        );
        for record in records {
            let at = record.offset as usize;
            assert_eq!(&segment[at..at + record.body.len()], &record.body[..]);
        }
    }

    #[test]
    fn a_group_under_another_salt_is_no_group() {
        let segment = Bytes::from(group(7, &[b"one"]));
        assert!(Group::read(&segment, 0, SALT + 1).is_none());
    }

    #[test]
    fn a_whole_group_is_found_behind_a_broken_one() {
        let first = group(1, &[b"one"]);
        let bytes = [first.as_slice(), &group(2, &[b"two"])].concat();
        let mut broken = bytes.clone();
        broken[GROUP_HEADER_BYTES] ^= 1;
        assert!(Group::read(&Bytes::from(broken.clone()), 0, SALT).is_none());
        assert!(Group::any_from(&Bytes::from(broken), 1, SALT));
        assert!(!Group::any_from(&Bytes::from(bytes), first.len() + 1, SALT));
    }

    #[test]
    fn a_header_is_what_was_written_or_nothing() {
        let header = SegmentHeader { salt: 5, first: 9 };
        let bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Some(header));
        for at in 0..28 {
            let mut damaged = bytes;
            damaged[at] ^= 0x10;
            assert_eq!(SegmentHeader::decode(&damaged), None, "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn any_changed_byte_of_a_group_is_noticed(at in 0usize..80, flip in 1u8..) {
            let mut bytes = group(3, &[b"some record", b"and another one of them"]);
            let at = at % bytes.len();
            bytes[at] ^= flip;
            prop_assert!(Group::read(&Bytes::from(bytes), 0, SALT).is_none());
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let bytes = Bytes::from([GROUP_MAGIC.as_slice(), &bytes].concat());
            let _ = Group::any_from(&bytes, 0, SALT);
            let group = Group { sequence: 1, offset: 0, bytes };
            let _ = group.records();
        }
    }
}
