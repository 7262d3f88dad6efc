//! Version tags: 16 bytes shown as a GUID inside quotes, and the conditions a client may put on them.

use std::fmt;

use crate::id::{Lsn, PartitionId};

/// The version of one resource. Two versions of one resource never share a tag, also across a restored snapshot, because
/// the LSN in it never repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Etag(pub [u8; 16]);

impl Etag {
    /// The tag of operation `index` of transaction `lsn` in one partition of the container whose own id is `salt`.
    pub fn of(salt: [u8; 4], partition: PartitionId, lsn: Lsn, index: usize) -> Etag {
        let mut bytes = [0; 16];
        bytes[0..4].copy_from_slice(&salt);
        bytes[4..6].copy_from_slice(&(partition.0 as u16).to_be_bytes());
        bytes[6..8].copy_from_slice(&(index as u16).to_be_bytes());
        bytes[8..16].copy_from_slice(&lsn.0.to_be_bytes());
        Etag(bytes)
    }
}

impl Etag {
    /// What [`Etag`] displays. Every answer carries a tag, so this is done without the formatting machinery.
    pub fn quoted(self) -> String {
        let text = self.to_text();
        str::from_utf8(&text).expect("digits, dashes and quotes").to_owned()
    }

    /// The characters a client sees.
    fn to_text(self) -> [u8; 38] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'-'; 38];
        (text[0], text[37]) = (b'"', b'"');
        let mut at = 1;
        for (index, byte) in self.0.iter().enumerate() {
            at += usize::from(matches!(index, 4 | 6 | 8 | 10));
            text[at] = DIGITS[usize::from(byte >> 4)];
            text[at + 1] = DIGITS[usize::from(byte & 15)];
            at += 2;
        }
        text
    }
}

/// With the quotes that belong to the value.
impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.to_text()).map_err(|_| fmt::Error)?)
    }
}

/// What a client asks of the current version before its operation may happen. Tags are kept as sent: a tag we never
/// issued simply never matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    #[default]
    None,
    IfMatch(String),
    IfNoneMatch(String),
}

impl Precondition {
    /// Does the condition hold for a resource with this tag (`None`: it does not exist)? `If-None-Match` on a write fails
    /// only for `*` and an existing resource, or an equal tag.
    pub fn holds(&self, current: Option<&Etag>) -> bool {
        match self {
            Precondition::None => true,
            Precondition::IfMatch(tag) => current.is_some_and(|etag| matches(tag, etag)),
            Precondition::IfNoneMatch(tag) => !current.is_some_and(|etag| matches(tag, etag)),
        }
    }
}

fn matches(tag: &str, etag: &Etag) -> bool {
    let bare = |text: &str| text.trim().trim_matches('"').to_ascii_lowercase();
    tag.trim() == "*" || bare(tag) == bare(&etag.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG: Etag = Etag([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

    #[test]
    fn a_tag_prints_as_a_guid_in_quotes() {
        assert_eq!(ETAG.to_string(), "\"00010203-0405-0607-0809-0a0b0c0d0e0f\"");
    }

    #[test]
    fn tags_of_different_versions_differ() {
        let tag = |partition, lsn, index| Etag::of([1, 2, 3, 4], PartitionId(partition), Lsn(lsn), index);
        let first = tag(1, 1, 0);
        for other in [
            tag(2, 1, 0),
            tag(1, 2, 0),
            tag(1, 1, 1),
            Etag::of([0; 4], PartitionId(1), Lsn(1), 0),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn a_condition_holds_for_the_tags_it_should() {
        let if_match = |tag: &str| Precondition::IfMatch(tag.to_owned());
        let if_none_match = |tag: &str| Precondition::IfNoneMatch(tag.to_owned());
        let own = ETAG.to_string();
        let bare_upper = own.trim_matches('"').to_uppercase();
        assert!(Precondition::None.holds(None) && Precondition::None.holds(Some(&ETAG)));
        for tag in [own.as_str(), bare_upper.as_str(), "*", " * "] {
            assert!(if_match(tag).holds(Some(&ETAG)), "{tag}");
            assert!(!if_none_match(tag).holds(Some(&ETAG)), "{tag}");
            assert!(!if_match(tag).holds(None), "{tag}");
            assert!(if_none_match(tag).holds(None), "{tag}");
        }
        for tag in ["", "\"\"", "\"00010203-0405-0607-0809-0a0b0c0d0e00\"", "nonsense"] {
            assert!(!if_match(tag).holds(Some(&ETAG)), "{tag}");
            assert!(if_none_match(tag).holds(Some(&ETAG)), "{tag}");
        }
    }
}
